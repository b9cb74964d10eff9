//! User errors: each gets a message that says what to do and a non-zero exit code, and loses no data.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::FileExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use common::{
    Scratch, forebay,
    mounts::{can_mount, soon},
    site::Site,
    words,
};

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    file.write_all_at(bytes, at).expect("written");
}

#[test]
fn a_clean_stop_leaves_nothing_to_recover() {
    let site = Site::new("clean");
    fs::write(site.path("log/servers.log"), "").expect("emptied");
    assert!(site.up().status.success());
    site.down();
    let log = site.log();
    assert_eq!(log.matches("opened after a clean stop").count(), 3, "{log}");
    assert!(!log.contains("recovering"), "{log}");
}

#[test]
fn a_newer_format_is_refused_and_left_as_it_is() {
    let site = Site::new("newer");
    let identity = site.path("OST0001/identity");
    let before = fs::read(&identity).expect("an identity");
    overwrite(&identity, 8, &[99]);
    site.refuses("another format version");
    let fsck = forebay().args(["fsck".as_ref(), site.path("OST0001").as_os_str()]).output().expect("it runs");
    assert!(fsck.status.code() == Some(8) && words(&fsck).contains("release that wrote it"), "{}", words(&fsck));
    overwrite(&identity, 0, &before);
    site.is_well();
}

#[test]
fn a_target_of_another_cluster_is_refused() {
    let (site, other) = (Site::new("joined"), Site::new("other"));
    fs::rename(site.path("OST0001"), site.path("kept")).expect("moved");
    fs::rename(other.path("OST0001"), site.path("OST0001")).expect("moved");
    site.refuses("belongs to cluster");
    fs::rename(site.path("OST0001"), other.path("OST0001")).expect("moved");
    fs::rename(site.path("kept"), site.path("OST0001")).expect("moved");
    site.is_well();
    other.is_well();
}

#[test]
fn swapped_directories_are_refused() {
    let site = Site::new("swapped");
    let swap = || {
        for (from, to) in [("OST0000", "t"), ("OST0001", "OST0000"), ("t", "OST0001")] {
            fs::rename(site.path(from), site.path(to)).expect("moved");
        }
    };
    swap();
    site.refuses("swapped");
    swap();
    site.is_well();
}

#[test]
fn a_cut_or_rotten_device_is_refused_and_named() {
    let site = Site::new("cut");
    for (name, said) in
        [("OST0000/data", "cut short"), ("OST0001/journal", "cut short"), ("MDT0000/journal", "cut short")]
    {
        let path = site.path(name);
        let bytes = fs::read(&path).expect("it is there");
        File::options().write(true).open(&path).expect("opened").set_len(bytes.len() as u64 / 2).expect("cut");
        site.refuses(said);
        fs::write(&path, bytes).expect("brought back");
        site.is_well();
    }
    let journal = site.path("OST0000/journal");
    let bytes = fs::read(&journal).expect("it is there");
    overwrite(&journal, 0, &[0x5a; 64 << 10]);
    site.refuses("fsck");
    fs::write(&journal, bytes).expect("brought back");
    site.is_well();
}

#[test]
fn a_missing_or_empty_identity_is_no_target() {
    let site = Site::new("identity");
    let identity = site.path("OST0000/identity");
    let bytes = fs::read(&identity).expect("an identity");
    fs::write(&identity, "").expect("emptied");
    site.refuses("identity");
    fs::remove_file(&identity).expect("removed");
    // The others are served without it (`operators`, lost targets).
    let output = site.up();
    assert!(output.status.code() == Some(1) && words(&output).contains("OST0000 is lost"), "{}", words(&output));
    let output = forebay().args(["down", site.scratch.path()]).output().expect("it runs");
    assert!(output.status.code() == Some(1) && words(&output).contains("OST0000 is lost"), "{}", words(&output));
    fs::write(&identity, bytes).expect("brought back");
    site.is_well();
}

#[test]
fn a_directory_with_other_things_in_it_is_not_made_a_cluster() {
    let scratch = Scratch::new("foreign");
    fs::write(Path::new(scratch.path()).join("thesis.tex"), "dear").expect("written");
    let output = forebay().args(["up", scratch.path(), "--no-mount"]).output().expect("it runs");
    assert!(output.status.code() == Some(1) && words(&output).contains("thesis.tex"), "{}", words(&output));
    assert_eq!(scratch.names(), ["thesis.tex"]);
    let output = forebay()
        .args(["serve", scratch.path(), "--listen", "127.0.0.1:0", "--insecure-loopback"])
        .output()
        .expect("it runs");
    assert!(output.status.code() == Some(1) && words(&output).contains("forebay format"), "{}", words(&output));
    assert_eq!(scratch.names(), ["thesis.tex"]);
}

/// format --data and --mirror-data, mirror replace --data and --journal, of files that hold something, another target's
/// data among them | refused, and each unchanged; a blank one is accepted, and with the flag any
#[test]
fn devices_that_hold_something_are_not_taken_for_data() {
    let scratch = Scratch::new("taken");
    let at = |name: &str| Path::new(scratch.path()).join(name);
    let format = |dir: &str, kind: &str, flags: &[&str]| {
        let mut command = forebay();
        command.arg("format").arg(kind).arg(at(dir)).args(["--size", "64MiB", "--journal-size", "16MiB"]);
        command.args(["--cluster", "01234567-89ab-cdef-0123-456789abcdef"]);
        for flag in flags {
            if flag.starts_with("--") {
                command.arg(flag)
            } else {
                command.arg(at(flag))
            };
        }
        command.output().expect("it runs")
    };
    let device = |name: &str, byte: Option<u8>| {
        let file = File::create_new(at(name)).expect("made");
        file.set_len(80 << 20).expect("set");
        if let Some(byte) = byte {
            file.write_all_at(&[byte; 100], 70_000).expect("written");
        }
    };
    ["blank", "spare"].iter().for_each(|name| device(name, None));
    ["theirs", "others"].iter().for_each(|name| device(name, Some(7)));
    let first = format("ost0", "ost", &["--data", "blank"]);
    assert!(first.status.success(), "{}", words(&first));
    for (taken, flag) in [("blank", "--data"), ("theirs", "--data"), ("theirs", "--mirror-data")] {
        let before = fs::read(at(taken)).expect("read");
        let refused = match flag {
            "--data" => format("ost1", "ost", &["--data", taken]),
            _ => format("mdt1", "mdt", &["--mirror", "copy1", "--mirror-data", taken]),
        };
        assert_eq!(refused.status.code(), Some(1), "{}", words(&refused));
        let said = words(&refused);
        assert!(said.contains("holds something already") && said.contains("--overwrite-data"), "{said}");
        assert!(fs::read(at(taken)).expect("read") == before, "{taken} is as it was");
    }
    let meant = format("ost1", "ost", &["--data", "theirs", "--overwrite-data"]);
    assert!(meant.status.success(), "{}", words(&meant));

    let mirrored = format("mdt", "mdt", &["--mirror", "copy"]);
    assert!(mirrored.status.success(), "{}", words(&mirrored));
    fs::remove_dir_all(at("copy")).expect("lost");
    let replace = |flags: &[&str]| {
        let mut command = forebay();
        command.args(["mirror", "replace"]).arg(at("mdt")).arg(at("new"));
        for flag in flags {
            if flag.starts_with("--") {
                command.arg(flag)
            } else {
                command.arg(at(flag))
            };
        }
        command.output().expect("it runs")
    };
    for flag in ["--data", "--journal"] {
        let before = fs::read(at("others")).expect("read");
        let refused = replace(&[flag, "others"]);
        assert!(!refused.status.success() && words(&refused).contains("--overwrite"), "{}", words(&refused));
        assert!(fs::read(at("others")).expect("read") == before, "others is as it was");
    }
    let taken = replace(&["--data", "others", "--journal", "spare", "--overwrite"]);
    assert!(taken.status.success(), "{}", words(&taken));
    // It is a copy of this target now, so repeating the command needs no flag.
    let again = replace(&["--data", "others", "--journal", "spare"]);
    assert!(again.status.success(), "{}", words(&again));
}

#[test]
fn a_port_in_use_is_named() {
    let scratch = Scratch::new("port");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let dir = scratch.path();
    let flags = ["up", dir, "--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount", "--listen"];
    let output = forebay().args(flags).arg(&address).output().expect("it runs");
    let said = words(&output);
    assert!(output.status.code() == Some(1) && said.contains(&address) && said.contains("in use"), "{said}");
    let port = taken.local_addr().expect("an address").port();
    // The port of its OST; an address of no machine; a port that differs at each start.
    for (listen, code, expected) in [
        (format!("127.0.0.1:{}", port - 1), 1, "in use"),
        ("192.0.2.1:4500".into(), 1, "use an address of this host"),
        ("127.0.0.1:0".into(), 2, "give a port"),
    ] {
        let output = forebay().args(flags).arg(&listen).output().expect("it runs");
        assert!(
            output.status.code() == Some(code) && words(&output).contains(expected),
            "{listen}: {}",
            words(&output)
        );
    }
    assert!(scratch.names().is_empty(), "nothing is left behind: {:?}", scratch.names());
    drop(taken);
    assert!(forebay().args(flags).arg(&address).status().expect("it runs").success());
    assert!(forebay().args(["down", dir]).status().expect("it runs").success());
}

/// serve with the key of an OST's host for an MDT, with keys of another cluster, and of a host that serves nothing
#[test]
fn a_key_that_may_not_serve_a_target_is_refused_when_its_server_starts() {
    let site = Site::new("role");
    let at = |name: &str| site.path(name).to_string_lossy().into_owned();
    let succeeds = |words_of_it: &[&str]| {
        let output = forebay().args(words_of_it).output().expect("it runs");
        assert!(output.status.success(), "{}", words(&output));
    };
    for (name, role) in [("ost", "ost"), ("router", "router")] {
        succeeds(&["keys", "for", &at("keys"), &at(name), "--role", role, "--name", "n1"]);
    }
    succeeds(&["keys", "new", &at("other"), "--cluster", "11111111-2222-3333-4444-555555555555"]);
    for (keys, target, expected) in [
        ("ost", "MDT0000", "may not serve MDT0000"),
        ("ost", "MDT0000", "--role mds --name n1"),
        ("router", "OST0000", "--role ost --name n1"),
        ("other", "OST0001", "of cluster 11111111-2222-3333-4444-555555555555"),
    ] {
        // It would serve for good.
        let mut serve = Command::new("timeout");
        serve.arg("30").arg(forebay().get_program()).args(["serve", "--map", &at("cluster.toml"), "--keys", &at(keys)]);
        let output =
            serve.args(["--listen", "127.0.0.1:0", &at(target)]).output().expect("timeout is part of coreutils");
        let said = words(&output);
        assert!(output.status.code() == Some(1) && said.contains(expected), "{keys} {target}: {said}");
    }
}

/// A client without keys, then an administrator whose keys were made again for the same cluster
#[test]
fn servers_that_are_not_believed_are_told_from_those_that_are_down() {
    let scratch = Scratch::new("unbelieved");
    let (dir, at) = (scratch.path(), |name: &str| format!("{}/{name}", scratch.path()));
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB"];
    let up = forebay().args(["up", dir, "--no-mount", "--listen", &address]).args(sizes).output().expect("it runs");
    assert!(up.status.success(), "{}", words(&up));
    let says = |arguments: &[&str], all: &[&str]| {
        let output = forebay().args(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output);
        let is_clear = output.status.code() == Some(1) && all.iter().all(|words| said.contains(words));
        assert!(is_clear, "{arguments:?}: {said}");
    };
    for command in ["status", "df", "sync"] {
        says(&[command, "--insecure-loopback", &address], &["wants TLS", "--keys DIR", &address]);
    }
    let map = fs::read_to_string(at("cluster.toml")).expect("a description");
    let cluster = map.split('"').nth(1).expect("its uuid");
    fs::rename(at("keys"), at("kept")).expect("moved");
    let new = forebay().args(["keys", "new", &at("keys"), "--cluster", cluster]).output().expect("it runs");
    assert!(new.status.success(), "{}", words(&new));
    let why = "is of another authority with the name of this cluster's";
    for command in ["status", "df"] {
        says(&[command, dir], &["OST0000: tcp:127.0.0.1:", why, "OST0000 cannot be asked"]);
    }
    says(&["status", dir], &["refused"]);
    fs::remove_dir_all(at("keys")).and_then(|()| fs::rename(at("kept"), at("keys"))).expect("brought back");
    let status = forebay().args(["status", dir]).output().expect("it runs");
    assert!(status.status.success(), "{}", words(&status));
    assert!(forebay().args(["down", dir]).status().expect("it runs").success());
}

/// A frame header of a future version; the first six bytes are the same in all versions.
fn frame_of_version(version: u16) -> [u8; 128] {
    let mut frame = [0; 128];
    frame[..4].copy_from_slice(b"FBF1");
    frame[4..6].copy_from_slice(&version.to_le_bytes());
    frame
}

#[test]
fn a_client_of_another_version_is_told_which_version_this_is() {
    let site = Site::new("client-version");
    assert!(site.up().status.success());
    let mut socket = std::os::unix::net::UnixStream::connect(site.path("run/OST0000.sock")).expect("connected");
    socket.write_all(&frame_of_version(999)).expect("sent");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("answered, then closed");
    assert_eq!((&answer[..4], u16::from_le_bytes([answer[4], answer[5]]) == 999), (&b"FBF1"[..], false));
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("speaks version 999") && text.contains("same release"), "{text}");
    assert!(site.log().contains("speaks version 999"), "{}", site.log());
    site.down();
}

#[test]
fn a_server_of_another_version_is_told_from_a_silent_one() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.expect("accepted");
            let mut request = [0; 128];
            let _ = stream.read_exact(&mut request);
            let _ = stream.write_all(&frame_of_version(999));
        }
    });
    for command in ["status", "df", "sync"] {
        let output = forebay().args([command, "--insecure-loopback", &address]).output().expect("it runs");
        let said = words(&output);
        assert!(output.status.code() == Some(1) && said.contains("speaks version 999"), "{command}: {said}");
    }
}

/// At the address is another program, which sends a few bytes and waits; or an OST
#[test]
fn wrong_server_is_distinguished_from_silent_mgs() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        let greet = |stream: std::io::Result<TcpStream>| {
            let mut stream = stream.expect("accepted");
            let _ = stream.write_all(b"SSH-2.0-x\r\n");
            stream
        };
        listener.incoming().map(greet).collect::<Vec<_>>()
    });
    let site = Site::new("wrong-role");
    site.comes_up();
    let ost = format!("unix:{}", site.path("run/OST0000.sock").display());
    for (address, expected) in [(&other, "does not speak Forebay's protocol"), (&ost, "OST0000 does not keep")] {
        for command in [&["mount"][..], &["status"]] {
            let mut call = forebay();
            call.args(command).args(["--insecure-loopback", address]);
            if command == ["mount"] {
                call.arg(site.scratch.path());
            }
            let output = call.output().expect("it runs");
            let said = words(&output);
            let is_clear =
                said.contains(expected) && said.contains("the address of MDT0000") && !said.contains("waiting");
            assert!(output.status.code() == Some(1) && is_clear, "{command:?} {address}: {said}");
        }
    }
    site.down();
}

#[test]
fn a_server_that_hangs_is_told_from_one_that_is_down() {
    let site = Site::new("hangs");
    site.comes_up();
    let noted = fs::read_to_string(site.path("run/servers.pid")).expect("they run");
    let pid = noted.split(' ').next().expect("a pid");
    let signal = |name: &str| Command::new("kill").args([name, pid]).status().expect("it runs");
    assert!(signal("-STOP").success());
    let (status, said, code) = site.status();
    assert!(signal("-CONT").success());
    let is_clear = said.contains("no answer within 5s") && said.contains("OST0001 gave no answer");
    assert!(status["targets"][0]["state"] == "no answer" && is_clear && code == Some(1), "{said}");
    site.down();
}

/// `forebay mount` of unreachable servers, and Ctrl-C
#[test]
fn a_mount_that_is_interrupted_leaves_no_process_that_would_stand_in_the_way_of_the_next() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("interrupted");
    let mnt = format!("{}/mnt", scratch.path());
    fs::create_dir(&mnt).expect("made");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port that nobody answers at");
    let address = listener.local_addr().expect("an address").to_string();
    let mut mount = forebay();
    let mut child =
        mount.args(["mount", "--insecure-loopback", &address, &mnt]).process_group(0).spawn().expect("it runs");
    let ours = || {
        let output = Command::new("pgrep")
            .args(["-f", &format!("mount -f --background --insecure-loopback -- {address}")])
            .output();
        !output.expect("pgrep is part of procps").stdout.is_empty()
    };
    assert!(soon(ours), "the process that would be the mount");
    // A second mount waits, and says for what.
    let mut second = forebay()
        .args(["mount", "--insecure-loopback", &address, &mnt])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut said = String::new();
    BufReader::new(second.stderr.take().expect("piped")).read_line(&mut said).expect("it says something");
    assert!(said.contains("is about to mount") && said.contains("waiting up to 20 s"), "{said}");
    second.kill().and_then(|()| second.wait()).expect("ended");
    // Ctrl-C sends the signal to the process group.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().expect("it runs").success());
    assert!(!child.wait().expect("it ends").success());
    assert!(soon(|| !ours()), "it is still there");
}
