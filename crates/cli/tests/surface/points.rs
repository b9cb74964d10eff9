//! Mount points: what is covered, what is refused.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{
    self, forebay,
    mounts::{Mounts, run},
};

#[test]
fn a_mount_covers_what_lies_there_and_is_refused_where_one_is_or_nothing_answers() {
    let Some(mounts) = Mounts::new("points") else { return };
    let busy = PathBuf::from(mounts.scratch.path()).join("busy");
    fs::create_dir(&busy).expect("made");
    fs::write(busy.join("under"), b"x").expect("written");
    let held = File::open(busy.join("under")).expect("open");
    fs::write(mounts.first.join("over"), b"y").expect("written");
    let mount = |what: &str, at: &Path, options: &[&str]| {
        let output = forebay().arg("mount").args(options).arg(what).arg(at).output().expect("it runs");
        (output.status.code(), common::words(&output))
    };
    let cluster = mounts.cluster();
    assert_eq!(mount(&cluster, &busy, &[]).0, Some(0));
    assert!(!busy.join("under").exists() && busy.join("over").exists());
    let (code, said) = mount(&cluster, &busy, &[]);
    assert!(code == Some(1) && said.contains("is a mount already"), "{said}");
    run(forebay().arg("umount").arg(&busy));
    assert_eq!(std::io::read_to_string(&held).expect("read"), "x");
    for (options, words) in [("frobnicate", "no such option"), ("commit=soon", "memory, data or commit")] {
        let (code, said) = mount(&cluster, &busy, &["-o", options]);
        assert!(code == Some(2) && said.contains(words), "{options}: {said}");
    }
    // A description with another cluster's uuid than the one that replies there.
    let file = format!("{cluster}/cluster.toml");
    let described = fs::read_to_string(&file).expect("a description");
    let uuid = described.split('"').nth(1).expect("its uuid");
    fs::write(&file, described.replace(uuid, "01234567-89ab-cdef-0123-456789abcdef")).expect("changed");
    let (code, said) = mount(&cluster, &busy, &[]);
    assert!(code == Some(1) && said.contains(uuid) && said.contains("01234567-89ab"), "{said}");
    fs::write(&file, described).expect("changed back");
    let (code, said) = mount(&cluster, &busy.join("under"), &[]);
    assert!(code == Some(2) && said.contains("not a directory"), "{said}");
    assert!(busy.join("under").exists(), "nothing is mounted there");
    let missing = busy.join("missing");
    let (code, said) = mount(&cluster, &missing, &[]);
    assert!(code == Some(1) && said.contains(&format!("`mkdir {}`", missing.display())), "{said}");
    let helper = Path::new(mounts.scratch.path()).join("mount.forebay");
    let helped = Command::new(&helper).arg(&cluster).arg(&missing).args(["-o", "rw"]).output().expect("it runs");
    assert!(helped.status.code() == Some(32) && common::words(&helped).contains("does not exist"), "{helped:?}");
    assert!(!missing.exists(), "nothing is made");
}
