//! The client's one object.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};

use forebay_env::{Env, sync::Notify};
use forebay_proto::{
    ClientId, Fid, LockList, Uuid, WriteId,
    message::{ClusterMap, CommitLevel, Op, Operation},
};
use forebay_rpc::{Call, Called, Reservation, RpcError};

use crate::{
    ClientError, MountOptions,
    access::Accesses,
    ahead::Ahead,
    eras::Era,
    errors::Trouble,
    fids::Fids,
    file::FileState,
    leases::{Leases, Ticket},
    listings::Listings,
    open::Held,
    peers::Peers,
    read_cache::ReadCache,
    set_ahead::SetAhead,
    stats::Counters,
    watches::Watches,
    write_back::WriteBack,
};

/// A mounted file system. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub env: Env,
    pub options: MountOptions,
    pub peers: Peers,
    pub fids: Fids,
    /// Files with open handles, or requests under way.
    pub files: RefCell<BTreeMap<Fid, Weak<FileState>>>,
    /// Open handles by number: what is reclaimed when the MDT restarts.
    pub handles: RefCell<BTreeMap<u64, Held>>,
    /// What is kept of inodes and names.
    pub leases: Leases,
    /// Directories that were listed.
    pub listings: Listings,
    /// Advisory locks this client holds.
    pub locks: RefCell<BTreeMap<Fid, LockList<()>>>,
    /// Files of which a close lets locks go just now: how many do.
    pub unlocking: RefCell<BTreeMap<Fid, u32>>,
    /// One such close has come to its end.
    pub unlocked: Notify,
    pub next_handle: Cell<u64>,
    pub next_write: Cell<u64>,
    /// Changes of names that were answered and not replied yet.
    pub ahead: Ahead,
    /// Attributes that were set and not sent yet.
    pub set_ahead: SetAhead,
    /// What was read, as far as the MDT does not know when.
    pub accesses: Accesses,
    /// What was written and not sent yet.
    pub write_back: WriteBack,
    /// What was read of files, or will be.
    pub read_cache: ReadCache,
    /// Files whose size is watched.
    pub watches: Watches,
    /// What it may hold at most, where the machine is short of memory.
    pub cache_bound: Cell<u64>,
    /// What was asked before was asked in an earlier era.
    pub era_begun: Cell<Ticket>,
    /// Acknowledged requests lost since the last `sync_all`.
    pub lost_requests: Cell<u64>,
    /// What was lost of files that nobody has open, and no fsync was told.
    pub untold: RefCell<BTreeMap<Fid, ClientError>>,
    pub counters: Counters,
}

impl Client {
    /// The cluster's uuid.
    pub fn cluster(&self) -> Uuid {
        self.map().cluster
    }

    /// The map the client works with.
    pub fn map(&self) -> Rc<ClusterMap> {
        self.inner.peers.map()
    }

    /// Who this client is to the targets, until the MDT ends its session.
    pub fn id(&self) -> ClientId {
        self.inner.peers.client()
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.env
    }

    /// A question to the MDT, or a change under the mount's commit level.
    ///
    /// `fid`: the file it changes, to be named if the change is lost.
    pub(crate) async fn mdt<O: Operation>(&self, fid: Fid, request: &O) -> Result<O::Reply, RpcError> {
        Ok(self.call_mdt(fid, request).await?.reply)
    }

    /// The same, with the transno.
    pub(crate) async fn call_mdt<O: Operation>(&self, fid: Fid, request: &O) -> Result<Called<O::Reply>, RpcError> {
        if O::OP == Op::Sync {
            // As on a local file system nothing earlier is lost where something later is kept.
            self.settle_all().await;
        } else {
            self.settle(fid).await;
        }
        self.call_mdt_at_once(fid, request).await
    }

    /// A change of `fid` and of a name of `directory`: who syncs either is told if it is lost.
    pub(crate) async fn change_mdt<O: Operation>(
        &self,
        fid: Fid,
        directory: Fid,
        request: &O,
    ) -> Result<Called<O::Reply>, RpcError> {
        self.settle(fid).await;
        self.call_mdt_with(Call { fid: Some(fid), directory: Some(directory), ..Call::level(self.level()) }, request)
            .await
    }

    /// The same of a question that no change under way concerns.
    pub(crate) async fn call_mdt_at_once<O: Operation>(
        &self,
        fid: Fid,
        request: &O,
    ) -> Result<Called<O::Reply>, RpcError> {
        self.call_mdt_with(Call { fid: Some(fid), ..Call::level(self.level()) }, request).await
    }

    pub(crate) async fn call_mdt_with<O: Operation>(
        &self,
        call: Call,
        request: &O,
    ) -> Result<Called<O::Reply>, RpcError> {
        self.settle_set().await;
        let begun = self.inner.env.now();
        let called = self.inner.peers.mdt().call(request, call).await?;
        // The target answers that one itself.
        if O::OP != Op::Sync {
            self.inner.leases.heard(begun);
        }
        Ok(called)
    }

    /// A change that nobody waits for: it may wait a little for another request to go with. `slot`: it has one already.
    pub(crate) async fn mdt_patiently<O: Operation>(
        &self,
        fid: Fid,
        request: &O,
        slot: Option<Reservation>,
    ) -> Result<O::Reply, RpcError> {
        let call = Call { fid: Some(fid), patient: true, ..Call::level(self.level()) };
        let begun = self.inner.env.now();
        let mdt = self.inner.peers.mdt();
        let called = match slot {
            Some(slot) => mdt.session.call_reserved(slot, request, call).await?,
            None => mdt.call(request, call).await?,
        };
        self.inner.leases.heard(begun);
        Ok(called.reply)
    }

    /// A question to an OST. (A change: [`Client::ost_of`].)
    pub(crate) async fn ost<O: Operation>(
        &self,
        ost: u32,
        request: &O,
        call: Call,
    ) -> Result<Called<O::Reply>, Trouble> {
        loop {
            let (peer, era) = (self.inner.peers.ost(ost).await?, self.inner.era());
            match peer.call(request, call.clone()).await {
                Err(error) if self.is_of_former_session(era, &error) => {
                    self.inner.peers.former_drained(Some(ost)).await
                }
                called => return Ok(called?),
            }
        }
    }

    /// A question failed as its session went with an era: it may be asked in the one there is now.
    pub(crate) fn is_of_former_session(&self, era: Era, error: &RpcError) -> bool {
        era != self.inner.era() && matches!(error, RpcError::Evicted(_) | RpcError::Refused(_) | RpcError::Closed)
    }

    /// The commit level at which names and attributes are changed. (Of bytes: [`Client::level_of`].)
    pub(crate) fn level(&self) -> CommitLevel {
        self.inner.options.level
    }

    /// A write id nobody has used.
    pub(crate) fn write_id(&self) -> WriteId {
        let sequence = self.inner.next_write.get();
        self.inner.next_write.set(sequence + 1);
        WriteId { client: self.id().low(), sequence }
    }
}

impl Inner {
    /// The file's state, if anybody has it open.
    pub fn file(&self, fid: Fid) -> Option<Rc<FileState>> {
        self.files.borrow().get(&fid).and_then(Weak::upgrade)
    }

    /// All files somebody has open, ordered.
    pub fn open_files(&self) -> Vec<Rc<FileState>> {
        self.files.borrow().values().filter_map(Weak::upgrade).collect()
    }
}
