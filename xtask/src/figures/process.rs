//! Other processes: running them, and reading /proc about them.

use std::{path::Path, process::Command};

use super::Outcome;

/// Runs a command to its end and returns its stdout. Its stderr is passed through.
pub fn output(command: &mut Command) -> Outcome<String> {
    let shown = format!("{command:?}");
    let output =
        command.stderr(std::process::Stdio::inherit()).output().map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stdout);
        return Err(format!("{shown}: {}\n{}", output.status, told.trim_end()).trim_end().to_owned());
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{shown}: {error}"))
}

/// Processes of one kind.
#[derive(Clone, Debug, Default)]
pub struct Pids(pub Vec<u32>);

impl Pids {
    /// Processes whose arguments begin with `forebay WORD` and mention a path under `dir`.
    pub fn of(word: &str, dir: &Path) -> Self {
        let dir = dir.to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let args: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let named = args.first().is_some_and(|arg| arg.ends_with("forebay"));
            named && args.get(1).is_some_and(|arg| arg == word) && args.iter().any(|arg| arg.starts_with(&dir))
        };
        Self(pids.filter(ours).collect())
    }

    /// CPU seconds so far, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        self.0.iter().filter_map(|pid| cpu_ticks(*pid)).sum::<u64>() as f64 / 100.0
    }

    /// Sum of their peak memories in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.0.iter().filter_map(|pid| status_kib(*pid, "VmHWM:")).sum::<u64>() << 10
    }
}

/// utime and stime, in the 100 Hz ticks that Linux shows to programs.
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn status_kib(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().strip_suffix(" kB")?.parse().ok()
}
