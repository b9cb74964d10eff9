//! `forebay fsck DIR...`: checks targets that are not served, and repairs them with `--repair`.
//!
//! Exit codes as in fsck(8): 0 clean, 1 repaired, 4 problems are left, 8 could not be checked. Those of several targets
//! are or'ed.

use std::path::{Path, PathBuf};

use clap::Args;
use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult, Doing},
    paths::{absolute, utf8},
    progress::{self, Counts},
};
use forebay_env::{Env, real};
use forebay_fsck::{
    CheckOptions, ClusterOptions, FsckErrorKind, Kind, Quiet, RepairOptions, Report, Severity, check, check_cluster,
    exit, repair,
};
use forebay_proto::TargetKind;
use forebay_store::{NewJournal, Store};
use serde_json::json;

const EXIT_CODES: &str = "Ends with 0: clean; 1: what was wrong is repaired; 4: something is left; 8: could not be checked; \
    of several targets the sum (each once), as fsck(8).";

/// What to check.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct FsckArgs {
    /// Directories of targets, or of a whole cluster made by `up`; none may be served meanwhile
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// Mend what can be mended safely
    #[arg(long)]
    pub repair: bool,
    /// With --repair: free space that belongs to no file (its bytes are gone)
    #[arg(long, requires = "repair")]
    pub remove_leaks: bool,
    /// With --repair of an OST that has lost its journal: make the new one here, instead of where the lost one was
    #[arg(long, requires = "repair", value_name = "PATH")]
    pub journal: Option<PathBuf>,
    /// Read all file data and compare it with its checksums
    #[arg(long)]
    pub verify_data: bool,
    /// Tell also what is only worth knowing
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Checks, prints the problems, and ends with fsck(8)'s exit code.
pub fn run(args: &FsckArgs) -> CliResult {
    let dirs = target_dirs(&args.dirs)?;
    let (reports, failures) = real::run(|env| async move {
        let osts = dirs.iter().filter(|dir| dir.to_str().is_some_and(|dir| kind(&env, dir) == Some(TargetKind::Ost)));
        if args.journal.is_some() && osts.count() != 1 {
            let words = "--journal is for one target: give the directory of one OST (and the MDT's)";
            return (Vec::new(), vec![words.to_owned()]);
        }
        examine(&env, &dirs, args).await
    });
    let code = reports.iter().fold(exit::CLEAN, |code, report| code | report.exit_code());
    let code = if failures.is_empty() { code } else { code | exit::OPERATIONAL };
    if args.json {
        let targets: Vec<_> = reports.iter().map(Report::to_json).collect();
        println!("{}", json!({ "exit": code, "reports": targets, "failures": failures }));
    } else {
        let least = if args.verbose { Severity::Info } else { Severity::Warning };
        reports.iter().for_each(|report| print!("{}", report.to_text(least)));
    }
    conclude(code, &failures, args.repair, reports.iter().any(Report::is_beyond_repair))
}

fn conclude(code: i32, failures: &[String], repaired: bool, beyond_repair: bool) -> CliResult {
    let words = if !failures.is_empty() {
        failures.join("\n")
    } else if code & exit::LEFT != 0 && beyond_repair {
        "something is wrong that --repair cannot mend, and nothing was changed; what to do stands below each error"
            .to_owned()
    } else if code & exit::LEFT != 0 && !repaired {
        "something is wrong; --repair mends what can be mended".to_owned()
    } else if code & exit::LEFT != 0 {
        "something is wrong that repair does not reach".to_owned()
    } else if code != exit::CLEAN {
        "what was wrong is repaired".to_owned()
    } else {
        return Ok(());
    };
    Err(CliError::with_code(u8::try_from(code).unwrap_or(u8::MAX), words))
}

/// Replaces the directory of a cluster by those of its targets.
fn target_dirs(dirs: &[PathBuf]) -> CliResult<Vec<PathBuf>> {
    let expand = |dir: &PathBuf| {
        if !Cluster::find(dir)? {
            return Ok(vec![dir.clone()]);
        }
        Cluster::load(dir).map(|cluster| cluster.targets().into_iter().map(|target| target.dir).collect())
    };
    Ok(dirs.iter().map(expand).collect::<CliResult<Vec<Vec<PathBuf>>>>()?.concat())
}

/// Checks every target, then all of them together. Also returns texts for what could not be checked.
async fn examine(env: &Env, dirs: &[PathBuf], args: &FsckArgs) -> (Vec<Report>, Vec<String>) {
    let bar = progress::bar("checking", dirs.len() as u64, Counts::Things);
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    let mdt = mdt_dir(env, dirs);
    for dir in dirs {
        match examine_one(env, dir, mdt.as_deref(), args).await {
            Ok(report) => reports.push(report),
            Err(error) => failures.push(named(dir, &error.message)),
        }
        bar.add(1);
    }
    if reports.len() > 1 && failures.is_empty() {
        reports.push(together(&reports));
    }
    (reports, failures)
}

/// Prefixes an error with its directory, unless the error names it already.
fn named(dir: &Path, words: &str) -> String {
    let dir = dir.display().to_string();
    if words.starts_with(&dir) { words.to_owned() } else { format!("{dir}: {words}") }
}

async fn examine_one(env: &Env, dir: &Path, mdt: Option<&str>, args: &FsckArgs) -> CliResult<Report> {
    let options = CheckOptions { verify_data: args.verify_data, ..CheckOptions::default() };
    let dir = utf8(dir)?;
    if !args.repair {
        return check(env, &dir, options).await.map_err(|error| CliError::failed(error.to_string()));
    }
    let new = match &args.journal {
        Some(place) if kind(env, &dir) == Some(TargetKind::Ost) => Some(new_journal(env, &dir, place).await?),
        _ => None,
    };
    let remove_leaks = args.remove_leaks;
    let result = repair(env, &dir, RepairOptions { check: options, remove_leaks, mdt: mdt.map(str::to_owned) }).await;
    if let (Some(new), Err(_)) = (new, &result) {
        Store::no_new_journal(env, &dir, &new)
            .await
            .doing(|| format!("{dir} names a new journal that was not made"))?;
    }
    result.map_err(|error| CliError::failed(error.to_string()))
}

/// Makes an empty journal at `place` for an OST that has lost its own.
async fn new_journal(env: &Env, dir: &str, place: &Path) -> CliResult<NewJournal> {
    let found = check(env, dir, CheckOptions::default()).await;
    // A target that cannot be checked at all counts as lost if the operator says so, unless a server has it open.
    match found {
        Ok(report) if report.count_of(Kind::JournalLost) == 0 => {
            return Err(CliError::usage(format!(
                "{dir} has its journal: `forebay journal move {dir} PATH` puts it elsewhere"
            )));
        }
        Err(error) if error.kind == FsckErrorKind::InUse => return Err(CliError::failed(error.to_string())),
        _ => {}
    }
    let place = absolute(place)?;
    Store::new_journal(env, dir, &place).await.doing(|| format!("no new journal can be made in {place}"))
}

fn kind(env: &Env, dir: &str) -> Option<TargetKind> {
    Store::peek_identity(env, dir).ok().map(|identity| identity.target.kind)
}

/// The MDT among the targets, or that of the cluster whose directory they are in.
fn mdt_dir(env: &Env, dirs: &[PathBuf]) -> Option<String> {
    let is_mdt = |dir: &&PathBuf| dir.to_str().is_some_and(|dir| kind(env, dir) == Some(TargetKind::Mdt));
    if let Some(given) = dirs.iter().find(is_mdt) {
        return utf8(given).ok();
    }
    let above = dirs.first()?.canonicalize().ok()?.parent()?.to_owned();
    let cluster = Cluster::exists(&above).then(|| Cluster::load(&above).ok()).flatten()?;
    let mdt = cluster.targets().into_iter().find(|target| target.id.kind == TargetKind::Mdt)?;
    utf8(&mdt.dir).ok()
}

/// Compares the targets with each other.
fn together(reports: &[Report]) -> Report {
    let quiet = if reports.iter().all(|report| report.clean_stop) { Quiet::Servers } else { Quiet::No };
    check_cluster(reports, ClusterOptions { quiet })
}

/// Checks all targets of a stopped cluster, including data: what each of its hosts has of it. The error names the first
/// problem.
pub fn check_stopped(parts: &[Cluster]) -> CliResult {
    let args = FsckArgs {
        dirs: parts.iter().map(|part| part.dir.clone()).collect(),
        repair: false,
        remove_leaks: false,
        journal: None,
        verify_data: true,
        verbose: false,
        json: false,
    };
    let dirs = target_dirs(&args.dirs)?;
    let (reports, failures) = real::run(|env| async move { examine(&env, &dirs, &args).await });
    let wrong: String = reports.iter().filter(|r| !r.is_clean()).map(|r| r.to_text(Severity::Warning)).collect();
    match failures.first() {
        Some(failure) => Err(CliError::failed(format!("fsck could not look: {failure}"))),
        None if !wrong.is_empty() => Err(CliError::mismatch(format!("fsck found:\n{wrong}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_fsck_and_come_with_words() {
        assert!(conclude(exit::CLEAN, &[], false, false).is_ok());
        for (code, failures, repaired, deep, words) in [
            (exit::LEFT, &[][..], false, false, "--repair mends"),
            (exit::LEFT, &[], false, true, "cannot mend"),
            (exit::LEFT | exit::REPAIRED, &[], true, false, "does not reach"),
            (exit::REPAIRED, &[], true, false, "is repaired"),
            (exit::OPERATIONAL, &["/x: served".to_owned()], false, false, "/x: served"),
        ] {
            let error = conclude(code, failures, repaired, deep).expect_err(words);
            assert!(i32::from(error.exit_code()) == code && error.message.contains(words), "{error}");
        }
    }
}
