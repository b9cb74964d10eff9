//! Mounts over directories that they need.

use std::{fs, path::Path, process::Command};

use super::{
    at_once,
    common::{
        Scratch, forebay,
        mounts::{Mounts, can_mount, run},
        words,
    },
};

/// up --mount at the cluster, at a directory that holds it, through a link | refused, before anything is made
#[test]
fn up_does_not_mount_over_the_directory_that_holds_its_cluster() {
    let scratch = Scratch::new("over");
    let base = Path::new(scratch.path()).join("base");
    let (dir, link) = (base.join("c"), Path::new(scratch.path()).join("link"));
    fs::create_dir(&base).expect("made");
    std::os::unix::fs::symlink(&base, &link).expect("a link");
    for mnt in [&base, &dir, &link, &link.join("c"), Path::new(scratch.path()), Path::new("/")] {
        let mut up = forebay();
        up.arg("up").arg(&dir).args(["--osts", "1", "--ost-size", "128MiB", "--mdt-size", "128MiB", "--mount"]);
        let refused = at_once(up.arg(mnt));
        let said = words(&refused);
        assert!(
            refused.status.code() == Some(2) && said.contains("would hide the cluster"),
            "{}: {said}",
            mnt.display()
        );
        assert!(
            !dir.join("cluster.toml").exists() && !dir.join("run").exists(),
            "{}: something was made",
            mnt.display()
        );
    }
}

/// mount over a cluster that is served: itself, a directory that holds it, by a bind mount, a target of it | refused;
/// next to it allowed
#[test]
fn mount_does_not_hide_what_its_servers_work_in() {
    let Some(mounts) = Mounts::new("hides") else { return };
    let scratch = mounts.scratch.path();
    let bound = Scratch::new("hides-bound");
    run(Command::new("mount").args(["--bind", scratch, bound.path()]));
    let at = |name: &str| format!("{scratch}/{name}");
    let places = [
        (at("c"), "would hide the cluster"),
        (scratch.to_owned(), "would hide the cluster"),
        (bound.path().to_owned(), "would hide the cluster"),
        (format!("{}/c", bound.path()), "would hide the cluster"),
        (at("c/OST0001"), "the directory of OST0001"),
        (at("c/run"), "the servers' sockets"),
        (format!("{}/c/log", bound.path()), "the servers' logs"),
    ];
    let answers: Vec<_> =
        places.iter().map(|(place, _)| at_once(forebay().arg("mount").arg(mounts.cluster()).arg(place))).collect();
    run(Command::new("umount").arg(bound.path()));
    for ((place, expected), refused) in places.iter().zip(answers) {
        let said = words(&refused);
        assert!(refused.status.code() == Some(2) && said.contains(expected), "{place}: {said}");
    }
    fs::create_dir(at("c/inside")).expect("made");
    run(forebay().arg("mount").arg(mounts.cluster()).arg(at("c/inside")));
    run(forebay().arg("umount").arg(at("c/inside")));
    assert!(can_mount());
}
