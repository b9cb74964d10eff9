//! Options of fstab and of remounts, and the commit level of a mount.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
};

use crate::common::{
    Scratch, forebay,
    mounts::{Mounts, can_mount, run},
    words,
};

#[test]
fn a_mount_by_its_helper_has_the_options_of_fstab() {
    let Some(mounts) = Mounts::new("helper") else { return };
    let options = |mnt: &Path| {
        let (table, mnt) = (fs::read_to_string("/proc/self/mounts").expect("it reads"), mnt.to_string_lossy());
        let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&mnt)).expect("it is mounted");
        line.split(' ').nth(3).expect("options").to_owned()
    };
    assert!(options(&mounts.first).contains("nosuid") && options(&mounts.first).contains("nodev"));
    assert!(!options(&mounts.second).contains("nosuid") && !options(&mounts.second).contains("nodev"));
    // Without FUSE's own helper, which some machines have.
    run(Command::new("mount").args(["-i", "-o", "remount,ro"]).arg(&mounts.second));
    let refused = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(mounts.second.join("x"));
    assert_eq!(refused.expect_err("it is read-only").raw_os_error(), Some(libc::EROFS));
    run(Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(&mounts.second));
    fs::write(mounts.second.join("x"), b"y").expect("it is writable again");
    assert_eq!(fs::read(mounts.first.join("x")).expect("the other mount sees it"), b"y");
    // Options that are not named stay.
    for (words, expected) in
        [("remount,ro", "ro,relatime"), ("remount,nodev", "ro,nodev,relatime"), ("rw,remount", "rw,nodev,relatime")]
    {
        run(forebay().args(["mount", "-o", words, &mounts.cluster()]).arg(&mounts.second));
        let now = options(&mounts.second);
        assert!(now.starts_with(expected), "{words}: {now}");
    }
}

/// mount(8) finds its helper in /sbin, here of a mount namespace | what fstab says; remounts of options that the kernel
/// keeps; refusals
#[test]
fn a_line_of_fstab_is_mounted_and_remounted() {
    let Some(mounts) = Mounts::new("fstab") else { return };
    let at = |what: &str| Path::new(mounts.scratch.path()).join(what);
    fs::create_dir(at("sbin")).expect("made");
    for helper in ["sbin/mount.forebay", "sbin/mount.fuse.forebay"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), at(helper)).expect("a link is made");
    }
    fs::create_dir(at("m3")).expect("made");
    let line = format!("{} {} forebay defaults,_netdev,noexec,commit=data 0 0\n", mounts.cluster(), at("m3").display());
    fs::write(at("fstab"), line).expect("written");
    let words = r#"
        mount --make-rprivate /
        mount --bind sbin /sbin
        trap 'umount -l "$PWD/m3"' EXIT
        [ -z "$(mount -f -T fstab "$PWD/m3" 2>&1)" ]; if grep "$PWD/m3" /proc/self/mounts; then exit 1; fi
        mount -T fstab "$PWD/m3"
        has() { grep " $PWD/m3 fuse.forebay " /proc/self/mounts | grep -qw "$1"; }
        hasnt() { if has "$1"; then exit 1; fi; }
        has noexec; hasnt nosuid; has rw
        echo one > m3/one
        mount -T fstab -o remount,ro "$PWD/m3"
        has noexec; has ro; [ "$(cat m3/one)" = one ]; if (echo two > m3/two); then exit 1; fi
        mount -T fstab -o remount,rw,exec,nosuid "$PWD/m3"
        has nosuid; hasnt noexec; echo two > m3/two
        refused() { status=0; mount -T fstab -o "$1" "$PWD/m3" 2> said || status=$?; [ $status = "$2" ]; grep -q "$3" said; }
        refused remount,commit=memory 1 'commit= is chosen when a mount is made'
        refused remount,frobnicate 1 'no such option'
        echo three > m3/three
        : > none
        mount -T none -o remount,ro "$PWD/m3"; has ro; mount -T none -o remount,rw "$PWD/m3"; has rw
        umount m3
        refused ro,remount 1 'is not mounted'
        mount -T fstab -s -o frobnicate "$PWD/m3"; [ "$(cat m3/three)" = three ]
    "#;
    let output =
        Command::new("unshare").args(["-m", "bash", "-euxc", words]).current_dir(at("")).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_mount_says_whose_it_is_and_keeps_the_level_it_began_with() {
    let scratch = Scratch::new("level");
    if !can_mount() {
        return;
    }
    let (dir, mnt) = (format!("{}/c", scratch.path()), format!("{}/m", scratch.path()));
    let sizes = ["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--mount", &mnt];
    let up = |level: &str| {
        let output = forebay().args(["up", &dir, "--commit", level]).args(sizes).output().expect("it runs");
        (output.status.success(), words(&output))
    };
    assert_eq!(up("commit"), (true, String::new()));
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    let line = table.lines().find(|line| line.contains(&format!(" {mnt} "))).expect("it is mounted");
    assert!(line.contains(" - fuse.forebay "), "{line}");
    assert!(up("commit").0, "as it is");
    let (done, said) = up("data");
    assert!(!done && said.contains("is mounted with commit") && said.contains("forebay umount"), "{said}");
    run(forebay().args(["umount", &mnt]));
    assert!(up("data").0);
    run(forebay().args(["down", &dir]));
}
