//! `forebay setattr`: what files and directories have beside POSIX's attributes: so far the commit level.
//!
//! It speaks with the mount through the extended attribute `user.forebay.commit`.

use std::{
    ffi::CStr,
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_client::CommitLevel;

use crate::{
    error::{CliError, CliResult},
    layout::{choices, without_mount},
    mount_options::parse_level,
    posix,
};

/// The level's attribute.
const COMMIT: &CStr = c"user.forebay.commit";

/// What to set, of what.
#[derive(Debug, Args)]
pub struct SetattrArgs {
    /// When changes are acknowledged: commit (they are durable), data (written, not flushed), memory (held by the servers), or inherit
    /// (as the mount says)
    #[arg(long, value_name = "LEVEL", value_parser = parse_choice)]
    commit: Choice,
    /// Files, and directories: what is made in those from now on has the level, too
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// A level, or none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice(Option<CommitLevel>);

fn parse_choice(text: &str) -> Result<Choice, String> {
    match text {
        "inherit" => Ok(Choice(None)),
        level => parse_level(level).map(|level| Choice(Some(level))).map_err(|words| format!("{words}, or inherit")),
    }
}

/// Sets it.
pub fn run(args: &SetattrArgs) -> CliResult {
    args.paths.iter().try_for_each(|path| set_level(path, args.commit))
}

fn set_level(path: &Path, Choice(level): Choice) -> CliResult {
    let shown = path.display();
    if !path.is_file() && !path.is_dir() {
        let what =
            if path.exists() { "is neither a file nor a directory: only those have one" } else { "is not there" };
        return Err(CliError::failed(format!("cannot set the commit level of {shown}: it {what}")));
    }
    // Other file systems would take the attribute, and it would mean nothing.
    choices(path)?;
    let done = match level {
        Some(level) => posix::set_xattr(path, COMMIT, level.name().as_bytes()),
        None => match posix::remove_xattr(path, COMMIT) {
            // It had none of its own.
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
            removed => removed,
        },
    };
    done.map_err(|error| CliError::failed(format!("cannot set the commit level of {shown}: {}", explain(&error))))
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "you may not write to it; its owner can let you".into(),
        Some(libc::EROFS) => "it is mounted read-only".into(),
        Some(libc::ENOSPC) => "the metadata target is full; delete something, or see `forebay df -i`".into(),
        _ => without_mount(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_those_of_mounts_or_none() {
        assert_eq!(parse_choice("inherit"), Ok(Choice(None)));
        for level in CommitLevel::ALL {
            assert_eq!(parse_choice(level.name()), Ok(Choice(Some(level))));
        }
        assert_eq!(parse_choice("fast"), Err("use memory, data or commit, or inherit".into()));
    }
}
