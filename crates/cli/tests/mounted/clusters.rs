//! Which cluster a mount and a directory belong to; layouts that cannot be.

use std::{fs, path::Path};

use crate::common::{
    Scratch, forebay,
    mounts::{Mounts, can_mount, run},
    words,
};

#[test]
fn layouts_that_change_nothing_or_cannot_be_are_not_taken_in_silence() {
    let Some(mounts) = Mounts::new("layouts") else { return };
    let (dir, file) = (mounts.first.join("d"), mounts.first.join("f"));
    fs::create_dir(&dir).expect("made");
    fs::write(&file, "x").expect("written");
    let say = |flags: &[&str], path: &Path| {
        let output = forebay().arg("setstripe").args(flags).arg(path).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (flags, path, code, said) in [
        (&[][..], &dir, 2, "-c COUNT"),
        (&["-d"], &file, 2, "-d is for directories"),
        (&["-p", "foo"], &dir, 1, "-p foo: there is no such pool"),
        (&["-i", "7"], &dir, 1, "there are 2 OSTs, 0 to 1"),
        (&["-c", "99"], &dir, 1, "there are 2 OSTs"),
        (&["-c", "2"], &file, 1, "forebay migrate"),
        (&["-E", "1M", "-c", "1"], &dir, 2, "-E -1"),
        (&["-c", "2"], &dir, 0, ""),
        (&["-d"], &dir, 0, ""),
    ] {
        let (got, words) = say(flags, path);
        assert!(got == Some(code) && words.contains(said) && words.is_empty() == said.is_empty(), "{flags:?}: {words}");
    }
    // A path within the mount names its cluster; no other cluster can be made there.
    let status = forebay().args(["status", "."]).current_dir(&dir).output().expect("it runs");
    assert!(status.status.success() && String::from_utf8_lossy(&status.stdout).contains("OST0001"));
    let up = forebay().arg("up").arg(dir.join("c")).output().expect("it runs");
    let said = String::from_utf8_lossy(&up.stderr).into_owned();
    assert!(up.status.code() == Some(1) && said.contains("is on the mount at"), "{said}");
}

#[test]
fn down_takes_every_mount_of_its_cluster_away() {
    let Some(mounts) = Mounts::new("down") else { return };
    run(forebay().args(["down", &mounts.cluster()]));
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel's table");
    assert!(!table.contains(mounts.scratch.path()), "{table}");
}

/// two clusters, and one mount point that the first remembers | the second is mounted there | the first leaves it alone
#[test]
fn down_leaves_a_mount_point_that_another_cluster_uses_now() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("taken");
    let [one, other, mnt] = ["one", "other", "mnt"].map(|name| format!("{}/{name}", scratch.path()));
    let small = ["--osts", "1", "--ost-size", "64MiB", "--mdt-size", "64MiB", "--mount", &mnt];
    run(forebay().args(["up", &one]).args(small));
    run(forebay().args(["umount", &mnt]));
    run(forebay().args(["up", &other]).args(small));
    let file = format!("{mnt}/file");
    fs::write(&file, "the other's").expect("written");
    let refused = forebay().args(["up", &one]).output().expect("it runs");
    assert!(!refused.status.success() && words(&refused).contains("is a mount already, of"), "{refused:?}");
    for force in [&["--force"][..], &[]] {
        run(forebay().args(["up", &one, "--no-mount"]));
        run(forebay().args(["down", &one]).args(force));
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "the other's");
    }
    run(forebay().args(["down", &other]));
}
