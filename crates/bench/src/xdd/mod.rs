//! `forebay bench xdd`: throughput of devices, files or directories, many requests in flight, several targets at once.
//!
//! A thread per request in flight, with O_DIRECT `pread` and `pwrite`. Rates count from the common start of all threads
//! of all targets to the end of the last one.
//! Invariant: nothing that existed before is written without `--overwrite`.

mod args;
mod run;
mod target;

pub use args::{Access, Operation, XddArgs};

use forebay_command::{error::CliResult, units::show_bytes};

use crate::report::{Report, Row};

/// Runs the benchmark and prints its report.
pub fn run(args: &XddArgs) -> CliResult {
    args.validate()?;
    let targets = target::prepare(args)?;
    let mut rows: Vec<Row> = Vec::new();
    for pass in run::passes(args) {
        for _ in 0..args.repetitions {
            run::add_samples(&mut rows, pass, &run::measure(args, pass, &targets)?);
        }
    }
    drop(targets);
    Report { bench: "xdd", headline: headline(args), parameters: args.parameters(), rows }.print(args.json);
    Ok(())
}

/// MB/s of all targets together in the first pass of `args`, one value for each repetition.
pub fn rates_mb_s(args: &XddArgs) -> CliResult<Vec<f64>> {
    args.validate()?;
    let (targets, passes) = (target::prepare(args)?, run::passes(args));
    let one = |_| Ok(run::measure(args, passes[0], &targets)?.last().map_or(0.0, run::Measured::mb_s));
    (0..args.repetitions).map(one).collect()
}

fn headline(args: &XddArgs) -> String {
    let amount = match (args.seconds, args.bytes) {
        (Some(time), _) => format!("for {} s", time.as_secs_f64()),
        (None, bytes) => show_bytes(bytes.unwrap_or(args.size)),
    };
    format!(
        "xdd: {} target{}, {} each, requests of {}, {} in flight each{}",
        args.targets.len(),
        if args.targets.len() == 1 { "" } else { "s" },
        amount,
        show_bytes(args.request),
        args.depth,
        if args.buffered { ", through the page cache" } else { "" },
    )
}
