//! One request on its way through a service.

use bytes::Bytes;
use forebay_proto::{ClientId, Encode, ErrorReply, SessionId, Transno, message::CommitLevel};
use forebay_store::{Store, Txn};

use crate::{Target, Ticket};

/// What a request is answered with.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The encoded reply.
    pub body: Bytes,
    /// Bulk of the reply (reads only).
    pub bulk: Vec<Bytes>,
    /// The transno under which it changed the target; 0 if it did not.
    pub transno: Transno,
}

impl Answer {
    /// An answer that changed nothing.
    pub fn read(reply: &impl Encode) -> Self {
        Self { body: reply.to_bytes().into(), ..Self::default() }
    }

    /// An answer with bulk.
    pub fn with_bulk(reply: &impl Encode, bulk: Vec<Bytes>) -> Self {
        Self { body: reply.to_bytes().into(), bulk, ..Self::default() }
    }
}

/// One request: whose it is, and the way to change the target on its behalf. Clones share it.
#[derive(Clone)]
pub struct Context {}

#[allow(clippy::unused_async)]
impl Context {
    /// The session it came in.
    pub fn session(&self) -> SessionId {
        todo!()
    }

    /// The client it came from.
    pub fn client(&self) -> ClientId {
        todo!()
    }

    /// True if it is executed again after a restart: it succeeded before, under [`Context::replay_transno`].
    pub fn is_replay(&self) -> bool {
        todo!()
    }

    /// When the reply may leave. The target sees to it; a service need not.
    pub fn level(&self) -> CommitLevel {
        todo!()
    }

    /// The store.
    pub fn store(&self) -> &Store {
        todo!()
    }

    /// The target.
    pub fn target(&self) -> &Target {
        todo!()
    }

    /// Brings rows to memory, the request's own reply row among them. The last await before [`Context::apply`] or
    /// [`Ticket::apply`].
    pub async fn prefetch<K: AsRef<[u8]>>(&self, _keys: &[K]) -> Result<(), ErrorReply> {
        todo!()
    }

    /// Changes the target: gives the request its transno (a replay keeps its own), runs `change`, adds the reply row, applies
    /// it all at once. If `change` fails nothing is changed and no transno is used up. At most once per request.
    pub fn apply<R: Encode>(
        &self,
        _change: impl FnOnce(&mut Txn, Transno) -> Result<R, ErrorReply>,
    ) -> Result<Answer, ErrorReply> {
        todo!()
    }

    /// A transaction before the one that answers (the log record of a truncate): no reply row, not covered by replay.
    /// Commit it with [`Target::commit`] before anything outside depends on it; it must bear being done again.
    pub fn step<R>(
        &self,
        _change: impl FnOnce(&mut Txn, Transno) -> Result<R, ErrorReply>,
    ) -> Result<(R, forebay_store::CommitPoint), ErrorReply> {
        todo!()
    }

    /// A place in the order of changes: the transno is fixed now, the change comes later, in turn.
    pub fn admit(&self) -> Ticket {
        todo!()
    }

    /// Waits until what *other* sessions changed under these keys is committed (commit on share); the reply to this request
    /// will not leave before those that show this session's own changes of them. True if it had to wait: then look again at
    /// what was read before.
    pub async fn settle<K: AsRef<[u8]>>(&self, _keys: &[K]) -> Result<bool, ErrorReply> {
        todo!()
    }

    /// True if [`Context::settle`] of these keys would not wait.
    pub fn is_settled<K: AsRef<[u8]>>(&self, _keys: &[K]) -> bool {
        todo!()
    }

    /// Within `apply`'s closure or before it: the change concerns these keys; other sessions settle them first.
    pub fn touch<K: AsRef<[u8]>>(&self, _keys: &[K]) {
        todo!()
    }
}
