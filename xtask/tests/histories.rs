//! A short run of `xtask histories`: two mounts, real processes, servers killed. Needs root and /dev/fuse; says so and does
//! nothing where they are not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn can_mount() -> bool {
    // SAFETY: asks for a number.
    let can = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("nothing can be mounted here (not root, or no /dev/fuse): skipped");
    }
    can
}

/// two mounts, servers |SIGKILL| | no stale read, no lost append, one winner for every lock and name
#[test]
fn processes_on_two_mounts_see_one_file_system_while_its_servers_die() {
    if !can_mount() {
        return;
    }
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("histories-{}", std::process::id()));
    let mut run = Command::new(xtask);
    run.args(["histories", "--seconds", "10", "--dir"]).arg(&dir);
    // The test command builds the program too; where only this test is run, it is built now.
    let forebay = xtask.with_file_name("forebay");
    if forebay.exists() {
        run.arg("--program").arg(forebay);
    }
    let output = run.output().expect("it runs");
    let _ = std::fs::remove_dir_all(&dir);
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{said}");
    println!("{said}");
}
