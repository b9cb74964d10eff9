//! This program as other processes: children that play programs, servers and mounts in the background.
//!
//! A background process says on its stdout, in one line, that it is ready; whatever else it has to say goes to its log.
//! A pid file holds the pid and the process's start time, so that a reused pid is never taken for ours.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // pid files, logs and waiting belong to the command line; nothing here serves

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    error::{CliError, CliResult, Doing},
    posix,
};

/// How long to wait between looks at a process that is ending.
const POLL: Duration = Duration::from_millis(20);
/// Lines of a log shown when its process did not start.
const LOG_TAIL_LINES: usize = 6;

/// A command that runs this very program, even if its file was replaced meanwhile.
pub fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("forebay");
    posix::with_default_signals(&mut command);
    command
}

/// A background process to be started: its name, arguments, where its pid and log go.
pub struct Background<'a> {
    /// Of its files: `MDT0000`, `servers`.
    pub name: &'a str,
    /// What people call it.
    pub called: String,
    /// Arguments of this program.
    pub args: Vec<String>,
    /// In a session of its own from the beginning; else it begins one itself.
    pub own_session: bool,
    /// Where `NAME.pid` goes.
    pub run_dir: &'a Path,
    /// Where `NAME.log` goes.
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
        // It holds no file system of its caller's in use; its arguments are absolute.
        command.current_dir("/");
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = posix::in_background(&mut command, self.own_session)
            .spawn()
            .doing(|| format!("cannot start {}", self.called))?;
        let pid_file = PidFile::of(self.run_dir, self.name);
        if let Err(error) = pid_file.write(child.id()) {
            // Nobody would find it again.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
        Ok(Starting { called: self.called.clone(), child, pid_file, log_path, log_bytes })
    }
}

fn open_log(path: &Path) -> CliResult<File> {
    OpenOptions::new().create(true).append(true).open(path).doing(|| format!("cannot open the log {}", path.display()))
}

/// Says on stdout that this process is ready, in one line. Whoever started it may be gone by then: that is no reason to end.
pub fn say_ready(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The last line of the log at `path`, if it is what a process of ours says before it ends with an error.
pub fn last_words(path: &Path) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().next_back()?.strip_prefix("forebay: ").map(str::to_owned)
}

/// A background process that has been started and has not said yet that it is ready.
pub struct Starting {
    called: String,
    child: Child,
    pid_file: PidFile,
    log_path: PathBuf,
    log_bytes: u64,
}

impl Starting {
    /// Waits for its line; the error of one that ends before shows what its log says.
    pub fn wait_ready(mut self) -> CliResult<Child> {
        let stdout = self.child.stdout.take().expect("stdout is a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).doing(|| format!("cannot hear {}", self.called))?;
        if !line.is_empty() {
            return Ok(self.child);
        }
        let status = self.child.wait().doing(|| format!("cannot wait for {}", self.called))?;
        // Another one may have been faster.
        self.pid_file.remove_of(self.child.id());
        let how = if status.code() == Some(1) { String::new() } else { format!(" ({status})") };
        Err(CliError::failed(format!("{} did not start{how}: {}", self.called, self.log_tail())))
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log_path).unwrap_or_default();
        let new = text.get(self.log_bytes as usize..).unwrap_or_default();
        let new = String::from_utf8_lossy(new);
        // Its own last words say it; the lines before are of use only if there are none.
        let words: Vec<&str> = new.lines().filter_map(|line| line.strip_prefix("forebay: ")).collect();
        let lines: Vec<&str> = if words.is_empty() { new.lines().collect() } else { words };
        match &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..] {
            [] => format!("its log {} says nothing", self.log_path.display()),
            tail => tail.join("\n  "),
        }
    }
}

/// Where the pid of a background process is kept.
#[derive(Clone, Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Of process `name`.
    pub fn of(run_dir: &Path, name: &str) -> Self {
        Self { path: run_dir.join(format!("{name}.pid")) }
    }

    /// All in `run_dir`, with their names, ordered.
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

    /// True if a process is noted, running or not.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Notes that `pid` is the process.
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

    /// The file of the same name that ends in `ending` instead.
    pub fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    /// Forgets process `pid`, which has ended, if it is the one that is noted.
    pub fn remove_of(&self, pid: u32) {
        let noted = std::fs::read_to_string(&self.path).unwrap_or_default();
        if noted.split(' ').next() == Some(&pid.to_string()) {
            self.remove();
        }
    }

    /// Forgets it.
    pub fn remove(&self) {
        // One that is gone already is what we want.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Forgets this process, if it is the one that is noted.
    pub fn remove_own(&self) {
        if self.running() == Some(std::process::id()) {
            self.remove();
        }
    }

    /// Asks the process to end (SIGTERM) and waits; false if it still runs after `patience`.
    pub fn stop(&self, patience: Duration) -> bool {
        let Some(pid) = self.running() else {
            self.remove();
            return true;
        };
        // It may end between the look and the signal.
        let _ = posix::send_signal(pid, libc::SIGTERM);
        self.has_ended(pid, patience)
    }

    /// Waits for process `pid`, not for another that may have been noted in its place meanwhile; false if it still runs after
    /// `patience`.
    pub fn has_ended(&self, pid: u32, patience: Duration) -> bool {
        let ended = wait_until(patience, || self.running() != Some(pid));
        if ended {
            self.remove_of(pid);
        }
        ended
    }

    /// Ends the process without asking.
    pub fn kill(&self) {
        if let Some(pid) = self.running() {
            let _ = posix::send_signal(pid, libc::SIGKILL);
            wait_until(Duration::from_secs(5), || self.running().is_none());
        }
        self.remove();
    }
}

/// Ends every process that this one has started, and waits for their ends (a little).
pub fn kill_children() {
    let numbers = || {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let children: Vec<u32> = numbers().filter(|pid| posix::parent(*pid) == Some(std::process::id())).collect();
    for child in &children {
        // One that has ended meanwhile is what we want.
        let _ = posix::send_signal(*child, libc::SIGKILL);
    }
    wait_until(Duration::from_secs(5), || children.iter().all(|child| posix::start_time(*child).is_none()));
}

/// Looks again and again until `condition` holds or `patience` is over; tells whether it held.
pub fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline_ns = posix::monotonic_ns() + patience.as_nanos() as u64;
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
