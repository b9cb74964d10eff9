//! Start and end of a client.

use std::{
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_env::{Boxed, Env};
use forebay_proto::{Errno, TargetId, Uuid, limits::BLOCK_BYTES, limits::BULK_BYTES};

use crate::{
    Client, ClientError, ClientResult, MountOptions,
    client::Inner,
    client::{Caches, MdtState, Opens},
    delayed::buffered::WriteBack,
    delayed::queue::Scope,
    delayed::state::Delayed,
    leases::watches::Watches,
    session::losses::Losses,
    session::peers::{Peers, SessionOwner, fetch_map, find_root},
    stats::Counters,
    tasks::{all, try_all},
};

impl Client {
    /// Fetches the map, connects to MDT0000 (to OSTs when they are first needed), leases fids.
    ///
    /// Waits while the MDT cannot be reached; put a timeout around it where that is not wanted.
    pub fn mount(env: &Env, options: MountOptions) -> Boxed<'_, ClientResult<Client>> {
        Box::pin(async move {
            check(&options)?;
            let map = fetch_map(env, &options.addresses).await?;
            if !map.targets.iter().any(|target| target.id == TargetId::mdt(0)) {
                return Err(invalid("the cluster's map has no MDT0000: format and start it first"));
            }
            let root = find_root(env, &options.addresses).await?;
            let id = Uuid::from_random(env.random_u64(), env.random_u64());
            let counters = Counters::default();
            let inner = Rc::new_cyclic(|owner| Inner {
                env: env.clone(),
                peers: Peers::new(env, &options, id, counters.clone(), map, owner.clone() as Weak<dyn SessionOwner>),
                options,
                root,
                mdt: MdtState::new(env),
                opens: Opens::default(),
                delayed: Delayed::default(),
                write_back: WriteBack::default(),
                cache: Caches::default(),
                watches: Watches::default(),
                losses: Losses::default(),
                counters,
            });
            let client = Client { inner };
            client.inner.peers.follow_map();
            client.inner.peers.mdt().session.ready().await?;
            match client.new_fid().await {
                // A full MDT leases nothing, and must be mounted to be emptied: creates request a sequence again.
                Err(error) if error.errno == Errno::ENOSPC => Ok(client),
                leased => leased.map(|_| client),
            }
        })
    }

    /// Makes everything durable, closes what is open, ends the sessions. Calls made later fail.
    ///
    /// Fails if acknowledged changes were lost; the client is unmounted all the same.
    pub fn unmount(&self) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async move {
            let began = self.inner.losses.begin();
            self.flush_delayed(Scope::All).await;
            let closed = self.close_all().await;
            let synced = self.sync_started(began).await;
            // No loss if the MDT is away.
            let _ = self.env().timeout(forebay_rpc::limits::CLOSE_TIMEOUT, self.tell_accesses(Duration::ZERO)).await;
            let sessions = self.inner.peers.started().into_iter().map(|peer| async move {
                peer.session.close().await;
                ClientResult::Ok(())
            });
            let ended = try_all(self.env(), sessions).await;
            self.inner.write_back.room.end();
            ended?;
            closed.and(synced)
        })
    }

    async fn close_all(&self) -> ClientResult<()> {
        let open = self.inner.open_handles();
        let closes = open.into_iter().map(|file| {
            let client = self.clone();
            async move { client.close(file).await }
        });
        all(self.env(), closes).await.into_iter().collect()
    }
}

fn check(options: &MountOptions) -> ClientResult<()> {
    let rpc_bytes = u64::from(options.max_rpc_bytes);
    if rpc_bytes == 0 || !rpc_bytes.is_multiple_of(BLOCK_BYTES) || rpc_bytes > BULK_BYTES as u64 {
        return Err(invalid("max_rpc_bytes must be a multiple of 64 KiB, at most 4 MiB"));
    }
    if options.addresses.is_empty() {
        return Err(invalid("no address of MDT0000 is given"));
    }
    Ok(())
}

fn invalid(words: &str) -> ClientError {
    ClientError::new(Errno::EINVAL, words)
}
