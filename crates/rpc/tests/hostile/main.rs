//! A server against clients that send garbage, half a frame, or another version: it logs, closes, and serves the next
//! client.

mod replayed;

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{Address, Env, Network, sim::Sim};
use forebay_keys::{Authority, KeyResult, Keys, NodeKey, NodeName, Role, Validity};
use forebay_proto::{
    Decode, Encode, ErrorReply, Uuid,
    message::{Empty, FrameHeader, FrameKind, Op, Ping, Status, StatusReply},
};
use forebay_rpc::{
    Frame, FrameError, FrameReader, Latch, limits,
    server::{BulkGate, Connection, Handler, Request, serve},
};

/// Replies to `Status`, and counts requests.
#[derive(Default)]
struct Counting {
    requests: Cell<u64>,
    held: RefCell<Vec<Request>>,
    gone: Cell<u64>,
}

impl Handler for Counting {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        self.requests.set(self.requests.get() + 1);
        if request.header.op == Op::Status as u16 {
            let mut header = FrameHeader::new(FrameKind::Reply, request.header.op);
            (header.slot, header.sequence) = (request.header.slot, request.header.sequence);
            let body = StatusReply { json: "{}".into() }.to_bytes();
            return connection.send(Frame::new(header, body.into(), Vec::new()));
        }
        connection.session.set(forebay_proto::SessionId(1));
        self.held.borrow_mut().push(request);
    }

    fn disconnected(&self, _connection: &Rc<Connection>) {
        self.gone.set(self.gone.get() + 1);
    }
}

fn address() -> Address {
    Address::Mem("server".into())
}

fn start(sim: &Sim, bulk_bytes: u64) -> (Env, Rc<Counting>, Rc<BulkGate>) {
    start_with(sim, bulk_bytes, Network::Closed)
}

fn start_with(sim: &Sim, bulk_bytes: u64, network: Network) -> (Env, Rc<Counting>, Rc<BulkGate>) {
    let (server, client) = (sim.add_node("server"), sim.add_node("client"));
    sim.set_network(server, network);
    let (handler, gate): (Rc<Counting>, _) = (Rc::default(), BulkGate::new(bulk_bytes));
    let (h, g) = (handler.clone(), gate.clone());
    sim.start(server, move |env| async move {
        let listener = env.listen(&address()).await.expect("the address is free");
        serve(&env, listener, h, g, Rc::default(), Rc::new(Latch::default())).await;
    });
    (sim.env(client), handler, gate)
}

fn frame(op: Op, body: &impl Encode, bulk: Vec<Bytes>) -> Vec<Bytes> {
    let frame = Frame::new(FrameHeader::new(FrameKind::Request, op as u16), body.to_bytes().into(), bulk);
    let mut parts = vec![Bytes::copy_from_slice(&frame.header.to_bytes()), frame.body];
    parts.extend(frame.bulk);
    parts
}

#[test]
fn garbage_of_any_kind_closes_its_connection_and_nothing_else() {
    let sim = Sim::new(1);
    let (env, handler, _) = start(&sim, 1 << 20);
    let good: Vec<u8> = frame(Op::Status, &Status {}, vec![]).concat();
    sim.block_on(async {
        for round in 0..300u64 {
            let mut bytes = good.clone();
            match round % 4 {
                0 => bytes.iter_mut().for_each(|b| *b = env.random_u64() as u8),
                1 => {
                    let at = (env.random_u64() % bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << (env.random_u64() % 8);
                }
                2 => bytes.truncate((env.random_u64() % bytes.len() as u64) as usize),
                _ => bytes[100..].fill(0xff),
            }
            let (read, mut write) = env.connect(&address()).await.expect("it still listens").split();
            let _ = write.write_all(&[bytes.into()]).await;
            drop((read, write));
        }
        let error = forebay_rpc::ask(&env, &[address()], &Status {}).await;
        assert_eq!(error.expect("it still answers").json, "{}");
        env.sleep(Duration::from_secs(60)).await;
    });
    assert_eq!(handler.gone.get(), 301, "every connection is forgotten");
}

#[test]
fn peer_of_another_version_receives_our_version() {
    let sim = Sim::new(2);
    let (env, _, _) = start(&sim, 1 << 20);
    sim.block_on(async {
        let mut bytes = frame(Op::Status, &Status {}, vec![]).concat();
        bytes[4] = 42;
        let (read, mut write) = env.connect(&address()).await.expect("connected").split();
        write.write_all(&[bytes.into()]).await.expect("written");
        let mut reader = FrameReader::new(read);
        let header = reader.header().await.expect("an error frame of our version");
        let received = reader.content(header).await.expect("whole");
        let error = ErrorReply::from_bytes(&received.body).expect("an error reply");
        assert!(error.message.contains("version 42") && error.message.contains("version 2"), "{error}");
        assert!(matches!(reader.header().await, Err(FrameError::Disconnected(_))));
    });
}

#[test]
fn bulk_before_any_connect_is_refused() {
    let sim = Sim::new(3);
    let (env, handler, gate) = start(&sim, 1 << 20);
    sim.block_on(async {
        let (read, mut write) = env.connect(&address()).await.expect("connected").split();
        let parts = frame(Op::Write, &Empty {}, vec![Bytes::from(vec![0; 1 << 20])]);
        let _ = write.write_all(&parts).await;
        let mut reader = FrameReader::new(read);
        let header = reader.header().await.expect("a farewell");
        assert_eq!(header.kind, FrameKind::Error);
    });
    assert_eq!((handler.requests.get(), gate.used_bytes()), (0, 0));
}

#[test]
fn a_silent_connection_is_closed() {
    let sim = Sim::new(4);
    let (env, handler, _) = start(&sim, 1 << 20);
    sim.block_on(async {
        let _stream = env.connect(&address()).await.expect("connected");
        env.sleep(Duration::from_secs(30)).await;
    });
    assert_eq!(handler.gone.get(), 1);
}

#[test]
fn a_flood_of_bulk_stays_within_the_gate_and_one_frame_per_connection() {
    const FRAME: u64 = 256 << 10;
    let sim = Sim::new(5);
    let (env, handler, gate) = start(&sim, 1 << 20);
    for _ in 0..8 {
        let env2 = env.clone();
        env.spawn(async move {
            let (_read, mut write) = env2.connect(&address()).await.expect("connected").split();
            write.write_all(&frame(Op::Ping, &Ping { commit: false }, vec![])).await.expect("written");
            loop {
                let parts = frame(Op::Write, &Empty {}, vec![Bytes::from(vec![1; FRAME as usize])]);
                if write.write_all(&parts).await.is_err() {
                    return;
                }
            }
        });
    }
    sim.run_for(Duration::from_secs(1));
    let bound = (1 << 20) + 8 * FRAME;
    assert!(gate.used_bytes() >= 1 << 20 && gate.used_bytes() <= bound, "{} bytes", gate.used_bytes());
    let before = handler.requests.get();
    handler.held.borrow_mut().clear();
    sim.run_for(Duration::from_secs(1));
    assert!(handler.requests.get() > before, "room was made, more came in");
    assert!(gate.used_bytes() <= bound);
}

#[test]
fn requests_of_one_connection_are_bounded() {
    let sim = Sim::new(6);
    let (env, handler, _) = start(&sim, 1 << 20);
    env.clone().spawn(async move {
        let (_read, mut write) = env.connect(&address()).await.expect("connected").split();
        while write.write_all(&frame(Op::Ping, &Ping { commit: false }, vec![])).await.is_ok() {}
    });
    sim.run_for(Duration::from_millis(100));
    assert_eq!(handler.requests.get(), forebay_rpc::limits::REQUESTS_PER_CONNECTION as u64);
}

/// Replies to everything with a valid frame and an invalid body.
struct Garbling;

impl Handler for Garbling {
    fn request(&self, connection: &Rc<Connection>, request: Request) {
        let mut header = FrameHeader::new(FrameKind::Reply, request.header.op);
        (header.slot, header.sequence) = (request.header.slot, request.header.sequence);
        connection.send(Frame::new(header, Bytes::from_static(&[0xff; 9]), Vec::new()));
    }

    fn disconnected(&self, _connection: &Rc<Connection>) {}
}

#[test]
fn a_server_that_answers_garbage_is_passed_over_for_the_next_address() {
    let sim = Sim::new(4);
    let (env, handler, _) = start(&sim, 1 << 20);
    let garbling = Address::Mem("garbling".into());
    let (node, at) = (sim.add_node("garbling"), garbling.clone());
    sim.start(node, move |env| async move {
        let listener = env.listen(&at).await.expect("the address is free");
        serve(&env, listener, Rc::new(Garbling), BulkGate::new(1 << 20), Rc::default(), Rc::new(Latch::default()))
            .await;
    });
    sim.block_on(async {
        let alone = forebay_rpc::ask(&env, std::slice::from_ref(&garbling), &Status {}).await;
        assert!(matches!(alone, Err(forebay_rpc::RpcError::Protocol(words)) if words.contains("Status")));
        let reply = forebay_rpc::ask(&env, &[garbling, address()], &Status {}).await;
        assert_eq!(reply.map(|reply| reply.json), Ok("{}".into()));
    });
    assert_eq!(handler.requests.get(), 1);
}

fn keys(authority: &Authority, role: Role) -> Network {
    // 2020 to 2040: any time that a simulated clock shows.
    let validity = Validity { from: Duration::from_secs(1_577_836_800), to: Duration::from_secs(2_208_988_800) };
    let make = || -> KeyResult<Keys> {
        let (key, node) = (NodeKey::make()?, NodeName::new(authority.cluster(), role, "n1")?);
        let certificate = authority.sign(&node, key.public_key(), validity)?;
        Keys::new(&authority.certificate(validity.from)?, certificate, &key)
    };
    Network::Keys(Arc::new(make().expect("keys")))
}

/// More connections than may be in their handshake, which say nothing
#[test]
fn half_open_connections_give_way_to_a_node_of_the_cluster() {
    let sim = Sim::new(7);
    let authority = Authority::make(Uuid([9; 16])).expect("an authority");
    let (strangers, handler, _) = start_with(&sim, 1 << 20, keys(&authority, Role::Mds));
    let ours = strangers.with_network(keys(&authority, Role::Client));
    sim.block_on(async {
        let mut held = Vec::new();
        for _ in 0..limits::HANDSHAKES + 50 {
            held.push(strangers.connect(&address()).await.expect("it listens").split());
        }
        let began = ours.now();
        let reply = forebay_rpc::ask(&ours, &[address()], &Status {}).await;
        assert_eq!(reply.map(|reply| reply.json), Ok("{}".into()));
        assert!(ours.now().since(began) < Duration::from_secs(1));
        // The oldest are closed, the newest are given their time.
        let second = Duration::from_secs(1);
        for (at, is_closed) in [(0, true), (50, true), (51, false), (limits::HANDSHAKES + 49, false)] {
            let read = ours.timeout(second, held[at].0.read_exact(&mut [0])).await;
            assert_eq!(matches!(read, Ok(Err(_))), is_closed, "{at}");
        }
        ours.sleep(limits::GREETING_TIMEOUT).await;
        for (read, _) in &mut held {
            assert!(read.read_exact(&mut [0]).await.is_err());
        }
    });
    assert_eq!((handler.requests.get(), handler.gone.get()), (1, 1));
}

/// A server with keys, a client without
#[test]
fn a_client_without_keys_is_told_that_the_server_wants_tls() {
    let sim = Sim::new(8);
    let authority = Authority::make(Uuid([9; 16])).expect("an authority");
    let (client, handler, _) = start_with(&sim, 1 << 20, keys(&authority, Role::Mds));
    sim.block_on(async {
        let reply = forebay_rpc::ask(&client, &[address()], &Status {}).await;
        let Err(forebay_rpc::RpcError::Protocol(words)) = reply else { panic!("{reply:?}") };
        assert!(words.contains("TLS") && words.contains("--keys DIR") && words.contains("mem:server"), "{words}");
    });
    assert_eq!(handler.requests.get(), 0);
}

/// Passes on what comes in both directions, until either side closes; what came from the client.
async fn record(env: &Env, client: forebay_env::Stream, server: forebay_env::Stream) -> Vec<u8> {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let back = env.spawn(async move {
        let mut byte = [0];
        while from_server.read_exact(&mut byte).await.is_ok() {
            if to_client.write_all(&[Bytes::copy_from_slice(&byte)]).await.is_err() {
                return;
            }
        }
    });
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while from_client.read_exact(&mut byte).await.is_ok() {
        seen.push(byte[0]);
        if to_server.write_all(&[Bytes::copy_from_slice(&byte)]).await.is_err() {
            break;
        }
    }
    drop(to_server);
    back.await;
    seen
}

/// Bytes that a node of the cluster sends in a connection in which it asks for the status once.
async fn conversation(strangers: &Env, ours: &Env) -> Vec<u8> {
    let middle = Address::Mem("middle".into());
    let mut listener = strangers.listen(&middle).await.expect("the address is free");
    let asking = ours.clone();
    let asked = ours.spawn(async move {
        let (read, mut write) = asking.connect(&middle).await.expect("it is let in").split();
        write.write_all(&frame(Op::Status, &Status {}, vec![])).await.expect("written");
        let mut reader = FrameReader::new(read);
        let header = reader.header().await.expect("a reply");
        StatusReply::from_bytes(&reader.content(header).await.expect("whole").body).expect("a reply").json
    });
    let client = listener.accept().await.expect("it connects").handshake(strangers).await.expect("plain").0;
    let server = strangers.connect(&address()).await.expect("it listens");
    let seen = record(strangers, client, server).await;
    assert_eq!(asked.await.expect("it ran"), "{}");
    seen
}

/// How many hostile connections are tried, unless the environment says otherwise.
const ROUNDS: u64 = 20_000;

/// One of `conversations` with damage of some kind.
fn damaged(env: &Env, conversations: &[Vec<u8>]) -> Vec<u8> {
    let below = |bound: usize| (env.random_u64() % bound as u64) as usize;
    let mut bytes = conversations[below(conversations.len())].clone();
    for _ in 0..=below(3) {
        // Most damage is to the client's first words, which are read before anything is known of it.
        let reach = if below(4) == 0 { bytes.len() } else { bytes.len().min(300) };
        if reach == 0 {
            break;
        }
        let at = below(reach);
        match below(7) {
            0 | 1 => bytes[at] ^= 1 << below(8),
            2 => bytes[at] = [0, 1, 0x16, 0x17, 0xf1, 0x7f, 0xff][below(7)],
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..(at + 1 + below(40)).min(bytes.len()))),
            5 => {
                let other = &conversations[below(conversations.len())];
                let from = below(other.len());
                let part = other[from..(from + 1 + below(200)).min(other.len())].to_vec();
                bytes.splice(at..at, part);
            }
            // Lengths have two and three bytes.
            _ => {
                let end = (at + 2 + below(2)).min(bytes.len());
                bytes[at..end].fill(if below(2) == 0 { 0xff } else { 0 });
            }
        }
    }
    bytes
}

/// A recorded conversation, with integrity only or encrypted, is repeated whole or damaged |20,000 times| a node of the cluster asks
///
/// More: `FOREBAY_FUZZ_ROUNDS=1000000`.
#[test]
fn repeated_and_damaged_handshakes_are_refused_and_others_are_served() {
    let rounds = std::env::var("FOREBAY_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let sim = Sim::new(9);
    let authority = Authority::make(Uuid([9; 16])).expect("an authority");
    let integrity_only = |role| match keys(&authority, role) {
        Network::Keys(keys) => {
            Network::Keys(Arc::new(Arc::into_inner(keys).expect("nobody else has them").with_integrity_only()))
        }
        other => other,
    };
    let (plain, handler, gate) = start_with(&sim, 1 << 20, integrity_only(Role::Mds));
    let strangers = plain.with_network(Network::Closed);
    let clients = [keys(&authority, Role::Client), integrity_only(Role::Client)];
    sim.block_on(async {
        let mut conversations = Vec::new();
        for client in &clients {
            conversations.push(conversation(&strangers, &strangers.with_network(client.clone())).await);
        }
        let shows_frames = |bytes: &Vec<u8>| bytes.windows(4).any(|part| part == b"FBF1");
        assert_eq!(conversations.iter().map(shows_frames).collect::<Vec<_>>(), [false, true], "one is clear");
        let served = handler.requests.get();
        assert_eq!(served, 2);
        for round in 0..rounds {
            let bytes = match round % 100 {
                0 => conversations[round as usize / 100 % 2].clone(),
                _ => damaged(&strangers, &conversations),
            };
            let (read, mut write) = strangers.connect(&address()).await.expect("it still listens").split();
            let _ = write.write_all(&[bytes.into()]).await;
            // Time for the server to act on it.
            strangers.sleep(Duration::from_millis(1)).await;
            drop((read, write));
            if round % 1000 == 0 {
                assert_eq!(handler.requests.get(), served + round / 1000, "nobody else's request is executed");
                let ours = strangers.with_network(clients[round as usize / 1000 % 2].clone());
                let (began, reply) = (ours.now(), forebay_rpc::ask(&ours, &[address()], &Status {}).await);
                assert_eq!(reply.map(|reply| reply.json), Ok("{}".into()), "round {round}");
                assert!(ours.now().since(began) < Duration::from_millis(100), "round {round}");
            }
        }
        strangers.sleep(limits::GREETING_TIMEOUT * 2).await;
    });
    assert_eq!((handler.requests.get(), gate.used_bytes()), (2 + rounds.div_ceil(1000), 0));
}
