//! The targets a client talks to: one session each, begun when it is first needed, and anew in each instance (see `instances`).

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::{Rc, Weak},
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{Address, Boxed, Env, sync::Notify};
use forebay_keys::Membership;
use forebay_proto::{
    ClientId, Errno, Fid, TargetId, Uuid,
    message::{Authorize, Capability, ClusterMap, GetBans, GetMap, GetRoot, Operation, Reclaim, RootReply},
};
use forebay_rpc::{
    Call, Called, ClientSession, Lost, PinBudget, Resolve, RpcError, SessionOptions, SessionStats, addresses_in,
};

use crate::{
    ClientError, ClientResult, MountOptions, limits,
    session::{
        capabilities::{self, Capabilities},
        instance::{ClientInstance, instance_is_over},
        window::DataWindow,
    },
    stats::Counters,
};

/// One target.
pub(crate) struct Peer {
    pub session: ClientSession,
    /// Data requests that may be in flight.
    pub window: DataWindow,
    env: Env,
    counters: Counters,
}

impl Peer {
    /// Sends a request and waits for its reply, however long the target is away.
    pub async fn call<O: Operation>(&self, request: &O, call: Call) -> Result<Called<O::Reply>, RpcError> {
        let begun = self.env.now();
        let called = self.session.call(request, call).await;
        self.counters.waited(self.env.now().since(begun));
        called
    }

    /// As [`Peer::call`], one of a bounded number in flight: for requests that carry data, either way.
    pub async fn data_call<O: Operation>(&self, request: &O, call: Call) -> Result<Called<O::Reply>, RpcError> {
        let _permit = self.window.enter(|| self.env.now()).await;
        let sent: usize = call.bulk.iter().map(Bytes::len).sum();
        let called = self.call(request, call).await;
        let received = called.as_ref().map_or(0, |called| called.bulk.len());
        self.window.served(self.env.now(), (sent + received) as u64, self.session.round_trip());
        called
    }
}

/// Is notified of what happens to the sessions, and returns what they reclaim.
pub(crate) trait SessionOwner {
    /// The targets.
    fn peers(&self) -> &Peers;
    /// A target has ended the session, and what it had not committed is lost; or it could not do a replay.
    fn lost(self: Rc<Self>, target: TargetId, lost: &Lost);
    /// The MDT was restarted: it knows of no leases.
    fn lose_leases(self: Rc<Self>);
    /// What to bring back after that.
    fn reclaim(&self) -> Reclaim;
    /// What is counted on of an OST's grant.
    fn counted_on(&self, ost: u32) -> u64;
}

/// All targets.
pub(crate) struct Peers {
    env: Env,
    options: MountOptions,
    /// Who we are in this instance.
    client: Cell<ClientId>,
    instance: Cell<ClientInstance>,
    counters: Counters,
    pins: PinBudget,
    map: RefCell<Rc<ClusterMap>>,
    /// A newer map was requested from the MGS, because a target was not reached, or was requested a moment ago.
    map_asked: Cell<bool>,
    peers: RefCell<BTreeMap<TargetId, Rc<Peer>>>,
    /// OSTs as they were talked to in earlier instances, until nothing of then is left.
    former: RefCell<Vec<Rc<Peer>>>,
    /// One of them has gone.
    former_gone: Notify,
    /// What those that have gone did.
    past: RefCell<SessionStats>,
    capabilities: Rc<Capabilities>,
    /// Targets that there ever was a session with.
    reached: RefCell<BTreeSet<TargetId>>,
    /// Tells new sessions where their events go.
    owner: Weak<dyn SessionOwner>,
}

impl Peers {
    pub fn new(
        env: &Env,
        options: &MountOptions,
        client: ClientId,
        counters: Counters,
        map: ClusterMap,
        owner: Weak<dyn SessionOwner>,
    ) -> Self {
        Self {
            env: env.clone(),
            options: options.clone(),
            client: Cell::new(client),
            instance: Cell::default(),
            counters,
            pins: PinBudget::new(options.pin_bytes),
            map: RefCell::new(Rc::new(map)),
            map_asked: Cell::default(),
            peers: RefCell::default(),
            former: RefCell::default(),
            former_gone: Notify::new(),
            past: RefCell::default(),
            capabilities: Rc::new(Capabilities::new(env, authorize(owner.clone()))),
            reached: RefCell::default(),
            owner,
        }
    }

    pub fn map(&self) -> Rc<ClusterMap> {
        self.map.borrow().clone()
    }

    /// The MDT all names live on.
    pub fn mdt(&self) -> Rc<Peer> {
        let id = TargetId::mdt(0);
        if let Some(peer) = self.peers.borrow().get(&id) {
            return peer.clone();
        }
        self.get_or_start(id)
    }

    /// The OST of a layout. Asks for a newer map if it is not in this one.
    pub async fn ost(&self, index: u32) -> ClientResult<Rc<Peer>> {
        let id = TargetId::ost(index);
        if let Some(peer) = self.peers.borrow().get(&id) {
            return Ok(peer.clone());
        }
        if self.addresses(id).is_empty() {
            self.refresh_map().await?;
        }
        if self.addresses(id).is_empty() {
            let words = format!("a file lies on {id}, which is not in the cluster's map: start it, or remove the file");
            return Err(ClientError::new(Errno::EIO, words));
        }
        Ok(self.get_or_start(id))
    }

    /// What may be in flight to an OST, in requests, and bytes per second that were reached; `None`: there is no session with it.
    pub fn window_of(&self, ost: u32) -> Option<(usize, f64)> {
        let peers = self.peers.borrow();
        peers.get(&TargetId::ost(ost)).map(|peer| (peer.window.requests(), peer.window.bytes_per_s(self.env.now())))
    }

    /// Bytes per second that these OSTs reached lately; 0: that is not known.
    pub fn bytes_per_s(&self, osts: impl IntoIterator<Item = u32>) -> f64 {
        osts.into_iter().filter_map(|ost| self.window_of(ost)).map(|(_, bytes_per_s)| bytes_per_s).sum()
    }

    /// The MDT has opened a file, and says what this node may do with its objects.
    pub fn learn_capability(&self, object: Fid, given: Capability) {
        self.capabilities.learn(object, given);
    }

    /// Indices of all OSTs of the map.
    pub fn osts(&self) -> Vec<u32> {
        let is_ost = |id: &TargetId| TargetId::ost(id.index) == *id;
        self.map().targets.iter().map(|target| target.id).filter(is_ost).map(|id| id.index).collect()
    }

    /// There is a session with an OST, or was.
    pub fn is_reached(&self, ost: u32) -> bool {
        self.reached.borrow().contains(&TargetId::ost(ost))
    }

    /// Targets there is a session with, ordered.
    pub fn started(&self) -> Vec<Rc<Peer>> {
        self.peers.borrow().values().cloned().collect()
    }

    /// The same with what is left of earlier instances, ordered by target.
    pub fn all(&self) -> Vec<Rc<Peer>> {
        let mut all = self.started();
        all.extend(self.former.borrow().iter().cloned());
        all.sort_by_key(|peer| peer.session.target());
        all
    }

    /// What sessions of earlier instances did that are over.
    pub fn past(&self) -> SessionStats {
        self.past.borrow().clone()
    }

    /// Who we are.
    pub fn client(&self) -> ClientId {
        self.client.get()
    }

    pub fn instance(&self) -> ClientInstance {
        self.instance.get()
    }

    /// The MDT has ended the session: from now on every target knows us under another id. Sessions with OSTs go on, as they were, with
    /// what is under way in them.
    pub fn begin_instance(&self) {
        self.instance.set(self.instance.get().next());
        self.client.set(Uuid::from_random(self.env.random_u64(), self.env.random_u64()));
        self.mdt().session.become_client(self.client.get());
        let mdt = TargetId::mdt(0);
        let mut former = Vec::new();
        self.peers.borrow_mut().retain(|id, peer| {
            *id == mdt || {
                former.push(peer.clone());
                false
            }
        });
        for peer in former {
            // What it has under way may count on its grant as before, and nothing else.
            let index = peer.session.target().index;
            let counted_on = self.owner.upgrade().map_or(0, |owner| owner.counted_on(index));
            peer.session.set_granted(move || counted_on);
            self.former.borrow_mut().push(peer.clone());
            let owner = self.owner.clone();
            drop(self.env.spawn(async move {
                peer.session.retire(&instance_is_over().message).await;
                if let Some(owner) = owner.upgrade() {
                    owner.peers().has_gone(&peer);
                }
            }));
        }
    }

    fn has_gone(&self, peer: &Rc<Peer>) {
        self.former.borrow_mut().retain(|one| !Rc::ptr_eq(one, peer));
        let stats = peer.session.stats();
        let mut past = self.past.borrow_mut();
        past.replies += stats.replies;
        past.replays += stats.replays;
        past.evictions += stats.evictions;
        drop(past);
        self.former_gone.notify_waiters();
    }

    /// Waits until what earlier instances left at an OST (`None`: at any) is committed, or was reported as lost.
    pub async fn former_drained(&self, ost: Option<u32>) {
        let is_meant = |peer: &Rc<Peer>| ost.is_none_or(|ost| peer.session.target() == TargetId::ost(ost));
        loop {
            let gone = self.former_gone.notified();
            if !self.former.borrow().iter().any(is_meant) {
                return;
            }
            gone.await;
        }
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pins.used_bytes()
    }

    fn refresh_map(&self) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async {
            let map = fetch_map(&self.env, &self.addresses(TargetId::mdt(0))).await?;
            self.adopt_map(map);
            Ok(())
        })
    }

    fn adopt_map(&self, map: ClusterMap) {
        let known = self.map();
        if map.cluster == known.cluster && map.epoch >= known.epoch {
            *self.map.borrow_mut() = Rc::new(map);
        }
    }

    /// Asks the MGS for a newer map, in the background, unless that is being done or was done a moment ago.
    fn look_for_newer_map(&self) {
        if self.map_asked.replace(true) {
            return;
        }
        let (env, addresses, owner) = (self.env.clone(), self.addresses(TargetId::mdt(0)), self.owner.clone());
        drop(self.env.spawn(async move {
            let answer = forebay_rpc::ask(&env, &addresses, &GetMap {}).await;
            if let (Ok(map), Some(owner)) = (answer, owner.upgrade()) {
                owner.peers().adopt_map(map);
                fetch_bans(&env, &addresses).await;
            }
            env.sleep(limits::MAP_PAUSE).await;
            if let Some(owner) = owner.upgrade() {
                owner.peers().map_asked.set(false);
            }
        }));
    }

    /// Asks for a newer map when a server has named one. Only frames over TLS name epochs.
    pub fn follow_map(&self) {
        if self.env.membership().is_none() {
            return;
        }
        let (env, owner) = (self.env.clone(), self.owner.clone());
        drop(self.env.spawn(async move {
            loop {
                env.sleep(limits::MAP_PAUSE).await;
                let Some(owner) = owner.upgrade() else { return };
                if env.membership().is_some_and(Membership::is_outdated) {
                    owner.peers().look_for_newer_map();
                }
            }
        }));
    }

    /// Where a target can be reached; empty if the map does not know it or has no address this build understands. The MGS
    /// is MDT0000's server, so the bootstrap addresses reach it too.
    fn addresses(&self, id: TargetId) -> Vec<Address> {
        let mut addresses = addresses_in(&self.map(), id);
        if id == TargetId::mdt(0) {
            let bootstrap = self.options.addresses.iter().filter(|address| !addresses.contains(address));
            let bootstrap: Vec<Address> = bootstrap.cloned().collect();
            addresses.extend(bootstrap);
        }
        addresses
    }

    fn get_or_start(&self, id: TargetId) -> Rc<Peer> {
        self.peers.borrow_mut().entry(id).or_insert_with(|| Rc::new(self.start(id))).clone()
    }

    fn start(&self, id: TargetId) -> Peer {
        self.reached.borrow_mut().insert(id);
        let session = ClientSession::start(
            &self.env,
            SessionOptions {
                cluster: self.map.borrow().cluster,
                target: id,
                resolve: Rc::new(MapOfNow { owner: self.owner.clone(), last: RefCell::default() }),
                client: self.client.get(),
                description: self.options.description.clone(),
                pins: self.pins.clone(),
            },
        );
        let owner = self.owner.clone();
        session.set_lost(move |lost| {
            if let Some(owner) = owner.upgrade() {
                owner.lost(id, &lost);
            }
        });
        if id == TargetId::mdt(0) {
            let owner = self.owner.clone();
            session.set_restarted(move || {
                if let Some(owner) = owner.upgrade() {
                    owner.lose_leases();
                }
            });
            let owner = self.owner.clone();
            session.set_reclaim(move || owner.upgrade().map_or_else(Reclaim::default, |owner| owner.reclaim()));
        }
        if id == TargetId::ost(id.index) {
            let owner = self.owner.clone();
            session.set_granted(move || owner.upgrade().map_or(0, |owner| owner.counted_on(id.index)));
            // Without keys nobody asks for capabilities.
            if self.env.own_name().is_some() {
                session.set_capabilities(self.capabilities.clone());
            }
        }
        Peer {
            session,
            window: DataWindow::new(self.options.rpcs_in_flight),
            env: self.env.clone(),
            counters: self.counters.clone(),
        }
    }
}

/// Resolves one target by the client's current map. If it is not reached the client looks for a newer one.
///
/// A session may outlive the client, and its target may be missing in a newer map: then the last addresses count, as the session
/// may have something to replay there. Whoever answers there says which target it is.
struct MapOfNow {
    owner: Weak<dyn SessionOwner>,
    last: RefCell<Vec<Address>>,
}

impl Resolve for MapOfNow {
    fn addresses(&self, target: TargetId) -> Vec<Address> {
        let now = self.owner.upgrade().map_or_else(Vec::new, |owner| owner.peers().addresses(target));
        if !now.is_empty() {
            *self.last.borrow_mut() = now;
        }
        self.last.borrow().clone()
    }

    fn unreached(&self, _: TargetId) {
        if let Some(owner) = self.owner.upgrade() {
            owner.peers().look_for_newer_map();
        }
    }
}

/// Asks the MDT for capabilities. Not in a slot: requests in slots may wait for what this is needed for.
fn authorize(owner: Weak<dyn SessionOwner>) -> capabilities::Ask {
    Box::new(move |object| {
        let owner = owner.upgrade();
        Box::pin(async move {
            let (mdt, env) =
                owner.map(|owner| (owner.peers().mdt(), owner.peers().env.clone())).ok_or(RpcError::Closed)?;
            let node = env.own_key().map(|key| Bytes::copy_from_slice(&key.0)).unwrap_or_default();
            mdt.session.ask(&Authorize { object, node }).await
        })
    })
}

/// Learns who is banned, if a server has named a newer map than the one of which that is known.
async fn fetch_bans(env: &Env, addresses: &[Address]) {
    let Some(membership) = env.membership().filter(|known| known.is_outdated()) else { return };
    match forebay_rpc::ask(env, addresses, &GetBans {}).await {
        Ok(bans) => {
            membership.adopt(&bans);
            membership.forget_rumours();
        }
        Err(error) => env.log(&format!("cannot learn who is banned: {error}")),
    }
}

/// Which directory is this node's root. Without keys nobody has a tenant.
pub(crate) async fn find_root(env: &Env, addresses: &[Address]) -> ClientResult<RootReply> {
    let everything = RootReply { root: Fid::ROOT, tenant: None };
    if env.own_name().is_none() {
        return Ok(everything);
    }
    match ask_until_answered(env, addresses, &GetRoot {}).await {
        // A server of a build from before knows no tenants.
        Err(error) if error.errno == Errno::EOPNOTSUPP => Ok(everything),
        answer => answer,
    }
}

/// Asks for the map until somebody answers.
pub(crate) async fn fetch_map(env: &Env, addresses: &[Address]) -> ClientResult<ClusterMap> {
    ask_until_answered(env, addresses, &GetMap {}).await
}

async fn ask_until_answered<O: Operation>(env: &Env, addresses: &[Address], question: &O) -> ClientResult<O::Reply> {
    let mut pause = Duration::from_millis(10);
    loop {
        match forebay_rpc::ask(env, addresses, question).await {
            Err(RpcError::Unreachable(_) | RpcError::Silent(_) | RpcError::Foreign(_)) => {}
            Err(RpcError::Reply(reply)) if reply.errno == Errno::RECOVERING => {}
            other => return Ok(other?),
        }
        env.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
