//! A cluster on hosts that the demo makes, set up with the commands that an administrator types: `up --listen` on the first
//! host, then for each other one a token and `join`. All connections between hosts are TLS with their keys.

use std::process::Command;

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    paths::utf8,
    processes::this_program,
};

use super::{
    base::Base,
    hosts::{Hosts, Wiring, address, why_none},
};
use crate::mount_point;

/// Port of the MGS.
const PORT: u16 = 4500;
/// The host of the programs that write is this many before the last one, where they read.
pub const WRITER_BEFORE_LAST: usize = 1;

/// Refuses what cannot work, before anything is made.
pub fn refuse_without() -> CliResult {
    why_none().map_or(Ok(()), |why| Err(CliError::failed(format!("--hosts: {why}"))))?;
    forebay_fuse::check_device().map_err(|why| CliError::failed(format!("--hosts needs mounts: {why}")))
}

/// Makes the hosts and the cluster: the first host has the MDT and an OST, each other one an OST.
pub fn build(base: &Base, ost_bytes: u64, mdt_bytes: u64) -> CliResult<(Hosts, Vec<Cluster>)> {
    let count = base.hosts.unwrap_or(1);
    let hosts = Hosts::make(&Base::prefix(), Wiring::plain(count)).map_err(CliError::failed)?;
    mount_point::make(&base.mnt())?;
    mount_point::make(&base.other_mnt())?;
    let dir = |host| utf8(&base.cluster_of(host));
    let (ost, mdt) = (ost_bytes.to_string(), mdt_bytes.to_string());
    let listen = mgs();
    let up = ["up", &dir(1)?, "--no-mount", "--separate", "--listen", &listen, "--osts", "1"];
    run(base, &hosts, 1, &[&up[..], &["--ost-size", &ost, "--mdt-size", &mdt]].concat())?;
    for host in 2..=count {
        let token = new_token(base, &hosts, "ost")?;
        let name = format!("host{host}");
        let join = ["join", &listen, &token, &dir(host)?, "--osts", "1", "--ost-size", &ost, "--name", &name];
        run(base, &hosts, host, &join)?;
    }
    let parts = (1..=count).map(|host| Cluster::load(&base.cluster_of(host))).collect::<CliResult<_>>()?;
    Ok((hosts, parts))
}

/// Mounts on the last host, by the address of the MGS. The first time it joins as a client.
pub fn mount_as_client(hosts: &Hosts, base: &Base) -> CliResult {
    let (listen, mnt) = (mgs(), utf8(&base.other_mnt())?);
    let mount = ["mount", &listen, &mnt];
    let host = base.hosts.unwrap_or(1);
    if base.home().exists() {
        return run(base, hosts, host, &mount).map(drop);
    }
    let token = new_token(base, hosts, "client")?;
    run(base, hosts, host, &[&mount[..], &["--token", &token]].concat()).map(drop)
}

fn mgs() -> String {
    format!("{}:{PORT}", address(0, 1))
}

fn new_token(base: &Base, hosts: &Hosts, role: &str) -> CliResult<String> {
    let said = run(base, hosts, 1, &["token", "new", &utf8(&base.cluster_of(1))?, "--role", role])?;
    said.lines().last().map(str::to_owned).ok_or_else(|| CliError::failed("token new has printed no token"))
}

/// Runs this program on a host. Returns what it printed.
fn run(base: &Base, hosts: &Hosts, host: usize, words: &[&str]) -> CliResult<String> {
    let mut command: Command = this_program();
    command.args(words).env("FOREBAY_HOME", base.home());
    hosts.run_in(host, command).map_err(|error| {
        CliError::failed(format!("on host {host}, {}", error.replacen("/proc/self/exe", "forebay", 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::hosts::{Rate, existing};
    use super::*;

    #[test]
    fn a_rate_has_a_number_and_a_unit() {
        for text in ["1gbit", "100mbit", "512kbit", "1500mbit"] {
            assert_eq!(text.parse::<Rate>().expect(text).to_string(), text);
        }
        for text in ["", "1", "gbit", "0mbit", "1 gbit", "1gb", "-1gbit", "99999999999gbit"] {
            assert!(text.parse::<Rate>().expect_err(text).contains("100mbit"), "{text}");
        }
    }

    #[test]
    fn hosts_that_are_dropped_or_cannot_be_made_leave_no_namespace_behind() {
        if let Some(why) = why_none() {
            eprintln!("skipped: {why}");
            return;
        }
        let prefix = format!("fb{}-half", std::process::id());
        let rate = Some("1gbit".parse().expect("a rate"));
        let hosts = Hosts::make(&prefix, Wiring { hosts: 2, rails: 2, rate }).expect("two hosts");
        let names = ["host1", "host2", "switch"].map(|name| format!("{prefix}-{name}"));
        let mut found = existing(&prefix);
        found.sort();
        assert_eq!(found, names);
        let mut look = Command::new("cat");
        look.arg("/proc/net/fib_trie");
        assert!(hosts.run_in(2, look).expect("it runs").contains("10.77.1.2"), "a command is on its host");
        drop(hosts);
        assert_eq!(existing(&prefix), Vec::<String>::new());
        // Somebody has a host of that name, which stays.
        let ip =
            |action: &str| Command::new("ip").args(["netns", action, &names[1]]).status().expect("it runs").success();
        assert!(ip("add"));
        let error = Hosts::make(&prefix, Wiring::plain(3)).map(drop);
        let left = existing(&prefix);
        assert!(ip("delete"));
        assert!(error.expect_err("it cannot be made").contains("exists"));
        assert_eq!(left, names[1..2]);
    }
}
