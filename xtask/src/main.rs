//! Chores of the project: `cargo run --release -p xtask -- figures [--quick]`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod figures;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.split_first() {
        Some((task, rest)) if task == "figures" => figures::run(rest),
        _ => Err("usage: cargo run --release -p xtask -- figures [--quick] [--dir DIR] [--only NAME,NAME]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
