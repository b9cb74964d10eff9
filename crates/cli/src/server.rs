//! Targets served by this process, each on its own shard.
//!
//! Invariant: the process reports that it is ready only when every target listens.
//! Invariant: a clean stop closes all targets' stores, even if one of them fails. The MDT stops first and closes its
//! sessions with the OSTs, so that the next start needs no recovery.

use std::{path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::utf8,
    posix,
    units::show_seconds,
};
use forebay_env::{
    Address, Env,
    sync::{mpsc, watch},
};
use forebay_keys::Authority;
use forebay_mds::{Mds, MdsOptions, Owner};
use forebay_oss::{Oss, limits::TABLE_CACHE_BYTES};
use forebay_proto::{
    TargetId, TargetKind,
    message::{ClusterMap, GetBans, MapTarget, Register},
};
use forebay_store::{OpenOptions, Store};
use forebay_target::{Target, TargetOptions};

use crate::{
    metrics::{self, Answerer},
    renewal,
};

/// Pause between attempts to reach the MGS.
const REGISTER_PAUSE: Duration = Duration::from_secs(1);
/// How often a target checks that its files still exist.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A target to serve.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Its directory.
    pub dir: PathBuf,
    /// The expected target; `None` = any.
    pub expected: Option<TargetId>,
    /// The addresses to listen at.
    pub listen: Vec<Address>,
    /// The map that the MGS serves.
    pub map: Option<ClusterMap>,
    /// The cluster's authority, where the MGS takes hosts that join.
    pub authority: Option<Arc<Authority>>,
    /// The MGS elsewhere, which is to know where the target is.
    pub mgs: Vec<Address>,
    /// How long the target waits for its clients after a crash.
    pub recovery_window: Option<Duration>,
    /// Most bytes of rows that an MDT keeps in memory.
    pub mdt_cache_bytes: u64,
}

/// A target that listens.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The target.
    pub id: TargetId,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

/// The stages of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Serving,
    /// MDTs stop.
    Mdts,
    /// All stop.
    All,
}

/// The channels between a target's shard and the process.
#[derive(Clone)]
struct Line {
    /// `None`: the target could not be started.
    ready: mpsc::UnboundedSender<Option<Ready>>,
    stage: watch::Receiver<Stage>,
    /// An MDT drops it when it has stopped, an OST at once.
    mdts: mpsc::UnboundedSender<()>,
    /// A target's files were deleted.
    gone: mpsc::UnboundedSender<()>,
}

/// Reports that a target could not be started, however its start ends, unless it was reported as ready. Lives until its
/// shard ends.
struct Starting {
    ready: mpsc::UnboundedSender<Option<Ready>>,
    is_ready: bool,
}

impl Starting {
    fn done(&mut self, ready: Ready) {
        self.is_ready = true;
        // The receiver exists until all shards have ended.
        let _ = self.ready.send(Some(ready));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if !self.is_ready {
            let _ = self.ready.send(None);
        }
    }
}

/// Serves all targets until `stop` is true, then stops cleanly. `on_ready` is called once all listen.
pub async fn serve_all(
    env: &Env,
    targets: Vec<Serving>,
    metrics: Option<metrics::Place>,
    mut stop: watch::Receiver<bool>,
    on_ready: impl FnOnce(&[Ready], Option<&Address>),
) -> CliResult {
    let count = targets.len();
    // Opened first: if the port is not free, no target has been started.
    let door = match &metrics {
        Some(place) => Some(metrics::listen(env, place).await?),
        None => None,
    };
    let (mut askers, mgs) = (Vec::new(), mgs_of(&targets));
    let (sender, mut ready) = mpsc::unbounded_channel();
    let (stage, hears) = watch::channel(Stage::Serving);
    let (mdts, mut mdts_stopped) = mpsc::unbounded_channel();
    let (gone, mut all_gone) = mpsc::unbounded_channel();
    let line = Line { ready: sender, stage: hears, mdts, gone };
    let mut shards = Vec::new();
    for serving in targets {
        let line = line.clone();
        let (asker, answerer) = metrics::line();
        askers.push(asker);
        let name = serving.dir.file_name().map_or("target".into(), |name| name.to_string_lossy().into_owned());
        let serve = move |env: Env| async move { serve_one(&env, &serving, line, answerer).await };
        shards.push(env.spawn_shard(&name, serve));
    }
    drop(line);
    let mut listening = Vec::new();
    while listening.len() < count {
        match ready.recv().await {
            Some(Some(target)) => listening.push(target),
            // The others stop too: clients would wait for the missing part of the cluster.
            Some(None) | None => break,
        }
    }
    if listening.len() == count {
        listening.sort_by_key(|ready: &Ready| ready.id);
        let address = door.as_ref().map(forebay_env::Listener::address);
        let page = door.map(|door| env.spawn(metrics::serve(env.clone(), door, askers)));
        let renewing = env.spawn(renewal::run(env.clone(), mgs));
        on_ready(&listening, address.as_ref());
        forebay_env::sync::select! {
            biased;
            () = wait_for_stop(env, &mut stop, ready) => {}
            () = count_to(&mut all_gone, count) => {
                env.log("all targets that this process served were deleted: it ends, as nothing is left to serve");
            }
        }
        page.inspect(forebay_env::Task::abort);
        renewing.abort();
        stage.send_replace(Stage::Mdts);
        // Ends when the last MDT has dropped its sender.
        let _ = mdts_stopped.recv().await;
    }
    stage.send_replace(Stage::All);
    let mut result = Ok(());
    for shard in shards {
        let ended = shard.await.unwrap_or_else(|_| Err(CliError::failed("a target's thread panicked; see the log")));
        result = result.and(ended);
    }
    result
}

/// Where the MGS is that renews this process's certificate: elsewhere, or one of these targets.
fn mgs_of(targets: &[Serving]) -> Vec<Address> {
    let elsewhere = targets.iter().find(|target| !target.mgs.is_empty()).map(|target| target.mgs.clone());
    let of_map = || targets.iter().filter_map(|target| target.map.as_ref()).flat_map(|map| &map.targets);
    let here = || of_map().filter(|target| target.id == TargetId::mdt(0)).flat_map(|target| &target.addresses);
    elsewhere.unwrap_or_else(|| here().filter_map(|address| address.parse().ok()).collect())
}

/// Ends when a stop is requested, or when all targets have ended themselves.
async fn wait_for_stop(
    _env: &Env,
    stop: &mut watch::Receiver<bool>,
    mut ready: mpsc::UnboundedReceiver<Option<Ready>>,
) {
    forebay_env::sync::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => {}
        _ = ready.recv() => {}
    }
}

/// Ends when `count` targets are gone.
async fn count_to(gone: &mut mpsc::UnboundedReceiver<()>, count: usize) {
    let mut seen = 0;
    while seen < count {
        match gone.recv().await {
            Some(()) => seen += 1,
            // All senders are gone, so no further target can report.
            None => std::future::pending().await,
        }
    }
}

/// Stops a target whose files were deleted while it was served, and reports that to `gone`.
async fn watch_devices(env: Env, target: Target, gone: mpsc::UnboundedSender<()>) {
    while target.store().check_devices().is_ok() {
        env.sleep(LOOK_INTERVAL).await;
    }
    target.check_devices();
    if target.store().is_deleted() {
        // The receiver exists until all shards have ended.
        let _ = gone.send(());
    }
}

/// Tells the MGS where a target of this host is. The target serves meanwhile.
async fn register(env: &Env, mgs: &[Address], target: MapTarget) {
    let id = target.id;
    let request = Register { targets: vec![target] };
    let mut complaint = String::new();
    loop {
        match forebay_rpc::ask(env, mgs, &request).await {
            Ok(_) => break,
            Err(error) if error.to_string() != complaint => {
                complaint = error.to_string();
                env.log(&format!("{id}: the MGS does not know yet where it is: {complaint}"));
            }
            Err(_) => {}
        }
        env.sleep(REGISTER_PAUSE).await;
    }
    // From now on the MDT tells it.
    if let (Ok(bans), Some(known)) = (forebay_rpc::ask(env, mgs, &GetBans {}).await, env.membership()) {
        known.adopt(&bans);
    }
}

fn texts(addresses: &[Address]) -> Vec<String> {
    addresses.iter().map(Address::to_string).collect()
}

async fn serve_one(env: &Env, serving: &Serving, line: Line, answerer: Answerer) -> CliResult {
    let Line { ready, mut stage, mdts, gone } = line;
    let mut starting = Starting { ready, is_ready: false };
    let store = open_store(env, serving).await?;
    let id = store.identity().target;
    let (last, mdts) = match id.kind {
        TargetKind::Mdt => (Stage::Mdts, Some(mdts)),
        TargetKind::Ost => {
            drop(mdts);
            (Stage::All, None)
        }
    };
    let served = start(env, &store, serving).await;
    let result = match served {
        Ok((server, addresses)) => {
            starting.done(Ready { id, addresses: addresses.clone() });
            if !serving.mgs.is_empty() {
                let (env2, mgs, uuid) = (env.clone(), serving.mgs.clone(), store.identity().uuid);
                env.begin(
                    async move { register(&env2, &mgs, MapTarget { id, uuid, addresses: texts(&addresses) }).await },
                );
            }
            let answering = env.spawn(answerer.answer(server.target.clone()));
            let watching = env.spawn(watch_devices(env.clone(), server.target.clone(), gone));
            let _ = stage.wait_for(|stage| *stage >= last).await;
            watching.abort();
            answering.abort();
            server.close().await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    let closed = store.close().await.doing(|| format!("{id} did not stop cleanly"));
    drop(mdts);
    result.and(closed)
}

/// The running server of a target.
struct Server {
    target: Target,
    /// The MDS, if the target is an MDT.
    mds: Option<Rc<Mds>>,
}

impl Server {
    async fn close(self) {
        self.target.close().await;
        if let Some(mds) = self.mds {
            mds.close().await;
        }
    }
}

async fn open_store(env: &Env, serving: &Serving) -> CliResult<Store> {
    let dir = utf8(&serving.dir)?;
    let is_ost = serving.expected.is_none_or(|id| id.kind == TargetKind::Ost);
    let cache_bytes = if is_ost { TABLE_CACHE_BYTES } else { serving.mdt_cache_bytes };
    let options = OpenOptions { cache_bytes: Some(cache_bytes), ..OpenOptions::default() };
    let store = Store::open(env, &dir, &options).await.doing(|| format!("cannot serve {dir}"))?;
    let (id, cluster) = (store.identity().target, store.identity().cluster);
    let of_map = serving.map.as_ref().map(|map| map.cluster);
    let stranger = match (serving.expected, of_map) {
        (Some(expected), _) if expected != id => {
            Some(format!("{dir} holds {id}, but the cluster's description says {expected}; were directories swapped?"))
        }
        (_, Some(of_map)) if of_map != cluster => Some(format!(
            "{id} in {dir} belongs to cluster {cluster}, and the map describes cluster {of_map}; \
             bring back its own directory, or serve it with its own map"
        )),
        _ => None,
    };
    if let Some(words) = stranger {
        store.close().await.doing(|| format!("cannot close {dir}"))?;
        return Err(CliError::failed(words));
    }
    log_recovery(env, id, &store);
    Ok(store)
}

fn log_recovery(env: &Env, id: TargetId, store: &Store) {
    let report = store.recovery();
    let how = match (report.clean, report.records) {
        (true, _) => "after a clean stop",
        (false, 0) => "with an empty journal",
        (false, _) => "after a crash",
    };
    let took = show_seconds(report.duration.as_secs_f64());
    let torn = if report.torn_tail {
        "; a torn record at its end was dropped, as nobody was told that it is durable"
    } else {
        ""
    };
    env.log(&format!("{id} opened {how}: {} journal records applied in {took}{torn}", report.records));
}

async fn start(env: &Env, store: &Store, serving: &Serving) -> CliResult<(Server, Vec<Address>)> {
    let id = store.identity().target;
    let mut options = TargetOptions::default();
    options.recovery_window = serving.recovery_window.unwrap_or(options.recovery_window);
    let started = match (id.kind, serving.map.clone()) {
        (TargetKind::Mdt, Some(map)) => {
            let options = MdsOptions { authority: serving.authority.clone(), ..mds_options(map, options) };
            let started = Mds::start(env, store.clone(), options).await;
            started.map(|(mds, target)| Server { target, mds: Some(mds) })
        }
        (TargetKind::Mdt, None) => {
            let words = "needs --map FILE, the description of the cluster that it hands to clients (cluster.toml)";
            return Err(CliError::usage(format!("{id} {words}")));
        }
        (TargetKind::Ost, _) => {
            let started = Oss::start(env, store.clone(), options).await;
            started.map(|(_, target)| Server { target, mds: None })
        }
    };
    let server = started.doing(|| format!("cannot start {id}"))?;
    let addresses = listen(env, &server.target, serving).await?;
    Ok((server, addresses))
}

fn mds_options(map: ClusterMap, target: TargetOptions) -> MdsOptions {
    let osts = map.targets.iter().filter(|target| target.id.kind == TargetKind::Ost);
    let addresses = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect();
    let osts = osts.map(|target| (target.id.index, addresses(&target.addresses))).collect();
    let cluster = map.cluster;
    let map: Rc<dyn Fn() -> ClusterMap> = Rc::new(move || map.clone());
    // The root directory belongs to the user who may open the servers' sockets, so that a plain user can use the
    // cluster.
    let owner = Owner { uid: posix::user_id(), gid: posix::group_id() };
    MdsOptions { owner, target: TargetOptions { map: Some(map), ..target }, ..MdsOptions::new(cluster, osts) }
}

async fn listen(env: &Env, target: &Target, serving: &Serving) -> CliResult<Vec<Address>> {
    let mut bound = Vec::new();
    for address in &serving.listen {
        let listener = env.listen(address).await.doing(|| format!("{} cannot be reached", target.id()))?;
        bound.push(listener.address());
        // A host that joins has no certificate yet.
        let listener = if serving.authority.is_some() { listener.for_anybody() } else { listener };
        let target = target.clone();
        env.spawn(async move { target.serve(listener).await });
    }
    Ok(bound)
}
