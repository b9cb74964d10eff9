//! A cluster whose servers are on one host and whose mounts are on another. What goes between them is protected by keys.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Distance, Hosts, Lines, Wiring, address};
use crate::figures::{Outcome, forebay::Forebay};

/// Port of the MGS. The other servers have the ports behind it.
const PORT: u16 = 4500;
/// The host of the servers.
const SERVERS: usize = 1;
/// The host of the mounts.
const MOUNTS: usize = 2;

/// How connections between hosts are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// Nobody can change what is sent.
    IntegrityOnly,
    /// Nor read it.
    Tls,
}

/// The two hosts. Dropping this removes them.
pub struct Apart {
    /// Ends before the hosts do.
    #[allow(dead_code)] // it is there to be dropped
    lines: Option<Lines>,
    hosts: Hosts,
    rails: usize,
    protection: Protection,
    /// Where the mounts' host has its keys.
    member: PathBuf,
}

impl Apart {
    /// Makes the hosts. `cluster`: the directory that `up` will make; the keys of the mounts' host lie beside it.
    pub fn make(cluster: &Path) -> Outcome<Self> {
        Self::wired(cluster, Protection::Tls, Wiring::plain(2))
    }

    /// The same with other connections.
    pub fn wired(cluster: &Path, protection: Protection, wiring: Wiring) -> Outcome<Self> {
        let hosts = Hosts::make(&format!("fb{}", std::process::id()), Wiring { hosts: MOUNTS, ..wiring })?;
        let apart =
            Self { lines: None, hosts, rails: wiring.rails, protection, member: cluster.with_extension("member") };
        if protection == Protection::None {
            [SERVERS, MOUNTS].into_iter().try_for_each(|host| apart.join_loopbacks(host))?;
        }
        Ok(apart)
    }

    /// Hosts that are far from each other, with encrypted connections.
    pub fn far(cluster: &Path, distance: Distance) -> Outcome<Self> {
        let mut apart = Self::wired(cluster, Protection::Tls, Wiring::without_rails(MOUNTS))?;
        apart.lines = Some(Lines::between(&apart.hosts, MOUNTS, distance)?);
        apart.rails = 1;
        Ok(apart)
    }

    /// Without keys, Forebay uses loopback addresses only. The hosts get some that are routed between them, so that a
    /// measurement without keys crosses the same wire as the others.
    fn join_loopbacks(&self, host: usize) -> Outcome {
        for words in [
            "sysctl -q -w net.ipv4.conf.all.route_localnet=1",
            "sysctl -q -w net.ipv4.conf.rail0.route_localnet=1",
            // Else the whole of 127.0.0.0/8 were this host.
            "ip route delete local 127.0.0.0/8 dev lo table local",
            &format!("ip address add {}/24 dev rail0", loopback(host)),
        ] {
            let mut words = words.split(' ');
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            self.hosts.run_in(host, command)?;
        }
        Ok(())
    }

    /// The options of `forebay up` that make its servers listen.
    pub fn up_options(&self) -> Vec<String> {
        let listen = self.addresses().into_iter().flat_map(|address| ["--listen".to_owned(), address]);
        let more = match self.protection {
            Protection::None => Some("--insecure-loopback".to_owned()),
            Protection::IntegrityOnly => Some("--integrity-only".to_owned()),
            Protection::Tls => None,
        };
        listen.chain(more).collect()
    }

    /// The addresses of the MGS, one per rail.
    fn addresses(&self) -> Vec<String> {
        match self.protection {
            Protection::None => vec![format!("{}:{PORT}", loopback(SERVERS))],
            _ => (0..self.rails).map(|rail| format!("{}:{PORT}", address(rail, SERVERS))).collect(),
        }
    }

    /// Lets a command run where the servers are.
    pub fn with_servers<'c>(&self, command: &'c mut Command) -> Outcome<&'c mut Command> {
        self.hosts.enter(SERVERS, command)
    }

    /// Lets a command run where the mounts are.
    pub fn with_mounts<'c>(&self, command: &'c mut Command) -> Outcome<&'c mut Command> {
        self.hosts.enter(MOUNTS, command)
    }

    /// Lets the mounts' host join, as a client. The cluster is up.
    pub fn admit(&self, forebay: &Forebay, cluster: &Path) -> Outcome {
        if self.protection == Protection::None {
            return Ok(());
        }
        let mut new = forebay.command(&["token", "new"]);
        new.arg(cluster).args(["--role", "client"]);
        let said = self.hosts.run_in(SERVERS, new)?;
        let token = said.lines().last().ok_or("token new has printed no token")?;
        let mut join = forebay.command(&["join", &self.addresses().join(","), token, "--name", "mounts"]);
        join.args((self.protection == Protection::IntegrityOnly).then_some("--integrity-only")).arg(&self.member);
        self.hosts.run_in(MOUNTS, join).map(drop)
    }

    /// Where the mounts' host has its keys: the CLUSTER of its mounts, unless there are no keys.
    pub fn member(&self) -> &Path {
        &self.member
    }

    /// What `forebay mount` is to be called with there: options and CLUSTER.
    pub fn mount_arguments(&self) -> Vec<String> {
        match self.protection {
            Protection::None => vec!["--insecure-loopback".into(), self.addresses().join(",")],
            _ => vec![self.member.to_string_lossy().into_owned()],
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // It may not have joined.
        let _ = fs::remove_dir_all(&self.member);
    }
}

fn loopback(host: usize) -> String {
    format!("127.77.0.{host}")
}
