//! A cluster of one MDT and two OSTs for tests that damage it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use forebay_env::Address;
use serde_json::Value;

use super::{Scratch, forebay, words};

/// One MDT and two OSTs, initially stopped. They are stopped at the end of the test, even if the test fails.
pub struct Site {
    pub scratch: Scratch,
}

impl Site {
    pub fn new(name: &str) -> Self {
        let site = Self { scratch: Scratch::new(name) };
        site.comes_up();
        site.down();
        site
    }

    pub fn up(&self) -> Output {
        let sizes: &[&str] = match self.path("cluster.toml").exists() {
            false => &["--osts", "2", "--ost-size", "128MiB", "--mdt-size", "128MiB"],
            true => &[],
        };
        forebay().args(["up", self.scratch.path(), "--no-mount"]).args(sizes).output().expect("it runs")
    }

    pub fn comes_up(&self) {
        let output = self.up();
        assert!(output.status.success(), "{}", words(&output));
    }

    pub fn down(&self) {
        let output = forebay().args(["down", self.scratch.path()]).output().expect("it runs");
        assert!(output.status.success(), "{}", words(&output));
    }

    /// Formats the stopped target `name` anew on these devices.
    pub fn put_on(&self, name: &str, data: &str, journal: &str) {
        fs::remove_dir_all(self.path(name)).expect("removed");
        let map = fs::read_to_string(self.path("cluster.toml")).expect("a description");
        let cluster = map.split('"').nth(1).expect("its uuid");
        let (kind, index) = name.split_at(3);
        let output = forebay()
            .args(["format", &kind.to_lowercase(), "--index", index.trim_start_matches('0').get(..1).unwrap_or("0")])
            .args(["--cluster", cluster, "--data", data, "--journal", journal, "--slab-size", "4MiB"])
            .arg(self.path(name))
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", words(&output));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(self.scratch.path()).join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log/servers.log")).expect("there is a log")
    }

    /// The addresses of MDT0000.
    pub fn mgs(&self) -> Vec<Address> {
        vec![Address::Unix(self.path("run/MDT0000.sock").to_string_lossy().into_owned())]
    }

    /// Kills all servers at once (SIGKILL).
    pub fn kill(&self) {
        let noted = fs::read_to_string(self.path("run/servers.pid")).expect("they run");
        let pid: i32 = noted.split(' ').next().and_then(|pid| pid.parse().ok()).expect("a pid");
        // SAFETY: a call without memory.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        while Path::new(&format!("/proc/{pid}/stat")).exists() {
            std::thread::yield_now();
        }
    }

    /// `up` must fail with `said`, and leave no process behind.
    pub fn refuses(&self, said: &str) {
        let output = self.up();
        assert!(output.status.code() == Some(1) && words(&output).contains(said), "{said}: {}", words(&output));
        assert!(!self.path("run/servers.pid").exists(), "{said}: a process is left");
    }

    /// Runs `fsck` on the target `name` or, with "", on all. Returns its exit code and its output.
    pub fn fsck(&self, name: &str, flags: &[&str]) -> (Option<i32>, String) {
        let output = forebay().arg("fsck").args(flags).arg(self.path(name)).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output))
    }

    /// After the damage was undone, the cluster starts and fsck finds no problem.
    pub fn is_well(&self) {
        self.comes_up();
        self.down();
        assert_eq!(self.fsck("", &["--verify-data"]).0, Some(0), "{}", self.fsck("", &["--verify-data"]).1);
    }

    /// The output of `status`, in JSON and as text, and its exit code.
    pub fn status(&self) -> (Value, String, Option<i32>) {
        let json = forebay().args(["status", "--json", self.scratch.path()]).output().expect("it runs");
        let plain = forebay().args(["status", self.scratch.path()]).output().expect("it runs");
        let said = String::from_utf8_lossy(&plain.stdout).into_owned() + &words(&plain);
        (serde_json::from_slice(&json.stdout).expect("JSON"), said, plain.status.code())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = forebay().args(["down", self.scratch.path(), "--force"]).output();
    }
}
