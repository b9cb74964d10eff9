//! Hosts on one machine: network namespaces with a switch between them.
//!
//! Host 1 has the address 10.77.0.1. With several rails each host has an interface on each, in a subnet of its own:
//! host 2 has 10.77.1.2 on the second rail. A bridge per rail, in one more namespace, joins them.
//!
//! Invariant: hosts that are dropped, or that could not be made, leave no namespace behind.
//! Not here: processes on the hosts. Whoever starts them ends them.
//!
//! It needs only std and libc: `xtask` and the tests of this program use the same file. Its own tests are in `on_hosts`,
//! to run once.
#![allow(dead_code)] // each of those who share it needs a part

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io::{self, ErrorKind},
    os::{fd::AsRawFd, unix::process::CommandExt},
    path::PathBuf,
    process::Command,
    str::FromStr,
    thread,
};

/// Most hosts: each takes an address of its subnets.
pub const MOST_HOSTS: usize = 200;
/// Most rails.
pub const MOST_RAILS: usize = 8;
/// Where ip(8) keeps the names of namespaces.
const NAMES: &str = "/run/netns";
/// Bytes that an interface may send at once, apart from its rate: a segment that the kernel cuts later, and some more.
const LEAST_BURST: u64 = 128 << 10;
/// Ticks per second of a slow kernel: in one tick a whole burst can be sent.
const TICKS: u64 = 100;

/// Bits per second of an interface, as tc(8) has it: `1gbit`, `100mbit`, `512kbit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "kbit" => 1_000,
            "mbit" => 1_000_000,
            "gbit" => 1_000_000_000,
            _ => 0,
        };
        let bits = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|bits| *bits > 0);
        bits.map(Self).ok_or_else(|| format!("'{text}' is not a rate: give one as 1gbit, 100mbit or 512kbit"))
    }
}

impl Rate {
    /// What it is.
    pub fn bits_per_s(self) -> u64 {
        self.0
    }

    /// Bytes of a burst.
    fn burst(self) -> u64 {
        (self.0 / 8 / TICKS).max(LEAST_BURST)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits => write!(f, "{}kbit", bits / 1_000),
        }
    }
}

/// Which hosts there are to be.
#[derive(Clone, Copy, Debug)]
pub struct Wiring {
    /// How many.
    pub hosts: usize,
    /// Interfaces of each.
    pub rails: usize,
    /// What each interface can send and receive; `None` = as much as the machine can.
    pub rate: Option<Rate>,
}

impl Wiring {
    /// Hosts with one interface each, which nothing limits.
    pub fn plain(hosts: usize) -> Self {
        Self { hosts, rails: 1, rate: None }
    }

    /// Hosts that somebody else joins.
    pub fn without_rails(hosts: usize) -> Self {
        Self { hosts, rails: 0, rate: None }
    }
}

/// Hosts, numbered from 1.
#[derive(Debug)]
pub struct Hosts {
    prefix: String,
    /// The namespaces that were made: the switch, then the hosts.
    made: Vec<String>,
    is_kept: bool,
}

impl Hosts {
    /// Makes hosts called `PREFIX-host1` and so on. The error says what to do.
    pub fn make(prefix: &str, wiring: Wiring) -> Result<Self, String> {
        if let Some(why) = why_none() {
            return Err(why);
        }
        // Dropped if one of the next steps fails.
        let mut hosts = Self { prefix: prefix.to_owned(), made: Vec::new(), is_kept: false };
        let switch = hosts.switch();
        hosts.add(&switch)?;
        for rail in 0..wiring.rails {
            ip(&format!("-n {switch} link add rail{rail} type bridge"))?;
            ip(&format!("-n {switch} link set rail{rail} up"))?;
        }
        for host in 1..=wiring.hosts {
            let name = hosts.name(host);
            hosts.add(&name)?;
            ip(&format!("-n {name} link set lo up"))?;
            for rail in 0..wiring.rails {
                let (port, inner) = (format!("host{host}r{rail}"), format!("rail{rail}"));
                ip(&format!("link add {inner} netns {name} type veth peer name {port} netns {switch}"))?;
                ip(&format!("-n {switch} link set {port} master {inner} up"))?;
                ip(&format!("-n {name} address add {}/24 dev {inner}", address(rail, host)))?;
                ip(&format!("-n {name} link set {inner} up"))?;
                // What the host sends, and what it receives: the switch sends that.
                if let Some(rate) = wiring.rate {
                    limit(&name, &inner, rate)?;
                    limit(&switch, &port, rate)?;
                }
            }
        }
        Ok(hosts)
    }

    /// Leaves the hosts there when this value is dropped.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    /// The name of a host's namespace.
    pub fn name(&self, host: usize) -> String {
        format!("{}-host{host}", self.prefix)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.prefix)
    }

    fn add(&mut self, name: &str) -> Result<(), String> {
        ip(&format!("netns add {name}")).map_err(|error| {
            let more = if PathBuf::from(NAMES).join(name).exists() { "" } else { IN_CONTAINERS };
            format!("{error}{more}")
        })?;
        self.made.push(name.to_owned());
        Ok(())
    }

    /// Pulls a host's plug of a rail out of the switch: neither side is told.
    pub fn unplug(&self, host: usize, rail: usize) -> Result<(), String> {
        ip(&format!("-n {} link set host{host}r{rail} nomaster", self.switch())).map(drop)
    }

    /// Puts it in again.
    pub fn plug(&self, host: usize, rail: usize) -> Result<(), String> {
        ip(&format!("-n {} link set host{host}r{rail} master rail{rail}", self.switch())).map(drop)
    }

    /// Lets a command run on a host.
    pub fn enter<'c>(&self, host: usize, command: &'c mut Command) -> Result<&'c mut Command, String> {
        let network = self.network(host)?;
        // SAFETY: between fork and exec it makes one system call, which passes no memory.
        Ok(unsafe { command.pre_exec(move || join(&network)) })
    }

    /// Runs a command on a host to its end. Returns what it printed; the error has what it complained about.
    pub fn run_in(&self, host: usize, mut command: Command) -> Result<String, String> {
        said(self.enter(host, &mut command)?)
    }

    /// Does something on a thread that is on a host, as are the processes that it starts.
    pub fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        let network = self.network(host)?;
        let entered = || join(&network).map_err(|error| format!("cannot be on {}: {error}", self.name(host)));
        thread::scope(|scope| {
            let thread = scope.spawn(|| entered().map(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The file of a host's network.
    fn network(&self, host: usize) -> Result<File, String> {
        let path = PathBuf::from(NAMES).join(self.name(host));
        File::open(&path).map_err(|error| format!("{} has gone: {error}", path.display()))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if !self.is_kept {
            // One that is gone was removed by somebody else.
            self.made.iter().rev().for_each(|name| drop(remove(name)));
        }
    }
}

/// What may be wrong besides.
const IN_CONTAINERS: &str = " (in a container, it needs CAP_SYS_ADMIN and CAP_NET_ADMIN: `docker run --privileged`)";

/// The address of a host on a rail. Rails count from 0, hosts from 1.
pub fn address(rail: usize, host: usize) -> String {
    format!("10.77.{rail}.{host}")
}

/// Why this machine can have no hosts, and what to do about it; `None` if it can.
pub fn why_none() -> Option<String> {
    // SAFETY: a call without memory.
    if unsafe { libc::geteuid() } != 0 {
        return Some("hosts are network namespaces, which only root can make: call it as root (sudo)".into());
    }
    match Command::new("ip").arg("-V").output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Some("hosts need ip(8): install iproute2, then call it again".into())
        }
        Err(error) => Some(format!("hosts need ip(8), which cannot be run: {error}")),
        // SAFETY: a call without memory. It changes its thread alone, which ends.
        Ok(_) => match thread::spawn(|| unsafe { libc::unshare(libc::CLONE_NEWNET) }).join() {
            Ok(0) => None,
            _ => Some(format!("this process may make no network namespaces{IN_CONTAINERS}")),
        },
    }
}

/// The names of the namespaces of hosts with this prefix, their switch included.
pub fn existing(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_ours = |name: &String| match name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')) {
        Some("switch") => true,
        Some(rest) => rest.strip_prefix("host").is_some_and(|number| number.parse::<usize>().is_ok()),
        None => false,
    };
    let mut names: Vec<String> = names.filter(is_ours).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// The names of namespaces of hosts whose prefix is this one and the number of a process that has ended.
pub fn abandoned(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let prefixes = names.filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned()));
    let has_ended = |found: &String| {
        let number = found.strip_prefix(prefix).and_then(|rest| rest.split('-').next());
        let number = number.filter(|digits| digits.parse::<u32>().is_ok());
        number.is_some_and(|number| !PathBuf::from("/proc").join(number).exists())
    };
    let prefixes: BTreeSet<String> = prefixes.filter(has_ended).collect();
    prefixes.iter().flat_map(|prefix| existing(prefix)).collect()
}

/// Processes in a namespace.
pub fn processes(name: &str) -> Vec<u32> {
    let said = ip(&format!("netns pids {name}")).unwrap_or_default();
    said.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Removes a namespace. Its processes go on without a network to others.
pub fn remove(name: &str) -> Result<(), String> {
    ip(&format!("netns delete {name}")).map(drop)
}

/// Takes this thread to a network.
fn join(network: &File) -> io::Result<()> {
    // SAFETY: an open descriptor; the call changes this thread alone.
    match unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn limit(namespace: &str, interface: &str, rate: Rate) -> Result<(), String> {
    let mut tc = Command::new("tc");
    let burst = rate.burst();
    let words = format!("-n {namespace} qdisc add dev {interface} root tbf rate {rate} burst {burst}b latency 50ms");
    said(tc.args(words.split(' '))).map(drop).map_err(|error| {
        format!("{error}: a rate needs tc(8) of iproute2 and a kernel with the queueing discipline TBF (sch_tbf)")
    })
}

fn ip(words: &str) -> Result<String, String> {
    said(Command::new("ip").args(words.split(' ')))
}

/// Runs a command to its end. Returns its stdout; the error has its stderr.
fn said(command: &mut Command) -> Result<String, String> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let shown = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(match complaint.trim() {
        "" => format!("{shown}: {}", output.status),
        complaint => format!("{shown}: {complaint}"),
    })
}
