//! `forebay up DIR`: a whole cluster on this machine, formatted on first use, served in the background, mounted.
//!
//! Invariant: `up` again on the same DIR starts what is missing and leaves the rest alone.
//! Invariant: a target whose directory has vanished is never formatted again: its files would seem never to have
//! existed.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // directories and ports; nothing here serves

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use forebay_client::CommitLevel;
use forebay_command::{
    cluster::{self, Cluster, Description, TargetEntry, parse_recovery_window},
    error::{CliError, CliResult, Doing},
    paths::utf8,
    posix,
    processes::{self, Background, PidFile, Starting},
    progress::{self, Counts},
    targets::{format_target, new_uuid},
    units::{parse_positive_size, show_bytes, write_duration},
};
use forebay_env::{Address, Env, real};
use forebay_proto::{TargetId, TargetKind, Uuid};
use forebay_store::{FormatOptions, Store};

use crate::{
    ask, down, format, hides,
    lost::{self, Lost},
    metrics, mount,
    mount_options::level_values,
    mounts, open_files, recovery_window,
    serve::{self, DisksArgs},
};

/// Default number of OSTs of a cluster.
const OSTS: u32 = 4;
/// Name of the process that serves all targets.
const SERVERS: &str = "servers";
/// Fewest data bytes of a target: slabs of 1 MiB for checkpoints and the cleaner, and as many for data.
const BYTES_MIN: u64 = 64 << 20;
/// Default sizes are multiples of this.
const BYTES_STEP: u64 = 64 << 20;
/// Least space that the targets leave free: for logs, and for other files there.
const LEFT_BYTES: u64 = 64 << 20;
/// How long to wait for the end of a server that does not reply.
const DYING: Duration = Duration::from_secs(5);
/// Marks a directory in which formatting began and did not finish.
const UNFINISHED: &str = "cluster.toml.unfinished";
/// Entries that the directory of a new cluster may contain: those of a new file system, and of an earlier attempt.
const HARMLESS: [&str; 5] = ["lost+found", "run", "log", "mnt", UNFINISHED];

/// What to bring up.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Directory of the cluster; made and formatted if it is not there
    pub dir: PathBuf,
    /// Object storage targets (first use only)
    #[arg(long, value_name = "N")]
    pub osts: Option<u32>,
    /// Metadata targets; this version has one
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub mdts: u32,
    /// Data bytes of each OST (first use only) [default: all targets and journals take half of what is free at most; 16GiB at most]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub ost_size: Option<u64>,
    /// Data bytes of the MDT (first use only) [default: an eighth of what the targets take; 4GiB at most]
    #[arg(long, value_parser = parse_positive_size, value_name = "SIZE")]
    pub mdt_size: Option<u64>,
    /// Where to mount; made if it is not there [default: where it was mounted last, else DIR/mnt]
    #[arg(long, value_name = "MNT")]
    pub mount: Option<PathBuf>,
    /// Do not mount
    #[arg(long, conflicts_with_all = ["mount", "commit"])]
    pub no_mount: bool,
    /// Listen at this TCP address and the ports behind it, instead of Unix sockets (first use only)
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<Address>,
    /// When replies of the mount may leave: memory, data, commit [default: as last time, else data]
    #[arg(long, value_parser = level_values(), value_name = "LEVEL", hide_possible_values = true)]
    pub commit: Option<CommitLevel>,
    /// A process per target (first use only)
    #[arg(long)]
    pub separate: bool,
    /// Serve metrics (Prometheus, OpenMetrics) at http://HOST:PORT/metrics, with --separate at the ports behind it too; or
    /// `off` [default: as last time, else off]
    #[arg(long, value_parser = metrics::of_cluster::parse, value_name = "HOST:PORT")]
    pub metrics: Option<metrics::of_cluster::Asked>,
    /// Other machines may ask for metrics: --metrics takes addresses beyond loopback
    #[arg(long, requires = "metrics")]
    pub metrics_public: bool,
    /// After a crash, how long its servers wait for the clients of before, 1s to 1h (the MDT 2s at least) [default: as last
    /// time, else 2s]
    #[arg(long, value_parser = parse_recovery_window, value_name = "TIME")]
    pub recovery_window: Option<Duration>,
    /// The caller reports itself how much space the cluster takes.
    #[arg(skip)]
    pub in_silence: bool,
    /// The option of `forebay serve`, for the servers that are started now. It is not remembered.
    #[command(flatten)]
    pub disks: DisksArgs,
}

/// Starts and mounts the cluster, and prints where it is.
pub fn run(args: &UpArgs) -> CliResult {
    posix::for_owner_alone();
    let metrics = metrics::of_cluster::Wanted::of(args)?;
    if !args.no_mount {
        let mnt = args.mount.as_ref();
        mnt.map_or(Ok(()), |mnt| mount::refuse_file(mnt))?;
        mnt.map_or(Ok(()), |mnt| hides::refuse_for_dir(&args.dir, args.osts.unwrap_or(OSTS), mnt))?;
    }
    let mut cluster = open(args)?;
    refuse_few_open_files(&cluster)?;
    let _lock = Lock::take(&cluster)?;
    let lost = Lost::among(cluster.targets());
    if let Some(mdt) = lost.iter().find(|lost| lost.target.id.kind == TargetKind::Mdt) {
        return Err(CliError::failed(mdt.words()));
    }
    stop_stopped(&cluster)?;
    refuse_other_level(args, &cluster)?;
    let described = cluster.description.clone();
    metrics.iter().try_for_each(|wanted| wanted.set(&mut cluster))?;
    args.recovery_window.into_iter().try_for_each(|window| recovery_window::set(window, &mut cluster))?;
    start_servers(&cluster, args.disks)?;
    // The other targets are served, but the command has not done everything it was asked for.
    let all_serve = || if lost.is_empty() { Ok(()) } else { Err(CliError::failed(lost::show(&lost))) };
    if cluster.description != described {
        // Saved only after success: otherwise every later start would fail as this one did.
        cluster.save()?;
    }
    let said = match &metrics::of_cluster::urls(&cluster)[..] {
        [] => String::new(),
        urls => format!("; metrics at {}", urls.join(", ")),
    };
    if args.no_mount {
        println!("serving {} in {}{said}", served(&cluster, &lost), cluster.dir.display());
        return all_serve();
    }
    let mnt = mount_point(args, &mut cluster)?;
    mount::ensure(&cluster, &mnt)?;
    println!("{} in {}, mounted at {}{said}", served(&cluster, &lost), cluster.dir.display(), mnt.display());
    all_serve()
}

fn served(cluster: &Cluster, lost: &[Lost]) -> String {
    let (mdt, osts) = (TargetId::mdt(0), cluster.ost_count());
    match lost.len() {
        0 => format!("{mdt} and {osts} OSTs"),
        lost => format!("{mdt} and {} of {osts} OSTs", osts - lost),
    }
}

/// Its processes inherit the limit of this one.
fn refuse_few_open_files(cluster: &Cluster) -> CliResult {
    let all = cluster.targets().len();
    let most = server_processes(cluster).into_iter().map(|(_, targets)| targets.len()).max().unwrap_or(0);
    open_files::refuse_few_to_serve(most, all)
}

/// The cluster of `args.dir`, formatted if it is new.
pub fn open(args: &UpArgs) -> CliResult<Cluster> {
    if args.mdts != 1 {
        return Err(CliError::usage(format!("--mdts {}: this version has one MDT per cluster", args.mdts)));
    }
    args.listen.iter().try_for_each(serve::refuse_beyond_loopback)?;
    if !Cluster::find(&args.dir)? {
        return create(args);
    }
    let cluster = Cluster::load(&args.dir)?;
    // A power failure right after formatting can leave the mark. Remove it, so that a later loss of the description
    // does not make the cluster look unfinished.
    let _ = std::fs::remove_file(cluster.dir.join(UNFINISHED));
    let differs = |flag: &str, was: String| {
        Err(CliError::usage(format!("{flag}: {} was formatted with {was}; that cannot change", args.dir.display())))
    };
    match args.osts {
        Some(osts) if osts as usize != cluster.ost_count() => {
            differs("--osts", format!("{} OSTs", cluster.ost_count()))
        }
        _ if args.separate && !cluster.description.separate => differs("--separate", "one process for all".into()),
        _ => refuse_other_shape(args, &cluster).map(|()| cluster),
    }
}

/// Refuses to change what was fixed at the first use.
fn refuse_other_shape(args: &UpArgs, cluster: &Cluster) -> CliResult {
    let differs = |flag: &str, was: String| {
        let dir = args.dir.display();
        Err(CliError::usage(format!("{flag}: {dir} was formatted with {was}; that cannot change, leave the flag out")))
    };
    for target in cluster.targets() {
        let (flag, asked) = match target.id.kind {
            TargetKind::Mdt => ("--mdt-size", args.mdt_size),
            TargetKind::Ost => ("--ost-size", args.ost_size),
        };
        let Some(asked) = asked else { continue };
        let dir = utf8(&target.dir)?;
        // A target that cannot be read reports that when it is served.
        let has = real::run(async |env| Store::peek_identity(&env, &dir)).map_or(asked, |identity| identity.data_bytes);
        if has != asked {
            return differs(&format!("{flag} {}", show_bytes(asked)), format!("{} for {}", show_bytes(has), target.id));
        }
    }
    let listens = cluster.mgs();
    match &args.listen {
        Some(asked) if listens.first() != Some(asked) => {
            let listens: Vec<String> = listens.iter().map(Address::to_string).collect();
            differs(&format!("--listen {asked}"), format!("{} at {}", TargetId::mdt(0), listens.join(" and ")))
        }
        _ => Ok(()),
    }
}

fn create(args: &UpArgs) -> CliResult<Cluster> {
    let osts = args.osts.unwrap_or(OSTS);
    if osts == 0 || osts as usize > forebay_proto::limits::STRIPES {
        return Err(CliError::usage(format!("--osts {osts}: use 1 to {}", forebay_proto::limits::STRIPES)));
    }
    let targets = osts as usize + 1;
    open_files::refuse_few_to_serve(if args.separate { 1 } else { targets }, targets)?;
    let shown = args.dir.display();
    if let Some((point, source)) = mounts::holding(&args.dir) {
        return Err(CliError::failed(format!(
            "{shown} is on the mount at {point}, of {source}: give a directory on a disk (`forebay status {source}` tells of \
             that cluster)"
        )));
    }
    utf8(&args.dir)?;
    let mut attempt = Attempt::begin(&args.dir)?;
    let dir = attempt.dir.clone();
    utf8(&dir)?;
    clear_unfinished(&dir)?;
    refuse_foreign_content(&dir)?;
    ["run", "log"].iter().try_for_each(|name| attempt.make(&dir.join(name)))?;
    std::fs::write(dir.join(UNFINISHED), "").doing(|| format!("cannot write in {shown}"))?;
    let ids: Vec<TargetId> = [TargetId::mdt(0)].into_iter().chain((0..osts).map(TargetId::ost)).collect();
    let free = posix::free_bytes(&dir).doing(|| format!("free space of {shown}"))?;
    let sizes = Sizes::choose(args, free, osts)?;
    let listen = addresses(&dir, args.listen.as_ref(), &ids)?;
    if !args.in_silence {
        println!("{}", sizes.announcement(&dir, free));
    }
    let uuid = real::run(|env| async move { format_all(&env, &dir, &ids, &sizes).await.map(|uuid| (uuid, dir, ids)) });
    let (uuid, dir, ids) = uuid?;
    let entry = |(id, listen): (&TargetId, String)| TargetEntry {
        name: id.to_string(),
        dir: id.to_string().into(),
        listen: vec![listen],
    };
    let description = Description {
        cluster: uuid.to_string(),
        separate: args.separate,
        mount: None,
        commit: args.commit.map(level_name),
        metrics: None,
        metrics_public: false,
        recovery_window: None,
        targets: ids.iter().zip(listen).map(entry).collect(),
    };
    let cluster = Cluster { dir, description };
    cluster.save()?;
    std::fs::remove_file(cluster.dir.join(UNFINISHED)).doing(|| format!("cannot write in {shown}"))?;
    Ok(cluster)
}

/// A first use. If it fails before the description is written, everything it made is removed.
struct Attempt {
    dir: PathBuf,
    /// Directories that it made, parents first.
    made: Vec<PathBuf>,
    /// Held by one attempt at a time, so unfinished targets there belong to it.
    lock: Option<File>,
}

impl Attempt {
    /// Makes `dir` if it does not exist.
    fn begin(dir: &Path) -> CliResult<Self> {
        let shown = dir.display();
        let absolute = std::path::absolute(dir).doing(|| format!("cannot use {shown}"))?;
        let mut attempt = Self { dir: absolute, made: Vec::new(), lock: None };
        attempt.make(&attempt.dir.clone())?;
        attempt.dir = dir.canonicalize().doing(|| format!("cannot use {shown}"))?;
        let lock = File::open(&attempt.dir).doing(|| format!("cannot use {shown}"))?;
        // A file system without locks is assumed to have one user at a time.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let words = format!("another `forebay up` is making a cluster in {shown}: try again when it is done");
            return Err(CliError::failed(words));
        }
        attempt.lock = Some(lock);
        Ok(attempt)
    }

    fn make(&mut self, dir: &Path) -> CliResult {
        let missing = dir.ancestors().take_while(|above| above.symlink_metadata().is_err());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.made.extend(missing);
        std::fs::create_dir_all(dir).doing(|| format!("cannot make {}", dir.display()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if Cluster::exists(&self.dir) {
            return;
        }
        if self.lock.is_some() {
            // What cannot be removed here is recognized by the mark at the next attempt.
            let _ = clear_unfinished(&self.dir);
            let _ = std::fs::remove_file(self.dir.join(UNFINISHED));
        }
        self.made.iter().rev().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }
}

/// Removes the targets of an interrupted format. They hold nothing of value, because the description is written last.
fn clear_unfinished(dir: &Path) -> CliResult {
    if !dir.join(UNFINISHED).exists() {
        return Ok(());
    }
    for name in target_dirs(dir) {
        std::fs::remove_dir_all(dir.join(&name)).doing(|| format!("cannot remove the unfinished {name}"))?;
    }
    Ok(())
}

fn refuse_foreign_content(dir: &Path) -> CliResult {
    let shown = dir.display();
    if let Some(name) = target_dirs(dir).first() {
        return Err(CliError::failed(format!(
            "{shown}/{name} is there but {} is not; bring it back, or remove {name} if it is of no value",
            cluster::FILE,
        )));
    }
    let entries = std::fs::read_dir(dir).doing(|| format!("cannot list {shown}"))?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| !HARMLESS.contains(&name.as_str())).min() {
        None => Ok(()),
        Some(name) => Err(CliError::failed(format!(
            "{shown} holds other things ({name}) and no cluster; give a directory of its own, such as {shown}/forebay"
        ))),
    }
}

fn target_dirs(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.parse::<TargetId>().is_ok()).collect();
    names.sort();
    names
}

/// Data bytes of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    mdt: u64,
    ost: u64,
    osts: u32,
}

impl Sizes {
    /// The requested sizes, otherwise a share of the `free` bytes: all targets with their journals take at most half of
    /// them. Errors: there is not enough space.
    fn choose(args: &UpArgs, free: u64, osts: u32) -> CliResult<Self> {
        for (flag, asked) in [("--ost-size", args.ost_size), ("--mdt-size", args.mdt_size)] {
            if let Some(asked) = asked.filter(|asked| *asked < BYTES_MIN || !asked.is_multiple_of(4096)) {
                let (asked, least) = (show_bytes(asked), show_bytes(BYTES_MIN));
                return Err(CliError::usage(format!("{flag} {asked}: use {least} or more, a multiple of 4 KiB")));
            }
        }
        let half = free / 2;
        let mdt = args.mdt_size.unwrap_or(with_journal_within(half / 8, format::MDT_BYTES));
        let each = half.saturating_sub(mdt + journal_bytes(mdt)) / u64::from(osts);
        let ost = args.ost_size.unwrap_or(with_journal_within(each, format::OST_BYTES));
        let sizes = Self { mdt, ost, osts };
        if sizes.all_bytes() + LEFT_BYTES <= free {
            return Ok(sizes);
        }
        let needed = show_bytes(sizes.all_bytes() + LEFT_BYTES);
        let advice = match (args.ost_size, args.mdt_size) {
            (None, None) => "fewer --osts need less",
            _ => "give a smaller --ost-size or --mdt-size",
        };
        Err(CliError::failed(format!("{} are free there, and the targets need {needed}: {advice}", show_bytes(free))))
    }

    fn journals_bytes(&self) -> u64 {
        journal_bytes(self.mdt) + u64::from(self.osts) * journal_bytes(self.ost)
    }

    /// Bytes that formatting takes.
    fn all_bytes(&self) -> u64 {
        self.mdt + u64::from(self.osts) * self.ost + self.journals_bytes()
    }

    /// A text that says, before formatting, how many of the `free` bytes it takes.
    fn announcement(&self, dir: &Path, free: u64) -> String {
        let [all, of_free, mdt, ost, journals, left] =
            [self.all_bytes(), free, self.mdt, self.ost, self.journals_bytes(), free - self.all_bytes()]
                .map(show_bytes);
        let osts = if self.osts == 1 { "OST0000".into() } else { format!("each of {} OSTs", self.osts) };
        format!(
            "allocating {all} of the {of_free} free at {}: {mdt} for {}, {ost} for {osts}, {journals} for journals; {left} stay free \
             (--mdt-size and --ost-size choose)",
            dir.display(),
            TargetId::mdt(0)
        )
    }
}

/// The most data bytes that fit into `bytes` with their journal, in steps; never fewer than a target needs.
fn with_journal_within(bytes: u64, most: u64) -> u64 {
    let mut data = (bytes / BYTES_STEP * BYTES_STEP).clamp(BYTES_MIN, most);
    while data > BYTES_MIN && data + journal_bytes(data) > bytes {
        data -= BYTES_STEP;
    }
    data
}

fn journal_bytes(data_bytes: u64) -> u64 {
    FormatOptions::new(Uuid::default(), TargetId::ost(0), data_bytes).journal_bytes
}

async fn format_all(env: &Env, dir: &Path, ids: &[TargetId], sizes: &Sizes) -> CliResult<Uuid> {
    let cluster = new_uuid(env);
    let bar = progress::bar("formatting", ids.len() as u64, Counts::Things);
    for &id in ids {
        let bytes = if id == TargetId::mdt(0) { sizes.mdt } else { sizes.ost };
        format_target(env, &dir.join(id.to_string()), &FormatOptions::new(cluster, id, bytes)).await?;
        bar.add(1);
    }
    Ok(cluster)
}

/// Unix sockets in DIR/run, or TCP if requested. Never TCP by default: servers trust every client that connects, and
/// any user of the machine can. Errors: the sockets' paths would be too long.
fn addresses(dir: &Path, listen: Option<&Address>, ids: &[TargetId]) -> CliResult<Vec<String>> {
    if let Some(first) = listen {
        return (0..ids.len()).map(|number| serve::nth(first, number).map(|address| address.to_string())).collect();
    }
    let longest = dir.join(format!("run/{}.sock", ids[0]));
    cluster::socket_address(&longest).map_err(|words| {
        CliError::usage(format!(
            "{words}: give a shorter DIR, or --listen 127.0.0.1:PORT, where any user of this machine can connect and act as \
             anyone"
        ))
    })?;
    Ok(ids.iter().map(|id| format!("unix:run/{id}.sock")).collect())
}

/// Ends running server processes that need a restart: those with a target that has stopped, and those without a target
/// that is back. Also waits for processes that are about to end.
fn stop_stopped(cluster: &Cluster) -> CliResult {
    let running: Vec<(PidFile, Vec<cluster::Target>)> = present_processes(cluster)
        .into_iter()
        .map(|(name, targets)| (PidFile::of(&cluster.run_dir(), &name), targets))
        .filter(|(pid_file, _)| pid_file.running().is_some())
        .collect();
    if running.is_empty() {
        return Ok(());
    }
    let answers = real::run(async |env| ask::states(&env, &cluster.map()).await);
    let reason = |id: TargetId| {
        let status = answers.iter().find(|answer| answer.id == id)?.status.as_ref().ok()?;
        (status.get("state")? == "stopped")
            .then(|| status.get("reason").and_then(|r| r.as_str()).unwrap_or("?").to_owned())
    };
    let is_silent = |id: TargetId| answers.iter().any(|answer| answer.id == id && answer.status.is_err());
    for (pid_file, targets) in running {
        let back: Vec<String> = pid_file.running().map_or_else(Vec::new, |pid| not_served(pid, &targets));
        if !back.is_empty() {
            eprintln!("forebay: {} is back: the servers are started again with it", back.join(", "));
            if !pid_file.stop(down::TIMEOUT) {
                pid_file.kill();
            }
            continue;
        }
        if targets.iter().any(|target| is_silent(target.id)) {
            // It may be dying: a process that was just killed still exists, and would count as running.
            processes::wait_until(DYING, || pid_file.running().is_none());
            // Its threads may be waiting for a slow device to finish their requests.
            let ends = || pid_file.running().is_none_or(|pid| !posix::is_ending(pid));
            processes::wait_until(down::TIMEOUT, ends);
            continue;
        }
        let stopped: Vec<String> = targets.iter().filter_map(|target| reason(target.id)).collect();
        if stopped.is_empty() {
            continue;
        }
        eprintln!("{}\nstarting the servers again", stopped.join("\n"));
        if !pid_file.stop(down::TIMEOUT) {
            pid_file.kill();
        }
    }
    Ok(())
}

/// Starts every server process that is not running, and waits until all are ready.
pub fn start_servers(cluster: &Cluster, disks: DisksArgs) -> CliResult {
    let mut starting = Vec::new();
    for (name, targets) in present_processes(cluster) {
        if PidFile::of(&cluster.run_dir(), &name).running().is_none() {
            starting.push(start_server(cluster, &name, &targets, disks)?);
        }
    }
    // All are started before the wait, so that they recover in parallel.
    let results: Vec<CliResult> = starting.into_iter().map(|starting| starting.wait_ready().map(drop)).collect();
    results.into_iter().collect()
}

/// Names of the server processes, with their targets.
pub fn server_processes(cluster: &Cluster) -> Vec<(String, Vec<cluster::Target>)> {
    let targets = cluster.targets();
    if cluster.description.separate {
        targets.into_iter().map(|target| (target.id.to_string(), vec![target])).collect()
    } else {
        vec![(SERVERS.to_owned(), targets)]
    }
}

/// The same without lost targets.
fn present_processes(cluster: &Cluster) -> Vec<(String, Vec<cluster::Target>)> {
    let present = |(name, targets): (String, Vec<cluster::Target>)| {
        let targets: Vec<_> = targets.into_iter().filter(|target| lost::why(target).is_none()).collect();
        (!targets.is_empty()).then_some((name, targets))
    };
    server_processes(cluster).into_iter().filter_map(present).collect()
}

/// Those of `targets` that server process `pid` was started without.
fn not_served(pid: u32, targets: &[cluster::Target]) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
    let is_missing = |target: &&cluster::Target| !words.contains(&target.dir.as_os_str().as_encoded_bytes());
    // A process that is ending shows no arguments.
    match words.len() {
        0 | 1 => Vec::new(),
        _ => targets.iter().filter(is_missing).map(|target| target.id.to_string()).collect(),
    }
}

/// Starts one server process.
pub fn start_server(
    cluster: &Cluster,
    name: &str,
    targets: &[cluster::Target],
    disks: DisksArgs,
) -> CliResult<Starting> {
    let map = cluster.dir.join(cluster::FILE);
    let mut args = vec!["serve".to_owned(), "--map".to_owned(), utf8(&map)?];
    args.extend(disks.forgetful_disks.then(|| "--forgetful-disks".to_owned()));
    if let Some(window) = cluster.recovery_window() {
        args.extend(["--recovery-window".to_owned(), write_duration(window)]);
    }
    if let Some(address) = metrics::of_cluster::address(cluster, name)? {
        args.extend(["--metrics".to_owned(), metrics::plain(&address)]);
        args.extend(cluster.description.metrics_public.then(|| "--metrics-public".to_owned()));
    }
    for target in targets {
        args.push(utf8(&target.dir)?);
    }
    Background {
        name,
        called: called(name, targets),
        args,
        own_session: true,
        run_dir: &cluster.run_dir(),
        log_dir: &cluster.log_dir(),
    }
    .start()
}

fn called(name: &str, targets: &[cluster::Target]) -> String {
    if targets.len() == 1 { format!("the server of {name}") } else { "the servers' process".into() }
}

/// Refuses to change the commit level of a running mount.
fn refuse_other_level(args: &UpArgs, cluster: &Cluster) -> CliResult {
    let Some(asked) = args.commit.map(level_name) else { return Ok(()) };
    let was = cluster.description.commit.clone().unwrap_or_else(|| level_name(CommitLevel::Data));
    let running = |mnt: &PathBuf| mounts::pid_file(mnt).running().is_some() && mounts::shows_cluster(&cluster.dir, mnt);
    match cluster.description.mount.as_ref().filter(|mnt| asked != was && running(mnt)) {
        None => Ok(()),
        Some(mnt) => {
            let mnt = mnt.display();
            Err(CliError::failed(format!(
                "--commit {asked}: {mnt} is mounted with {was}, and keeps it: `forebay umount {mnt}` first"
            )))
        }
    }
}

/// As the cluster's description has it.
fn level_name(level: CommitLevel) -> String {
    level.name().to_owned()
}

/// The mount point, remembered for the next `up`.
fn mount_point(args: &UpArgs, cluster: &mut Cluster) -> CliResult<PathBuf> {
    let given = args.mount.clone().or_else(|| cluster.description.mount.clone());
    let mnt = given.unwrap_or_else(|| cluster.dir.join("mnt"));
    hides::refuse_for_cluster(cluster, &mnt)?;
    let mnt = mount::make_point(&mnt)?;
    let wanted = Description {
        mount: Some(mnt.clone()),
        commit: args.commit.map(level_name).or_else(|| cluster.description.commit.clone()),
        ..cluster.description.clone()
    };
    if wanted != cluster.description {
        cluster.description = wanted;
        cluster.save()?;
    }
    Ok(mnt)
}

/// Held while `up` or `down` works on a cluster.
pub struct Lock {
    _file: std::fs::File,
}

impl Lock {
    /// Refuses while another command holds it.
    pub fn take(cluster: &Cluster) -> CliResult<Self> {
        let run_dir = cluster.run_dir();
        std::fs::create_dir_all(&run_dir).doing(|| format!("cannot make {}", run_dir.display()))?;
        let path = run_dir.join("lock");
        let file = std::fs::File::create(&path).doing(|| format!("cannot make {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(CliError::failed(format!(
                "another `forebay up` or `down` works on {}; wait for it",
                cluster.dir.display()
            ))),
            Err(TryLockError::Error(error)) => {
                Err(CliError::failed(format!("cannot lock {}: {error}", path.display())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(free: u64, flags: &[&str]) -> CliResult<Sizes> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            up: UpArgs,
        }
        let line = ["up", "/x"].iter().chain(flags);
        let args = <Line as clap::Parser>::try_parse_from(line).expect("flags").up;
        Sizes::choose(&args, free, args.osts.unwrap_or(OSTS))
    }

    #[test]
    fn targets_take_half_of_what_is_free_and_less_where_there_is_less() {
        for gib in [2, 3, 5, 10, 40, 81, 200] {
            let free = gib << 30;
            let sizes = chosen(free, &[]).expect("room");
            assert!(sizes.all_bytes() <= free / 2, "{gib} GiB: {sizes:?}");
            assert!(sizes.ost >= free / 20 || sizes.ost == format::OST_BYTES, "{gib} GiB: {sizes:?}");
        }
        // Targets take the least they need even from little free space, but never all of it.
        let least = chosen(600 << 20, &[]).expect("room for the least");
        assert_eq!((least.mdt, least.ost, least.all_bytes()), (BYTES_MIN, BYTES_MIN, 400 << 20));
        assert!(chosen(463 << 20, &[]).expect_err("none").message.contains("fewer --osts"));
        let asked = chosen(10 << 30, &["--osts", "1", "--ost-size", "9GiB"]).expect("asked for, and there");
        assert_eq!((asked.ost, asked.mdt), (9 << 30, 576 << 20));
        assert!(
            chosen(10 << 30, &["--ost-size", "9GiB"]).expect_err("4 of them").message.contains("smaller --ost-size")
        );
    }

    #[test]
    fn what_is_taken_is_said_before_with_what_stays_free() {
        let said = chosen(40 << 30, &["--osts", "2"]).expect("room").announcement(Path::new("/x"), 40 << 30);
        for words in ["of the 40 GiB free at /x", "for MDT0000", "each of 2 OSTs", "stay free", "--ost-size"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn sockets_are_used_unless_ports_are_asked_for_and_paths_that_are_too_long_are_refused() {
        let ids = [TargetId::mdt(0), TargetId::ost(0)];
        let short = addresses(Path::new("/x"), None, &ids).expect("addresses");
        assert_eq!(short, ["unix:run/MDT0000.sock", "unix:run/OST0000.sock"]);
        let long = addresses(&Path::new("/").join("x".repeat(100)), None, &ids).expect_err("too long").message;
        assert!(long.contains("118 bytes") && long.contains("act as anyone"), "{long}");
        let given = addresses(Path::new("/x"), Some(&Address::Tcp("127.0.0.1:7700".into())), &ids).expect("addresses");
        assert_eq!(given, ["tcp:127.0.0.1:7700", "tcp:127.0.0.1:7701"]);
    }
}
