//! Further streams of a connection, by other addresses.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use forebay_env::{Env, PeerIdentity};

use super::{Connection, Shared, read_request_of};
use crate::{
    frame::{FrameError, FrameReader},
    limits,
    turns::Turns,
};

/// Why a stream does not become a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRail {
    /// The connection has one stream only, as its frames have no numbers, or is closed.
    Single,
    /// It belongs to somebody else.
    Foreign,
    /// It has as many as it may.
    Many,
}

impl NoRail {
    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::Single => "the session's connection takes no further streams".into(),
            Self::Foreign => "the session belongs to another node".into(),
            Self::Many => format!("the session's connection has {} streams already", limits::RAILS),
        }
    }
}

/// The streams that a connection has beside its first one, or the connection that a stream belongs to.
#[derive(Default)]
pub(super) struct Rails {
    main: RefCell<Option<Rc<Connection>>>,
    /// Number of its Connect.
    number: Cell<u64>,
    /// Streams that became rails of it.
    joined: Cell<usize>,
}

impl Connection {
    /// This connection's stream becomes one more of `main`'s. Requests that come by it are `main`'s from now on, and `main`'s
    /// replies go by it too. Call it when the reply to the request for that is queued.
    pub fn become_rail_of(&self, main: &Rc<Self>) {
        main.rails.joined.set(main.rails.joined.get() + 1);
        self.rails.main.replace(Some(main.clone()));
        self.outbox.finish();
    }

    /// Whether this connection's stream may become one of `main`'s, which began with the Connect of this number.
    pub fn may_become_rail_of(&self, main: &Self, number: u64) -> Result<(), NoRail> {
        if !main.turns.have_begun()
            || main.rails.number.get() != number
            || main.is_closed()
            || self.session.get().0 != 0
            || self.turns.have_begun()
        {
            return Err(NoRail::Single);
        }
        if !is_same(&self.peer, &main.peer) {
            return Err(NoRail::Foreign);
        }
        if main.rails.joined.get() + 1 >= limits::RAILS { Err(NoRail::Many) } else { Ok(()) }
    }

    /// From now on its frames have numbers, both ways. Call it when the reply to its Connect, which had this number, is queued.
    pub fn count_frames(&self, number: u64) {
        self.rails.number.set(number);
        self.outbox.count_frames();
        self.turns.begin();
    }

    /// Whose turn it is in the connection that this stream belongs to.
    pub(super) fn shared_turns(&self) -> Rc<Turns> {
        self.rails.main.borrow().as_ref().map_or_else(|| self.turns.clone(), |main| main.turns.clone())
    }

    pub(super) fn main(&self) -> Option<Rc<Self>> {
        self.rails.main.borrow().clone()
    }
}

/// Nobody vouches for the sides of streams without keys: whoever knows the client's id is the client.
fn is_same(one: &PeerIdentity, other: &PeerIdentity) -> bool {
    match (one, other) {
        (PeerIdentity::Node { node, key, .. }, PeerIdentity::Node { node: other, key: others, .. }) => {
            node == other && key == others
        }
        (PeerIdentity::Node { .. }, _) | (_, PeerIdentity::Node { .. }) => false,
        _ => true,
    }
}

/// Reads `main`'s requests that come by this stream, until it breaks or `main` is closed. If it breaks, so does `main`: its client
/// connects anew, over the addresses that are left.
pub(super) async fn run(
    env: &Env,
    reader: &mut FrameReader,
    connection: &Connection,
    main: &Rc<Connection>,
    shared: &Shared,
) {
    let error = forebay_env::sync::select! {
        biased;
        () = main.outbox.closed() => return,
        error = read(env, reader, connection, main, shared) => error,
    };
    if !main.is_closed() {
        let session = main.session.get();
        shared.refusals.say(env, format!("{}: a stream of session {session} broke: {error}", connection.peer));
    }
    main.close();
}

async fn read(
    env: &Env,
    reader: &mut FrameReader,
    connection: &Connection,
    main: &Rc<Connection>,
    shared: &Shared,
) -> FrameError {
    loop {
        let request = match read_request_of(reader, connection, &shared.gate).await {
            Ok(request) => request,
            Err(error) => return error,
        };
        if let Err(error) = main.turns.wait(env, request.header.order).await {
            return error;
        }
        env.charge_message(forebay_env::Side::Server, request.header.op, request.bulk.len()).await;
        shared.handler.request(main, request);
        main.turns.done();
    }
}
