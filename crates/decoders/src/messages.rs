//! Frames and bodies of messages.

use std::{any::type_name, fmt::Debug};

use forebay_env::{Address, Env, sim::Sim};
use forebay_proto::{
    Decode, Encode, ErrorReply, crc,
    message::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Op, Operation, OperationVisitor},
};
use forebay_rpc::FrameReader;

use crate::{corpus::golden_bodies, tls::play};

/// A frame's header: as it is, and with a checksum that is right.
pub fn frame_header(data: &[u8]) -> bool {
    let mut bytes = [0; FRAME_HEADER_BYTES];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    let as_it_is = is_header(&bytes);
    repair(&mut bytes);
    is_header(&bytes) || as_it_is
}

fn is_header(bytes: &[u8; FRAME_HEADER_BYTES]) -> bool {
    let Ok(header) = FrameHeader::from_bytes(bytes) else { return false };
    assert_eq!(FrameHeader::from_bytes(&header.to_bytes()).as_ref(), Ok(&header));
    true
}

/// Gives the frames in `stream` the checksums of what they hold.
fn repair(mut stream: &mut [u8]) {
    while let Some((header, rest)) = stream.split_first_chunk_mut::<FRAME_HEADER_BYTES>() {
        let length = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
        let (body, bulk) = (length(92), length(104));
        if let Some(body) = rest.get(..body) {
            header[96..104].copy_from_slice(&crc::crc64(body).to_le_bytes());
        }
        let (content, sum) = header.split_at_mut(FRAME_HEADER_BYTES - 8);
        sum.copy_from_slice(&crc::crc64(content).to_le_bytes());
        stream = rest.get_mut(body.saturating_add(bulk)..).unwrap_or_default();
    }
}

/// A stream of frames, in pieces, with their checksums as they are or repaired. What is read is what was sent.
///
/// Input: whether they are repaired and the first one is read with care; bytes of a piece; the stream.
pub fn frames(data: &[u8]) -> bool {
    let Some(([selector, piece], stream)) = data.split_first_chunk::<2>() else { return false };
    let (mut stream, piece) = (stream.to_vec(), *piece);
    if selector & 1 == 1 {
        repair(&mut stream);
    }
    let sim = Sim::new(1);
    let (server, client) = (sim.env(sim.add_node("server")), sim.env(sim.add_node("client")));
    sim.block_on(read_frames(&server, &client, stream, piece, selector & 2 == 2))
}

async fn read_frames(server: &Env, client: &Env, stream: Vec<u8>, piece: u8, with_care: bool) -> bool {
    let address = Address::Mem("server".into());
    let mut listener = server.listen(&address).await.expect("the address is free");
    let (env, bytes) = (client.clone(), stream.clone());
    client.begin(async move { play(&env, env.connect(&address).await.expect("it listens"), &bytes, piece).await });
    let (stream_in, _) = listener.accept().await.expect("it connects").handshake(server).await.expect("it has none");
    let (read, _write) = stream_in.split();
    let (mut reader, mut rest, mut frames) = (FrameReader::new(read), &stream[..], 0);
    loop {
        let header = if with_care && frames == 0 { reader.first_header().await } else { reader.header().await };
        let Ok(header) = header else { break };
        let (sent, after) = rest.split_first_chunk().expect("it was read, so it was sent");
        assert_eq!(FrameHeader::from_bytes(sent).as_ref(), Ok(&header));
        let Ok(received) = reader.content(header).await else { break };
        let (body, after) = after.split_at(received.body.len());
        let (bulk, after) = after.split_at(received.bulk.len());
        assert!(received.body[..] == *body && received.bulk[..] == *bulk, "a frame of which other bytes were sent");
        body_of(received.header.op, received.header.kind, body);
        (rest, frames) = (after, frames + 1);
    }
    frames > 0
}

/// The body of a request, a reply or an error.
///
/// Input: number of the operation; kind of the frame; the body.
pub fn bodies(data: &[u8]) -> bool {
    let Some(([low, high, kind], body)) = data.split_first_chunk::<3>() else { return false };
    body_of(u16::from_le_bytes([*low, *high]), KINDS[usize::from(*kind) % KINDS.len()], body)
}

const KINDS: [FrameKind; 3] = [FrameKind::Request, FrameKind::Reply, FrameKind::Error];

fn body_of(op: u16, kind: FrameKind, body: &[u8]) -> bool {
    Op::from_number(op).is_some_and(|op| op.visit(Body { kind, body }))
}

struct Body<'a> {
    kind: FrameKind,
    body: &'a [u8],
}

impl OperationVisitor for Body<'_> {
    type Output = bool;

    fn visit<O: Operation>(self) -> bool {
        match self.kind {
            FrameKind::Request => is_again::<O>(self.body),
            FrameKind::Reply => is_again::<O::Reply>(self.body),
            FrameKind::Error => is_again::<ErrorReply>(self.body),
        }
    }
}

/// True if `bytes` are a value, which is then the same after it was encoded and decoded again.
pub fn is_again<T: Encode + Decode + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = T::from_bytes(bytes) else { return false };
    let again = value.to_bytes();
    assert_eq!(T::from_bytes(&again).as_ref(), Ok(&value));
    assert!(again.len() <= bytes.len(), "{} bytes became a value of {}: {value:?}", bytes.len(), again.len());
    true
}

/// The names of an operation's request and reply.
struct Names;

impl OperationVisitor for Names {
    type Output = [&'static str; 2];

    fn visit<O: Operation>(self) -> Self::Output {
        let short = |name: &'static str| name.rsplit("::").next().unwrap_or(name);
        [short(type_name::<O>()), short(type_name::<O::Reply>())]
    }
}

/// Operation, kind, and golden body.
fn messages() -> Vec<(u16, usize, Vec<u8>)> {
    let golden = golden_bodies();
    let mut messages = Vec::new();
    for op in (0..=u16::MAX).filter_map(Op::from_number) {
        let [request, reply] = op.visit(Names);
        for (kind, name) in [request, reply, "ErrorReply"].into_iter().enumerate() {
            let found = golden.iter().filter(|(known, _)| *known == name);
            let found: Vec<_> = found.map(|(_, body)| (op as u16, kind, body.clone())).collect();
            assert!(!found.is_empty(), "{name} has no golden body");
            messages.extend(found);
        }
    }
    messages
}

pub fn body_seeds() -> Vec<Vec<u8>> {
    let seed = |(op, kind, body): (u16, usize, Vec<u8>)| [&op.to_le_bytes()[..], &[kind as u8], &body].concat();
    messages().into_iter().map(seed).collect()
}

fn frame(op: u16, kind: usize, body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        body_bytes: body.len() as u32,
        body_sum: crc::crc64(body),
        bulk_bytes: bulk.len() as u32,
        ..FrameHeader::new(KINDS[kind], op)
    };
    [&header.to_bytes()[..], body, bulk].concat()
}

pub fn header_seeds() -> Vec<Vec<u8>> {
    messages()
        .into_iter()
        .map(|(op, kind, body)| frame(op, kind, &body, &[7; 9])[..FRAME_HEADER_BYTES].into())
        .collect()
}

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let frames: Vec<Vec<u8>> =
        messages().into_iter().map(|(op, kind, body)| frame(op, kind, &body, &[7; 9][..op as usize % 10])).collect();
    let streams = frames.chunks(3).enumerate();
    streams.map(|(at, frames)| [&[at as u8, [0, 1, 100, 200][at % 4]], &frames.concat()[..]].concat()).collect()
}
