//! `pjdfstest` as root: first every feature that applies, then the tests that remount, separately. One of the former
//! leaves a file open, and a file open for writing prevents a read-only remount.

use std::{fs, path::Path, process::Command};

use super::{
    Plan,
    cluster::Cluster,
    tools::{PJDFSTEST, tool},
};
use crate::figures::{Outcome, process::output};

/// Features of the suite that Linux has; the others are BSD's.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = REMOUNT
[dummy_auth]
entries = [["nobody", "GROUP"], ["daemon", "daemon"]]
"#;

/// The helper that mount(8) uses to remount any type that begins with `fuse`, if it is installed.
const FUSE_HELPER: &str = "/sbin/mount.fuse";

/// Runs the suite.
pub fn run(cluster: &Cluster<'_>, plan: &Plan) -> Outcome<String> {
    let program = tool(PJDFSTEST)?;
    let group = output(Command::new("id").args(["-gn", "nobody"]))?;
    let configuration = plan.dir.join("pjdfstest.toml");
    let place = cluster.first.join("pjdfstest");
    let other = plan.dir.join("other");
    let write = || {
        fs::create_dir_all(&place)?;
        fs::create_dir_all(&other)
    };
    write().map_err(|error: std::io::Error| format!("cannot prepare: {error}"))?;
    // Another file system, for operations that must not cross file systems.
    output(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&other))?;
    let mut summaries = Vec::new();
    let mut result = Ok(());
    for (remount, only) in [("false", None), ("true", Some("erofs"))] {
        let text = CONFIGURATION.replace("GROUP", group.trim()).replace("REMOUNT", remount);
        result = fs::write(&configuration, text).map_err(|error| format!("cannot prepare: {error}"));
        let mut suite = remounting(&program, cluster);
        suite.arg("-c").arg(&configuration).arg("-p").arg(&place).arg("-s").arg(&other).args(only);
        result = result.and_then(|()| judge(&mut suite).map(|summary| summaries.push(summary)));
        if result.is_err() {
            break;
        }
    }
    output(Command::new("umount").arg(&other))?;
    result.map(|()| summaries.join("; "))
}

/// Runs `program` so that mount(8) can remount. FUSE's own helper, if installed, would look for `forebay` in the
/// system's directories. Ours replaces it in the program's own mount namespace.
fn remounting(program: &Path, cluster: &Cluster<'_>) -> Command {
    if !Path::new(FUSE_HELPER).exists() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("mount --bind \"$0\" {FUSE_HELPER} && exec \"$@\"")]);
    command.arg(cluster.forebay.path()).arg(program);
    command
}

/// Runs the suite, and returns its summary if nothing failed.
fn judge(suite: &mut Command) -> Outcome<String> {
    let said = suite.output().map_err(|error| format!("pjdfstest: {error}"))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let summary = text.lines().rev().find(|line| line.starts_with("Summary:")).unwrap_or("no summary").to_owned();
    if said.status.success() && summary.starts_with("Summary: 0 failed") {
        return Ok(summary);
    }
    eprintln!("{text}{}", String::from_utf8_lossy(&said.stderr));
    Err(summary)
}
