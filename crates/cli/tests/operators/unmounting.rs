//! Mounts that are in use when they are unmounted.

use std::{fs, io::Write, path::Path, process::Command};

use super::{
    Program, at_once,
    common::{
        forebay,
        mounts::{Mounts, process_of, run, signal, soon},
        words,
    },
};

fn is_mounted(mnt: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    table.lines().any(|line| line.split(' ').nth(4) == mnt.to_str())
}

/// A program whose working directory is the mount.
fn sit_in(mnt: &Path) -> Program {
    Program(Command::new("sleep").arg("600").current_dir(mnt).spawn().expect("it starts"))
}

/// a program's directory is the mount | umount names it; umount -l returns, and names it; mount again and down name it,
/// without a wait
#[test]
fn umount_names_holders_at_once() {
    let Some(mounts) = Mounts::new("sits") else { return };
    let mnt = mounts.first.clone();
    fs::write(mnt.join("f"), "kept").expect("written");
    let mut sitting = sit_in(&mnt);
    let named = format!("sleep (process {}: working directory)", sitting.0.id());
    let call = |words: &[&str], place: &str| at_once(forebay().args(words).arg(place));
    let (place, cluster) = (mnt.to_str().expect("UTF-8"), mounts.cluster());

    let busy = call(&["umount"], place);
    assert!(busy.status.code() == Some(1) && words(&busy).contains(&named), "{}", words(&busy));
    let down = call(&["down"], &cluster);
    assert!(down.status.code() == Some(1) && words(&down).contains(&named), "{}", words(&down));
    assert!(is_mounted(&mnt) && is_mounted(&mounts.second), "nothing was changed");

    let lazily = call(&["umount", "-l"], place);
    assert!(lazily.status.success() && words(&lazily).contains(&named), "{}", words(&lazily));
    assert!(!is_mounted(&mnt));
    let refused = call(&["umount"], place);
    let said = words(&refused);
    assert!(refused.status.code() == Some(1) && said.contains(&named) && said.contains("--force"), "{said}");
    // The mount point is free for another mount.
    let again = call(&["mount", &cluster], place);
    assert!(again.status.success() && words(&again).contains(&named), "{}", words(&again));
    assert_eq!(fs::read(mnt.join("f")).expect("read"), b"kept");
    let inside = format!("/proc/{}/cwd/f", sitting.0.id());
    assert_eq!(fs::read(&inside).expect("read there, too"), b"kept");
    let down = call(&["down"], &cluster);
    assert!(down.status.code() == Some(1) && words(&down).contains(&named), "{}", words(&down));

    sitting.end();
    // A command called from within the mount does not hold it.
    run(Command::new(env!("CARGO_BIN_EXE_forebay")).arg("umount").arg(&mnt).current_dir(&mnt));
    run(forebay().args(["down", &cluster]));
}

/// a mount namespace has the mount | umount is done, and names the holder; down names a user of the mount there, and
/// ends the mount when there is none
#[test]
fn a_mount_namespace_that_keeps_a_mount_is_named_and_holds_nobody_up() {
    let Some(mounts) = Mounts::new("namespace") else { return };
    let mut contained = Command::new("unshare");
    contained.args(["--mount", "--propagation", "private", "sleep", "600"]);
    let mut contained = Program(contained.spawn().expect("it starts"));
    let (mnt, pid) = (mounts.first.clone(), contained.0.id());
    let own = fs::read_link("/proc/self/ns/mnt").expect("a namespace");
    let is_apart = || {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name == "sleep\n" && fs::read_link(format!("/proc/{pid}/ns/mnt")).is_ok_and(|its| its != own)
    };
    assert!(soon(is_apart), "a namespace of its own");
    let named = format!("sleep (process {pid}: its mount namespace has it at");
    let umount = at_once(forebay().arg("umount").arg(&mnt));
    assert!(umount.status.success() && words(&umount).contains(&named), "{}", words(&umount));
    assert!(!is_mounted(&mnt));
    let inside = format!("/proc/{pid}/root{}/f", mnt.display());
    fs::write(&inside, "of the container").expect("it goes on there");
    let open = fs::File::open(&inside).expect("it opens");
    let down = at_once(forebay().args(["down", &mounts.cluster()]));
    let user = format!("(process {}: open file)", std::process::id());
    assert!(down.status.code() == Some(1) && words(&down).contains(&user), "{}", words(&down));
    assert!(is_mounted(&mounts.second), "nothing was changed");
    drop(open);
    let down = at_once(forebay().args(["down", &mounts.cluster()]));
    assert!(down.status.success(), "{}", words(&down));
    contained.end();
    run(forebay().args(["up", &mounts.cluster()]));
    assert_eq!(fs::read(mnt.join("f")).expect("read"), b"of the container");
}

/// servers die, and a program waits in a call without any visible use of the mount | umount reports it, and what it
/// waits for
#[test]
fn a_program_that_waits_in_a_call_is_told_of_with_what_it_waits_for() {
    let Some(mounts) = Mounts::new("in-a-call") else { return };
    mounts.kill_servers();
    let mut waiting = Command::new("sh");
    waiting.args(["-c", "echo late > m1/f"]).current_dir(mounts.scratch.path());
    let mut waiting = Program(waiting.spawn().expect("it starts"));
    // Before its call the program does not hold the mount, and umount would succeed. A mount notes a call after a second.
    // The exit code says that the servers do not answer.
    let status = || forebay().args(["status", &mounts.cluster(), "--json"]).output().expect("it runs").stdout;
    let waits = || serde_json::from_slice::<serde_json::Value>(&status()).expect("JSON")["waiting_mounts"].take();
    assert!(soon(|| waits()[0]["requests"] == 1), "{}", waits());
    let refused = words(&at_once(forebay().arg("umount").arg(&mounts.first)));
    assert!(refused.contains("a program that waits in a call there (for MDT0000, which"), "{refused}");
    mounts.bring_back();
    assert!(waiting.0.wait().expect("it ends").success());
    run(forebay().arg("umount").arg(&mounts.first));
}

/// write, no sync; the mount is stopped, and another mount opens the file |the stopped one is evicted; it goes on| umount
/// says that something is lost
#[test]
fn umount_fails_if_the_mount_lost_what_was_written() {
    let Some(mounts) = Mounts::new("lost") else { return };
    let (mnt, file) = (mounts.first.clone(), mounts.first.join("f"));
    let open = fs::File::create(&file).expect("made");
    (&open).write_all(b"synced").expect("written");
    open.sync_all().expect("it syncs");
    drop(open);
    // The file is open in a process that starts no other: starting one closes copies of its descriptors, which waits for
    // the mount.
    let writes = "exec 3<>m1/f && printf %099999d 7 >&3 && : >written && exec sleep 600";
    let mut writer = Command::new("sh");
    let mut writer =
        Program(writer.args(["-c", writes]).current_dir(mounts.scratch.path()).spawn().expect("it starts"));
    assert!(soon(|| mnt.with_file_name("written").exists()));
    let pid = process_of(&mnt);
    signal("-STOP", &pid);
    // It waits until the stopped mount is evicted.
    let seen = fs::read(mounts.second.join("f"));
    signal("-CONT", &pid);
    writer.end();
    assert!(seen.expect("read") == b"synced", "all was written before the mount was stopped");
    let umount = forebay().arg("umount").arg(&mnt).output().expect("it runs");
    let said = words(&umount);
    assert!(umount.status.code() == Some(1) && said.contains("is durable"), "{said}");
    assert!(!is_mounted(&mnt));
    // It is said once.
    run(forebay().args(["mount", &mounts.cluster()]).arg(&mnt));
    fs::write(&file, "new").expect("written");
    run(forebay().arg("umount").arg(&mnt));
}

/// servers die; umount waits for the mount's process |the process is killed| umount says so
#[test]
fn umount_fails_if_the_process_of_the_mount_is_killed_meanwhile() {
    let Some(mounts) = Mounts::new("killed") else { return };
    let mnt = mounts.first.clone();
    fs::write(mnt.join("f"), "not sent").expect("written");
    let pid = process_of(&mnt);
    mounts.kill_servers();
    let umount = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .arg("umount")
        .arg(&mnt)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    assert!(soon(|| !is_mounted(&mnt)), "the kernel lets it go");
    signal("-9", &pid);
    let umount = umount.wait_with_output().expect("it ends");
    let said = words(&umount);
    assert!(umount.status.code() == Some(1) && said.contains(&format!("its process {pid} was killed")), "{said}");
    mounts.bring_back();
}
