//! Flags of Lustre's `lfs` that are not supported: one sentence each on what to do instead. `docs/posix.md` has the
//! same table.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use forebay_command::error::CliError;

/// Flags of some commands, in all their spellings, and the text.
struct Refused {
    commands: &'static [&'static str],
    flags: &'static [&'static str],
    instead: &'static str,
}

const LAYOUTS: &[&str] = &["setstripe", "migrate"];

const REFUSED: &[Refused] = &[
    Refused {
        commands: LAYOUTS,
        flags: &["-C", "--overstripe-count"],
        instead: "a file has one stripe on an OST: use -c, -1 for all OSTs",
    },
    Refused {
        commands: LAYOUTS,
        flags: &["--component-add", "--comp-add", "--component-del", "--comp-del", "--component-set", "--comp-set"],
        instead: "give the whole layout with -E; `forebay migrate` moves a file with data to it",
    },
    Refused {
        commands: LAYOUTS,
        flags: &["-y", "--yaml"],
        instead: "there are no templates: give the flags, or the layout of another file with --copy FILE",
    },
    Refused {
        commands: LAYOUTS,
        flags: &["-L", "--layout"],
        instead: "the pattern is always raid0, and how small a file has to be to lie with the MDT `forebay setattr --inline` says: leave it out",
    },
    Refused {
        commands: &["migrate"],
        flags: &["--block"],
        instead: "nobody is kept from the file, and one that changes meanwhile is tried again: use --retries N",
    },
    Refused { commands: &["migrate"], flags: &["-D"], instead: "there is one way to copy: leave it out" },
    Refused {
        commands: &["migrate"],
        flags: &["-W", "--bandwidth"],
        instead: "the copy has no limit of its own: limit the OSTs' devices",
    },
    Refused {
        commands: &["migrate"],
        flags: &["-m", "--mdt-index"],
        instead: "there is one MDT: directories cannot be moved to another",
    },
    Refused {
        commands: &["getstripe"],
        flags: &["-R", "--raw"],
        instead: "use --json, where 0 is what a directory leaves to the server",
    },
    Refused {
        commands: &["getstripe"],
        flags: &["-D", "--default"],
        instead: "use -d DIR for what new files in DIR get",
    },
    Refused {
        commands: &["getstripe"],
        flags: &["--hex-idx"],
        instead: "OSTs are shown by decimal numbers: leave it out",
    },
    Refused {
        commands: &["find"],
        flags: &["-m", "--mdt", "--mdt-index", "-T", "--mdt-count", "-H", "--mdt-hash"],
        instead: "there is one MDT, and all files are on it: leave it out",
    },
    Refused {
        commands: &["df"],
        flags: &["-l", "--lazy", "-v", "--verbose"],
        instead: "all targets are shown, those that are away too: leave it out",
    },
];

/// What to do instead of `flag`, if `command` does not support it.
pub fn instead_of(command: &str, flag: &str) -> Option<CliError> {
    let meant = |refused: &&Refused| refused.commands.contains(&command) && refused.flags.contains(&flag);
    REFUSED.iter().find(meant).map(|refused| CliError::usage(format!("{command} {flag}: {}", refused.instead)))
}

/// The same for a clap error.
pub fn explain(arguments: &[OsString], error: &clap::Error) -> Option<CliError> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let command = arguments.get(1)?.to_str()?;
    instead_of(command, flag).filter(|_| error.kind() == ErrorKind::UnknownArgument)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::CommandLine;

    #[test]
    fn every_flag_that_is_refused_says_what_to_do_instead() {
        let all = REFUSED.iter().flat_map(|refused| refused.commands.iter().map(move |command| (command, refused)));
        for (command, refused) in all.filter(|(command, _)| **command != "find") {
            for flag in refused.flags {
                let line = ["forebay", command, flag, "x"].map(OsString::from);
                let error = CommandLine::try_parse_from(&line).expect_err("refused");
                let error = explain(&line, &error).unwrap_or_else(|| panic!("{command} {flag}: {error}"));
                assert_eq!((error.exit_code(), error.message), (2, format!("{command} {flag}: {}", refused.instead)));
            }
        }
        let with_values = ["lfs", "setstripe", "-c", "2", "--overstripe-count=4", "-C4", "x"].map(OsString::from);
        let error = CommandLine::try_parse_from(&with_values).expect_err("refused");
        assert!(explain(&with_values, &error).is_some_and(|error| error.message.starts_with("setstripe --over")));
        let unknown = ["forebay", "df", "--frobnicate"].map(OsString::from);
        assert!(explain(&unknown, &CommandLine::try_parse_from(&unknown).expect_err("unknown")).is_none());
    }

    #[test]
    fn the_manual_has_the_same_table() {
        let manual = include_str!("../../../docs/posix.md");
        let quoted = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let row = |refused: &Refused| {
            format!("| {} | {} | {} |", quoted(refused.commands), quoted(refused.flags), refused.instead)
        };
        let missing: Vec<String> =
            REFUSED.iter().map(row).filter(|row| !manual.lines().any(|line| line == row)).collect();
        assert!(missing.is_empty(), "docs/posix.md lacks:\n{}", missing.join("\n"));
    }
}
