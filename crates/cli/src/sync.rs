//! `forebay sync CLUSTER`: when it returns, everything that was acknowledged to any client is durable.

use std::time::Duration;

use clap::Args;
use forebay_client::{Client, MountOptions};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    progress,
};
use forebay_env::{Env, real};

use crate::{
    ask,
    cluster_arg::{ClusterArg, KeysArgs},
};

/// How long to wait for the MGS.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Of which cluster.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The DIR of `forebay up`, a mount, or HOST:PORT[,HOST:PORT] of the MGS
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    #[command(flatten)]
    pub keys: KeysArgs,
}

/// Runs the sync.
pub fn run(args: &SyncArgs) -> CliResult {
    let cluster = ClusterArg::parse(&args.cluster)?;
    let network = cluster.network(&args.keys)?;
    ask::warn_if_unreachable(&cluster, &network, TIMEOUT)?;
    let _waiting = progress::spinner("waiting until everything is durable");
    real::run(|env| async move { sync(&env.with_network(network), &cluster).await })
}

/// Connects, waits until everything is durable, disconnects.
pub async fn sync(env: &Env, cluster: &ClusterArg) -> CliResult {
    let mut options = MountOptions::new(cluster.mgs());
    options.description = "forebay sync".into();
    let away = |_| CliError::failed("the MGS does not answer; `forebay status` tells more");
    let client = env.timeout(TIMEOUT, Client::mount(env, options)).await.map_err(away)?;
    let client = client.doing(|| "cannot connect".into())?;
    client.sync_all().await.doing(|| "not everything is durable".into())?;
    client.unmount().await.doing(|| "cannot disconnect".into())
}
