//! The client's one object.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
};

use forebay_env::{Env, sync::Notify};
use forebay_proto::{
    ClientId, Fid, LockList, Uuid, WriteId,
    message::{Caller, ClusterMap, CommitLevel, Op, Operation, RootReply, TenantInfo},
};
use forebay_rpc::{Call, Called, Reservation, RpcError};

use crate::{
    MountOptions,
    cache::access_times::Accesses,
    cache::listings::Listings,
    cache::read_cache::ReadCache,
    delayed::buffered::WriteBack,
    delayed::{queue::Scope, state::Delayed},
    errors::Trouble,
    file::{FileState, OpenFile, OpenHandleEntry},
    leases::watches::Watches,
    leases::{Leases, Ticket},
    session::fids::Fids,
    session::instance::ClientInstance,
    session::losses::Losses,
    session::peers::Peers,
    stats::Counters,
};

/// A mounted file system. Cheap to clone; belongs to one shard.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub env: Env,
    pub options: MountOptions,
    /// The root directory, and the tenant of this node.
    pub root: RootReply,
    pub peers: Peers,
    /// What the MDT has given to this client.
    pub mdt: MdtState,
    pub opens: Opens,
    /// Operations that were acknowledged and not executed yet.
    pub delayed: Delayed,
    /// What was written and not sent yet.
    pub write_back: WriteBack,
    pub cache: Caches,
    /// Files whose size is watched.
    pub watches: Watches,
    pub losses: Losses,
    pub counters: Counters,
}

/// What an MDT has given to this client, and takes back with the end of its session.
pub(crate) struct MdtState {
    pub leases: Leases,
    /// Sequences of fids for new inodes.
    pub fids: Fids,
    pub locks: HeldLocks,
    /// Earlier requests were sent by an earlier client instance.
    pub instance_begun: Cell<Ticket>,
}

/// Open files.
pub(crate) struct Opens {
    /// Files with open handles, or requests in flight.
    pub files: RefCell<BTreeMap<Fid, Weak<FileState>>>,
    /// Open handles by number: what is reclaimed when the MDT restarts.
    pub handles: RefCell<BTreeMap<u64, OpenHandleEntry>>,
    pub next_handle: Cell<u64>,
    /// Sequence of the next write id.
    pub next_write: Cell<u64>,
}

/// Advisory locks.
#[derive(Default)]
pub(crate) struct HeldLocks {
    /// Those that this client holds.
    pub held: RefCell<BTreeMap<Fid, LockList<()>>>,
    /// Files of which closes release locks at the moment: how many do.
    pub unlocking: RefCell<BTreeMap<Fid, u32>>,
    /// One such close has ended.
    pub unlocked: Notify,
}

/// What is cached beside attributes and entries, which are with their leases.
pub(crate) struct Caches {
    /// Directories that were listed lately.
    pub listings: Listings,
    /// Access times that the MDT does not have yet.
    pub accesses: Accesses,
    /// Bytes that were read, or prefetched.
    pub read: ReadCache,
    /// Bytes that all of it may take, where the machine is short of memory.
    pub bound: Cell<u64>,
}

impl Default for Opens {
    fn default() -> Self {
        Self {
            files: RefCell::default(),
            handles: RefCell::default(),
            next_handle: Cell::new(1),
            next_write: Cell::new(1),
        }
    }
}

impl MdtState {
    pub fn new(env: &Env) -> Self {
        Self {
            leases: Leases::new(env),
            fids: Fids::default(),
            locks: HeldLocks::default(),
            instance_begun: Cell::default(),
        }
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            listings: Listings::default(),
            accesses: Accesses::default(),
            read: ReadCache::default(),
            bound: Cell::new(u64::MAX),
        }
    }
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

    /// The root directory: a node of a tenant has the highest of its subtree.
    pub fn root(&self) -> Fid {
        self.inner.root.root
    }

    /// This node's tenant, if it has one.
    pub fn tenant(&self) -> Option<&TenantInfo> {
        self.inner.root.tenant.as_ref()
    }

    /// Who owns what `caller` makes: the MDT squashes users that the node's tenant does not have.
    pub(crate) fn owner<'a>(&self, caller: &'a Caller) -> Cow<'a, Caller> {
        match self.tenant() {
            Some(tenant) => Cow::Owned(tenant.squash(caller)),
            None => Cow::Borrowed(caller),
        }
    }

    /// True if the MDT believes user 0 of this node no more than anybody about what this user owns.
    pub(crate) fn is_guarded(&self, owner: u32) -> bool {
        self.tenant().is_some_and(|tenant| tenant.guards(owner))
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
        // After a sync nothing earlier is lost where something later is kept, as on a local file system.
        let scope = if O::OP == Op::Sync { Scope::All } else { Scope::Inode(fid) };
        self.call(request, scope, self.changes(fid)).await
    }

    /// A change of `fid` and of a name of `directory`: fsync of either reports its loss.
    pub(crate) async fn change_mdt<O: Operation>(
        &self,
        fid: Fid,
        directory: Fid,
        request: &O,
    ) -> Result<Called<O::Reply>, RpcError> {
        let call = Call { directory: Some(directory), ..self.changes(fid) };
        self.call(request, Scope::Inode(fid), call).await
    }

    /// A request that may change `fid`, at the mount's level.
    pub(crate) fn changes(&self, fid: Fid) -> Call {
        Call { fid: Some(fid), ..Call::level(self.level()) }
    }

    /// A change that nobody waits for: it may wait a little for another request to go with. `slot`: it has one already.
    pub(crate) async fn mdt_patiently<O: Operation>(
        &self,
        fid: Fid,
        request: &O,
        slot: Option<Reservation>,
    ) -> Result<O::Reply, RpcError> {
        let call = Call { fid: Some(fid), patient: true, ..Call::level(self.level()) };
        Ok(self.mdt_in(slot, request, call).await?.reply)
    }

    /// Asks the MDT at once, in a slot of its own if there is one already.
    pub(crate) async fn mdt_in<O: Operation>(
        &self,
        slot: Option<Reservation>,
        request: &O,
        call: Call,
    ) -> Result<Called<O::Reply>, RpcError> {
        let begun = self.inner.env.now();
        let mdt = self.inner.peers.mdt();
        let called = match slot {
            Some(slot) => mdt.session.call_reserved(slot, request, call).await?,
            None => mdt.call(request, call).await?,
        };
        self.inner.mdt.leases.heard(begun);
        Ok(called)
    }

    /// A question to an OST. (A change: [`Client::ost_of`].)
    pub(crate) async fn ost<O: Operation>(
        &self,
        ost: u32,
        request: &O,
        call: Call,
    ) -> Result<Called<O::Reply>, Trouble> {
        loop {
            let (peer, instance) = (self.inner.peers.ost(ost).await?, self.inner.instance());
            match peer.call(request, call.clone()).await {
                Err(error) if self.is_of_former_session(instance, &error) => {
                    self.inner.peers.former_drained(Some(ost)).await
                }
                called => return Ok(called?),
            }
        }
    }

    /// A request failed as its session ended with an instance: it may be sent again in the current one.
    pub(crate) fn is_of_former_session(&self, instance: ClientInstance, error: &RpcError) -> bool {
        instance != self.inner.instance()
            && matches!(error, RpcError::Evicted(_) | RpcError::Refused(_) | RpcError::Closed)
    }

    /// The commit level at which names and attributes are changed. (Of bytes: [`Client::level_of`].)
    pub(crate) fn level(&self) -> CommitLevel {
        self.inner.options.level
    }

    /// A write id nobody has used.
    pub(crate) fn write_id(&self) -> WriteId {
        let sequence = self.inner.opens.next_write.get();
        self.inner.opens.next_write.set(sequence + 1);
        WriteId { client: self.id().low(), sequence }
    }
}

impl Inner {
    /// The file's state, if anybody has it open.
    pub fn file(&self, fid: Fid) -> Option<Rc<FileState>> {
        self.opens.files.borrow().get(&fid).and_then(Weak::upgrade)
    }

    /// This client's handles of the file.
    pub fn handles_of(&self, fid: Fid) -> Vec<OpenFile> {
        let handles = self.opens.handles.borrow();
        let of_file = handles.values().filter(|handle| handle.open.fid == fid);
        of_file.filter_map(|handle| handle.inner.upgrade()).map(|inner| OpenFile { inner }).collect()
    }

    /// All files somebody has open, ordered.
    pub fn open_files(&self) -> Vec<Rc<FileState>> {
        self.opens.files.borrow().values().filter_map(Weak::upgrade).collect()
    }
}
