//! The targets a client talks to: one session each, begun when it is first needed.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::{Rc, Weak},
    time::Duration,
};

use forebay_env::{Address, Boxed, Env, sync::Semaphore};
use forebay_proto::{
    ClientId, Errno, TargetId,
    message::{ClusterMap, GetMap, Operation, Reclaim},
};
use forebay_rpc::{Call, Called, ClientSession, PinBudget, RpcError, SessionOptions};

use crate::{ClientError, ClientResult, MountOptions, client::Inner, stats::Counters};

/// One target.
pub(crate) struct Peer {
    pub session: ClientSession,
    /// Data requests that may be in flight.
    pub permits: Semaphore,
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
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        self.call(request, call).await
    }
}

/// All targets.
pub(crate) struct Peers {
    env: Env,
    options: MountOptions,
    client: ClientId,
    counters: Counters,
    pins: PinBudget,
    map: RefCell<Rc<ClusterMap>>,
    peers: RefCell<BTreeMap<TargetId, Rc<Peer>>>,
    /// Tells new sessions where their events go.
    owner: Weak<Inner>,
}

impl Peers {
    pub fn new(
        env: &Env,
        options: &MountOptions,
        client: ClientId,
        counters: Counters,
        map: ClusterMap,
        owner: Weak<Inner>,
    ) -> Self {
        Self {
            env: env.clone(),
            options: options.clone(),
            client,
            counters,
            pins: PinBudget::new(options.pin_bytes),
            map: RefCell::new(Rc::new(map)),
            peers: RefCell::default(),
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
        // The map was checked at mount; the MGS is MDT0000's server, so the bootstrap addresses reach it too.
        let addresses = self.addresses(id).unwrap_or_default();
        self.get_or_start(id, if addresses.is_empty() { self.options.addresses.clone() } else { addresses })
    }

    /// The OST of a layout. Asks for a newer map if it is not in this one.
    pub async fn ost(&self, index: u32) -> ClientResult<Rc<Peer>> {
        let id = TargetId::ost(index);
        if let Some(peer) = self.peers.borrow().get(&id) {
            return Ok(peer.clone());
        }
        if self.addresses(id).is_none() {
            self.refresh_map().await?;
        }
        let addresses = self.addresses(id).ok_or_else(|| {
            let words = format!("a file lies on {id}, which is not in the cluster's map: start it, or remove the file");
            ClientError::new(Errno::EIO, words)
        })?;
        Ok(self.get_or_start(id, addresses))
    }

    /// Indices of all OSTs of the map.
    pub fn osts(&self) -> Vec<u32> {
        let is_ost = |id: &TargetId| TargetId::ost(id.index) == *id;
        self.map().targets.iter().map(|target| target.id).filter(is_ost).map(|id| id.index).collect()
    }

    /// There is a session with an OST.
    pub fn is_started(&self, ost: u32) -> bool {
        self.peers.borrow().contains_key(&TargetId::ost(ost))
    }

    /// Targets there is a session with, ordered.
    pub fn started(&self) -> Vec<Rc<Peer>> {
        self.peers.borrow().values().cloned().collect()
    }

    pub fn pinned_bytes(&self) -> u64 {
        self.pins.used_bytes()
    }

    fn refresh_map(&self) -> Boxed<'_, ClientResult<()>> {
        Box::pin(async {
            let map = fetch_map(&self.env, &self.options.addresses).await?;
            if map.epoch >= self.map.borrow().epoch {
                *self.map.borrow_mut() = Rc::new(map);
            }
            Ok(())
        })
    }

    /// Where a target can be reached; `None` if the map does not know it or has no address this build understands.
    fn addresses(&self, id: TargetId) -> Option<Vec<Address>> {
        let map = self.map.borrow();
        let target = map.targets.iter().find(|target| target.id == id)?;
        let addresses: Vec<Address> = target.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        (!addresses.is_empty()).then_some(addresses)
    }

    fn get_or_start(&self, id: TargetId, addresses: Vec<Address>) -> Rc<Peer> {
        self.peers.borrow_mut().entry(id).or_insert_with(|| Rc::new(self.start(id, addresses))).clone()
    }

    fn start(&self, id: TargetId, addresses: Vec<Address>) -> Peer {
        let session = ClientSession::start(
            &self.env,
            SessionOptions {
                cluster: self.map.borrow().cluster,
                target: id,
                addresses,
                client: self.client,
                description: self.options.description.clone(),
                pins: self.pins.clone(),
            },
        );
        let owner = self.owner.clone();
        session.set_lost(move |lost| {
            if let Some(inner) = owner.upgrade() {
                inner.lost(id, &lost);
            }
        });
        if id == TargetId::mdt(0) {
            let owner = self.owner.clone();
            session.set_restarted(move || {
                if let Some(inner) = owner.upgrade() {
                    inner.lose_leases();
                }
            });
            let owner = self.owner.clone();
            session.set_reclaim(move || owner.upgrade().map_or_else(Reclaim::default, |inner| inner.reclaim()));
        }
        if id == TargetId::ost(id.index) {
            let owner = self.owner.clone();
            session.set_granted(move || {
                owner.upgrade().map_or(0, |inner| inner.write_back.room.claim(id.index, inner.write_back.held()))
            });
        }
        Peer {
            session,
            permits: Semaphore::new(self.options.rpcs_in_flight.max(1)),
            env: self.env.clone(),
            counters: self.counters.clone(),
        }
    }
}

/// Asks for the map until somebody answers.
pub(crate) async fn fetch_map(env: &Env, addresses: &[Address]) -> ClientResult<ClusterMap> {
    let mut pause = Duration::from_millis(10);
    loop {
        match forebay_rpc::ask(env, addresses, &GetMap {}).await {
            Err(RpcError::Unreachable(_) | RpcError::Silent(_) | RpcError::Foreign(_)) => {}
            Err(RpcError::Reply(reply)) if reply.errno == Errno::RECOVERING => {}
            other => return Ok(other?),
        }
        env.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
