//! `forebay setattr`: attributes of files and directories that POSIX does not have: commit level and inline bound.
//!
//! It uses the mount's extended attributes `user.forebay.commit` and `user.forebay.inline`.

use std::{
    ffi::CStr,
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use forebay_client::{CommitLevel, InlineBound};
use forebay_command::{
    error::{CliError, CliResult},
    posix,
};

use crate::{
    layout::{choices, without_mount},
    mount_options::{parse_inline, parse_level},
};

/// What to set, of what.
#[derive(Debug, Args)]
pub struct SetattrArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Files, and directories: what is made in those from now on has it, too
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Chosen {
    /// When changes are acknowledged: commit (they are durable), data (written, not flushed), memory (held by the servers), or inherit
    /// (as the mount says)
    #[arg(long, value_name = "LEVEL", value_parser = parse_level_choice)]
    commit: Option<Choice<CommitLevel>>,
    /// Largest file whose bytes lie with the MDT: whole KiB up to 16KiB, 0 (all lie on OSTs), or inherit (as the mount says)
    #[arg(long, value_name = "SIZE", value_parser = parse_bound_choice)]
    inline: Option<Choice<InlineBound>>,
}

/// A value of its own, or none to inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice<T>(Option<T>);

fn parse_choice<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Choice<T>, String> {
    match text {
        "inherit" => Ok(Choice(None)),
        own => parse(own).map(|own| Choice(Some(own))).map_err(|words| format!("{words}, or inherit")),
    }
}

fn parse_level_choice(text: &str) -> Result<Choice<CommitLevel>, String> {
    parse_choice(text, parse_level)
}

fn parse_bound_choice(text: &str) -> Result<Choice<InlineBound>, String> {
    let bound = |text: &str| {
        let bound = parse_inline(text).ok().and_then(|bytes| InlineBound::new(bytes as u64));
        bound.ok_or_else(|| "use whole KiB up to 16KiB, or 0 to write every file to the OSTs".into())
    };
    parse_choice(text, bound)
}

/// An extended attribute and its new value; `None` removes it.
struct Attribute {
    name: &'static CStr,
    /// Its name in messages.
    what: &'static str,
    value: Option<String>,
}

impl Chosen {
    fn attributes(&self) -> Vec<Attribute> {
        let commit = self.commit.map(|Choice(level)| Attribute {
            name: c"user.forebay.commit",
            what: "commit level",
            value: level.map(|level| level.name().into()),
        });
        let inline = self.inline.map(|Choice(bound)| Attribute {
            name: c"user.forebay.inline",
            what: "inline bound",
            value: bound.map(InlineBound::name),
        });
        commit.into_iter().chain(inline).collect()
    }
}

/// Sets the attributes.
pub fn run(args: &SetattrArgs) -> CliResult {
    let attributes = args.chosen.attributes();
    args.paths.iter().try_for_each(|path| attributes.iter().try_for_each(|attribute| set(path, attribute)))
}

fn set(path: &Path, Attribute { name, what, value }: &Attribute) -> CliResult {
    let shown = path.display();
    if !path.is_file() && !path.is_dir() {
        let why = if path.exists() { "is neither a file nor a directory: only those have one" } else { "is not there" };
        return Err(CliError::failed(format!("cannot set the {what} of {shown}: it {why}")));
    }
    // Other file systems would accept the attribute without any effect.
    choices(path)?;
    let done = match value {
        Some(value) => posix::set_xattr(path, name, value.as_bytes()),
        None => match posix::remove_xattr(path, name) {
            // It had no value of its own.
            Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
            removed => removed,
        },
    };
    done.map_err(|error| CliError::failed(format!("cannot set the {what} of {shown}: {}", explain(&error))))
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
        assert_eq!(parse_level_choice("inherit"), Ok(Choice(None)));
        for level in CommitLevel::ALL {
            assert_eq!(parse_level_choice(level.name()), Ok(Choice(Some(level))));
        }
        assert_eq!(parse_level_choice("fast"), Err("use memory, data or commit, or inherit".into()));
    }

    #[test]
    fn bounds_are_whole_kib_up_to_16_or_none() {
        assert_eq!(parse_bound_choice("inherit"), Ok(Choice(None)));
        for (text, bytes) in [("0", 0), ("4096", 4096), ("3K", 3072), ("16KiB", 16_384)] {
            assert_eq!(parse_bound_choice(text), Ok(Choice(InlineBound::new(bytes))), "{text}");
        }
        for wrong in ["1000", "17KiB", "lots", ""] {
            let words = parse_bound_choice(wrong).expect_err(wrong);
            assert_eq!(words, "use whole KiB up to 16KiB, or 0 to write every file to the OSTs, or inherit");
        }
    }
}
