//! The server's half of connections: accepts, reads requests, hands them over, writes replies.
//!
//! Invariant: nothing of a connection reaches the handler before its handshake is over ([`Accepted::handshake`]), and at most
//! `limits::HANDSHAKES` connections are in theirs (`handshakes`).
//! Invariant: what strangers do takes at most one log line a second (`refusals`).
//! Invariant: a stream has at most `limits::REQUESTS_PER_CONNECTION` requests in execution; with that many, it is
//! not read. (A connection may have several: `rails`. What they share would let replays wait for each other.)
//! Invariant: bulk is read only when the gate has space for it, so memory is bounded whatever clients do. Every
//! connection may have one frame's bulk beyond the gate: otherwise replays that wait for each other could never arrive.
//! Not here: sessions, and what requests mean (crate `target`).

mod handshakes;
mod rails;
mod refusals;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Accepted, Env, Listener, PeerIdentity, Side, Stream, sync::Notify};
use forebay_proto::{
    Encode, Errno, ErrorReply, SessionId,
    message::{FrameHeader, FrameKind},
};

use self::handshakes::{Handshakes, Unfinished};
pub use self::{rails::NoRail, refusals::Refusals};
use crate::{
    frame::{Frame, FrameError, FrameReader, Outbox, Traffic},
    latch::Latch,
    limits,
    turns::Turns,
};

/// Serves the requests of connections.
pub trait Handler: 'static {
    /// A request arrived. Called by the task that read it: reply at once through [`Connection::send`], or start a task.
    fn request(&self, connection: &Rc<Connection>, request: Request);

    /// The connection is closed; requests in execution go on.
    fn disconnected(&self, connection: &Rc<Connection>);
}

/// A received request.
pub struct Request {
    /// Its header.
    pub header: FrameHeader,
    /// The message.
    pub body: Bytes,
    /// The payload.
    pub bulk: Bytes,
    /// Its share of the connection's and the server's bounds: drop it when the request has been executed.
    pub pass: Pass,
}

/// One client's connection.
pub struct Connection {
    /// The other side.
    pub peer: PeerIdentity,
    /// The session that Connect bound it to; 0 before.
    pub session: Cell<SessionId>,
    outbox: Outbox,
    load: Rc<Load>,
    turns: Rc<Turns>,
    rails: rails::Rails,
}

impl Connection {
    /// Queues a reply.
    pub fn send(&self, frame: Frame) {
        self.outbox.send(frame);
    }

    /// Closes it now.
    pub fn close(&self) {
        self.outbox.close();
    }

    /// Closes it once all queued replies are written.
    pub fn finish(&self) {
        self.outbox.finish();
    }

    /// True once it is closed.
    pub fn is_closed(&self) -> bool {
        self.outbox.is_closed()
    }
}

/// Bound of the bulk bytes that all connections of a server have in memory.
pub struct BulkGate {
    limit_bytes: u64,
    used_bytes: Cell<u64>,
    freed: Notify,
}

impl BulkGate {
    /// A gate of `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Rc<Self> {
        Rc::new(Self { limit_bytes, used_bytes: Cell::new(0), freed: Notify::new() })
    }

    /// Bytes in memory now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.get()
    }

    /// The bound.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }
}

/// Requests and bulk that a connection has in execution.
#[derive(Default)]
struct Load {
    requests: Cell<usize>,
    bulk_bytes: Cell<u64>,
    lighter: Notify,
}

/// A request's share of the bounds, returned when dropped.
pub struct Pass {
    load: Rc<Load>,
    gate: Rc<BulkGate>,
    bulk_bytes: u64,
}

impl Pass {
    /// Waits until the connection and the server have space for a request with `bulk_bytes`.
    async fn acquire(load: &Rc<Load>, gate: &Rc<BulkGate>, bulk_bytes: u64) -> Self {
        while load.requests.get() >= limits::REQUESTS_PER_CONNECTION {
            load.lighter.notified().await;
        }
        while bulk_bytes > 0 && load.bulk_bytes.get() > 0 && gate.used_bytes.get() + bulk_bytes > gate.limit_bytes {
            forebay_env::sync::select! {
                biased;
                () = gate.freed.notified() => {}
                () = load.lighter.notified() => {}
            }
        }
        load.requests.set(load.requests.get() + 1);
        load.bulk_bytes.set(load.bulk_bytes.get() + bulk_bytes);
        gate.used_bytes.set(gate.used_bytes.get() + bulk_bytes);
        Self { load: load.clone(), gate: gate.clone(), bulk_bytes }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.load.requests.set(self.load.requests.get() - 1);
        self.load.bulk_bytes.set(self.load.bulk_bytes.get() - self.bulk_bytes);
        self.load.lighter.notify_waiters();
        if self.bulk_bytes > 0 {
            self.gate.used_bytes.set(self.gate.used_bytes.get() - self.bulk_bytes);
            self.gate.freed.notify_waiters();
        }
    }
}

/// Accepts connections until `stop` is raised; then closes those it accepted. Counts what goes over them in `traffic`.
pub async fn serve(
    env: &Env,
    mut listener: Listener,
    handler: Rc<dyn Handler>,
    gate: Rc<BulkGate>,
    traffic: Rc<Traffic>,
    stop: Rc<Latch>,
) {
    let shared = Rc::new(Shared {
        traffic,
        handler,
        gate,
        stop: stop.clone(),
        open: RefCell::default(),
        handshakes: Rc::default(),
        refusals: Rc::default(),
    });
    loop {
        let accepted = forebay_env::sync::select! {
            biased;
            () = stop.wait() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) if shared.open.borrow().is_full() => {
                let words =
                    format!("{}: refused: {} connections are open already", accepted.peer(), limits::CONNECTIONS);
                shared.refusals.say(env, words);
            }
            Ok(accepted) => start_handshake(env, accepted, &shared),
            Err(error) => {
                env.log(&format!("cannot accept a connection on {}: {error}", listener.address()));
                env.sleep(limits::BACKOFF_MAX).await;
            }
        }
    }
    shared.open.borrow().close_all();
}

/// What the connections of one listener share.
struct Shared {
    traffic: Rc<Traffic>,
    handler: Rc<dyn Handler>,
    gate: Rc<BulkGate>,
    stop: Rc<Latch>,
    open: RefCell<OpenConnections>,
    handshakes: Rc<Handshakes>,
    refusals: Rc<Refusals>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    open: std::collections::BTreeMap<u64, Rc<Connection>>,
}

impl OpenConnections {
    /// No other connection is taken.
    fn is_full(&self) -> bool {
        self.open.len() >= limits::CONNECTIONS
    }

    fn close_all(&self) {
        self.open.values().for_each(|c| c.close());
    }
}

/// Learns who is at the other side, then serves it.
fn start_handshake(env: &Env, accepted: Accepted, shared: &Rc<Shared>) {
    let unfinished = shared.handshakes.begin();
    let (env2, shared) = (env.clone(), shared.clone());
    env.begin(async move {
        let address = accepted.peer().to_string();
        match finish_handshake(&env2, accepted, unfinished).await {
            Ok((stream, peer)) if !shared.stop.is_raised() => start_connection(&env2, stream, peer, &shared),
            Ok(_) => {}
            Err(why) => shared.refusals.say(&env2, format!("{address}: refused: {why}")),
        }
    });
}

/// The stream and who is at its other side. Errors: why it is refused.
async fn finish_handshake(
    env: &Env,
    accepted: Accepted,
    unfinished: Unfinished,
) -> Result<(Stream, PeerIdentity), String> {
    let handshake = env.timeout(limits::GREETING_TIMEOUT, accepted.handshake(env));
    forebay_env::sync::select! {
        biased;
        finished = handshake => match finished {
            Ok(finished) => finished.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no handshake within {:?}", limits::GREETING_TIMEOUT)),
        },
        () = unfinished.displaced() => {
            Err(format!("{} newer connections have not shown who they are either", limits::HANDSHAKES))
        }
    }
}

fn start_connection(env: &Env, stream: Stream, peer: PeerIdentity, shared: &Rc<Shared>) {
    let (read, mut write) = stream.split();
    let connection = Rc::new(Connection {
        peer,
        session: Cell::new(SessionId(0)),
        outbox: Outbox::default(),
        load: Rc::default(),
        turns: Rc::default(),
        rails: rails::Rails::default(),
    });
    let number = {
        let mut open = shared.open.borrow_mut();
        open.next += 1;
        let number = open.next;
        open.open.insert(number, connection.clone());
        number
    };
    let (writing, traffic) = (connection.clone(), shared.traffic.clone());
    env.spawn(async move {
        writing.outbox.write_to(&mut write, &traffic).await;
        if let Some(main) = writing.main() {
            main.outbox.write_to(&mut write, &traffic).await;
        }
    });
    let (env2, shared) = (env.clone(), shared.clone());
    env.spawn(async move {
        let mut reader = FrameReader::counting(read, shared.traffic.clone());
        run_connection(&env2, &mut reader, &connection, &shared).await;
        if let Some(main) = connection.main() {
            rails::run(&env2, &mut reader, &connection, &main, &shared).await;
        }
        connection.close();
        shared.open.borrow_mut().open.remove(&number);
        shared.handler.disconnected(&connection);
    });
}

/// Reads until the connection breaks or is closed; logs why, unless it was simply disconnected.
/// Returns too when its stream has become a rail of another one.
async fn run_connection(env: &Env, reader: &mut FrameReader, connection: &Rc<Connection>, shared: &Shared) {
    let error = forebay_env::sync::select! {
        biased;
        () = connection.outbox.closed() => return,
        end = read_requests(env, reader, connection, &shared.handler, &shared.gate) => match end {
            Err(error) => error,
            Ok(()) => return,
        },
    };
    if !matches!(error, FrameError::Disconnected(_)) {
        let words = format!("{}: {error}", connection.peer);
        match connection.session.get() {
            SessionId(0) => shared.refusals.say(env, words),
            _ => env.log(&words),
        }
        connection.send(farewell(&error));
        connection.finish();
        // The other side may never read it.
        let _ = env.timeout(limits::GREETING_TIMEOUT, connection.outbox.closed()).await;
    }
    connection.close();
}

/// An error frame of our version, so that the other side can print that version.
fn farewell(error: &FrameError) -> Frame {
    let body = ErrorReply::new(Errno::EPROTO, error.to_string()).to_bytes();
    let mut header = FrameHeader::new(FrameKind::Error, 0);
    header.slot = limits::CONTROL_SLOT;
    Frame::new(header, body.into(), Vec::new())
}

async fn read_requests(
    env: &Env,
    reader: &mut FrameReader,
    connection: &Rc<Connection>,
    handler: &Rc<dyn Handler>,
    gate: &Rc<BulkGate>,
) -> Result<(), FrameError> {
    while connection.main().is_none() {
        let request = read_request(env, reader, connection, gate).await?;
        connection.turns.wait(env, request.header.order).await?;
        env.charge_message(Side::Server, request.header.op, request.bulk.len()).await;
        let is_counted = connection.turns.have_begun();
        handler.request(connection, request);
        if is_counted {
            connection.turns.done();
        }
    }
    Ok(())
}

async fn read_request(
    env: &Env,
    reader: &mut FrameReader,
    connection: &Rc<Connection>,
    gate: &Rc<BulkGate>,
) -> Result<Request, FrameError> {
    if connection.session.get() != SessionId(0) {
        return read_request_of(reader, connection, gate).await;
    }
    let slow = || FrameError::Disconnected("nothing came in time".into());
    let header = {
        let mut header = std::pin::pin!(reader.header());
        match env.timeout(limits::GREETING_TIMEOUT, &mut header).await {
            Ok(header) => header?,
            // Its Connect succeeded while this waited for the next frame.
            Err(_) if connection.session.get() != SessionId(0) => header.await?,
            Err(_) => return Err(slow()),
        }
    };
    if connection.session.get() != SessionId(0) {
        return read_rest(reader, header, connection, gate).await;
    }
    if header.bulk_bytes > 0 || header.body_bytes > limits::GREETING_BODY_BYTES {
        return Err(FrameError::Bad("a request longer than a Connect before any Connect".into()));
    }
    let rest = read_rest(reader, header, connection, gate);
    env.timeout(limits::GREETING_TIMEOUT, rest).await.unwrap_or_else(|_| Err(slow()))
}

/// The next request of somebody who has a session.
async fn read_request_of(
    reader: &mut FrameReader,
    connection: &Connection,
    gate: &Rc<BulkGate>,
) -> Result<Request, FrameError> {
    let header = reader.header().await?;
    read_rest(reader, header, connection, gate).await
}

async fn read_rest(
    reader: &mut FrameReader,
    header: FrameHeader,
    connection: &Connection,
    gate: &Rc<BulkGate>,
) -> Result<Request, FrameError> {
    if header.kind != FrameKind::Request {
        return Err(FrameError::Bad("a reply where a request was expected".into()));
    }
    let pass = Pass::acquire(&connection.load, gate, header.bulk_bytes.into());
    let turns = connection.shared_turns();
    let (pass, received) = {
        let waits = turns.waits_for_memory();
        let pass = pass.await;
        drop(waits);
        let _reads = turns.reads();
        (pass, reader.content(header).await?)
    };
    Ok(Request { header: received.header, body: received.body, bulk: received.bulk, pass })
}
