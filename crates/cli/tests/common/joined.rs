//! A cluster that other hosts join.

use std::{fs, path::Path, process::Output};

use super::{Scratch, hosts::Hosts, words};

pub const MGS: &str = "10.77.0.1:4500";

/// A cluster on the first host, which the others may join.
pub struct Site {
    pub hosts: Hosts,
    scratch: Scratch,
}

impl Site {
    pub fn new(name: &str) -> Option<Self> {
        let site = Self { hosts: Hosts::new(name, 3)?, scratch: Scratch::new(&format!("join-{name}")) };
        let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB"];
        let up = ["up", &site.path("a"), "--no-mount", "--listen", MGS];
        site.hosts.succeeds(0, &[&up[..], &sizes].concat());
        for name in ["m0", "m1", "m2", "home"] {
            fs::create_dir(site.path(name)).expect("made");
        }
        Some(site)
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.scratch.path())
    }

    pub fn token(&self, role: &str) -> String {
        self.token_for(role, &[])
    }

    pub fn token_for(&self, role: &str, more: &[&str]) -> String {
        let new = ["token", "new", &self.path("a"), "--role", role, "--ttl", "1h"];
        let said = self.hosts.succeeds(0, &[&new[..], more].concat());
        said.lines().last().expect("a token").to_owned()
    }

    pub fn join(&self, host: usize, token: &str, dir: &str, more: &[&str]) -> Output {
        let dir = self.path(dir);
        self.hosts.forebay(host, &[&["join", MGS, token, &dir][..], more].concat())
    }

    pub fn joins(&self, host: usize, token: &str, dir: &str, more: &[&str]) {
        let output = self.join(host, token, dir, more);
        assert!(output.status.success(), "{}", words(&output));
    }

    pub fn refused(&self, host: usize, token: &str, more: &[&str], said: &str) {
        let output = self.join(host, token, "refused", more);
        assert!(!output.status.success() && words(&output).contains(said), "{said}: {}", words(&output));
        assert!(!Path::new(&self.path("refused")).exists(), "{said}: it leaves nothing behind");
    }

    /// A mount of a host that has its keys in a home of its own.
    pub fn mount(&self, host: usize, more: &[&str], mnt: &str) -> Output {
        let mut command = self.hosts.command(host);
        command.env("FOREBAY_HOME", self.path("home")).args(["mount", MGS, &self.path(mnt)]).args(more);
        command.output().expect("it runs")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for mnt in ["m0", "m1", "m2"] {
            let _ = self.hosts.forebay(1, &["umount", "--force", &self.path(mnt)]);
        }
        for dir in ["b", "c", "a"] {
            let _ = self.hosts.forebay(0, &["down", &self.path(dir), "--force"]);
        }
    }
}
