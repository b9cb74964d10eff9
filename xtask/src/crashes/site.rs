//! The cluster under test: one process per target and per mount, all children of this process.
//!
//! Invariant: none of them outlives this process, and nothing stays mounted.

use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Write as _},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use forebay_proto::message::CommitLevel;

use super::hands::now_us;
use crate::{
    figures::{Outcome, forebay::Forebay, process::output},
    hosts::Apart,
};

/// Number of OSTs.
pub const OSTS: usize = 3;
/// Longest time in which a process must be ready, or must end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the servers' disks do when a server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// They keep what was written.
    Keep,
    /// They lose what was not flushed, so a kill acts like a power cut.
    Forget,
}

/// A process that may be running.
pub struct Process {
    /// Its name: `MDT0000`, `m1`.
    pub name: String,
    /// Time of its last start (CLOCK_MONOTONIC, microseconds).
    pub started_us: u64,
    child: Option<Child>,
}

/// The cluster.
pub struct Site {
    forebay: Forebay,
    dir: PathBuf,
    cluster: PathBuf,
    /// Its hosts, if servers and mounts are apart.
    apart: Option<Apart>,
    /// The disks of servers started from now on.
    pub disks: Disks,
    /// The server processes, the MDT's first.
    pub servers: Vec<Process>,
    /// The mount processes.
    pub mounts: Vec<Process>,
    /// The commit levels of the mounts.
    pub levels: Vec<CommitLevel>,
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

    /// Waits for the line that says it is ready.
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

    /// Sends a signal, if it runs.
    pub fn signal(&self, signal: i32) {
        if let Some(child) = &self.child {
            // SAFETY: no memory is passed; the child was not waited for, so the number is its own.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> Outcome {
        self.signal(libc::SIGKILL);
        self.wait()
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> Outcome {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if child.try_wait().map_err(|error| error.to_string())?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.child = Some(child);
        Err(format!("{} does not end", self.name))
    }

    /// True if it ended without being told to.
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
    /// Formats the targets; nothing runs yet. `hosts`: servers and mounts are on a host each.
    pub fn make(forebay: &Forebay, dir: &Path, levels: Vec<CommitLevel>, ost_size: &str, hosts: bool) -> Outcome<Self> {
        if dir.join("cluster").exists() {
            return Err(format!("{} is of an earlier run; look at it, then remove it", dir.display()));
        }
        fs::create_dir_all(dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
        let dir = dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?;
        let (cluster, osts) = (dir.join("cluster"), OSTS.to_string());
        let text = cluster.to_string_lossy().into_owned();
        let sizes = ["--osts", &osts, "--ost-size", ost_size, "--mdt-size", "256MiB", "--separate", "--no-mount"];
        let apart = hosts.then(|| Apart::make(&cluster)).transpose()?;
        let mut up = forebay.command(&["up", &text]);
        up.args(sizes);
        match &apart {
            Some(apart) => {
                output(apart.with_servers(up.args(apart.up_options()))?)?;
                apart.admit(forebay, &cluster)?;
            }
            None => drop(output(&mut up)?),
        }
        output(&mut forebay.command(&["down", &text]))?;
        let osts = (0..OSTS).map(|ost| format!("OST{ost:04x}"));
        let servers = ["MDT0000".to_owned()].into_iter().chain(osts).map(Process::new).collect();
        let mounts = (1..=levels.len()).map(|number| Process::new(format!("m{number}"))).collect();
        Ok(Self { forebay: forebay.clone(), dir, cluster, apart, disks: Disks::Keep, servers, mounts, levels })
    }

    /// The mount point of a mount.
    pub fn point(&self, mount: usize) -> PathBuf {
        self.dir.join(&self.mounts[mount].name)
    }

    /// The log of worker `number`.
    pub fn notes(&self, number: u64) -> PathBuf {
        self.dir.join(format!("notes-{number}"))
    }

    /// Writes a line to `course.log`, with the time in the format of the servers' logs.
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
        command.arg(self.cluster.join(&process.name));
        if let Some(apart) = &self.apart {
            apart.with_servers(&mut command)?;
        }
        process.start(&mut command, &logs)
    }

    /// Starts all servers and mounts.
    pub fn start(&mut self) -> Outcome {
        (0..self.servers.len()).try_for_each(|server| self.start_server(server))?;
        self.servers.iter_mut().try_for_each(Process::ready)?;
        (0..self.mounts.len()).try_for_each(|mount| self.mount(mount))
    }

    /// Mounts, in the place of a mount that died.
    pub fn mount(&mut self, mount: usize) -> Outcome {
        let (point, logs) = (self.point(mount), self.logs());
        self.detach(mount);
        fs::create_dir_all(&point).map_err(|error| format!("cannot make {}: {error}", point.display()))?;
        let mut command = self.forebay.command(&["mount", "-f", "-o"]);
        command.arg(format!("commit={}", self.levels[mount].name())).arg("--");
        match &self.apart {
            Some(apart) => drop(apart.with_mounts(command.args(apart.mount_arguments()))?),
            None => drop(command.arg(&self.cluster)),
        }
        command.arg(&point);
        self.mounts[mount].start(&mut command, &logs)?;
        self.mounts[mount].ready()
    }

    /// Detaches the kernel's mount of a dead process.
    pub fn detach(&self, mount: usize) {
        let point = std::ffi::CString::new(self.point(mount).to_string_lossy().as_bytes()).expect("no zero in a path");
        // SAFETY: a string that outlives the call.
        unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH) };
    }

    /// Stops everything like an operator: mounts, the MDT, OSTs.
    pub fn stop(&mut self) -> Outcome {
        for process in self.mounts.iter_mut().chain(&mut self.servers) {
            process.signal(libc::SIGTERM);
            process.wait()?;
        }
        Ok(())
    }

    /// Runs fsck on all targets, which must not be served.
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

    /// Sets the striping of a new file, or of new files in a directory.
    pub fn setstripe(&self, path: &Path, stripes: &[&str]) -> Outcome {
        output(self.forebay.command(&["setstripe"]).args(stripes).arg(path)).map(drop)
    }

    /// The output of `forebay status --json`.
    pub fn status(&self) -> Outcome<serde_json::Value> {
        let mut status = self.forebay.command(&["status", "--json"]);
        status.arg(&self.cluster);
        let said = match &self.apart {
            Some(apart) => output(apart.with_servers(&mut status)?)?,
            None => output(&mut status)?,
        };
        serde_json::from_str(&said).map_err(|error| format!("status: {error}"))
    }

    /// Removes everything after a success.
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
