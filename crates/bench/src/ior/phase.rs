//! From the processes' times to the numbers of a report; and preparations around a phase.

use std::{fs::File, path::PathBuf};

use forebay_command::{
    error::{CliError, CliResult},
    posix,
    units::{GIB, MIB},
};

use super::task::{Action, TaskResult};
use crate::report::Sample;

impl Action {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Action::Write => "write",
            Action::Read => "read",
            Action::Check => "check",
        }
    }
}

/// Rate and times of a phase: from the first open to the last close.
pub fn sample(results: &[TaskResult], server_cpu_s: Option<f64>) -> Sample {
    let begin_ns = results.iter().map(|r| r.begin_ns).min().unwrap_or(0);
    let end_ns = results.iter().map(|r| r.closed_ns).max().unwrap_or(0);
    let bytes: u64 = results.iter().map(|r| r.bytes).sum();
    let seconds = (end_ns - begin_ns) as f64 / 1e9;
    let longest = |of: fn(&TaskResult) -> u64| results.iter().map(of).max().unwrap_or(0) as f64 / 1e9;
    let cpu_s: f64 = results.iter().map(|r| r.cpu_s).sum();
    let per_gib = |cpu_s: f64| if bytes == 0 { 0.0 } else { cpu_s / (bytes as f64 / GIB) };
    let mut details = vec![
        ("MiB", bytes as f64 / MIB),
        ("seconds", seconds),
        ("open_s", longest(|r| r.opened_ns - r.begin_ns)),
        ("fsync_s", longest(|r| r.synced_ns - r.moved_ns)),
        ("close_s", longest(|r| r.closed_ns - r.synced_ns)),
        ("longest_call_s", longest(|r| r.longest_call_ns)),
        ("cpu_s", cpu_s),
        ("cpu_s_per_GiB", per_gib(cpu_s)),
    ];
    if let Some(cpu_s) = server_cpu_s {
        details.extend([("server_cpu_s", cpu_s), ("server_cpu_s_per_GiB", per_gib(cpu_s))]);
    }
    Sample { value: if seconds > 0.0 { bytes as f64 / MIB / seconds } else { 0.0 }, details }
}

/// CPU time of other processes during a phase.
pub struct ServerCpu<'a> {
    pids: &'a [u32],
    before_s: f64,
}

impl<'a> ServerCpu<'a> {
    /// Begins to count for `pids`; an error names one that does not run.
    pub fn begin(pids: &'a [u32]) -> CliResult<Self> {
        Ok(Self { pids, before_s: total_cpu(pids)? })
    }

    /// CPU seconds since `begin`; `None` if there was no process to measure.
    pub fn end(self) -> CliResult<Option<f64>> {
        if self.pids.is_empty() {
            return Ok(None);
        }
        Ok(Some(total_cpu(self.pids)? - self.before_s))
    }
}

fn total_cpu(pids: &[u32]) -> CliResult<f64> {
    let missing = |pid: u32| CliError::failed(format!("--cpu-of {pid}: there is no such process (any more)"));
    pids.iter().map(|&pid| posix::cpu_seconds_of(pid).ok_or_else(|| missing(pid))).sum()
}

/// Drops cached pages of `files`, and everything that the kernel caches where this user may. Best effort: a file system
/// need not support it.
pub fn drop_caches(files: &[PathBuf]) {
    for file in files.iter().filter_map(|path| File::open(path).ok()) {
        // only clean pages can be dropped; a failure shows in the read that follows
        let _ = posix::sync_filesystem(&file);
        posix::drop_file_pages(&file);
    }
    if posix::is_root() {
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_lasts_from_the_first_open_to_the_last_close() {
        let first =
            TaskResult { begin_ns: 1_000_000_000, closed_ns: 2_000_000_000, bytes: 1 << 20, ..Default::default() };
        let late = TaskResult { begin_ns: 2_000_000_000, closed_ns: 3_000_000_000, opened_ns: 2_500_000_000, ..first };
        let first = TaskResult { opened_ns: 1_100_000_000, moved_ns: 1_200_000_000, synced_ns: 1_900_000_000, ..first };
        let late = TaskResult { moved_ns: 2_600_000_000, synced_ns: 2_700_000_000, ..late };
        let sample = sample(&[first, late], Some(0.5));
        let detail = |name: &str| sample.details.iter().find(|(n, _)| *n == name).expect("a detail").1;
        assert_eq!((sample.value, detail("seconds"), detail("open_s")), (1.0, 2.0, 0.5));
        assert_eq!((detail("fsync_s"), detail("close_s")), (0.7, 0.3));
        assert_eq!(detail("server_cpu_s_per_GiB"), 256.0);
    }

    #[test]
    fn watching_a_missing_process_is_an_error_with_its_number() {
        let error = ServerCpu::begin(&[0]).err().expect("pid 0 is nobody");
        assert!(error.message.contains("--cpu-of 0"), "{error}");
    }
}
