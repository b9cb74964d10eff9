//! `forebay mirror replace|alone`: operations on a mirrored target.
//!
//! Both work on the target's directories. A running server notices a new copy within a moment, and `status` shows how
//! far it is filled.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use forebay_command::{
    error::{CliResult, Doing},
    fresh::Fresh,
    paths::{absolute, utf8},
};
use forebay_env::{Env, real};
use forebay_store::{MirrorPlace, Store};

use crate::format::absolute_dir;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum MirrorCommand {
    /// Put a new copy in the place of the lost one; served or not, it is filled in the background
    Replace(ReplaceArgs),
    /// Say that the copy that is not here is lost for good: the target, not served now, goes on with the one in DIR
    Alone(AloneArgs),
}

/// Which copy, by what.
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// Directory of the target: that of the copy that stays, or the one that is served
    pub dir: PathBuf,
    /// Directory of the new copy
    #[arg(value_name = "PATH")]
    pub place: PathBuf,
    /// Block device or file for its data, instead of PATH/data
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Block device or file for its journal, instead of PATH/journal
    #[arg(long, value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// What these devices hold is of no worth: take them all the same
    #[arg(long)]
    pub overwrite: bool,
}

/// Which one stays.
#[derive(Debug, Args)]
pub struct AloneArgs {
    /// Directory of the copy that is here
    pub dir: PathBuf,
}

/// Runs the command and prints the result.
pub fn run(command: &MirrorCommand) -> CliResult {
    match command {
        MirrorCommand::Replace(args) => real::run(|env| async move { replace(&env, args).await }),
        MirrorCommand::Alone(args) => real::run(|env| async move { alone(&env, &args.dir).await }),
    }
}

async fn replace(env: &Env, args: &ReplaceArgs) -> CliResult {
    let dir = existing(&args.dir)?;
    let mut fresh = Fresh::default();
    fresh.take_unless_target(&args.place)?;
    let place = MirrorPlace {
        dir: absolute_dir(env, &args.place)?,
        data_path: args.data.as_deref().map(absolute).transpose()?,
        journal_path: args.journal.as_deref().map(absolute).transpose()?,
        witness: None,
    };
    let stays = Store::mirror_replace(env, &dir, &place, args.overwrite)
        .await
        .doing(|| format!("cannot make {} a copy", place.dir))?;
    fresh.keep()?;
    println!(
        "{} will be filled from {stays} while the target is served (by a server that runs, from now on); `forebay status` \
         shows how far it is",
        place.dir
    );
    Ok(())
}

async fn alone(env: &Env, dir: &Path) -> CliResult {
    let dir = existing(dir)?;
    Store::mirror_alone(env, &dir).await.doing(|| format!("cannot go on with {dir} alone"))?;
    println!("{dir} goes on alone when it is served; `forebay mirror replace {dir} PATH` gives it another copy");
    Ok(())
}

fn existing(dir: &Path) -> CliResult<String> {
    utf8(&dir.canonicalize().doing(|| format!("there is no target in {}", dir.display()))?)
}
