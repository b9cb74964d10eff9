//! `forebay journal list|move|free`: journals on separate devices, which several targets may share.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::{absolute, utf8},
    units::show_bytes,
};
use forebay_env::{Env, real};
use forebay_proto::Uuid;
use forebay_store::Store;
use serde_json::json;

/// What to do.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Show whose journals lie on a shared device
    List(ListArgs),
    /// Put the journal of a cleanly stopped target elsewhere; a move that was cut off is finished by the same command
    Move(MoveArgs),
    /// Free the part of a shared device that belongs to a target which is gone: that journal is lost
    Free(FreeArgs),
}

/// Which device.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Block device or file
    pub device: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Whose, where to.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// Directory of the target, which must not be served meanwhile
    pub dir: PathBuf,
    /// A file that does not exist yet, a blank device, or one that targets share; DIR/journal brings it back
    #[arg(value_name = "PATH")]
    pub place: PathBuf,
}

/// Which part of which device.
#[derive(Debug, Args)]
pub struct FreeArgs {
    /// Block device or file
    pub device: PathBuf,
    /// The target that is gone, as `forebay journal list` shows it
    #[arg(value_name = "UUID")]
    pub target: Uuid,
}

/// Runs the command and prints the result.
pub fn run(command: &JournalCommand) -> CliResult {
    match command {
        JournalCommand::List(args) => real::run(|env| async move { list(&env, args).await }),
        JournalCommand::Move(args) => real::run(|env| async move { relocate(&env, args).await }),
        JournalCommand::Free(args) => real::run(|env| async move { free(&env, args).await }),
    }
}

async fn list(env: &Env, args: &ListArgs) -> CliResult {
    let device = utf8(&args.device)?;
    let slots = Store::journal_slots(env, &device).await.map_err(|error| CliError::failed(error.to_string()))?;
    if args.json {
        let slots: Vec<_> = slots
            .iter()
            .map(|slot| {
                json!({
                    "name": slot.name.to_string(),
                    "target": slot.target.to_string(),
                    "cluster": slot.cluster.to_string(),
                    "offset": slot.offset,
                    "bytes": slot.bytes,
                    "unfinished": slot.unfinished,
                })
            })
            .collect();
        println!("{}", json!({ "device": device, "slots": slots }));
        return Ok(());
    }
    println!("{:<8}  {:<36}  {:<36}  {:>14}  {:>9}", "name", "target", "cluster", "offset", "size");
    for slot in slots {
        let unfinished = if slot.unfinished { "  (unfinished)" } else { "" };
        println!(
            "{:<8}  {:<36}  {:<36}  {:>14}  {:>9}{unfinished}",
            slot.name.to_string(),
            slot.target.to_string(),
            slot.cluster.to_string(),
            slot.offset,
            show_bytes(slot.bytes),
        );
    }
    Ok(())
}

async fn relocate(env: &Env, args: &MoveArgs) -> CliResult {
    let dir = utf8(&args.dir.canonicalize().doing(|| format!("there is no target in {}", args.dir.display()))?)?;
    let place = real_path(&args.place)?;
    let moved = Store::move_journal(env, &dir, &place).await.doing(|| format!("cannot move the journal of {dir}"))?;
    println!("the journal of {dir} lies in {} now, no longer in {}", moved.to, moved.from);
    if let Some(words) = moved.left_behind {
        eprintln!(
            "forebay: the old one could not be made blank: {words}; see to it that nobody takes it for the journal"
        );
    }
    Ok(())
}

async fn free(env: &Env, args: &FreeArgs) -> CliResult {
    let device = utf8(&args.device)?;
    let freed = Store::free_journal_slot(env, &device, args.target).await;
    freed.map_err(|error| CliError::failed(error.to_string()))?;
    println!("the part of {} on {device} is free", args.target);
    Ok(())
}

/// The resolved path of an existing file, so that it has one name. Devices keep the name that the operator chose.
fn real_path(path: &Path) -> CliResult<String> {
    use std::os::unix::fs::FileTypeExt;
    let is_device = path.metadata().is_ok_and(|meta| meta.file_type().is_block_device());
    match path.canonicalize() {
        Ok(real) if !is_device => utf8(&real),
        _ => absolute(path),
    }
}
