//! Names of files: any bytes, any length, any depth.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    os::{
        fd::AsRawFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
};

use crate::{
    common::{self, forebay, mounts::Mounts},
    make, of, same_answers,
};

#[test]
fn names_are_any_bytes_up_to_their_longest() {
    use std::os::unix::fs::symlink;
    let Some(mounts) = Mounts::new("names") else { return };
    let long = |bytes: usize| "n".repeat(bytes);
    same_answers(
        &mounts.first,
        &[
            ("255 bytes", &|dir| make(&dir.join(long(255)))),
            ("256 bytes", &|dir| make(&dir.join(long(256)))),
            ("a directory of 256", &|dir| of(fs::create_dir(dir.join(long(256))))),
            ("to look for 256", &|dir| of(fs::metadata(dir.join(long(256))))),
            ("a link with 4095", &|dir| of(symlink(long(4095), dir.join("l1")))),
            ("a link with 4096", &|dir| of(symlink(long(4096), dir.join("l2")))),
            ("an empty link", &|dir| of(symlink("", dir.join("l3")))),
            ("a file as a directory", &|dir| make(&dir.join(long(255)).join("x"))),
            ("dot", &|dir| of(fs::create_dir(dir.join(".")))),
            ("to remove dot", &|dir| of(fs::remove_dir(dir.join(".")))),
            ("to rename a directory into itself", &|dir| {
                of(fs::create_dir(dir.join("d")).and_then(|()| fs::rename(dir.join("d"), dir.join("d/e"))))
            }),
        ],
    );
    let dir = mounts.first.join("bytes");
    fs::create_dir(&dir).expect("made");
    let names: BTreeSet<Vec<u8>> =
        (1..=255u8).filter(|byte| *byte != b'/').map(|byte| vec![byte, b'x', byte]).collect();
    names.iter().for_each(|name| assert_eq!(make(&dir.join(OsStr::from_bytes(name))), Ok(0), "{name:?}"));
    let seen = fs::read_dir(mounts.second.join("bytes")).expect("listed");
    let seen: BTreeSet<Vec<u8>> = seen.map(|entry| entry.expect("an entry").file_name().into_vec()).collect();
    assert_eq!(seen, names);
    let mut deep = mounts.first.clone();
    for _ in 0..200 {
        deep.push("deep");
        fs::create_dir(&deep).expect("made");
    }
    fs::write(deep.join("f"), b"x").expect("written");
    assert_eq!(fs::metadata(deep.join("f")).expect("there").len(), 1);
    // Deeper than the longest path that the kernel accepts.
    let mut held = File::open(&deep).expect("open");
    for _ in 0..20 {
        let at = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(long(255));
        fs::create_dir(&at).expect("made");
        (deep, held) = (deep.join(long(255)), File::open(&at).expect("open"));
    }
    fs::write(format!("/proc/self/fd/{}/g", held.as_raw_fd()), b"x").expect("written");
    let deepest = deep.join("g").display().to_string();
    for words in [&["find", "-name", "g", "-stripe-count", "1"][..], &["getstripe", "-r", "-q"]] {
        let output =
            forebay().arg(words[0]).arg(mounts.first.join("deep")).args(&words[1..]).output().expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && shown.lines().any(|line| line == deepest), "{}", common::words(&output));
    }
}
