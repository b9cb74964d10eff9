//! Describes the machine and the program of a measurement.

use std::{fs::read_to_string, process::Command};

use super::{Outcome, Plan, process::output, summary::commands};

/// A paragraph about the machine, and the command that generates the page.
pub fn describe(plan: &Plan) -> Outcome<String> {
    let kernel = output(Command::new("uname").arg("-r"))?;
    // Without the suffix of a particular build.
    let kernel = kernel.split('-').next().unwrap_or_default();
    let below = output(Command::new("findmnt").args(["-n", "-o", "FSTYPE", "--target"]).arg(&plan.dir))?;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Ok(format!(
        "{cores} cores ({}), {} GiB of memory, Linux {}, data on {}. Servers, clients and what they are compared with \
         share these cores.\n\n{}",
        field("/proc/cpuinfo", "model name"),
        memory_gib(),
        kernel.trim(),
        below.trim(),
        commands(&["cargo run --release -p xtask -- figures".into()]),
    ))
}

/// The date and the program of a section's measurement.
pub fn stamp(plan: &Plan) -> Outcome<String> {
    let date = output(Command::new("date").arg("+%Y-%m-%d %H:%M %Z"))?;
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let quick = if plan.quick { " Small sizes (--quick)." } else { "" };
    Ok(format!("Measured {} at commit {}; load before: {load}.{quick}", date.trim(), built_of()))
}

/// The commit that the program was built from.
pub fn built_of() -> String {
    let asked = output(Command::new("git").args(["rev-parse", "--short", "HEAD"]).current_dir(super::forebay::root()));
    asked.map_or_else(|_| "no git".into(), |commit| commit.trim().to_owned())
}

fn field(file: &str, name: &str) -> String {
    let text = read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("unknown", |rest| rest.trim_start_matches([':', ' ', '\t'])).to_owned()
}

fn memory_gib() -> u64 {
    let kib = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
    (kib + (1 << 19)) >> 20
}
