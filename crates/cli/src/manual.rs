//! `forebay manual DIR`: man pages and completions of shells, made from the same text as `--help`. For packages.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // writes plain files; nothing here serves

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use forebay_command::error::{CliResult, Doing};

/// Name of the hidden command that writes them.
pub const COMMAND: &str = "manual";

/// The shells, with the directories below /usr/share in which they look for completions.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/vendor-completions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Where to write.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Stands for /usr/share; made if it is not there
    pub dir: PathBuf,
}

/// Writes the pages of `program` and of all its subcommands, and the completions.
pub fn run(args: &ManualArgs, program: Command) -> CliResult {
    let program = visible(&program);
    let pages = made(&args.dir.join("man/man1"))?;
    clap_mangen::generate_to(program.clone(), &pages).doing(|| format!("cannot write to {}", pages.display()))?;
    for (shell, place) in SHELLS {
        let place = made(&args.dir.join(place))?;
        clap_complete::generate_to(shell, &mut program.clone(), "forebay", &place)
            .doing(|| format!("cannot write to {}", place.display()))?;
    }
    Ok(())
}

fn made(dir: &Path) -> CliResult<PathBuf> {
    std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))?;
    Ok(dir.to_owned())
}

/// The command without hidden subcommands: completions would offer them.
fn visible(command: &Command) -> Command {
    let mut shown = Command::new(command.get_name().to_owned())
        .subcommand_required(command.is_subcommand_required_set())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(visible));
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_subcommands_and_options_have_no_manual() {
        let option = |name: &'static str| clap::Arg::new(name).long(name);
        let up = Command::new("up").about("starts").arg(option("osts")).arg(option("secret").hide(true));
        let program = visible(&Command::new("forebay").subcommand(up).subcommand(Command::new("probe").hide(true)));
        let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        assert_eq!(names, ["up"]);
        let up = program.find_subcommand("up").expect("shown");
        let options: Vec<&str> = up.get_arguments().map(|option| option.get_id().as_str()).collect();
        assert_eq!((options, up.get_about().expect("said").to_string()), (vec!["osts"], "starts".into()));
    }
}
