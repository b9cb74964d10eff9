//! Chores of the project: `cargo run --release -p xtask -- figures [--quick]`, `... -- suites [--quick]`,
//! `... -- histories [--minutes N]`, `... -- crashes [--kills N] [--power-cuts N]`, `... -- planted`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod crashes;
mod figures;
mod histories;
mod planted;
mod suites;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((task, rest)) if task == "figures" => figures::run(rest),
        Some((task, rest)) if task == "suites" => suites::run(rest),
        Some((task, rest)) if task == "histories" => histories::run(rest),
        Some((task, rest)) if task == "histories-worker" => histories::run_worker(rest),
        Some((task, rest)) if task == "planted" => planted::run(rest),
        Some((task, rest)) if task == "crashes" => crashes::run(rest),
        Some((task, rest)) if task == "crashes-worker" => crashes::run_worker(rest),
        Some((task, rest)) if task == "crashes-probe" => crashes::run_probe(rest),
        _ => Err(format!(
            "usage: cargo run --release -p xtask -- figures [--quick] [--dir DIR] [--only NAME,NAME]\n       \
             cargo run --release -p xtask -- {}\n       \
             cargo run --release -p xtask -- {}\n       \
             cargo run --release -p xtask -- {}\n       \
             cargo run --release -p xtask -- {}",
            suites::USAGE,
            histories::USAGE,
            crashes::USAGE,
            planted::USAGE
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
