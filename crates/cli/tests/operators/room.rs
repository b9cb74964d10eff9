//! How much space a new cluster takes.

use std::{path::Path, process::Command};

use super::{
    at_once,
    common::{Scratch, forebay, mounts::can_mount, mounts::run, words},
};

fn free_mib(path: &str) -> u64 {
    let output = Command::new("df").args(["--output=avail", "-m", path]).output().expect("df runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().nth(1).and_then(|line| line.trim().parse().ok()).expect("a number")
}

/// up without sizes, on file systems with little space | takes half of it, says so before, and leaves space
#[test]
fn up_says_what_it_takes_and_leaves_room() {
    if !can_mount() {
        return;
    }
    for (size, least_left) in [("1600m", 800), ("600m", 64)] {
        let scratch = Scratch::new(&format!("room-{size}"));
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", scratch.path()]));
        let dir = format!("{}/c", scratch.path());
        let up = at_once(forebay().args(["up", &dir, "--no-mount"]));
        let left = free_mib(scratch.path());
        let down = forebay().args(["down", &dir]).output().expect("it runs");
        run(Command::new("umount").arg("-l").arg(scratch.path()));
        let said = String::from_utf8_lossy(&up.stdout).into_owned() + &words(&up);
        assert!(up.status.success() && down.status.success(), "{size}: {said}");
        assert!(said.contains("allocating") && said.contains("stay free") && said.contains("each of 4 OSTs"), "{said}");
        assert!(left >= least_left, "{size}: {left} MiB are left; {said}");
        assert!(Path::new(scratch.path()).exists());
    }
}
