//! Runs `xtask` like a user. This needs root and /dev/fuse; without them it prints a message and does nothing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Runs `xtask ARGS --dir DIR` and requires success. `dir` is the name of a new directory in `place`.
pub fn run(args: &[&str], place: PathBuf, dir: &str) {
    // SAFETY: asks for a number.
    let can_mount = unsafe { libc::geteuid() } == 0 && Path::new("/dev/fuse").exists();
    if !can_mount {
        return eprintln!("nothing can be mounted here (not root, or no /dev/fuse): skipped");
    }
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let dir = place.join(format!("{dir}-{}", std::process::id()));
    let mut run = Command::new(xtask);
    run.args(args).arg("--dir").arg(&dir);
    // The test command builds the program too. If only this test is run, xtask builds it now.
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
