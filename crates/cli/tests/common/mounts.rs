//! Two mounts of one cluster. Needs root and /dev/fuse.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::{Scratch, forebay};

/// A cluster with two mounts. It is stopped at the end of the test, even if the test fails.
pub struct Mounts {
    pub scratch: Scratch,
    pub first: PathBuf,
    pub second: PathBuf,
}

/// Whether a mount is possible; prints a note if not.
pub fn can_mount() -> bool {
    // SAFETY: a call without arguments that only tells.
    let can = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("nothing can be mounted here (not root, or no /dev/fuse): skipped");
    }
    can
}

impl Mounts {
    /// `None` if nothing can be mounted.
    pub fn new(name: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let scratch = Scratch::new(name);
        let base = PathBuf::from(scratch.path());
        let at = |what: &str| base.join(what);
        let mounts = Self { first: at("m1"), second: at("m2"), scratch };
        let (cluster, first, second) = (mounts.cluster(), mounts.first.clone(), mounts.second.clone());
        // With less space a mount does not delay small writes.
        let sizes = ["--osts", "2", "--ost-size", "512MiB", "--mdt-size", "256MiB"];
        // Mounts must reach servers that were killed within the window, also on a machine with other work.
        run(forebay().args(["up", &cluster, "--recovery-window", "10s"]).args(sizes).arg("--mount").arg(&first));
        std::fs::create_dir(&second).expect("a directory is made");
        // As mount(8) calls its helper.
        let helper = at("mount.forebay");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), &helper).expect("a link is made");
        run(Command::new(&helper).arg(&cluster).arg(&second).args([
            "-n",
            "-o",
            "rw,_netdev,defaults",
            "-t",
            "forebay",
        ]));
        Some(mounts)
    }

    pub fn cluster(&self) -> String {
        format!("{}/c", self.scratch.path())
    }

    /// Kills every server.
    pub fn kill_servers(&self) {
        let status = super::json(forebay().args(["status", &self.cluster(), "--json"]));
        let pid = status["targets"][0]["pid"].as_u64().expect("a pid").to_string();
        run(Command::new("kill").args(["-9", &pid]));
        // The kernel takes a while to clean up the process.
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
        };
        assert!(soon(is_gone), "process {pid} does not die");
    }

    /// Restarts every server that was killed.
    pub fn bring_back(&self) {
        run(forebay().args(["up", &self.cluster()]));
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = forebay().args(["umount", "--force"]).arg(&self.second).output();
        let _ = forebay().args(["umount", "--force"]).arg(&self.first).output();
        let _ = forebay().args(["down", &self.cluster(), "--force"]).output();
    }
}

/// The process of the mount at `mnt`.
pub fn process_of(mnt: &Path) -> String {
    let name = mnt.to_str().expect("a path of the tests").as_bytes();
    let is_its = |words: &[u8]| {
        let mut words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words.clone().any(|word| word == b"mount") && words.next_back() == Some(name)
    };
    let processes = std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
    let mut its = processes.filter(|it| std::fs::read(it.path().join("cmdline")).is_ok_and(|words| is_its(&words)));
    its.next().expect("it has a process").file_name().into_string().expect("a number")
}

/// Sends a signal to a process.
pub fn signal(signal: &str, pid: &str) {
    run(Command::new("kill").args([signal, pid]));
}

pub fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether `what` becomes true within a minute: on a machine with other work a few seconds may be too short.
pub fn soon(what: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        let is = what();
        if is || begun.elapsed() > Duration::from_secs(60) {
            return is;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
