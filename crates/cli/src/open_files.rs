//! The limit of open files. It is raised as far as possible, and checked before a command begins that would fail
//! halfway.

use forebay_command::{
    error::{CliError, CliResult},
    posix,
};

/// Needed by any command: standard streams, an executor, a few connections.
const LEAST: u64 = 24;
/// Needed by a process that serves or mounts, besides those for each target.
const OF_PROCESS: u64 = 16;
/// Needed for a served target: its files, locks, rings and the like, its socket, connections of an MDS and of one
/// mount.
const OF_SERVED_TARGET: u64 = 14;
/// Needed for a target that a mount or another server connects to.
const OF_TARGET: u64 = 2;

/// Raises the limit. Errors: it is too low for any command.
pub fn raise() -> CliResult {
    let limit = posix::raise_open_files();
    refuse_fewer(limit, LEAST, "it needs")
}

/// Refuses to serve `here` targets of a cluster of `all` if the limit does not allow it.
pub fn refuse_few_to_serve(here: usize, all: usize) -> CliResult {
    let targets = if here == 1 { "serving a target needs".into() } else { format!("serving {here} targets needs") };
    refuse_fewer(posix::raise_open_files(), to_serve(here, all), &targets)
}

/// Refuses to mount a cluster of `all` targets if the limit does not allow it.
pub fn refuse_few_to_mount(all: usize) -> CliResult {
    let needed = 2 * OF_PROCESS + OF_TARGET * all as u64;
    refuse_fewer(posix::raise_open_files(), needed, "a mount needs")
}

fn to_serve(here: usize, all: usize) -> u64 {
    OF_PROCESS + OF_SERVED_TARGET * here as u64 + OF_TARGET * all as u64
}

fn refuse_fewer(limit: u64, needed: u64, who_needs: &str) -> CliResult {
    if limit >= needed {
        return Ok(());
    }
    Err(CliError::failed(format!(
        "this process may have {limit} files open (ulimit -n), and {who_needs} {needed} at least: raise the limit (`ulimit -n 1024`, \
         of a service LimitNOFILE=1024; beyond the hard limit as root)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_named_with_what_is_needed() {
        let said = refuse_fewer(40, to_serve(3, 3), "serving 3 targets needs").expect_err("too low").message;
        assert!(said.contains("40 files") && said.contains("serving 3 targets needs 64 at least"), "{said}");
        assert!(refuse_fewer(1024, to_serve(60, 60), "x").is_ok(), "what is usual is enough for many");
    }
}
