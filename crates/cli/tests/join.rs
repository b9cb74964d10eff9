//! Three hosts become a cluster as README's section "Several hosts" shows it, and what is refused on the way. The hosts are
//! network namespaces: needs root, `ip` and /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the administrator

mod common;

use std::{
    fs::{self, File},
    io::Write,
    net::TcpListener,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use common::{
    hosts::{SECRET, Wire},
    joined::{MGS, Site},
    mounts::soon,
    words,
};

const SMALL: [&str; 4] = ["--ost-size", "128MiB", "--osts", "1"];

/// two joins, two mounts, write on one, read on the other, all processes killed, read again
#[test]
fn three_hosts_become_a_cluster_that_survives_a_reboot_and_the_wire_shows_nothing() {
    let Some(site) = Site::new("three") else { return };
    let wire = Wire::tap(&site.hosts, 1);
    site.joins(1, &site.token("ost"), "b", &[&SMALL[..], &["--name", "h2"]].concat());
    site.joins(2, &site.token("ost"), "c", &[&SMALL[..], &["--name", "h3"]].concat());
    let listed = site.hosts.succeeds(0, &["node", "list", &site.path("a")]);
    assert!(listed.contains("h2") && listed.contains("OST0001") && listed.contains("OST0002"), "{listed}");
    // A host that joined mounts with what it has; a client has only a token.
    let (m1, m2) = (site.path("m1"), site.path("m2"));
    site.hosts.succeeds(1, &["mount", &site.path("b"), &m1]);
    let mounted = site.mount(2, &["--token", &site.token("client")], "m2");
    assert!(mounted.status.success(), "{}", words(&mounted));
    site.hosts.succeeds(1, &["setstripe", "-c", "-1", &m1]);
    let bytes = SECRET.repeat(4 << 15);
    let file = Path::new(&m1).join("result");
    fs::write(&file, &bytes).and_then(|()| File::open(&file)?.sync_all()).expect("written and synced");
    let stripes = site.hosts.succeeds(1, &["getstripe", "-c", &file.to_string_lossy()]);
    assert_eq!(stripes.trim(), "3");
    assert!(fs::read(Path::new(&m2).join("result")).expect("read on the other host") == bytes);
    // A mount of the first host reaches the MDT through a socket, and the others' OSTs over the network.
    let m0 = site.path("m0");
    site.hosts.succeeds(0, &["mount", &site.path("a"), &m0]);
    assert!(fs::read(Path::new(&m0).join("result")).expect("read on the first host") == bytes);
    site.hosts.succeeds(0, &["umount", &m0]);
    // A reboot of all three: nobody stops anything.
    for dir in ["a", "b", "c"] {
        let pid = fs::read_to_string(site.path(&format!("{dir}/run/servers.pid"))).expect("a pid");
        let pid: i32 = pid.split_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a number");
        // SAFETY: a server of this test.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    }
    site.hosts.succeeds(1, &["umount", "--force", &m1]);
    let _ = site.hosts.forebay(2, &["umount", "--force", &m2]);
    for (host, dir) in [(1, "b"), (0, "a"), (2, "c")] {
        site.hosts.succeeds(host, &["up", &site.path(dir), "--no-mount"]);
    }
    // The client joins only once.
    let mounted = site.mount(2, &[], "m2");
    assert!(mounted.status.success(), "{}", words(&mounted));
    assert!(fs::read(Path::new(&m2).join("result")).expect("read after the reboot") == bytes);
    let status = site.hosts.succeeds(2, &["status", &site.path("c")]);
    assert!(status.contains("MDT0000") && status.contains("OST0001"), "{status}");
    // The tap may miss packets.
    let heard = wire.bytes.load(Ordering::SeqCst);
    assert!(heard > bytes.len() as u64 / 4, "the tap has heard {heard} bytes");
    assert!(!wire.seen.load(Ordering::SeqCst), "the wire shows what was written");
}

#[test]
fn whoever_may_not_join_is_told_why_and_leaves_nothing_behind() {
    let Some(site) = Site::new("no") else { return };
    let ost = site.token("ost");
    for (token, more, said) in [
        ("nonsense", &SMALL[..], "begins with forebay-token-"),
        (&ost[..ost.len() - 4], &SMALL, "cut off"),
        (&ost, &[], "give --osts"),
        (&ost, &["--osts", "1", "--ost-size", "1MiB"], "--ost-size 1 MiB: use 64"),
        (&ost, &["--osts", "1", "--ost-size", "900TiB"], "a smaller --ost-size"),
        (&ost, &["--osts", "1", "--ost-size", "128MiB", "--listen", "10.77.0.9:4500"], "cannot listen at"),
        (&ost, &["--osts", "1", "--ost-size", "128MiB", "--listen", "0.0.0.0:4500"], "clients are told this address"),
        (&ost, &["--osts", "1", "--ost-size", "128MiB", "--name", "a b"], "cannot be a node's name"),
        (&ost, &["--mdt"], "one MDT per cluster"),
    ] {
        site.refused(1, token, more, said);
    }
    let busy = site.hosts.on(1, || TcpListener::bind("10.77.0.2:4600").expect("a port")).join().expect("bound");
    site.refused(1, &ost, &[&SMALL[..], &["--listen", "10.77.0.2:4600"]].concat(), "cannot listen at");
    drop(busy);
    site.joins(1, &ost, "b", &[&SMALL[..], &["--name", "h2"]].concat());
    // Again, as after a reboot.
    site.joins(1, &ost, "b", &SMALL);
    site.refused(2, &ost, &[&SMALL[..], &["--name", "h3"]].concat(), "ost h2 has joined with this token");
    site.refused(2, &site.token("ost"), &[&SMALL[..], &["--name", "h2"]].concat(), "has ost h2 already");
    site.refused(2, &site.token("client"), &SMALL, "leave --osts out");
    let short = site.hosts.succeeds(0, &["token", "new", &site.path("a"), "--role", "ost", "--ttl", "1s"]);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    site.refused(2, short.trim(), &SMALL, "the token has ended");
    site.hosts.fails(0, &["join", MGS, &site.token("ost"), &site.path("a"), "--osts", "1"], "a cluster of its own");
    // Another cluster's token, at this cluster's MGS.
    let shape = ["--osts=1", "--ost-size=128MiB", "--mdt-size=128MiB", "--no-mount", "--listen=10.77.0.3:4500"];
    site.hosts.succeeds(2, &[&["up", &site.path("c")][..], &shape].concat());
    let token = site.hosts.succeeds(2, &["token", "new", &site.path("c"), "--role", "ost"]);
    site.refused(1, token.trim(), &SMALL, "another cluster");
    for (role, said) in [("mds", "no host joins as mds"), ("king", "not a role")] {
        site.hosts.fails(0, &["token", "new", &site.path("a"), "--role", role], said);
    }
    // An MGS that is away.
    site.hosts.succeeds(2, &["down", &site.path("c")]);
    let output = site.hosts.forebay(1, &["join", "10.77.0.3:4500", token.trim(), &site.path("away"), "--osts", "1"]);
    assert!(words(&output).contains("does not answer"), "{}", words(&output));
}

/// Bytes that the second host's OST has received by each of its addresses.
fn received(site: &Site) -> Vec<u64> {
    let status = site.hosts.succeeds(1, &["status", &site.path("b"), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let targets = status["targets"].as_array().expect("targets");
    let ost = targets.iter().find(|target| target["name"] == "OST0001").expect("it is listed");
    let networks = ost["networks"].as_array().expect("networks");
    networks.iter().map(|network| network["received_bytes"].as_u64().expect("a number")).collect()
}

/// write; cut one network without a sign, write on; heal it, write
#[test]
fn two_networks_are_used_together_and_one_that_goes_dead_costs_no_error() {
    let Some(site) = Site::new("two") else { return };
    let listen = ["--listen", "10.77.0.2:4500", "--listen", "10.77.1.2:4500"];
    site.joins(1, &site.token("ost"), "b", &[&SMALL[..], &listen, &["--name", "h2"]].concat());
    let m2 = site.path("m2");
    let mounted = site.mount(2, &["--token", &site.token("client")], "m2");
    assert!(mounted.status.success(), "{}", words(&mounted));
    site.hosts.succeeds(2, &["setstripe", "-c", "1", "-i", "1", &m2]);
    let bytes = SECRET.repeat(1 << 15);
    let file = Path::new(&m2).join("result");
    let write = |count: usize| {
        let mut open = File::create(&file).expect("created");
        (0..count).for_each(|_| open.write_all(&bytes).expect("written"));
        open.sync_all().expect("synced");
    };
    write(1);
    std::thread::sleep(Duration::from_secs(2));
    let before = received(&site);
    write(32);
    let brought: Vec<u64> = received(&site).iter().zip(&before).map(|(after, before)| after - before).collect();
    assert!(brought.len() == 2 && brought.iter().all(|bytes| *bytes > 6 << 20), "{brought:?}");
    site.hosts.cut_second(2);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        write(4);
    }
    assert!(begun.elapsed() < Duration::from_secs(14), "{:?}", begun.elapsed());
    site.hosts.heal_second(2);
    let healed = received(&site)[1];
    let is_used = || {
        write(4);
        received(&site)[1] > healed + (2 << 20)
    };
    let begun = Instant::now();
    while !is_used() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the second network is not used again");
    }
    assert!(fs::read(&file).expect("it reads") == bytes.repeat(4));
}

#[test]
fn a_ban_ends_a_mount_within_seconds_and_a_removed_host_joins_anew() {
    let Some(site) = Site::new("ban") else { return };
    let (a, m1) = (site.path("a"), site.path("m1"));
    let mounted = site.mount(1, &["--token", &site.token("client")], "m1");
    assert!(mounted.status.success(), "{}", words(&mounted));
    fs::write(Path::new(&m1).join("f"), "before").expect("written");
    let listed: serde_json::Value =
        serde_json::from_str(&site.hosts.succeeds(0, &["node", "list", &a, "--json"])).expect("JSON");
    let name = listed["nodes"][0]["name"].as_str().expect("a name").to_owned();
    assert_eq!((&listed["nodes"][0]["role"], &listed["nodes"][0]["state"]), (&"client".into(), &"member".into()));
    site.hosts.fails(0, &["node", "ban", &a, "nobody"], "no node called nobody");
    site.hosts.succeeds(0, &["node", "ban", &a, &name, "--role", "client"]);
    let log = || fs::read_to_string(site.path("a/log/servers.log")).unwrap_or_default();
    assert!(soon(|| log().contains(&format!("client {name} is banned"))), "{}", log());
    let mut command = site.hosts.command(1);
    let status = command.env("FOREBAY_HOME", site.path("home")).args(["status", MGS]).output().expect("it runs");
    assert!(!status.status.success());
    site.hosts.succeeds(0, &["node", "ban", &a, &name, "--role", "client", "--lift"]);
    assert_eq!(fs::read_to_string(Path::new(&m1).join("f")).expect("it reads"), "before");
    site.hosts.succeeds(1, &["umount", &m1]);
    site.hosts.succeeds(0, &["node", "remove", &a, &name]);
    let refused = site.mount(1, &[], "m1");
    assert!(!refused.status.success(), "a removed host has mounted");
    fs::remove_dir_all(site.path("home/keys")).expect("its keys");
    let mounted = site.mount(1, &["--token", &site.token("client")], "m1");
    assert!(mounted.status.success(), "{}", words(&mounted));
}
