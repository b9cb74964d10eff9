//! `xtask planted`: plants one bug after another in the program, and finds the test that notices it.
//!
//! Tests are built once, with the feature `planted` of crate `forebay-env`, in a separate directory. For each bug the
//! nearest tests run first, then those further away, until the first failure. Without any bug all of them must pass
//! first; otherwise a failure would prove nothing.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use clap::Args;
use forebay_env::{Bug, PLANTED_CHOICE};
use serde_json::Value;

use crate::figures::{Outcome, forebay::root};

/// A test program that runs longer than this hangs, which counts as noticed. The longest, disasters, takes 404 s on two
/// otherwise idle processors.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// Packages whose tests run.
const PACKAGES: [&str; 10] = [
    "forebay-env",
    "forebay-store",
    "forebay-rpc",
    "forebay-target",
    "forebay-oss",
    "forebay-mds",
    "forebay-client",
    "forebay-fuse",
    "forebay-sim",
    "forebay-tests",
];

/// The test programs for a bug, nearest first. For some only the tests of one module.
fn tests_of(bug: Bug) -> &'static [&'static str] {
    use Bug::*;
    match bug {
        JournalSumSkipped
        | JournalNotFlushed
        | AnchorNotFlushed
        | DurableOverAHole
        | AnchorSumSkipped
        | RunHeaderSumSkipped
        | RunPlaceUnchecked
        | MisplacedRunTrusted
        | RecoveredNotFlushed
        | RecoveredNotRewritten
        | LastRedoSkipped
        | DataNotFlushed
        | WriteNotAwaited
        | FlushErrorIgnored
        | CheckpointNotFlushed
        | SlabReusedEarly
        | TombstonesSkipped
        | ReadSumSkipped => &[
            "forebay_store",
            "stores:faults",
            "stores:basics",
            "stores:slots",
            "fsck",
            "stores:crash_every_point",
            "disasters",
            "histories",
        ],
        LayoutFenceIgnored => &["objects:layout_fences", "scenes:layouts"],
        WriteSumSkipped | TruncateKeepsBytes | TruncateEpochIgnored => {
            &["forebay_oss", "objects", "scenes:layouts", "scenes:holes", "disasters", "histories"]
        }
        ReplyCacheDropped | FenceSkipped | OldIncarnationServed | ReplaysUnordered | ReplaysSkipped
        | ReplaysRepeated | CommitLevelIgnored | CommitOnShareSkipped => {
            &["forebay_target", "targets", "scenes:write_back", "disasters", "histories"]
        }
        RotTakenForTorn => &["fsck"],
        NothingKeptForReplay | ReplayListMixesIncarnations | LossNotReported => {
            &["forebay_rpc", "hostile", "targets", "scenes:write_back", "disasters", "histories"]
        }
        UnacknowledgedShown
        | UnacknowledgedAppendShown
        | UnacknowledgedSizeShown
        | AppendOffsetForgotten
        | UnansweredNotAsked => &["scenes:late_recovery", "histories"],
        ReservationShownEmpty | ReservationNotFenced | AppendsDoNotFence | CancelledBytesLeft => {
            &["objects:appends", "scenes:appends", "histories"]
        }
        EarlyRepliesIgnored => &["objects:held", "disasters", "histories"],
        LossReportedToOne => &["forebay_client", "scenes:client_instances"],
        LevelOfInodeIgnored => &["forebay_mds", "servers:levels", "scenes:levels"],
        OlderBytesOvertaken | BufferedSizeNotRaised | SyncMissesSending | ReadMissesSending => {
            &["scenes:streaming", "scenes:write_back", "disasters", "histories"]
        }
        RecallIgnored | FlushedBeforeSent | FidReused => {
            &["forebay_client", "scenes:leases", "scenes:write_back", "disasters", "histories"]
        }
        EntriesLeaseReturnedEarly | LateChangeMade | NamesNotReclaimed | ExclusiveFileShown => {
            &["forebay_mds", "scenes:delayed_entries", "histories"]
        }
        StataheadUnleased => &["forebay_mds", "scenes:listings"],
        DotDotFromCache => &["scenes:listings"],
        AccessTimeNotSent | AccessMovesChangeTime => &["forebay_mds", "scenes:access_times"],
        LastRecallNotAcknowledged => &["forebay_client", "scenes:listings"],
        InlineBytesNotAsked
        | InlineNotOutlined
        | InlineBoundIgnored
        | InlineTakenFromOthers
        | OutlinedBeforeWritten
        | OutlineEndNotSynced => &["forebay_mds", "scenes:inline", "histories"],
        AttributesNotSettled | SetTimeUndone => &["scenes:delayed_setattr", "histories"],
        SetTimeNotReported | ReplayTakesNewTime => &["scenes:times"],
        PendingWritesLate => &["scenes:pending_create"],
        OpensNotSynced => &["forebay_mds", "scenes:fsync"],
        GrantsForgotten => &["scenes:grants"],
        OwnWriteNotForgotten | UncommittedKept | BytesOutliveLease => {
            &["forebay_client", "scenes:reading", "histories"]
        }
        ClaimNotTakenBack | RangeLeasesNotRecalled | ClaimEndNotAwaited | OverlappingClaimsGranted => {
            &["forebay_mds", "scenes:range_leases", "histories"]
        }
        StalePagesKept | StalePageWritten | StaleOwnerTrusted => &["forebay_fuse"],
        SizesNotWatched => &["scenes:size_watches"],
        InstanceSurvived => &["scenes:client_instances"],
        DeletedServed => &["stores:deleted"],
        RootOwnedByRoot => &["forebay_mds"],
        BytesBehindHandshakeLost => &["forebay_env:tls"],
        RoleNotChecked | SessionOfAnyNode => &["scenes:keys"],
        FramesAsTheyCome => &["forebay_rpc", "scenes:rails"],
        CapabilityNotChecked => &["scenes:tenants"],
        TenantNotConfined | TenantsUserBelieved | IdMapForgottenAtClose | IdMapSkippedInListings => {
            &["forebay_mds", "scenes:tenants"]
        }
        NonceRepeated => &["forebay_env:tls"],
        BanNotHeard | StrangerBelieved => &["scenes:members"],
        TokenServesTwice => &["forebay_mds", "scenes:members"],
        GrantedBeforeFence | OpenFileReaped | ObjectsLeaked | ReplacedKeepsLink | LocksNotReclaimed => {
            &["forebay_mds", "servers:crashes", "fsck", "scenes:locks", "scenes:write_back", "disasters", "histories"]
        }
    }
}

/// Break the program on purpose, one planted bug after another, and see which test notices
#[derive(Args)]
pub struct Plan {
    /// These bugs only
    #[arg(long, value_delimiter = ',', value_parser = named, value_name = "BUG")]
    only: Vec<Bug>,
    /// Do not run the tests without a bug first
    #[arg(long)]
    skip_sound: bool,
    /// Name the bugs and where each is looked for
    #[arg(long)]
    list: bool,
}

fn named(name: &str) -> Outcome<Bug> {
    let found = Bug::ALL.iter().find(|bug| bug.name() == name).copied();
    found.ok_or_else(|| format!("no bug is called {name}; `xtask planted --list` names them"))
}

/// A test program.
struct Program {
    path: PathBuf,
    /// The directory where cargo would run it.
    dir: PathBuf,
}

/// The outcome of a test program.
enum Verdict {
    Passed,
    Failed(String),
    Hangs,
}

/// Runs the command. An error if a bug was not noticed.
pub fn run(plan: &Plan) -> Outcome {
    if plan.list {
        let line = |bug: &Bug| format!("{:30} {}\n", bug.name(), tests_of(*bug).join(" "));
        // Ignore errors: the reader of a pipe may close it early.
        let _ = std::io::stdout().write_all(Bug::ALL.iter().map(line).collect::<String>().as_bytes());
        return Ok(());
    }
    let bugs = if plan.only.is_empty() { Bug::ALL } else { &plan.only };
    let programs = build()?;
    let begun = Instant::now();
    all_there(&programs)?;
    if !plan.skip_sound {
        sound(bugs, &programs)?;
    }
    println!("{:30} {:>7}  noticed by", "bug", "after");
    let mut missed = Vec::new();
    for bug in bugs {
        let begun = Instant::now();
        match hunt(*bug, &programs)? {
            Some(by) => println!("{:30} {:>5} s  {by}", bug.name(), begun.elapsed().as_secs()),
            None => {
                println!("{:30} {:>5} s  NOBODY", bug.name(), begun.elapsed().as_secs());
                missed.push(bug.name());
            }
        }
    }
    let (all, took) = (bugs.len(), begun.elapsed().as_secs());
    println!("{} of {all} planted bugs were noticed, in {} min {} s", all - missed.len(), took / 60, took % 60);
    if missed.is_empty() { Ok(()) } else { Err(format!("no test notices {}", missed.join(", "))) }
}

/// Checks that every name refers to a program with such tests. A name without tests would pass with any bug.
fn all_there(programs: &BTreeMap<String, Program>) -> Outcome {
    for name in names(Bug::ALL) {
        let said = tests(programs, name)?.1.arg("--list").output();
        let said = said.map_err(|error| format!("{name}: {error}"))?;
        if !String::from_utf8_lossy(&said.stdout).lines().any(|line| line.ends_with(": test")) {
            return Err(format!("{name} has no test; `tests_of` in xtask/src/planted.rs has to be mended"));
        }
    }
    Ok(())
}

/// The names of all test programs for these bugs, each once.
fn names(bugs: &[Bug]) -> Vec<&'static str> {
    let mut names: Vec<_> = bugs.iter().flat_map(|bug| tests_of(*bug)).copied().collect();
    names.sort();
    names.dedup();
    names
}

/// Checks that everything passes without a bug.
fn sound(bugs: &[Bug], programs: &BTreeMap<String, Program>) -> Outcome {
    for name in names(bugs) {
        eprintln!("   without a bug: {name}");
        match verdict(programs, name, None)? {
            Verdict::Passed => {}
            Verdict::Failed(test) => return Err(format!("{name}: {test} fails without any bug")),
            Verdict::Hangs => return Err(format!("{name} hangs without any bug")),
        }
    }
    Ok(())
}

/// The first test that fails with `bug`.
fn hunt(bug: Bug, programs: &BTreeMap<String, Program>) -> Outcome<Option<String>> {
    for name in tests_of(bug) {
        eprintln!("   {}: {name}", bug.name());
        match verdict(programs, name, Some(bug))? {
            Verdict::Passed => {}
            Verdict::Failed(test) => return Ok(Some(format!("{name}: {test}"))),
            Verdict::Hangs => return Ok(Some(format!("{name}, which does not end"))),
        }
    }
    Ok(None)
}

/// The command that runs the tests of `name`, which is a program or `program:module`. Also returns the program.
fn tests<'a>(programs: &'a BTreeMap<String, Program>, name: &str) -> Outcome<(&'a Program, Command)> {
    let (name, module) = name.split_once(':').map_or((name, None), |(name, module)| (name, Some(module)));
    let program = programs.get(name).ok_or_else(|| format!("no program of tests is called {name}"))?;
    let mut command = Command::new(&program.path);
    command.args(module.map(|module| format!("{module}::")));
    command.current_dir(&program.dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok((program, command))
}

/// Runs a test program until its first failure.
fn verdict(programs: &BTreeMap<String, Program>, name: &str, bug: Option<Bug>) -> Outcome<Verdict> {
    let (program, mut command) = tests(programs, name)?;
    command.env(PLANTED_CHOICE, bug.map_or("", Bug::name));
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.path.display()))?;
    let said = child.stdout.take().ok_or("its output is missing")?;
    let (tell, failures) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                let _ = tell.send(test.to_owned());
            }
        }
    });
    let verdict = watch(&mut child, &failures);
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    verdict
}

fn watch(child: &mut Child, failures: &mpsc::Receiver<String>) -> Outcome<Verdict> {
    match failures.recv_timeout(TIMEOUT) {
        Ok(test) => Ok(Verdict::Failed(test)),
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(Verdict::Hangs),
        // The program has closed its output, so it is about to end.
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let status = child.wait().map_err(|error| error.to_string())?;
            Ok(if status.success() { Verdict::Passed } else { Verdict::Failed(format!("the program: {status}")) })
        }
    }
}

/// Builds the tests and returns them by name.
fn build() -> Outcome<BTreeMap<String, Program>> {
    eprintln!("   building the tests with the feature `planted`");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--release", "--no-run", "--features", "forebay-env/planted"]);
    command.args(["--message-format", "json-render-diagnostics", "--target-dir"]).arg(target_dir()?);
    for package in PACKAGES {
        command.args(["-p", package]);
    }
    let built = command.current_dir(root()).stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build with the feature `planted`".into());
    }
    let said = String::from_utf8_lossy(&built.stdout);
    Ok(said.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect())
}

/// A directory beside the build without bugs.
fn target_dir() -> Outcome<PathBuf> {
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let release = own.parent().and_then(Path::parent).ok_or("where am I?")?;
    Ok(release.join("planted"))
}

/// The program that a line of cargo's output describes.
fn program(line: &Value) -> Option<(String, Program)> {
    let path = line.get("executable")?.as_str()?.into();
    line.get("profile")?.get("test")?.as_bool().filter(|is_test| *is_test)?;
    let dir = Path::new(line.get("manifest_path")?.as_str()?).parent()?.to_owned();
    let name = line.get("target")?.get("name")?.as_str()?.to_owned();
    Some((name, Program { path, dir }))
}
