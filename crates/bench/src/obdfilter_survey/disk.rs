//! `disk`: the stores alone, each on a shard of its own, with the rows an OSS writes beside the data.

use std::path::{Path, PathBuf};

use forebay_command::{
    error::{CliError, CliResult},
    targets::{format_target, new_uuid},
};
use forebay_env::{
    Env,
    sync::{mpsc, oneshot},
};
use forebay_oss::limits::TABLE_CACHE_BYTES;
use forebay_proto::{Fid, FidSequence, TargetId};
use forebay_store::{FormatOptions, OpenOptions, Store, StoreResult};

use super::plan::{Phase, Share, Work};
use crate::store::load::Load;

/// An order to a shard.
struct Order {
    work: Work,
    done: oneshot::Sender<Result<(), String>>,
}

type Shard = (mpsc::UnboundedSender<Order>, oneshot::Receiver<Result<(), String>>);

/// All stores.
pub struct Disk {
    dir: PathBuf,
    shards: Vec<Shard>,
}

impl Disk {
    /// Formats and opens a store for each OST in `dir`.
    pub async fn make(env: &Env, dir: &Path, osts: u32, bytes: u64) -> CliResult<Self> {
        let cluster = new_uuid(env);
        let mut disk = Self { dir: dir.to_owned(), shards: Vec::new() };
        for index in 0..osts {
            let id = TargetId::ost(index);
            let place = dir.join(id.to_string());
            format_target(env, &place, &FormatOptions::new(cluster, id, bytes)).await?;
            let (orders, hears) = mpsc::unbounded_channel();
            let ended = env.spawn_shard(&id.to_string(), move |env| async move { serve(&env, &place, hears).await });
            disk.shards.push((orders, ended));
        }
        Ok(disk)
    }

    /// Runs `work` on all stores.
    pub async fn run(&self, work: &Work) -> CliResult {
        let order = |(orders, _): &Shard| {
            let (done, answer) = oneshot::channel();
            // If the shard has ended, its error is reported below.
            let _ = orders.send(Order { work: *work, done });
            answer
        };
        let answers: Vec<_> = self.shards.iter().map(order).collect();
        for answer in answers {
            answer.await.unwrap_or_else(|_| Err("a store could not be opened".into())).map_err(CliError::failed)?;
        }
        Ok(())
    }

    /// Closes and removes them.
    pub async fn end(mut self) -> CliResult {
        for (orders, ended) in self.shards.drain(..) {
            drop(orders);
            ended.await.unwrap_or_else(|_| Err("a store's thread panicked".into())).map_err(CliError::failed)?;
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A failed run leaves nothing behind either. The next user of the directory sees what cannot be removed.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

async fn serve(env: &Env, place: &Path, mut orders: mpsc::UnboundedReceiver<Order>) -> Result<(), String> {
    let options = OpenOptions { cache_bytes: Some(TABLE_CACHE_BYTES), ..OpenOptions::default() };
    let opened = Store::open(env, &place.to_string_lossy(), &options).await;
    let store = opened.inspect_err(|error| env.log(&error.to_string())).map_err(|error| error.to_string())?;
    let load = Load::new(env, store.clone(), true);
    while let Some(Order { work, done }) = orders.recv().await {
        // If another store has failed, nothing receives this.
        let _ = done.send(run(&load, work).await.map_err(|error| error.to_string()));
    }
    drop(load);
    store.close().await.map_err(|error| error.to_string())
}

async fn run(load: &Load, work: Work) -> StoreResult<()> {
    let shares = work.shares();
    let threads = match work.phase {
        Phase::Destroy => work.point.objects,
        _ => shares.len() as u32,
    };
    let job = move |load: Load, thread: u64| {
        let share = shares[thread as usize];
        async move {
            match work.phase {
                Phase::Destroy => load.destroy(fid(work.run, thread as u32)).await,
                _ => transfer(&load, work, share).await,
            }
        }
    };
    load.run(u64::from(threads), threads, job).await?;
    load.store().sync().await
}

async fn transfer(load: &Load, work: Work, share: Share) -> StoreResult<()> {
    let fid = fid(work.run, share.object);
    for number in 0..share.requests {
        let offset = share.from + number * work.rsz;
        match work.phase {
            Phase::Read => drop(load.store().read(fid, offset..offset + work.rsz).await?),
            _ => load.overwrite(fid, offset, work.rsz).await?,
        }
    }
    Ok(())
}

/// An object of a run: the same on every OST.
pub fn fid(run: u32, object: u32) -> Fid {
    Fid::new(0, FidSequence(u64::from(run) + 1000), object)
}
