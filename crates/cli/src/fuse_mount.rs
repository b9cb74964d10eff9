//! Connects the command line with the kernel's mount.

use std::{path::Path, time::Duration};

use forebay_client::{Client, ClientResult};
use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
    processes::say_ready,
    units::{show_bytes, show_count, show_seconds},
};
use forebay_env::{Address, Env, sync::watch};
use forebay_fuse::{FuseOptions, Mounted};
use forebay_proto::{Uuid, message::GetMap};
use serde_json::{Value, json};

use crate::{
    memory::{self, Memory},
    mount_options::Options,
    mounts::{LossReport, Noted, Notes},
};

/// How long a mount waits for the MGS.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A server that is up replies sooner than this.
const LOOK: Duration = Duration::from_secs(2);
/// How often a mount checks whether programs wait for servers.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A wait of this length is reported.
const LONG: Duration = Duration::from_secs(1);

/// The file system to mount.
pub struct Place {
    /// The addresses of the MGS.
    pub mgs: Vec<Address>,
    /// The expected uuid of the cluster, if it is known.
    pub cluster: Option<Uuid>,
    /// The source that `df` shows.
    pub source: String,
    /// Begin a new session (setsid) once it is mounted.
    pub background: bool,
}

/// Mounts, prints one line on stdout, and serves the kernel until the file system is unmounted or `stop` is true. Then
/// makes everything durable.
pub async fn serve(env: &Env, place: Place, mnt: &str, options: Options, mut stop: watch::Receiver<bool>) -> CliResult {
    let client = forebay_env::sync::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return Err(CliError::failed("it was told to end before it was mounted")),
        client = connect(env, &place, mnt, &options) => client?,
    };
    let source = &place.source;
    let mut fuse = FuseOptions::new(source);
    fuse.read_only = options.read_only;
    fuse.devices = options.devices;
    fuse.set_ids = options.set_ids;
    fuse.no_exec = options.no_exec;
    fuse.access_times = options.access_times.unwrap_or_default();
    fuse.no_directory_access_times = options.no_directory_access_times.unwrap_or(false);
    fuse.transport = options.transport;
    fuse.allow_other = options.allow_other || posix::is_root();
    let mut mounted =
        forebay_fuse::mount(env, &client, mnt, &fuse).await.map_err(|error| CliError::failed(error.message))?;
    if place.background {
        posix::begin_session();
    }
    let (notes, noted) = (Notes::of(Path::new(mnt)), Noted::keep(Path::new(mnt)));
    say_ready(&format!("{source} is mounted at {mnt}"));
    env.begin(crate::renewal::run(env.clone(), place.mgs.clone()));
    let mut look_at = env.now() + LOOK_INTERVAL;
    loop {
        forebay_env::sync::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {
                mounted.unmount(true).await.doing(|| "stopping".into())?;
                // Handles are about to be closed, so programs that still use theirs get the error of a mount that is
                // gone.
                mounted.refuse();
                break;
            }
            () = mounted.ended() => break,
            () = env.sleep(memory::INTERVAL) => {
                bound_caches(&client);
                if env.now() >= look_at {
                    look_at = env.now() + LOOK_INTERVAL;
                    notes.keep(waits(&mounted, &client));
                }
            }
        }
    }
    noted.forget();
    let result = end(env, &client, &notes).await.doing(|| format!("not everything written at {mnt} is durable"));
    if let Err(error) = &result {
        LossReport::of(Path::new(mnt)).leave(&error.to_string());
    }
    log_totals(env, &client);
    result
}

/// Makes everything durable. Meanwhile it notes which servers it waits for.
async fn end(env: &Env, client: &Client, notes: &Notes) -> ClientResult<()> {
    notes.keep(None);
    let mut unmounting = std::pin::pin!(client.unmount());
    loop {
        if let Ok(result) = env.timeout(LOOK_INTERVAL, unmounting.as_mut()).await {
            notes.keep(None);
            return result;
        }
        notes.keep(Some(json!({"requests": 0, "longest_s": 0, "awaited": awaited(client)})));
    }
}

/// Shrinks caches when memory is short.
fn bound_caches(client: &Client) {
    if let Some(memory) = Memory::look() {
        client.bound_caches(memory.for_caches(client.stats().read_cache_bytes));
    }
}

/// The servers that programs wait for, if a request has waited for long.
fn waits(mounted: &Mounted, client: &Client) -> Option<Value> {
    let (requests, longest) = mounted.waiting(LONG)?;
    Some(json!({"requests": requests, "longest_s": longest.as_secs(), "awaited": awaited(client)}))
}

fn awaited(client: &Client) -> Vec<Value> {
    let awaited = client.awaited().into_iter().map(|awaited| {
        json!({"target": awaited.target.to_string(), "trouble": awaited.trouble, "requests": awaited.requests})
    });
    awaited.collect()
}

async fn connect(env: &Env, place: &Place, mnt: &str, options: &Options) -> CliResult<Client> {
    let addresses: Vec<String> = place.mgs.iter().map(Address::to_string).collect();
    let addresses = addresses.join(" or ");
    let options = options.client(place.mgs.clone(), format!("mount {mnt} (process {})", std::process::id()));
    let client = match env.timeout(TIMEOUT, Client::mount(env, options)).await {
        Ok(client) => client.doing(|| format!("cannot mount from {addresses}"))?,
        Err(_) => return Err(CliError::failed(why_not(env, place, &addresses).await)),
    };
    match place.cluster.filter(|cluster| *cluster != client.cluster()) {
        None => Ok(client),
        Some(cluster) => Err(CliError::failed(format!(
            "at {addresses} answers cluster {}, and {} is cluster {cluster}: stop the one that is in its place",
            client.cluster(),
            place.source,
        ))),
    }
}

/// Why a mount did not succeed within its timeout. Sends one more request, because a client that waits for a server
/// does not report its errors.
async fn why_not(env: &Env, place: &Place, addresses: &str) -> String {
    let timeout = TIMEOUT.as_secs();
    match env.timeout(LOOK, forebay_rpc::ask(env, &place.mgs, &GetMap {})).await {
        Ok(Ok(_)) => format!(
            "MDT0000 answers at {addresses}, and let no mount begin within {timeout} s: `forebay status` says what it waits for"
        ),
        Ok(Err(error)) => format!("no mount began within {timeout} s: {error}"),
        Err(_) => format!("nobody answers at {addresses}: what listens there hangs, or its machine is busy"),
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
