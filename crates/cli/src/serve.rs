//! `forebay serve DIR...`: serves targets in the foreground.

mod roles;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use forebay_command::{
    cluster::{Cluster, parse_recovery_window},
    error::{CliError, CliResult},
    keys, posix,
    processes::say_ready,
    units::parse_size,
};
use forebay_env::{
    Address, Network,
    real::{self, Disks},
};
use forebay_proto::TargetKind;

use crate::{
    cluster_arg::KeysArgs,
    listen_address::{nth, refuse_beyond_loopback},
    lost, metrics, open_files,
    server::{self, Ready, Serving},
    stop,
};

/// Least memory for an MDT's rows. Changed rows stay until a checkpoint has written them, and there may be two
/// checkpoints.
const MDT_CACHE_BYTES_LEAST: u64 = 256 << 20;

/// What to serve, where.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directories of targets, made by `forebay format`
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
    /// Where to listen: tcp:HOST:PORT or unix:PATH; with several DIRs the next one takes the next port
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<Address>,
    /// The cluster's description (cluster.toml): an mdt hands it to clients; addresses not given are taken from it
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// After a crash, how long to wait for the clients of before, 1s to 1h (an MDT waits 2s at least) [default: 2s]
    #[arg(long, value_parser = parse_recovery_window, value_name = "TIME")]
    pub recovery_window: Option<Duration>,
    /// Memory for what an MDT knows of files, 256MiB at least; what is not in use beyond it is read from its device when it is
    /// wanted [default: a quarter of the machine's memory]
    #[arg(long, value_parser = parse_mdt_cache, value_name = "SIZE")]
    pub mdt_cache: Option<u64>,
    #[command(flatten)]
    pub keys: KeysArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub disks: DisksArgs,
}

/// What the disks are like.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DisksArgs {
    /// For tests of crashes: what was not flushed to a disk is in this process's memory only, and SIGKILL is a power cut
    #[arg(long, hide = true)]
    pub forgetful_disks: bool,
}

impl DisksArgs {
    /// The disks of the environment.
    pub fn disks(self) -> Disks {
        if self.forgetful_disks { Disks::Forget } else { Disks::Keep }
    }
}

/// Where to be asked for metrics.
#[derive(Clone, Debug, Default, Args)]
pub struct MetricsArgs {
    /// Serve metrics (Prometheus, OpenMetrics) at http://HOST:PORT/metrics [default: not at all]
    #[arg(long, value_parser = metrics::parse_address, value_name = "HOST:PORT")]
    pub metrics: Option<Address>,
    /// Other machines may ask for metrics: --metrics takes addresses beyond loopback
    #[arg(long, requires = "metrics")]
    pub metrics_public: bool,
}

impl MetricsArgs {
    /// The address, if metrics are wanted. Errors: an address that other machines can reach, without
    /// `--metrics-public`.
    pub fn place(&self) -> CliResult<Option<metrics::Place>> {
        let place = self.metrics.clone().map(|address| metrics::Place { address, public: self.metrics_public });
        place.iter().try_for_each(metrics::refuse_public)?;
        Ok(place)
    }
}

/// Serves until SIGTERM or Ctrl-C; prints one line when it is ready.
pub fn run(args: &ServeArgs) -> CliResult {
    posix::for_owner_alone();
    let stop = stop::requested();
    let (targets, metrics) = (plan(args)?, args.metrics.place()?);
    let network = network(args, &targets)?;
    let all = targets.iter().filter_map(|target| Some(target.map.as_ref()?.targets.len())).max().unwrap_or(0);
    open_files::refuse_few_to_serve(targets.len(), all)?;
    real::run_with(args.disks.disks(), |env| async move {
        roles::refuse_unfit(&env, &network, &targets)?;
        if args.disks.forgetful_disks {
            env.log(
                "--forgetful-disks: for tests only. What is not flushed is lost when this process is killed, and at most \
                 64 MiB of each disk are kept back",
            );
        }
        server::serve_all(&env.with_network(network), targets, metrics, stop, announce).await
    })
}

fn announce(ready: &[Ready], metrics: Option<&Address>) {
    let one = |ready: &Ready| {
        let addresses: Vec<String> = ready.addresses.iter().map(Address::to_string).collect();
        format!("{} at {}", ready.id, addresses.join(" and "))
    };
    let metrics = metrics.map_or(String::new(), |address| format!("; metrics at {}", metrics::url(address)));
    say_ready(&format!("serving {}{metrics}", ready.iter().map(one).collect::<Vec<_>>().join(", ")));
}

fn parse_mdt_cache(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MDT_CACHE_BYTES_LEAST => Err("an MDT needs 256MiB at least".into()),
        bytes => Ok(bytes),
    }
}

fn default_mdt_cache_bytes() -> u64 {
    (posix::machine_memory_bytes() / 4).max(MDT_CACHE_BYTES_LEAST)
}

/// The connections over a network of the servers: those of the map's cluster, or of the options.
fn network(args: &ServeArgs, targets: &[Serving]) -> CliResult<Network> {
    let addresses: Vec<Address> = targets.iter().flat_map(|target| target.listen.clone()).collect();
    let network = match args.map.as_deref().map(Cluster::load_file).transpose()? {
        Some(cluster) if args.keys.is_unset() => keys::of_cluster(&cluster, keys::SERVER)?,
        _ => args.keys.network(&addresses, keys::SERVER)?,
    };
    match &network {
        Network::InsecureLoopback => addresses.iter().try_for_each(refuse_beyond_loopback)?,
        Network::Closed if addresses.iter().any(|address| matches!(address, Address::Tcp(_))) => {
            return Err(CliError::usage(
                "TCP needs the cluster's keys: give --keys DIR, or --insecure-loopback, with which any user of this machine \
                 can act as anyone",
            ));
        }
        _ => {}
    }
    Ok(network)
}

/// The addresses at which each directory's target listens.
fn plan(args: &ServeArgs) -> CliResult<Vec<Serving>> {
    let cluster = args.map.as_deref().map(Cluster::load_file).transpose()?;
    if args.listen.is_empty() && cluster.is_none() {
        return Err(CliError::usage("say where to listen: --listen tcp:127.0.0.1:7700, or --map FILE"));
    }
    let authority = match cluster.as_ref().filter(|_| args.keys.is_unset()) {
        Some(cluster) => keys::authority_of(cluster)?,
        None => None,
    };
    let serving = |(number, dir): (usize, &PathBuf)| {
        let described = |dir: &Path| cluster.as_ref()?.targets().into_iter().find(|target| target.dir == dir);
        let dir = dir.canonicalize().map_err(|error| {
            let lost = std::path::absolute(dir).ok().and_then(|dir| lost::why(&described(&dir)?));
            CliError::failed(lost.unwrap_or_else(|| {
                format!(
                    "there is no target in {0}: {error}. A new one is made with `forebay format mdt|ost {0}`",
                    dir.display()
                )
            }))
        })?;
        let described = described(&dir);
        let is_mdt = described.as_ref().is_none_or(|target| target.id.kind == TargetKind::Mdt);
        if let Some(words) = described.as_ref().and_then(lost::why) {
            return Err(CliError::failed(words));
        }
        let listen = match (&args.listen[..], &described) {
            ([], Some(target)) => target.addresses.clone(),
            ([], None) => {
                return Err(CliError::usage(format!("{} is not in the map; give --listen too", dir.display())));
            }
            (given, _) => given.iter().map(|address| nth(address, number)).collect::<CliResult<_>>()?,
        };
        Ok(Serving {
            dir,
            expected: described.map(|target| target.id),
            listen,
            map: cluster.as_ref().filter(|cluster| !cluster.is_joined()).map(Cluster::map),
            authority: authority.clone().filter(|_| is_mdt),
            mgs: cluster.as_ref().filter(|cluster| cluster.is_joined()).map(Cluster::mgs).unwrap_or_default(),
            recovery_window: args.recovery_window,
            mdt_cache_bytes: args.mdt_cache.unwrap_or_else(default_mdt_cache_bytes),
        })
    };
    args.dirs.iter().enumerate().map(serving).collect()
}
