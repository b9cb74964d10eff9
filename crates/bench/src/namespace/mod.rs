//! `forebay bench namespace`: files without data on a metadata server: memory, rates, restarts.
//!
//! Each phase is a process of its own, and so has its own peak memory. The first creates the files and stops cleanly.
//! The second starts and looks some up. The third starts, creates more and is killed. The fourth starts after that.
//! Client and server share the process: memory and CPU are those of both.

mod args;
mod mdt;
mod phases;

pub use args::NamespaceArgs;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    processes::this_program,
    targets::format_target,
    units::{MIB, show_count},
};
use forebay_env::{Env, real};
use forebay_proto::{TargetId, Uuid};
use forebay_store::FormatOptions;
use serde_json::Value;

use self::args::Phase;
use crate::{
    report::{Report, Row, Sample},
    scratch,
};

/// Data bytes of the OST, which stays empty.
const OST_BYTES: u64 = 256 << 20;
/// The run's directory within the given one.
const SCRATCH: &str = "forebay-bench-namespace";

/// Runs the benchmark and prints its report.
pub fn run(args: &NamespaceArgs) -> CliResult {
    args.validate()?;
    if let Some(phase) = args.phase {
        return phases::run(args, phase, &args.dir.join(SCRATCH));
    }
    let scratch = Scratch(scratch::make(&args.dir, SCRATCH)?);
    real::run(async |env| format(&env, &scratch.0, args.store_bytes()).await)?;
    let created = process(args, Phase::Create)?;
    let clean = process(args, Phase::Restart)?;
    process(args, Phase::Crash)?;
    let crashed = process(args, Phase::Restart)?;
    let removed = args.remove.then(|| process(args, Phase::Remove)).transpose()?;
    let headline = format!(
        "namespace: {} files in directories of {}, names of 19 bytes, {} requests in flight at {}",
        show_count(args.files),
        show_count(args.per_directory),
        args.depth,
        args.dir.display()
    );
    let mut rows = rows(args, &created, &clean, &crashed);
    rows.extend(removed.iter().flat_map(|said| removal_rows(args, said)));
    Report { bench: "namespace", headline, parameters: args.parameters(), rows }.print(args.json);
    Ok(())
}

async fn format(env: &Env, dir: &Path, mdt_bytes: u64) -> CliResult {
    let cluster = Uuid::from_random(env.random_u64(), env.random_u64());
    for (id, bytes) in [(TargetId::mdt(0), mdt_bytes), (TargetId::ost(0), OST_BYTES)] {
        format_target(env, &dir.join(id.to_string()), &FormatOptions::new(cluster, id, bytes)).await?;
    }
    Ok(())
}

/// Runs a phase; returns its results.
fn process(args: &NamespaceArgs, phase: Phase) -> CliResult<Value> {
    let phase_name = clap::ValueEnum::to_possible_value(&phase).expect("no phase is hidden").get_name().to_owned();
    let numbers = [
        ("--files", args.files),
        ("--per-directory", args.per_directory),
        ("--lookups", args.lookups),
        ("--before-crash", args.before_crash),
    ];
    let mut command = this_program();
    command.args(["bench", "namespace"]).arg(&args.dir).args(["--phase", &phase_name]);
    command.args(numbers.iter().flat_map(|(flag, number)| [(*flag).to_owned(), number.to_string()]));
    command.args(args.cache.map(|bytes| format!("--cache={bytes}")));
    command.args(["--depth", &args.depth.to_string()]).stdout(Stdio::piped());
    let child = command.spawn().doing(|| format!("cannot start the {phase_name} process"))?;
    let output = child.wait_with_output().doing(|| format!("cannot hear the {phase_name} process"))?;
    let said = serde_json::from_slice(&output.stdout);
    said.map_err(|_| CliError::failed(format!("the {phase_name} process failed ({}); see above", output.status)))
}

fn removal_rows(args: &NamespaceArgs, said: &Value) -> Vec<Row> {
    let number = |name: &str| said[name].as_f64().unwrap_or(0.0);
    let row = |phase: &str, unit: &'static str, value: f64, details: Vec<(&'static str, f64)>| Row {
        phase: phase.into(),
        labels: Vec::new(),
        unit,
        samples: vec![Sample { value, details }],
    };
    let listed = vec![("names", number("listed")), ("longest_ms", number("longest_page_ms"))];
    vec![
        row("remove", "removes/s", args.files as f64 / number("seconds"), vec![("seconds", number("seconds"))]),
        row("remove-listed", "pages", number("pages"), listed),
        row("remove-peak-memory", "MiB", number("peak_bytes") / MIB, Vec::new()),
    ]
}

fn rows(args: &NamespaceArgs, created: &Value, clean: &Value, crashed: &Value) -> Vec<Row> {
    let number = |from: &Value, name: &str| from[name].as_f64().unwrap_or(0.0);
    let per_file = |bytes: f64| bytes / args.files as f64;
    let row = |phase: &str, unit: &'static str, value: f64, details: Vec<(&'static str, f64)>| Row {
        phase: phase.into(),
        labels: Vec::new(),
        unit,
        samples: vec![Sample { value, details }],
    };
    let create = vec![
        ("seconds", number(created, "seconds")),
        ("cpu_us_per_create", number(created, "cpu_s") * 1e6 / args.files as f64),
        ("memory_bytes_per_file", per_file(number(created, "rss_bytes"))),
        ("table_bytes_per_file", per_file(number(created, "table_bytes"))),
        ("first_tenth_per_s", number(created, "first_tenth_per_s")),
        ("last_tenth_per_s", number(created, "last_tenth_per_s")),
        ("device_bytes_per_file", per_file(number(created, "store_bytes"))),
    ];
    let mut rows = vec![
        row("create", "creates/s", args.files as f64 / number(created, "seconds"), create),
        row("create-memory", "MiB", number(created, "rss_bytes") / MIB, Vec::new()),
        row("create-peak-memory", "MiB", number(created, "peak_bytes") / MIB, Vec::new()),
        row("clean-stop", "s", number(created, "stop_s"), Vec::new()),
    ];
    for (name, said) in [("restart", clean), ("restart-after-crash", crashed)] {
        let recovered =
            vec![("journal_records", number(said, "journal_records")), ("store_open_s", number(said, "open_s"))];
        let lookup = &said["lookup_us"];
        let spread = vec![
            ("q1", number(lookup, "q1")),
            ("q3", number(lookup, "q3")),
            ("p99", number(said, "lookup_p99_us")),
            ("max", number(lookup, "max")),
            ("all_s", number(said, "lookups_s")),
        ];
        rows.extend([
            row(&format!("{name}-serving"), "s", number(said, "serving_s"), recovered),
            row(&format!("{name}-lookup"), "us (median)", number(lookup, "median"), spread),
            row(&format!("{name}-memory"), "MiB", number(said, "rss_bytes") / MIB, Vec::new()),
            row(&format!("{name}-peak-memory"), "MiB", number(said, "peak_bytes") / MIB, Vec::new()),
        ]);
    }
    rows
}

/// The targets' directory. Dropping it removes it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("forebay: cannot remove {}: {error}", self.0.display());
        }
    }
}
