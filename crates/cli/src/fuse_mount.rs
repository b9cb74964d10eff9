//! Between the command line and the kernel's mount.

use std::time::Duration;

use forebay_client::Client;
use forebay_env::{Address, Env, sync::watch};
use forebay_fuse::FuseOptions;

use crate::{
    error::{CliError, CliResult, Doing},
    mount_options::Options,
    units::{show_bytes, show_count, show_seconds},
};

/// How long the MGS may take to answer a mount.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Mounts, says so on stdout in one line, serves the kernel until the mount is taken away or `stop` is true; then makes
/// everything durable.
pub async fn serve(
    env: &Env,
    mgs: Vec<Address>,
    source: &str,
    mnt: &str,
    options: Options,
    mut stop: watch::Receiver<bool>,
) -> CliResult {
    let client = connect(env, mgs, mnt, &options).await?;
    let mut fuse = FuseOptions::new(source);
    fuse.read_only = options.read_only;
    fuse.devices = options.devices;
    fuse.set_ids = options.set_ids;
    fuse.no_exec = options.no_exec;
    fuse.allow_other = options.allow_other || crate::posix::is_root();
    let mut mounted = forebay_fuse::mount(env, &client, mnt, &fuse).await.doing(|| format!("cannot mount at {mnt}"))?;
    println!("{source} is mounted at {mnt}");
    forebay_env::sync::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => {
            // Programs that still use it keep what they have open until the process ends.
            mounted.unmount(true).await.doing(|| "stopping".into())?;
        }
        () = mounted.ended() => {}
    }
    let result = client.unmount().await.doing(|| format!("not everything written at {mnt} is durable"));
    log_totals(env, &client);
    result
}

async fn connect(env: &Env, mgs: Vec<Address>, mnt: &str, options: &Options) -> CliResult<Client> {
    let addresses: Vec<String> = mgs.iter().map(Address::to_string).collect();
    let addresses = addresses.join(" or ");
    let options = options.client(mgs, format!("mount {mnt} (process {})", std::process::id()));
    match env.timeout(PATIENCE, Client::mount(env, options)).await {
        Ok(client) => client.doing(|| format!("cannot mount from {addresses}")),
        Err(_) => Err(CliError::failed(format!("nobody answers at {addresses}; are the servers up?"))),
    }
}

fn log_totals(env: &Env, client: &Client) {
    let stats = client.stats();
    env.log(&format!(
        "unmounted: {} read, {} written, {} requests, {} replayed, {} evictions, longest wait {}",
        show_bytes(stats.read_bytes),
        show_bytes(stats.written_bytes),
        show_count(stats.rpcs),
        show_count(stats.replayed),
        stats.evictions,
        show_seconds(stats.longest_stall.as_secs_f64()),
    ));
}
