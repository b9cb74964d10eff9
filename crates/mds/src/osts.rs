//! The OSTs as the MDS sees them. Its requests to them are safe to repeat, and are repeated until an OST replies.

use std::{collections::BTreeMap, rc::Rc};

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
    sessions: BTreeMap<u32, ClientSession>,
}

impl Osts {
    /// Opens sessions with the OSTs of `addresses`. The server is a new client of the OSTs at each start; this
    /// notifies them that the previous instance has ended.
    pub fn start(
        env: &Env,
        cluster: Uuid,
        (mdt, incarnation): (TargetId, Incarnation),
        addresses: OstAddresses,
    ) -> Self {
        let client: ClientId = Uuid::of_life(mdt.index, incarnation);
        let pins = PinBudget::new(limits::PINNED_BYTES);
        let addresses = Rc::new(addresses);
        let session = |index: &u32| {
            let options = SessionOptions {
                cluster,
                target: TargetId::ost(*index),
                resolve: addresses.clone(),
                client,
                description: mdt.to_string(),
                pins: pins.clone(),
            };
            (*index, ClientSession::start(env, options))
        };
        Self { env: env.clone(), sessions: addresses.known.keys().map(session).collect() }
    }

    /// Indices of the OSTs, ordered.
    pub fn indices(&self) -> Vec<u32> {
        self.sessions.keys().copied().collect()
    }

    /// Whether the OST understands the feature bit `bit`, according to its last Connect reply.
    pub fn has_feature(&self, ost: u32, bit: u64) -> bool {
        self.sessions.get(&ost).is_some_and(|session| session.has_feature(bit))
    }

    /// Sends a request once; waits while the OST is away.
    pub async fn ask<O: Operation>(&self, ost: u32, request: &O) -> Result<O::Reply, ErrorReply> {
        let session = self.sessions.get(&ost).ok_or_else(|| unknown(ost))?;
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
        let session = self.sessions.get(&ost)?;
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
        let session = self.sessions.get(&ost)?;
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
        let closing: Vec<_> = self.sessions.values().map(close).collect();
        for closed in closing {
            closed.await;
        }
    }
}

fn unknown(ost: u32) -> ErrorReply {
    ErrorReply::new(Errno::ENXIO, format!("OST{ost:04x} is not in this server's list of targets"))
}
