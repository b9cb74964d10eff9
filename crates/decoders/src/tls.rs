//! TLS, before and after the handshake, encrypted and with integrity only.

use bytes::Bytes;
use forebay_env::{
    Address, Env, EnvErrorKind, ReadHalf, Stream, WriteHalf,
    sim::Sim,
    testing::{send_record, send_unsealed},
};
use forebay_keys::Role;
use forebay_proto::Encode;
use forebay_proto::message::{FrameHeader, FrameKind, Op, Status};

use crate::corpus::network;

/// Long enough for all that happens in a simulated connection without waiting for anything.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(5);
/// Pieces of a stream; the last one has the rest.
const PIECES: usize = 64;

/// Sends `bytes` in pieces of `piece` bytes (0: in one), and closes a moment later.
pub async fn play(env: &Env, stream: Stream, bytes: &[u8], piece: u8) {
    let (_read, mut write) = stream.split();
    let small = if piece == 0 { 0 } else { bytes.len().min(PIECES * usize::from(piece)) };
    let pieces = bytes[..small].chunks(usize::from(piece).max(1)).chain([&bytes[small..]]);
    for piece in pieces.filter(|piece| !piece.is_empty()) {
        if write.write_all(&[Bytes::copy_from_slice(piece)]).await.is_err() {
            return;
        }
        env.yield_now().await;
    }
    env.sleep(MOMENT).await;
}

/// What somebody sends who has no key. No handshake succeeds: also what was recorded of one is worth nothing in another.
///
/// Input: who hears it; bytes of a piece; what is sent.
pub fn handshake(data: &[u8]) -> bool {
    let Some(([hearer, piece], bytes)) = data.split_first_chunk::<2>() else { return false };
    let (hearer, piece, bytes) = (*hearer, *piece, bytes.to_vec());
    let sim = Sim::new(1);
    let (stranger, node) = (sim.env(sim.add_node("stranger")), sim.env(sim.add_node("node")));
    let role = if hearer & 1 == 0 { Role::Mds } else { Role::Client };
    let node = node.with_network(network(role, hearer & 2 == 2));
    let heard = sim.block_on(async {
        match role {
            Role::Mds => hear_as_server(&node, &stranger, hearer & 4 == 4, bytes, piece).await,
            _ => hear_as_client(&node, &stranger, bytes, piece).await,
        }
    });
    assert!(heard.is_err(), "somebody without a key was believed");
    false
}

async fn hear_as_server(node: &Env, stranger: &Env, anybody: bool, bytes: Vec<u8>, piece: u8) -> Result<(), ()> {
    let address = Address::Mem("node".into());
    let listener = node.listen(&address).await.expect("the address is free");
    let mut listener = if anybody { listener.for_anybody() } else { listener };
    let env = stranger.clone();
    stranger.begin(async move { play(&env, env.connect(&address).await.expect("it listens"), &bytes, piece).await });
    let accepted = listener.accept().await.expect("it connects");
    accepted.handshake(node).await.map(drop).map_err(drop)
}

async fn hear_as_client(node: &Env, stranger: &Env, bytes: Vec<u8>, piece: u8) -> Result<(), ()> {
    let address = Address::Mem("stranger".into());
    let mut listener = stranger.listen(&address).await.expect("the address is free");
    let env = stranger.clone();
    stranger.begin(async move {
        let accepted = listener.accept().await.expect("it connects");
        let (stream, _) = accepted.handshake(&env).await.expect("it has none");
        play(&env, stream, &bytes, piece).await;
    });
    node.connect(&address).await.map(drop).map_err(drop)
}

/// Both ends of a connection after its handshake: the client's, and the server's.
async fn connected(client: &Env, server: &Env) -> (Stream, Stream) {
    let address = Address::Mem("server".into());
    let mut listener = server.listen(&address).await.expect("the address is free");
    let (env, to) = (client.clone(), address);
    let connecting = client.spawn(async move { env.connect(&to).await.expect("it is let in") });
    let accepted = listener.accept().await.expect("it connects");
    let (stream, _) = accepted.handshake(server).await.expect("it is a node");
    (connecting.await.expect("it ran"), stream)
}

/// What a node sends that has a key, or somebody on the way. The other side reads what was sealed as data, or a part of
/// it from the beginning, and closes.
///
/// Input: who reads and how; then pieces: what it is (data, a sealed record of any kind, unsealed bytes), its length in
/// two bytes, its bytes.
pub fn records(data: &[u8]) -> bool {
    let Some((selector, pieces)) = data.split_first() else { return false };
    let integrity_only = selector & 1 == 1;
    let sim = Sim::new(1);
    let (client, server) = (sim.env(sim.add_node("client")), sim.env(sim.add_node("server")));
    let client = client.with_network(network(Role::Client, integrity_only));
    let server = server.with_network(network(Role::Mds, integrity_only));
    let (pieces, sealed) = parse(pieces, integrity_only);
    let chunk = [1, 7, 600, 20_000][usize::from(selector >> 2 & 3)];
    let received = sim.block_on(async {
        let (near, far) = connected(&client, &server).await;
        let (hostile, honest) = if selector & 2 == 0 { (near, far) } else { (far, near) };
        let env = client.clone();
        client.begin(async move {
            let (_read, mut write) = hostile.split();
            for piece in pieces {
                if send(&mut write, piece).await.is_err() {
                    return;
                }
            }
            env.sleep(MOMENT).await;
        });
        let (read, mut write) = honest.split();
        let received = receive(read, chunk, sealed.len()).await;
        // A key update may have been asked for.
        let _ = write.write_all(&[Bytes::from_static(b"!")]).await;
        received
    });
    assert!(sealed.starts_with(&received), "{} bytes that nobody has sealed as data", received.len());
    !received.is_empty()
}

enum Piece {
    Data(Vec<u8>),
    Record(u8, Vec<u8>),
    Unsealed(Vec<u8>),
}

const DATA: u8 = 23;

/// The pieces, and the data in them.
fn parse(mut bytes: &[u8], integrity_only: bool) -> (Vec<Piece>, Vec<u8>) {
    let (mut pieces, mut sealed) = (Vec::new(), Vec::new());
    while let Some(([what, low, high], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high]) & 0x3fff).min(rest.len());
        let (content, rest) = rest.split_at(length);
        pieces.push(match what % 3 {
            0 => {
                sealed.extend_from_slice(content);
                Piece::Data(content.into())
            }
            1 => {
                let (kind, content) = content.split_first().unwrap_or((&0, &[]));
                if !integrity_only {
                    sealed.extend_from_slice(data_in(*kind, content));
                }
                Piece::Record(*kind, content.into())
            }
            _ => Piece::Unsealed(content.into()),
        });
        bytes = rest;
    }
    (pieces, sealed)
}

/// The data in a record: its type is its last byte that is not padding.
fn data_in(kind: u8, content: &[u8]) -> &[u8] {
    let last = content.iter().rposition(|byte| *byte != 0);
    match (kind, last) {
        (DATA, _) => content,
        (0, Some(last)) if content[last] == DATA => &content[..last],
        _ => &[],
    }
}

async fn send(half: &mut WriteHalf, piece: Piece) -> forebay_env::EnvResult<()> {
    match piece {
        Piece::Data(bytes) => half.write_all(&[bytes.into()]).await,
        Piece::Record(kind, content) => send_record(half, kind, &content).await,
        Piece::Unsealed(bytes) => send_unsealed(half, &bytes).await,
    }
}

/// Reads in chunks until the connection ends, at most one chunk more than `most` bytes.
async fn receive(mut read: ReadHalf, chunk: usize, most: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() <= most {
        let mut buffer = vec![0; chunk];
        if let Err(error) = read.read_exact(&mut buffer).await {
            assert!(matches!(error.kind, EnvErrorKind::Permission | EnvErrorKind::Disconnected), "{error}");
            break;
        }
        received.extend_from_slice(&buffer);
    }
    received
}

/// What both sides send in a connection in which a request is sent: the client, and the server.
async fn recorded(client: &Env, server: &Env, middle: &Env) -> [Vec<u8>; 2] {
    let (to, on_the_way) = (Address::Mem("server".into()), Address::Mem("middle".into()));
    let mut listener = server.listen(&to).await.expect("the address is free");
    let mut tap = middle.listen(&on_the_way).await.expect("the address is free");
    let (accepting, connecting) = (server.clone(), client.clone());
    drop(server.spawn(async move {
        let accepted = listener.accept().await.expect("it connects");
        let (stream, _) = accepted.handshake(&accepting).await.expect("it is a node");
        let (mut read, mut write) = stream.split();
        let mut request = vec![0; request().len()];
        read.read_exact(&mut request).await.expect("a request");
        write.write_all(&[request.into()]).await.expect("it is there");
        accepting.sleep(MOMENT).await;
    }));
    drop(client.spawn(async move {
        let (mut read, mut write) = connecting.connect(&on_the_way).await.expect("it is let in").split();
        write.write_all(&[request().into()]).await.expect("it is there");
        read.read_exact(&mut vec![0; request().len()]).await.expect("a reply");
    }));
    let (near, _) = tap.accept().await.expect("it connects").handshake(middle).await.expect("it has none");
    let ((from_client, to_client), (from_server, to_server)) =
        (near.split(), middle.connect(&to).await.expect("it listens").split());
    let back = middle.spawn(forward(from_server, to_client));
    let there = forward(from_client, to_server).await;
    [there, back.await.expect("it ran")]
}

async fn forward(mut from: ReadHalf, mut to: WriteHalf) -> Vec<u8> {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while from.read_exact(&mut byte).await.is_ok() {
        seen.push(byte[0]);
        if to.write_all(&[Bytes::copy_from_slice(&byte)]).await.is_err() {
            break;
        }
    }
    seen
}

fn request() -> Vec<u8> {
    let header = FrameHeader::new(FrameKind::Request, Op::Status as u16);
    [&header.to_bytes()[..], &Status {}.to_bytes()].concat()
}

pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![[&[0, 0][..], &request()].concat()];
    for integrity_only in [false, true] {
        let sim = Sim::new(1);
        let env = |name: &str| sim.env(sim.add_node(name));
        let client = env("client").with_network(network(Role::Client, integrity_only));
        let server = env("server").with_network(network(Role::Mds, integrity_only));
        let [there, back] = sim.block_on(recorded(&client, &server, &env("middle")));
        let protection = u8::from(integrity_only) << 1;
        for (hearer, bytes) in [(0, &there), (4, &there), (1, &back)] {
            // Most damage is to be where something is read before the first key is known.
            let hello = &bytes[..bytes.len().min(250)];
            let seed = |piece: u8, bytes: &[u8]| [&[hearer | protection, piece], bytes].concat();
            seeds.extend([seed(0, bytes), seed(0, hello), seed(3, bytes), seed(200, hello)]);
        }
    }
    seeds
}

pub fn record_seeds() -> Vec<Vec<u8>> {
    let piece = |what: u8, bytes: &[u8]| [&[what], &(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    let data = |length: usize| piece(0, &vec![b'd'; length]);
    let sealed = |kind: u8, content: &[u8]| piece(1, &[&[kind], content].concat());
    // An alert, a change of ciphers, a ticket, key updates, half a message.
    let ticket = [&[4, 0, 0, 30, 0, 0, 0, 9, 1, 2, 3, 4, 2, 5, 6, 0, 13][..], &[7; 13], &[0, 0]].concat();
    let others = [
        sealed(21, &[1, 90]),
        sealed(21, &[2, 20]),
        sealed(20, &[1]),
        sealed(22, &ticket),
        sealed(22, &[24, 0, 0, 1, 0]),
        sealed(22, &[24, 0, 0, 1, 1]),
        sealed(22, &ticket[..9]),
        sealed(23, b"sealed by hand"),
        sealed(0, b"padded\x17\0\0\0"),
        // A sealed record's header, a clear record's, and one of a clear handshake.
        piece(2, &[&[23, 3, 3, 0, 40][..], &[9; 40]].concat()),
        piece(2, &[&[0xf1, 0, 0, 0, 8][..], &[9; 8 + 21]].concat()),
        piece(2, &[22, 3, 3, 0, 4, 24, 0, 0, 1]),
    ];
    let mut seeds = Vec::new();
    for selector in 0..16 {
        for (at, other) in others.iter().enumerate() {
            let length = [5, 600, 16_000][at % 3];
            seeds.push([&[selector], &data(length)[..], other, &data(5), &others[(at + 3) % others.len()]].concat());
        }
    }
    seeds
}
