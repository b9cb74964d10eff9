//! Targets served by this process: each on a shard of its own.
//!
//! Invariant: nothing is said to be ready before every target listens.
//! Invariant: a clean stop closes all targets' stores, also when one of them fails.

use std::{path::PathBuf, rc::Rc};

use forebay_env::{
    Address, Env,
    sync::{mpsc, watch},
};
use forebay_mds::{Mds, MdsOptions};
use forebay_oss::Oss;
use forebay_proto::{TargetId, TargetKind, message::ClusterMap};
use forebay_store::{OpenOptions, Store};
use forebay_target::{Target, TargetOptions};

use crate::{
    error::{CliError, CliResult, Doing},
    format::utf8,
    units::show_seconds,
};

/// Bytes of an OST's table kept in memory.
pub const OST_CACHE_BYTES: u64 = 256 << 20;

/// A target to serve.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Its directory.
    pub dir: PathBuf,
    /// Which it must be; `None` = whichever lies there.
    pub expected: Option<TargetId>,
    /// Where to listen.
    pub listen: Vec<Address>,
    /// The cluster, for the MGS.
    pub map: Option<ClusterMap>,
    /// Options of the target.
    pub recovery_window: Option<std::time::Duration>,
}

/// A target that listens.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Which.
    pub id: TargetId,
    /// Where.
    pub addresses: Vec<Address>,
}

/// Serves all of them until `stop` says so, then stops cleanly; `on_ready` is called once all listen.
pub async fn serve_all(
    env: &Env,
    targets: Vec<Serving>,
    mut stop: watch::Receiver<bool>,
    on_ready: impl FnOnce(&[Ready]),
) -> CliResult {
    let count = targets.len();
    let (sender, mut ready) = mpsc::unbounded_channel();
    let (stop_all, _) = watch::channel(false);
    let mut shards = Vec::new();
    for serving in targets {
        let (sender, stop) = (sender.clone(), stop_all.subscribe());
        let name = serving.dir.file_name().map_or("target".into(), |name| name.to_string_lossy().into_owned());
        let serve = move |env: Env| async move { serve_one(&env, &serving, stop, &sender).await };
        shards.push(env.spawn_shard(&name, serve));
    }
    drop(sender);
    let mut listening = Vec::new();
    while listening.len() < count {
        match ready.recv().await {
            Some(target) => listening.push(target),
            None => break,
        }
    }
    if listening.len() == count {
        listening.sort_by_key(|ready: &Ready| ready.id);
        on_ready(&listening);
        wait_for_stop(env, &mut stop, ready).await;
    }
    stop_all.send_replace(true);
    let mut result = Ok(());
    for shard in shards {
        let ended = shard.await.unwrap_or_else(|_| Err(CliError::failed("a target's thread panicked; see the log")));
        result = result.and(ended);
    }
    result
}

/// Ends when a stop is asked for, or when all targets have ended by themselves.
async fn wait_for_stop(_env: &Env, stop: &mut watch::Receiver<bool>, mut ready: mpsc::UnboundedReceiver<Ready>) {
    forebay_env::sync::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => {}
        _ = ready.recv() => {}
    }
}

async fn serve_one(
    env: &Env,
    serving: &Serving,
    mut stop: watch::Receiver<bool>,
    ready: &mpsc::UnboundedSender<Ready>,
) -> CliResult {
    let store = open_store(env, serving).await?;
    let id = store.identity().target;
    let served = start(env, &store, serving).await;
    let result = match served {
        Ok((target, addresses)) => {
            // The other end is there until all shards have ended.
            let _ = ready.send(Ready { id, addresses });
            let _ = stop.wait_for(|stop| *stop).await;
            target.close().await;
            Ok(())
        }
        Err(error) => Err(error),
    };
    store.close().await.doing(|| format!("{id} did not stop cleanly"))?;
    result
}

async fn open_store(env: &Env, serving: &Serving) -> CliResult<Store> {
    let dir = utf8(&serving.dir)?;
    let is_ost = serving.expected.is_none_or(|id| id.kind == TargetKind::Ost);
    let cache_bytes = is_ost.then_some(OST_CACHE_BYTES);
    let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
    let store = Store::open(env, &dir, &options).await.doing(|| format!("cannot serve {dir}"))?;
    let id = store.identity().target;
    if let Some(expected) = serving.expected.filter(|expected| *expected != id) {
        let words =
            format!("{dir} holds {id}, but the cluster's description says {expected}; were directories swapped?");
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
    env.log(&format!("{id} opened {how}: {} journal records applied in {took}", report.records));
}

async fn start(env: &Env, store: &Store, serving: &Serving) -> CliResult<(Target, Vec<Address>)> {
    let id = store.identity().target;
    let mut options = TargetOptions::default();
    options.recovery_window = serving.recovery_window.unwrap_or(options.recovery_window);
    let started = match (id.kind, serving.map.clone()) {
        (TargetKind::Mdt, Some(map)) => {
            Mds::start(env, store.clone(), mds_options(map, options)).await.map(|(_, target)| target)
        }
        (TargetKind::Mdt, None) => {
            let words = "needs --map FILE, the description of the cluster that it hands to clients (cluster.toml)";
            return Err(CliError::usage(format!("{id} {words}")));
        }
        (TargetKind::Ost, _) => Oss::start(env, store.clone(), options).await.map(|(_, target)| target),
    };
    let target = started.doing(|| format!("cannot start {id}"))?;
    let addresses = listen(env, &target, &serving.listen).await?;
    Ok((target, addresses))
}

fn mds_options(map: ClusterMap, target: TargetOptions) -> MdsOptions {
    let osts = map.targets.iter().filter(|target| target.id.kind == TargetKind::Ost);
    let addresses = |texts: &[String]| texts.iter().filter_map(|text| text.parse().ok()).collect();
    let osts = osts.map(|target| (target.id.index, addresses(&target.addresses))).collect();
    let cluster = map.cluster;
    let map: Rc<dyn Fn() -> ClusterMap> = Rc::new(move || map.clone());
    MdsOptions { target: TargetOptions { map: Some(map), ..target }, ..MdsOptions::new(cluster, osts) }
}

async fn listen(env: &Env, target: &Target, addresses: &[Address]) -> CliResult<Vec<Address>> {
    let mut bound = Vec::new();
    for address in addresses {
        let listener = env.listen(address).await.doing(|| format!("{} cannot be reached", target.id()))?;
        bound.push(listener.address());
        let target = target.clone();
        env.spawn(async move { target.serve(listener).await });
    }
    Ok(bound)
}
