//! `forebay up DIR`: a whole cluster on this machine, formatted on first use, served in the background, mounted.
//!
//! Invariant: `up` again on the same DIR starts what is missing and leaves the rest alone.
//! Invariant: a target whose directory has vanished is never formatted again: its files would seem never to have
//! existed.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // directories and ports; nothing here serves

mod attempt;
mod lock;
mod open;
mod recovery_window;
mod servers;
mod sizes;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use forebay_client::CommitLevel;
use forebay_command::{
    cluster::{Cluster, Description, parse_recovery_window},
    error::{CliError, CliResult},
    posix,
    units::parse_positive_size,
};
use forebay_env::Address;
use forebay_proto::{TargetId, TargetKind};

pub use attempt::{Attempt, UNFINISHED, refuse_foreign_content};
pub use lock::Lock;
pub use open::open;
pub use servers::{become_server, start_server, start_servers};
pub use sizes::Sizes;

use crate::{
    hides,
    lost::{self, Lost},
    metrics, mount,
    mount_options::level_values,
    mount_point, mounts, open_files,
    serve::DisksArgs,
    server_processes,
};

/// Default number of OSTs of a cluster.
const OSTS: u32 = 4;

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
    /// Serve in this process until SIGTERM, and mount nothing: for systemd and containers. Tells systemd when it is ready
    #[arg(long, conflicts_with_all = ["mount", "commit", "separate", "metrics", "recovery_window"])]
    pub foreground: bool,
    /// Listen at this TCP address and the ports behind it, instead of Unix sockets; given again, at this host's address in another
    /// network too: clients use the networks of an OST together (first use only)
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Vec<Address>,
    /// With --listen: TCP without keys, at loopback addresses only. Any user of this machine can act as anyone (first use
    /// only)
    #[arg(long, requires = "listen")]
    pub insecure_loopback: bool,
    /// With --listen: do not encrypt connections to hosts that choose this too. Others on the network can then read the data,
    /// and cannot change it (first use only)
    #[arg(long, requires = "listen", conflicts_with = "insecure_loopback")]
    pub integrity_only: bool,
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
    let metrics = metrics::of_cluster::Wanted::of(args.metrics.as_ref(), args.metrics_public)?;
    if !args.no_mount && !args.foreground {
        let mnt = args.mount.as_ref();
        mnt.map_or(Ok(()), |mnt| mount_point::refuse_file(mnt))?;
        mnt.map_or(Ok(()), |mnt| hides::refuse_for_dir(&args.dir, args.osts.unwrap_or(OSTS), mnt))?;
    }
    let mut cluster = open(args)?;
    // A host that has joined may serve, and mount nothing.
    let no_mount = args.no_mount || cluster.is_joined() && args.mount.is_none() && cluster.description.mount.is_none();
    refuse_few_open_files(&cluster)?;
    let _lock = Lock::take(&cluster)?;
    let lost = Lost::among(cluster.targets());
    if let Some(mdt) = lost.iter().find(|lost| lost.target.id.kind == TargetKind::Mdt) {
        return Err(CliError::failed(mdt.words()));
    }
    servers::stop_stopped(&cluster)?;
    refuse_other_level(args, &cluster)?;
    if args.foreground {
        lost.iter().for_each(|lost| eprintln!("forebay: {}", lost.words()));
        return become_server(&cluster, args.disks).map(|never| match never {});
    }
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
    if no_mount {
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
    if cluster.is_joined() {
        return match lost.len() {
            0 => format!("{osts} OSTs"),
            lost => format!("{} of {osts} OSTs", osts - lost),
        };
    }
    match lost.len() {
        0 => format!("{mdt} and {osts} OSTs"),
        lost => format!("{mdt} and {} of {osts} OSTs", osts - lost),
    }
}

/// Its processes inherit the limit of this one.
fn refuse_few_open_files(cluster: &Cluster) -> CliResult {
    let all = cluster.targets().len();
    let most = server_processes::of(cluster).into_iter().map(|(_, targets)| targets.len()).max().unwrap_or(0);
    open_files::refuse_few_to_serve(most, all)
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
    let mnt = mount_point::make(&mnt)?;
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
