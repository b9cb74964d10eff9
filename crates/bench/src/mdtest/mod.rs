//! `forebay bench mdtest`: processes that create, stat and remove directories and files together, on any directory.
//!
//! The flags are mdtest's where mdtest has one, but `-N` is the number of processes, as in `bench ior`. A phase lasts
//! from the common start to the end of the last operation of any process.

mod args;

pub use args::MdtestArgs;

use forebay_command::error::CliResult;

use super::{
    names::{Run, Site, end_at_signals, or_interrupted},
    report::{Report, Row},
};

/// Runs the benchmark and prints its report.
pub fn run(args: &MdtestArgs) -> CliResult {
    args.validate()?;
    end_at_signals();
    let rows = measure(args).map_err(or_interrupted)?;
    Report { bench: "mdtest", headline: args.headline(), parameters: args.parameters(), rows }.print(args.json);
    Ok(())
}

fn measure(args: &MdtestArgs) -> CliResult<Vec<Row>> {
    let plan = args.plan();
    let site = if args.creates() { Site::make(&args.dirs, &args.name) } else { Site::find(&args.dirs, &args.name) }?;
    let mut run = Run::start(&plan, site, |rank| args.task_config(rank, &plan))?;
    for repetition in 0..args.repetitions {
        args.phases().into_iter().try_for_each(|op| run.phase(op, repetition))?;
    }
    let (site, rows) = run.end();
    if args.removes() {
        site.finish()?;
    } else {
        site.keep();
    }
    Ok(rows)
}
