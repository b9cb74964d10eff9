//! Chores of the project. `cargo run --release -p xtask -- --help` lists them.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod code;
#[path = "../../crates/cli/src/command_tree.rs"]
mod command_tree;
mod crashes;
mod develop;
mod differential;
mod every_command;
mod figures;
mod histories;
mod hosts;
mod laboratory;
mod package;
mod pairs;
mod planted;
mod sensitivity;
mod suites;

use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser};

/// Chores of the project: daily checks, figures, long suites, crashes
#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo run --release -p xtask --")]
enum Task {
    Check(develop::Check),
    Test(develop::Test),
    Seed(develop::Seed),
    Bless(develop::Bless),
    Code(code::Plan),
    Figures(figures::Plan),
    Suites(suites::Plan),
    Histories(histories::Plan),
    Crashes(crashes::Plan),
    Pairs(pairs::Plan),
    Differential(differential::Plan),
    Planted(planted::Plan),
    Sensitivity(sensitivity::Plan),
    Laboratory(laboratory::Plan),
    Hosts(hosts::Plan),
    EveryCommand(every_command::Plan),
    Package(package::Plan),
    #[command(hide = true)]
    HistoriesWorker(Words),
    #[command(hide = true)]
    CrashesWorker(Words),
    #[command(hide = true)]
    CrashesProbe(Words),
    #[command(hide = true, name = command_tree::COMMAND)]
    CommandTree,
}

/// What one of our processes is told by another.
#[derive(Args)]
struct Words {
    words: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Check(plan) => develop::check(&plan),
        Task::Test(plan) => develop::test(&plan),
        Task::Seed(plan) => develop::seed(&plan),
        Task::Bless(plan) => develop::bless(&plan),
        Task::Code(plan) => code::run(&plan),
        Task::Figures(plan) => figures::run(&plan),
        Task::Suites(plan) => suites::run(&plan),
        Task::Histories(plan) => histories::run(&plan),
        Task::Crashes(plan) => crashes::run(&plan),
        Task::Pairs(plan) => pairs::run(&plan),
        Task::Differential(plan) => differential::run(&plan),
        Task::Planted(plan) => planted::run(&plan),
        Task::Sensitivity(plan) => sensitivity::run(&plan),
        Task::Laboratory(plan) => laboratory::run(&plan),
        Task::Hosts(plan) => hosts::run(&plan),
        Task::EveryCommand(plan) => every_command::run(&plan),
        Task::Package(plan) => package::run(&plan),
        Task::HistoriesWorker(told) => histories::run_worker(&told.words),
        Task::CrashesWorker(told) => crashes::run_worker(&told.words),
        Task::CrashesProbe(told) => crashes::run_probe(&told.words),
        Task::CommandTree => {
            println!("{}", command_tree::of(Task::command()));
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
