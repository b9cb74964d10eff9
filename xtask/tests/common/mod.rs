//! `xtask` as a user runs it. Needs root and /dev/fuse; says so and does nothing where they are not.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Runs `xtask ARGS --dir DIR`, `dir` being a new directory's name in `place`; it has to succeed.
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
