//! Where a target may be formatted, and what is left if that fails.

use std::{fs, path::Path, process::Output};

use super::{
    at_once,
    common::{Scratch, forebay, words},
};

fn format(dir: &Path, flags: &[&str]) -> Output {
    at_once(forebay().args(["format", "mdt"]).arg(dir).args(flags))
}

#[test]
fn a_directory_that_holds_other_things_is_not_formatted() {
    let scratch = Scratch::new("etc");
    let at = |name: &str| Path::new(scratch.path()).join(name);
    for name in ["etc", "copy"] {
        fs::create_dir(at(name)).expect("made");
        fs::write(at(name).join("lock"), "somebody's").expect("written");
    }
    fs::write(at("witness"), "somebody's").expect("written");
    let (copy, witness) = (at("copy"), at("witness"));
    let (copy, witness) = (copy.to_str().expect("UTF-8"), witness.to_str().expect("UTF-8"));
    let small = ["--size", "64MiB"];
    for (name, flags, expected) in [
        ("etc", &small[..], "other things (lock)"),
        ("new", &["--size", "64MiB", "--mirror", copy], "other things (lock)"),
        ("new", &["--size", "64MiB", "--mirror", &format!("{copy}2"), "--witness", witness], "holds something"),
    ] {
        let refused = format(&at(name), flags);
        assert!(refused.status.code() == Some(1) && words(&refused).contains(expected), "{}", words(&refused));
    }
    for file in ["etc/lock", "copy/lock", "witness"] {
        assert_eq!(fs::read(at(file)).expect("there"), b"somebody's", "{file}");
    }
    let mut names = scratch.names();
    names.sort();
    assert_eq!(names, ["copy", "etc", "witness"], "nothing else was made");

    assert!(format(&at("mdt"), &["--size", "64MiB", "--mirror", &format!("{copy}2")]).status.success());
    fs::remove_dir_all(at("copy2")).expect("lost");
    let replace = at_once(forebay().args(["mirror", "replace"]).arg(at("mdt")).arg(copy));
    assert!(!replace.status.success() && words(&replace).contains("other things"), "{}", words(&replace));
    assert_eq!(fs::read(at("copy/lock")).expect("there"), b"somebody's");
}

/// format that fails at its data, after its journal was made | nothing is left, and the next makes a journal of its own
/// size
#[test]
fn a_format_that_fails_leaves_nothing_behind() {
    let scratch = Scratch::new("failed-format");
    let dir = Path::new(scratch.path()).join("a/mdt");
    let failed = format(&dir, &["--size", "4096TiB", "--slab-size", "1GiB", "--journal-size", "32MiB"]);
    assert!(!failed.status.success(), "no disk has that");
    assert!(scratch.names().is_empty(), "{:?}: {}", scratch.names(), words(&failed));
    // The same in an existing directory.
    fs::create_dir_all(&dir).expect("made");
    assert!(!format(&dir, &["--size", "4096TiB", "--slab-size", "1GiB", "--journal-size", "32MiB"]).status.success());
    assert_eq!(fs::read_dir(&dir).expect("it stays").count(), 0);
    let made = format(&dir, &["--size", "64MiB"]);
    assert!(made.status.success(), "{}", words(&made));
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(said.contains("16 MiB for the journal"), "{said}");
    assert_eq!(fs::metadata(dir.join("journal")).expect("there").len(), 16 << 20);
    let again = format(&dir, &["--size", "64MiB"]);
    assert!(!again.status.success() && words(&again).contains("holds a target already"), "{}", words(&again));
}
