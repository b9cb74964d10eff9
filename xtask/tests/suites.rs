//! A short selection of `xtask suites`: `pjdfstest` whole, and some operations of `fsx` in each of its modes. Needs root and
//! /dev/fuse, says so and does nothing where they are not; and the registry, when the programs are installed the first time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

use std::{path::Path, process::Command};

fn can_mount() -> bool {
    // SAFETY: asks for a number.
    let can = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("nothing can be mounted here (not root, or no /dev/fuse): skipped");
    }
    can
}

/// other people's test suites |none| | no failure
#[test]
fn a_mount_passes_the_test_suites_of_others() {
    if !can_mount() {
        return;
    }
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    // A short path: sockets are made in it, whose names have at most 107 bytes.
    let dir = std::env::temp_dir().join(format!("forebay-suites-{}", std::process::id()));
    let mut run = Command::new(xtask);
    run.args(["suites", "--quick", "--only", "pjdfstest,fsx,fsx-two,fsx-mmap", "--operations", "3000", "--dir"])
        .arg(&dir);
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
