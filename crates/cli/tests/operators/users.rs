//! Clusters of unprivileged users, and what a user sees of another user's cluster.

use std::{fs, path::Path, process::Command};

use super::{
    at_once,
    common::{Scratch, forebay, mounts::can_mount, words},
};

/// nobody(65534): fusermount3 needs a user with a name.
const USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups env -i";

/// Whether this is root, and another user can run the program; prints a note if not.
fn can_be_another_user() -> bool {
    // SAFETY: a call without arguments that only tells.
    let is_root = unsafe { libc::geteuid() } == 0;
    let script = format!("{USER} test -x {}", env!("CARGO_BIN_EXE_forebay"));
    let can = is_root && Command::new("sh").args(["-c", &script]).status().is_ok_and(|status| status.success());
    if !can {
        eprintln!("no other user can run the program here: skipped");
    }
    can
}

/// Runs a script in a mount namespace with its own /dev/fuse (`$D`) that users may open, in a directory that all may
/// write.
fn in_namespace(scratch: &Scratch, script: &str) {
    let head = format!(
        "set -eu
        F={}; export PATH=$PATH:/sbin:/usr/sbin
        D=$PWD/device; mknod $D c 10 229; chmod 666 $D; mount --bind $D /dev/fuse
        mkdir home; chmod 777 . home
        as() {{ {USER} PATH=\"$PATH\" HOME=\"$PWD/home\" TMPDIR=\"$PWD/home\" \"$@\"; }}
        refused() {{ expected=$1; shift; if \"$@\" 2>said; then echo \"not refused: $*\"; exit 1; fi; grep -q \"$expected\" said || {{ cat said; exit 1; }}; }}
        mounted() {{ grep -q \" $PWD/$1 \" /proc/self/mountinfo; }}
        trap 'as $F down --force c >/dev/null 2>&1 || :' EXIT\n",
        env!("CARGO_BIN_EXE_forebay")
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &(head + script)]).current_dir(scratch.path());
    let output = shell.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &words(&output);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_plain_user_owns_the_root_of_the_cluster_and_unmounts_it() {
    if !can_mount() || !can_be_another_user() {
        return;
    }
    if !Path::new("/usr/bin/fusermount3").exists() && !Path::new("/bin/fusermount3").exists() {
        return eprintln!("no fusermount3 here: skipped");
    }
    let scratch = Scratch::new("plain-user");
    in_namespace(
        &scratch,
        "as $F up c --osts 1 --ost-size 128MiB --mdt-size 128MiB --mount m
        test \"$(as stat -c '%u:%g %a' m)\" = '65534:65534 755'
        as sh -c 'echo hello > m/f; mkdir m/d; echo x > m/d/g'
        as $F umount m
        ! mounted m
        as $F mount c m
        test \"$(as cat m/f)\" = hello
        as sh -c 'exec 9< m/f; timeout 20 '$F' umount m 2> home/said' && exit 1
        grep -q 'open file' home/said
        timeout 20 $F umount m
        as $F up c
        mounted m
        as sh -c 'cd m; sleep 300 & echo $! > ../home/pid'
        timeout 20 setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=$PWD/home TMPDIR=$PWD/home $F umount --lazy m 2> said
        grep -q 'working directory' said
        ! mounted m
        kill $(cat home/pid)
        as $F down c
        test -z \"$(as $F status c 2>/dev/null | grep serving)\"",
    );
}

/// /dev/fuse for root alone, a container without it, none | the true reason, and what to do
#[test]
fn a_device_that_a_user_may_not_open_is_told_from_one_that_is_missing() {
    if !can_mount() || !can_be_another_user() {
        return;
    }
    let scratch = Scratch::new("closed-device");
    in_namespace(
        &scratch,
        "chmod 600 $D
        refused 'may not open /dev/fuse (mode 0600' as $F up c --osts 1 --ost-size 128MiB --mdt-size 128MiB --mount m
        grep -v fusermount3 said | grep -q 'chmod 666'
        refused 'may not open /dev/fuse (mode 0600' as $F mount c m
        as $F down c
        umount /dev/fuse
        mkdir empty; mount --bind empty /dev
        refused 'there is no /dev/fuse' $F mount c m",
    );
}

/// status, mount, down, up, fsck of root's cluster by another user | the message names the owner, and does not suggest
/// making one
#[test]
fn a_cluster_of_another_user_is_told_from_none() {
    if !can_be_another_user() {
        return;
    }
    let scratch = Scratch::new("others");
    let dir = format!("{}/c", scratch.path());
    let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--no-mount"];
    let up = forebay().args(["up", &dir]).args(sizes).output().expect("it runs");
    assert!(up.status.success(), "{}", words(&up));
    let down = forebay().args(["down", &dir]).output().expect("it runs");
    assert!(down.status.success(), "{}", words(&down));
    for call in ["status", "down", "up --no-mount", "fsck", "df"] {
        let script = format!("{USER} {} {call} {dir}", env!("CARGO_BIN_EXE_forebay"));
        let refused = at_once(Command::new("sh").args(["-c", &script]));
        let said = words(&refused);
        assert!(!refused.status.success() && said.contains("belongs to root (user 0)"), "{call}: {said}");
        assert!(!said.contains("makes one") && !said.contains("made with"), "{call}: {said}");
    }
    assert!(fs::metadata(&dir).is_ok());
}
