//! The OSTs as the MDS sees them. Its requests to them are safe to repeat, and are repeated until an OST replies.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use bytes::Bytes;
use forebay_env::{Address, Env};
use forebay_proto::{
    ClientId, Errno, ErrorReply, Incarnation, TargetId, Uuid,
    message::{ClusterMap, CommitLevel, Operation},
};
use forebay_rpc::{Call, ClientSession, PinBudget, Resolve, RpcError, SessionOptions, addresses_in};

use crate::limits;

/// Where the OSTs can be reached.
pub struct OstAddresses {
    /// The OSTs, with the addresses of those that the map does not name.
    pub known: BTreeMap<u32, Vec<Address>>,
    /// The current map of the cluster, if this server has it.
    pub map: Option<Rc<dyn Fn() -> ClusterMap>>,
}

impl Resolve for OstAddresses {
    fn addresses(&self, target: TargetId) -> Vec<Address> {
        let mapped = self.map.as_ref().map(|map| addresses_in(&map(), target));
        let mapped = mapped.filter(|addresses| !addresses.is_empty());
        mapped.or_else(|| self.known.get(&target.index).cloned()).unwrap_or_default()
    }

    fn unreached(&self, _: TargetId) {}
}

/// A session with each OST.
pub struct Osts {
    env: Env,
    cluster: Uuid,
    client: ClientId,
    mdt: TargetId,
    pins: PinBudget,
    addresses: Rc<OstAddresses>,
    sessions: RefCell<BTreeMap<u32, ClientSession>>,
}

impl Osts {
    /// Opens sessions with these OSTs. The server is a new client of the OSTs at each start; this notifies them that the
    /// previous instance has ended.
    pub fn start(
        env: &Env,
        cluster: Uuid,
        (mdt, incarnation): (TargetId, Incarnation),
        addresses: OstAddresses,
        osts: impl IntoIterator<Item = u32>,
    ) -> Self {
        let client: ClientId = Uuid::of_life(mdt.index, incarnation);
        let pins = PinBudget::new(limits::PINNED_BYTES);
        let (addresses, sessions) = (Rc::new(addresses), RefCell::default());
        // OSTs are sent the keys of capabilities.
        let env = env.encrypting();
        let this = Self { env: env.clone(), cluster, client, mdt, pins, addresses, sessions };
        osts.into_iter().for_each(|ost| this.add(ost));
        this
    }

    /// Opens a session with one more OST.
    pub fn add(&self, ost: u32) {
        let options = SessionOptions {
            cluster: self.cluster,
            target: TargetId::ost(ost),
            resolve: self.addresses.clone(),
            client: self.client,
            description: self.mdt.to_string(),
            pins: self.pins.clone(),
        };
        self.sessions.borrow_mut().insert(ost, ClientSession::start(&self.env, options));
    }

    fn session(&self, ost: u32) -> Option<ClientSession> {
        self.sessions.borrow().get(&ost).cloned()
    }

    /// Tells an OST something that changes nothing there; once, and whether or not it hears it.
    pub async fn tell<O: Operation>(&self, ost: u32, request: &O) {
        let Some(session) = self.session(ost) else { return };
        if let Ok(Err(error)) = self.env.timeout(limits::POLL_TIMEOUT, session.ask(request)).await {
            self.env.log(&format!("{:?} of OST{ost:04x}: {error}", O::OP));
        }
    }

    /// Indices of the OSTs, ordered.
    pub fn indices(&self) -> Vec<u32> {
        self.sessions.borrow().keys().copied().collect()
    }

    /// Whether the OST understands the feature bit `bit`, according to its last Connect reply.
    pub fn has_feature(&self, ost: u32, bit: u64) -> bool {
        self.session(ost).is_some_and(|session| session.has_feature(bit))
    }

    /// Sends a request once; waits while the OST is away.
    pub async fn ask<O: Operation>(&self, ost: u32, request: &O) -> Result<O::Reply, ErrorReply> {
        let session = self.session(ost).ok_or_else(|| unknown(ost))?;
        let called = session.call(request, Call::level(CommitLevel::Commit)).await;
        called.map(|called| called.reply).map_err(|error| match error {
            RpcError::Reply(reply) => reply,
            error => ErrorReply::new(error.errno(), format!("OST{ost:04x}: {error}")),
        })
    }

    /// Repeats a request until it succeeds: work driven from the logs must be done, whatever fails meanwhile. `None` if
    /// the OST is not known (the log keeps the record), or if this server stops.
    pub async fn insist<O: Operation>(&self, ost: u32, request: &O) -> Option<O::Reply> {
        loop {
            match self.ask(ost, request).await {
                Ok(reply) => return Some(reply),
                Err(error) if error.errno == Errno::ENXIO => return None,
                Err(error) => {
                    self.env.log(&format!("{:?} of OST{ost:04x} is asked again: {error}", O::OP));
                    self.env.sleep(limits::INSIST_PAUSE).await;
                }
            }
        }
    }

    /// As [`Osts::insist`], but returns errors that count as a reply, and EIO if the OST reports repeatedly that it
    /// cannot read the data concerned.
    pub async fn insist_unless_damaged<O: Operation>(
        &self,
        ost: u32,
        request: &O,
        is_answer: impl Fn(Errno) -> bool,
    ) -> Option<Result<O::Reply, ErrorReply>> {
        let mut attempts = 0;
        loop {
            match self.hear(ost, request).await? {
                Err(error) if is_answer(error.errno) => return Some(Err(error)),
                Err(error) if error.errno == Errno::EIO && attempts >= limits::DAMAGED_ATTEMPTS => {
                    return Some(Err(error));
                }
                Err(error) => {
                    attempts += u32::from(error.errno == Errno::EIO);
                    self.env.log(&format!("{:?} of OST{ost:04x} is asked again: {error}", O::OP));
                    self.env.sleep(limits::INSIST_PAUSE).await;
                }
                Ok(reply) => return Some(Ok(reply)),
            }
        }
    }

    /// As [`Osts::insist`] with bulk. If the OST replies with errors repeatedly, returns the error: it may have no
    /// space (ENOSPC).
    pub async fn insist_on_bulk<O: Operation>(
        &self,
        ost: u32,
        request: &O,
        bulk: Bytes,
    ) -> Option<Result<O::Reply, ErrorReply>> {
        let session = self.session(ost)?;
        let mut attempts = 0;
        loop {
            let call = Call { bulk: vec![bulk.clone()], ..Call::level(CommitLevel::Commit) };
            match session.call(request, call).await {
                Ok(called) => return Some(Ok(called.reply)),
                Err(RpcError::Reply(error)) if attempts >= limits::DAMAGED_ATTEMPTS => return Some(Err(error)),
                Err(RpcError::Reply(_)) => attempts += 1,
                Err(error) if error.errno() == Errno::ENXIO => return None,
                Err(error) => self.env.log(&format!("{:?} of OST{ost:04x} is asked again: {error}", O::OP)),
            }
            self.env.sleep(limits::INSIST_PAUSE).await;
        }
    }

    /// Repeats a request until the OST itself replies, if only with an error. `None` as [`Osts::insist`].
    pub async fn hear<O: Operation>(&self, ost: u32, request: &O) -> Option<Result<O::Reply, ErrorReply>> {
        let session = self.session(ost)?;
        loop {
            match session.call(request, Call::level(CommitLevel::Commit)).await {
                Ok(called) => return Some(Ok(called.reply)),
                Err(RpcError::Reply(error)) => return Some(Err(error)),
                Err(error) if error.errno() == Errno::ENXIO => return None,
                Err(error) => {
                    self.env.log(&format!("{:?} of OST{ost:04x} is asked again: {error}", O::OP));
                    self.env.sleep(limits::INSIST_PAUSE).await;
                }
            }
        }
    }

    /// Ends all sessions concurrently: each waits for a while if its OST is away.
    pub async fn close(&self) {
        let close = |session: &ClientSession| {
            let session = session.clone();
            self.env.spawn(async move { session.close().await })
        };
        let closing: Vec<_> = self.sessions.borrow().values().map(close).collect();
        for closed in closing {
            closed.await;
        }
    }
}

fn unknown(ost: u32) -> ErrorReply {
    ErrorReply::new(Errno::ENXIO, format!("OST{ost:04x} is not in this server's list of targets"))
}
