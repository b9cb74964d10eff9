//! Two hosts with keys of one cluster, and others that have none. The hosts are network namespaces: needs root, `ip` and
//! /dev/fuse; without them the tests say so and skip.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the administrator

mod common;

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::Ordering,
};

use common::{
    Scratch,
    hosts::{Hosts, SECRET, Wire},
    mounts::soon,
    words,
};

/// Where the servers of the first host listen.
const SERVERS: &str = "10.77.0.1:4500";
/// A cluster on the first host, with keys of the second.
struct Site {
    hosts: Hosts,
    scratch: Scratch,
}

impl Site {
    fn new(name: &str) -> Option<Self> {
        let site = Self { hosts: Hosts::new(name, 2)?, scratch: Scratch::new(&format!("keys-{name}")) };
        let (dir, keys) = (site.path("c"), site.path("c/keys"));
        let sizes = ["--osts", "2", "--ost-size", "128MiB", "--mdt-size", "128MiB"];
        let up = ["up", &dir, "--no-mount", "--listen", SERVERS];
        site.hosts.succeeds(0, &[&up[..], &sizes].concat());
        site.hosts.succeeds(0, &["keys", "for", &keys, &site.path("n1"), "--role", "client", "--name", "n1"]);
        fs::create_dir(site.path("mnt")).expect("made");
        Some(site)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.scratch.path())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("c/log/servers.log")).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.hosts.forebay(1, &["umount", "--force", &self.path("mnt")]);
        let _ = self.hosts.forebay(0, &["down", &self.path("c"), "--force"]);
    }
}

#[test]
fn a_host_with_a_key_mounts_what_another_serves_and_the_wire_shows_nothing_of_it() {
    let Some(site) = Site::new("mount") else { return };
    let (mnt, keys) = (site.path("mnt"), site.path("n1"));
    let wire = Wire::tap(&site.hosts, 1);
    site.hosts.succeeds(1, &["mount", "--keys", &keys, SERVERS, &mnt]);
    let bytes = SECRET.repeat(4 << 15);
    let file = Path::new(&mnt).join("result");
    fs::write(&file, &bytes).and_then(|()| File::open(&file)?.sync_all()).expect("written and synced");
    // The servers are restarted, and the mount goes on.
    site.hosts.succeeds(0, &["down", &site.path("c"), "--force"]);
    site.hosts.succeeds(0, &["up", &site.path("c"), "--no-mount"]);
    assert!(fs::read(&file).expect("read") == bytes);
    for command in ["status", "df", "sync"] {
        site.hosts.succeeds(1, &[command, "--keys", &keys, SERVERS]);
    }
    // mount(8) repeats the options of fstab when it remounts.
    for flag in ["ro", "rw"] {
        site.hosts.succeeds(1, &["mount", "-o", &format!("remount,{flag},keys={keys}"), SERVERS, &mnt]);
    }
    for other in [format!("keys={}", site.path("c/keys")), "insecure-loopback".into()] {
        let refused = ["mount", "-o", &format!("remount,{other}"), SERVERS, &mnt];
        site.hosts.fails(1, &refused, "is chosen when a mount is made");
    }
    site.hosts.succeeds(1, &["umount", &mnt]);
    assert!(site.log().contains("client n1 at tcp:10.77.0.2:"), "{}", site.log());
    assert!(wire.bytes.load(Ordering::SeqCst) > bytes.len() as u64 / 2 && !wire.seen.load(Ordering::SeqCst));
    // Plain bytes would have been seen.
    let listener = site.hosts.on(0, || TcpListener::bind("10.77.0.1:4600").expect("a port")).join().expect("bound");
    let sent = site.hosts.on(1, || TcpStream::connect("10.77.0.1:4600").and_then(|mut to| to.write_all(SECRET)));
    sent.join().expect("it ends").expect("sent");
    drop(listener);
    assert!(soon(|| wire.seen.load(Ordering::SeqCst)), "the tap hears nothing");
}

#[test]
fn a_host_without_the_clusters_key_is_refused_in_words_and_the_log_has_one_line_of_it() {
    let Some(site) = Site::new("refused") else { return };
    let (mnt, other) = (site.path("mnt"), site.path("other"));
    site.hosts.fails(1, &["mount", SERVERS, &mnt], "--keys DIR");
    site.hosts.fails(1, &["status", "--insecure-loopback", SERVERS], "not an address of this machine");
    let uuid = "11111111-2222-3333-4444-555555555555";
    site.hosts.succeeds(1, &["keys", "new", &other, "--cluster", uuid]);
    for command in [&["mount", "--keys", &other, SERVERS, &mnt][..], &["status", "--keys", &other, SERVERS]] {
        site.hosts.fails(1, command, "another cluster");
    }
    // A key that others can read.
    let key = site.path("n1/client.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("chmod");
    site.hosts.fails(1, &["mount", "--keys", &site.path("n1"), SERVERS, &mnt], "chmod 400");
    // Plain text gets no answer in plain text.
    let before = site.log().lines().count();
    let answer = site.hosts.on(1, || {
        let mut to = TcpStream::connect(SERVERS).expect("connected");
        to.write_all(b"FBF1\x02\0 and more that is no TLS").expect("sent");
        let mut answer = Vec::new();
        let _ = to.read_to_end(&mut answer);
        answer
    });
    let answer = answer.join().expect("it ends");
    assert!(!answer.windows(4).any(|bytes| bytes == b"FBF1"), "{answer:?}");
    // The line may count refusals of before.
    let lines_of_it = || {
        let log = site.log();
        log.lines()
            .skip(before)
            .filter(|line| line.contains("does not speak TLS"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(soon(|| !lines_of_it().is_empty()), "{}", site.log());
    let lines = lines_of_it();
    assert!(lines.len() == 1 && lines[0].contains("10.77.0.2"), "{lines:?}");
    // A client's key serves nothing, and a server that has no keys does not start.
    let output = site.hosts.forebay(1, &["serve", &site.path("c/OST0000"), "--listen", "10.77.0.2:4500"]);
    assert!(words(&output).contains("TCP needs the cluster's keys"), "{}", words(&output));
}
