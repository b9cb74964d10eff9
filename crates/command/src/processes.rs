//! This program as other processes: children that act as user programs, and servers and mounts in the background.
//!
//! A background process prints one line on its stdout when it is ready; everything else goes to its log. A pid file
//! holds the pid and the process's start time, so that a reused pid is never mistaken for the process. A process that
//! systemd has started tells systemd, too (sd_notify(3)).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // pid files, logs, waiting; nothing here serves

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use sd_notify::NotifyState;

use crate::{
    error::{CliError, CliResult, Doing},
    posix,
};

/// Time between checks of a process that is ending.
const POLL: Duration = Duration::from_millis(20);
/// Lines of a log that are shown when its process did not start.
const LOG_TAIL_LINES: usize = 6;

/// A command that runs this very program, even if its file has been replaced.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("forebay");
    posix::with_default_signals(&mut command);
    command
}

/// A background process to start: its name, arguments, and the places of its pid file and log.
pub struct Background<'a> {
    /// Name of its files: `MDT0000`, `servers`.
    pub name: &'a str,
    /// Its name in messages.
    pub called: String,
    /// Arguments of this program.
    pub args: Vec<String>,
    /// Start it in a new session. If false, it begins one itself.
    pub own_session: bool,
    /// Directory of `NAME.pid`.
    pub run_dir: &'a Path,
    /// Directory of `NAME.log`.
    pub log_dir: &'a Path,
}

impl Background<'_> {
    /// Starts it; call [`Starting::wait_ready`] next.
    pub fn start(&self) -> CliResult<Starting> {
        for dir in [self.run_dir, self.log_dir] {
            std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
        }
        let log_path = self.log_dir.join(format!("{}.log", self.name));
        let log = open_log(&log_path)?;
        let log_bytes = log.metadata().map_or(0, |meta| meta.len());
        let mut command = this_program();
        // So it holds no file system of its caller in use; its arguments are absolute.
        command.current_dir("/");
        // Only the process that systemd started speaks for the service.
        command.env_remove("NOTIFY_SOCKET");
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = posix::in_background(&mut command, self.own_session)
            .spawn()
            .doing(|| format!("cannot start {}", self.called))?;
        let pid_file = PidFile::of(self.run_dir, self.name);
        if let Err(error) = pid_file.write(child.id()) {
            // Without its pid file nothing would find the process again.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
        Ok(Starting { called: self.called.clone(), child, pid_file, log_path, log_bytes })
    }
}

fn open_log(path: &Path) -> CliResult<File> {
    OpenOptions::new().create(true).append(true).open(path).doing(|| format!("cannot open the log {}", path.display()))
}

/// Adds a line to a log. If that fails, nothing but the line is missing.
pub fn note_in_log(path: &Path, line: &str) {
    let _ = open_log(path).and_then(|mut log| writeln!(log, "{line}").doing(|| path.display().to_string()));
}

/// Prints one line on stdout: this process is ready. If its starter is gone by then, the process continues.
pub fn say_ready(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
    tell_systemd(&[NotifyState::Ready, NotifyState::Status(line)]);
}

/// Tells systemd that this process ends now, as it was asked to.
pub fn say_stopping() {
    tell_systemd(&[NotifyState::Stopping, NotifyState::Status("stopping: makes everything durable")]);
}

/// Does nothing in a process that systemd has not started.
fn tell_systemd(state: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(state) {
        eprintln!("systemd cannot be told how this process stands: {error}");
    }
}

/// The last line of the log at `path`, if it is the error message with which a process of this program ended.
pub fn last_words(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().next_back()?.strip_prefix("forebay: ").map(str::to_owned)
}

/// A background process that was started and has not reported that it is ready.
pub struct Starting {
    called: String,
    child: Child,
    pid_file: PidFile,
    log_path: PathBuf,
    log_bytes: u64,
}

impl Starting {
    /// Waits for its line. If the process ends before that, the error shows its log.
    pub fn wait_ready(mut self) -> CliResult<Child> {
        let stdout = self.child.stdout.take().expect("stdout is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).doing(|| format!("cannot hear {}", self.called))?;
        if !line.is_empty() {
            return Ok(self.child);
        }
        let status = self.child.wait().doing(|| format!("cannot wait for {}", self.called))?;
        // Another process may have been recorded meanwhile.
        self.pid_file.remove_of(self.child.id());
        let how = if status.code() == Some(1) { String::new() } else { format!(" ({status})") };
        Err(CliError::failed(format!("{} did not start{how}: {}", self.called, self.log_tail())))
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log_path).unwrap_or_default();
        let new = text.get(self.log_bytes as usize..).unwrap_or_default();
        let new = String::from_utf8_lossy(new);
        // Its own error message is enough; the other lines are used only if there is none.
        let words: Vec<&str> = new.lines().filter_map(|line| line.strip_prefix("forebay: ")).collect();
        let lines: Vec<&str> = if words.is_empty() { new.lines().collect() } else { words };
        match &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..] {
            [] => format!("its log {} says nothing", self.log_path.display()),
            tail => tail.join("\n  "),
        }
    }
}

/// How a background process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has not.
    None,
    /// By itself.
    Own,
    /// Before it came to its end: it was killed, or crashed.
    Killed,
}

/// The file that records the pid of a background process.
#[derive(Clone, Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// The pid file of process `name`.
    pub fn of(run_dir: &Path, name: &str) -> Self {
        Self { path: run_dir.join(format!("{name}.pid")) }
    }

    /// All pid files in `run_dir` with their names, ordered.
    pub fn all(run_dir: &Path) -> Vec<(String, Self)> {
        let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
        let named = |entry: std::fs::DirEntry| {
            let name = entry.file_name().to_str()?.strip_suffix(".pid")?.to_owned();
            Some((name, Self { path: entry.path() }))
        };
        let mut all: Vec<_> = entries.filter_map(named).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// True if a process is recorded, running or not.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Records `pid`.
    pub fn write(&self, pid: u32) -> CliResult {
        let start = posix::start_time(pid).unwrap_or(0);
        std::fs::write(&self.path, format!("{pid} {start}\n")).doing(|| format!("cannot write {}", self.path.display()))
    }

    /// The pid, if that process still runs.
    pub fn running(&self) -> Option<u32> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let (pid, start) = text.trim().split_once(' ')?;
        let (pid, start): (u32, u64) = (pid.parse().ok()?, start.parse().ok()?);
        (pid > 1 && posix::start_time(pid) == Some(start)).then_some(pid)
    }

    /// The path of the file with the same name and the ending `ending`.
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    /// Removes the file if it records process `pid`, which has ended.
    pub fn remove_of(&self, pid: u32) {
        if self.records(pid) {
            self.remove();
        }
    }

    fn records(&self, pid: u32) -> bool {
        let noted = std::fs::read_to_string(&self.path).unwrap_or_default();
        noted.split(' ').next() == Some(&pid.to_string())
    }

    /// Removes the file.
    pub fn remove(&self) {
        // An error means that it is gone already, as intended.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Removes the file if it records this process.
    pub fn remove_own(&self) {
        if self.running() == Some(std::process::id()) {
            self.remove();
        }
    }

    /// Sends SIGTERM and waits; false if the process still runs after `timeout`.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.end(timeout) != Ending::None
    }

    /// As [`PidFile::stop`], and says how the process ended.
    pub fn end(&self, timeout: Duration) -> Ending {
        let Some(pid) = self.running() else {
            self.remove();
            return Ending::Own;
        };
        // The process may end before the signal arrives.
        let _ = posix::send_signal(pid, libc::SIGTERM);
        self.ending_of(pid, timeout)
    }

    /// Waits for process `pid`, not for another one that may have been recorded meanwhile; false if it still runs after
    /// `timeout`.
    pub fn has_ended(&self, pid: u32, timeout: Duration) -> bool {
        self.ending_of(pid, timeout) != Ending::None
    }

    /// As [`PidFile::has_ended`], and says how it ended: a process that ends by itself removes its pid file first.
    pub fn ending_of(&self, pid: u32, timeout: Duration) -> Ending {
        if !wait_until(timeout, || self.running() != Some(pid)) {
            return Ending::None;
        }
        match self.records(pid) {
            false => Ending::Own,
            true => {
                self.remove();
                Ending::Killed
            }
        }
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&self) {
        if let Some(pid) = self.running() {
            let _ = posix::send_signal(pid, libc::SIGKILL);
            wait_until(Duration::from_secs(5), || self.running().is_none());
        }
        self.remove();
    }
}

/// Kills every child of this process, and waits up to 5 s for their ends.
pub fn kill_children() {
    let numbers = || {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let children: Vec<u32> = numbers().filter(|pid| posix::parent(*pid) == Some(std::process::id())).collect();
    for child in &children {
        // An error means that it has ended meanwhile, as intended.
        let _ = posix::send_signal(*child, libc::SIGKILL);
    }
    wait_until(Duration::from_secs(5), || children.iter().all(|child| posix::start_time(*child).is_none()));
}

/// Polls until `condition` holds or `timeout` is over; returns whether it held.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline_ns = posix::monotonic_ns() + timeout.as_nanos() as u64;
    loop {
        if condition() {
            return true;
        }
        if posix::monotonic_ns() >= deadline_ns {
            return false;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_its_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        assert_eq!(posix::parent(child.id()), Some(std::process::id()));
        assert_eq!(posix::parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert_eq!(posix::parent(child.id()), None);
    }

    #[test]
    fn a_pid_file_knows_its_process_and_no_other_of_the_same_number() {
        let dir = std::env::temp_dir().join(format!("forebay-pids-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let file = PidFile::of(&dir, "x");
        assert_eq!(file.running(), None);
        file.write(std::process::id()).expect("written");
        assert_eq!(file.running(), Some(std::process::id()));
        let other = std::process::id() + 1;
        assert!(file.has_ended(other, Duration::ZERO) && file.running().is_some(), "another has taken its place");
        assert!(!file.has_ended(std::process::id(), Duration::ZERO) && file.exists());
        std::fs::write(dir.join("x.pid"), format!("{} 1\n", std::process::id())).expect("written");
        assert_eq!(file.running(), None, "the start time tells");
        assert_eq!(PidFile::all(&dir).len(), 1);
        assert!(file.stop(Duration::ZERO), "nothing to stop");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
