//! The cluster under test: a process for each target and for each mount, all children of this one.
//!
//! Invariant: none of them outlives this process; nothing is left mounted.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Write as _},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use super::{hands::now_us, level::Level};
use crate::figures::{Outcome, forebay::Forebay, process::output};

/// Object storage targets.
pub const OSTS: usize = 3;
/// How long a process may take to be ready, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the servers' disks do when a server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Keep what was written.
    Keep,
    /// Lose what was not flushed: a kill is a power cut.
    Forget,
}

/// A process, if it runs.
pub struct Process {
    /// `MDT0000`, `m1`.
    pub name: String,
    /// When it was started last (CLOCK_MONOTONIC, microseconds).
    pub started_us: u64,
    child: Option<Child>,
}

/// The cluster.
pub struct Site {
    forebay: Forebay,
    dir: PathBuf,
    cluster: PathBuf,
    /// Disks of servers that are started from now on.
    pub disks: Disks,
    /// The MDT's server first.
    pub servers: Vec<Process>,
    /// Mounts.
    pub mounts: Vec<Process>,
    /// Their commit levels.
    pub levels: Vec<Level>,
}

impl Process {
    fn new(name: String) -> Self {
        Self { name, started_us: 0, child: None }
    }

    fn start(&mut self, command: &mut Command, logs: &Path) -> Outcome {
        let path = logs.join(format!("{}.log", self.name));
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.map_err(|error| format!("{}: {error}", path.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        die_with_parent(command);
        self.started_us = now_us();
        self.child = Some(command.spawn().map_err(|error| format!("{}: {error}", self.name))?);
        Ok(())
    }

    /// Waits for its line.
    pub fn ready(&mut self) -> Outcome {
        let Some(stdout) = self.child.as_mut().and_then(|child| child.stdout.take()) else { return Ok(()) };
        let mut line = String::new();
        let heard = BufReader::new(stdout).read_line(&mut line);
        if heard.is_ok_and(|bytes| bytes > 0) {
            Ok(())
        } else {
            Err(format!("{} did not start; see its log", self.name))
        }
    }

    /// A signal, if it runs.
    pub fn signal(&self, signal: i32) {
        if let Some(child) = &self.child {
            // SAFETY: no memory is passed; the child was not waited for, so the number is its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }

    /// SIGKILL: it is gone when this returns.
    pub fn kill(&mut self) -> Outcome {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> Outcome {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if child.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child = Some(child);
        Err(format!("{} does not end", self.name))
    }

    /// True if it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

/// A child gets SIGKILL when the thread that started it ends.
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec one system call is made, which passes no memory.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
}

impl Site {
    /// Formats; nothing runs yet.
    pub fn make(forebay: &Forebay, dir: &Path, levels: Vec<Level>, ost_size: &str) -> Outcome<Self> {
        if dir.join("cluster").exists() {
            return Err(format!("{} is of an earlier run; look at it, then remove it", dir.display()));
        }
        fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let (cluster, osts) = (dir.join("cluster"), OSTS.to_string());
        let text = cluster.to_string_lossy().into_owned();
        let sizes = ["--osts", &osts, "--ost-size", ost_size, "--mdt-size", "256MiB", "--separate", "--no-mount"];
        output(forebay.command(&["up", &text]).args(sizes))?;
        output(&mut forebay.command(&["down", &text]))?;
        let osts = (0..OSTS).map(|ost| format!("OST{ost:04x}"));
        let servers = ["MDT0000".to_owned()].into_iter().chain(osts).map(Process::new).collect();
        let mounts = (1..=levels.len()).map(|number| Process::new(format!("m{number}"))).collect();
        Ok(Self { forebay: forebay.clone(), dir, cluster, disks: Disks::Keep, servers, mounts, levels })
    }

    /// Where a mount is.
    pub fn point(&self, mount: usize) -> PathBuf {
        self.dir.join(&self.mounts[mount].name)
    }

    /// Where the notes of worker `number` are.
    pub fn notes(&self, number: u64) -> PathBuf {
        self.dir.join(format!("notes-{number}"))
    }

    /// A line of `course.log`, with the time that the servers' logs have.
    pub fn log(&self, line: &str) -> Outcome {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (second, ms) = (since.as_secs() % 86_400, since.subsec_millis());
        let time = format!("{:02}:{:02}:{:02}.{ms:03}", second / 3600, second / 60 % 60, second % 60);
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("course.log"));
        let written = log.and_then(|mut log| writeln!(log, "{time} {line}"));
        written.map_err(|error| format!("course.log: {error}"))
    }

    fn logs(&self) -> PathBuf {
        self.cluster.join("log")
    }

    /// Starts a server; [`Process::ready`] waits for it.
    pub fn start_server(&mut self, server: usize) -> Outcome {
        let (map, logs) = (self.cluster.join("cluster.toml"), self.logs());
        let mut command = self.forebay.command(&["serve", "--map"]);
        command.arg(map).args((self.disks == Disks::Forget).then_some("--forgetful-disks"));
        let process = &mut self.servers[server];
        process.start(command.arg(self.cluster.join(&process.name)), &logs)
    }

    /// Starts all servers and mounts.
    pub fn start(&mut self) -> Outcome {
        (0..self.servers.len()).try_for_each(|server| self.start_server(server))?;
        self.servers.iter_mut().try_for_each(Process::ready)?;
        (0..self.mounts.len()).try_for_each(|mount| self.mount(mount))
    }

    /// Mounts, where no mount lives.
    pub fn mount(&mut self, mount: usize) -> Outcome {
        let (point, logs) = (self.point(mount), self.logs());
        self.detach(mount);
        fs::create_dir_all(&point).map_err(|error| format!("cannot make {}: {error}", point.display()))?;
        let mut command = self.forebay.command(&["mount", "-f", "-o"]);
        command.arg(format!("commit={}", self.levels[mount].name())).arg("--").arg(&self.cluster).arg(&point);
        self.mounts[mount].start(&mut command, &logs)?;
        self.mounts[mount].ready()
    }

    /// Takes the kernel's mount of a dead process away.
    pub fn detach(&self, mount: usize) {
        let point = std::ffi::CString::new(self.point(mount).to_string_lossy().as_bytes()).expect("no zero in a path");
        // SAFETY: a string that outlives the call.
        unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH) };
    }

    /// Stops everything as an operator does: mounts, the MDT, OSTs.
    pub fn stop(&mut self) -> Outcome {
        for process in self.mounts.iter_mut().chain(&mut self.servers) {
            process.signal(libc::SIGTERM);
            process.wait()?;
        }
        Ok(())
    }

    /// Checks all targets, which are not served.
    pub fn fsck(&self) -> Outcome<String> {
        let targets = self.servers.iter().map(|server| self.cluster.join(&server.name));
        let mut fsck = self.forebay.command(&["fsck"]);
        let found = fsck.args(targets).output().map_err(|error| format!("fsck: {error}"))?;
        let said = [&found.stdout[..], &found.stderr[..]].map(String::from_utf8_lossy).concat();
        match found.status.success() {
            true => Ok(said.lines().last().unwrap_or_default().to_owned()),
            false => Err(format!("fsck found: {said}")),
        }
    }

    /// Sets over which OSTs new files of a directory, or one new file, are striped.
    pub fn setstripe(&self, path: &Path, stripes: &[&str]) -> Outcome {
        output(self.forebay.command(&["setstripe"]).args(stripes).arg(path)).map(drop)
    }

    /// What `forebay status --json` tells.
    pub fn status(&self) -> Outcome<serde_json::Value> {
        let said = output(self.forebay.command(&["status", "--json"]).arg(&self.cluster))?;
        serde_json::from_str(&said).map_err(|error| format!("status: {error}"))
    }

    /// All is well: removes everything.
    pub fn remove(self) {
        let dir = self.dir.clone();
        drop(self);
        let _ = fs::remove_dir_all(dir);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for mount in 0..self.mounts.len() {
            let _ = self.mounts[mount].kill();
            self.detach(mount);
        }
        for server in &mut self.servers {
            let _ = server.kill();
        }
    }
}
