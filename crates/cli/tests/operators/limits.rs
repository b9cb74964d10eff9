//! Low limits of open files.

use std::process::{Command, Output};

use super::{
    at_once,
    common::{Scratch, forebay, words},
};

fn limited(limit: &str, call: &str) -> Output {
    let script = format!("ulimit {limit} && exec {} {call}", env!("CARGO_BIN_EXE_forebay"));
    at_once(Command::new("sh").args(["-c", &script]))
}

#[test]
fn a_low_limit_of_open_files_is_named_at_once_and_nothing_is_made() {
    let scratch = Scratch::new("few-files");
    let up = format!("up {}/c --osts 2 --ost-size 128MiB --mdt-size 128MiB", scratch.path());
    for (limit, call, expected) in
        [("-n 40", &up[..], "40 files open"), ("-n 10", &up, "10 files open"), ("-n 10", "status /", "10 files open")]
    {
        let refused = limited(limit, call);
        let said = words(&refused);
        let is_clear = said.contains(expected) && said.contains("ulimit -n") && !said.contains("panicked");
        assert!(refused.status.code() == Some(1) && is_clear, "{limit}: {said}");
        assert!(scratch.names().is_empty(), "{limit}: {:?}", scratch.names());
    }
    // The soft limit alone is raised.
    let raised = limited("-Sn 20", &format!("{up} --no-mount"));
    assert!(raised.status.success(), "{}", words(&raised));
    let mount = limited("-n 30", &format!("mount {0}/c {0}", scratch.path()));
    let hidden = words(&mount);
    assert!(!mount.status.success(), "{hidden}");
    let down = forebay().args(["down", &format!("{}/c", scratch.path())]).output().expect("it runs");
    assert!(down.status.success(), "{}", words(&down));
    for limit in ["-n 40", "-n 30"] {
        let refused = limited(limit, &format!("up {}/c --no-mount", scratch.path()));
        assert!(
            refused.status.code() == Some(1) && words(&refused).contains("serving 3 targets needs"),
            "{}",
            words(&refused)
        );
    }
}
