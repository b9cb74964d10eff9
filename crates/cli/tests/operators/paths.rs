//! Directories whose names cannot be used.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

use super::{
    at_once,
    common::{Scratch, forebay, words},
};

#[test]
fn a_directory_name_that_is_not_utf_8_is_refused_as_such() {
    let scratch = Scratch::new("bytes");
    let dir = Path::new(scratch.path()).join(OsStr::from_bytes(b"caf\xe9"));
    for call in ["up", "down", "status"] {
        let refused = at_once(forebay().arg(call).arg(&dir).args((call == "up").then_some("--no-mount")));
        let said = words(&refused);
        assert!(!refused.status.success() && !said.contains("too long"), "{call}: {said}");
        assert!(call == "down" || said.contains("UTF-8"), "{call}: {said}");
    }
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    fs::create_dir(&dir).expect("made");
    fs::write(dir.join("cluster.toml"), "cluster = \"x\"\n").expect("written");
    let down = at_once(forebay().arg("down").arg(&dir));
    assert!(!down.status.success() && !words(&down).contains("too long"), "{}", words(&down));
}

/// a path too long for a socket | refused, and the message names what else there is
#[test]
fn a_path_too_long_for_sockets_is_refused_and_no_port_is_opened_instead() {
    let scratch = Scratch::new("long");
    let dir = format!("{}/{}", scratch.path(), "x".repeat(100));
    let refused = at_once(forebay().args(["up", &dir, "--osts", "1", "--no-mount"]));
    let said = words(&refused);
    assert!(
        refused.status.code() == Some(2) && said.contains("too long") && said.contains("--listen 127.0.0.1:PORT"),
        "{said}"
    );
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}
