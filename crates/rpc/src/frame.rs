//! Encodes frames to a byte stream, and decodes them.
//!
//! Invariant: payload is never copied on the way out, and is read once, into memory that a device can write from
//! directly.
//! Invariant: nothing is allocated for a length that the header's checksum does not cover, nor beyond the protocol's
//! limits. After a bad frame nothing more is read from the stream.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{EnvError, EnvErrorKind, ReadHalf, WriteHalf, sync::Notify};
use forebay_proto::{
    crc, limits as proto_limits,
    message::{FRAME_HEADER_BYTES, FrameHeader, PROTOCOL_VERSION},
};

use crate::{latch::Latch, limits};

/// An outgoing frame.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Its lengths and sum match body and bulk.
    pub header: FrameHeader,
    /// The message.
    pub body: Bytes,
    /// The payload, in pieces.
    pub bulk: Vec<Bytes>,
}

impl Frame {
    /// Frames a message; fills in the header's lengths and sum.
    pub fn new(mut header: FrameHeader, body: Bytes, bulk: Vec<Bytes>) -> Self {
        let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
        assert!(body.len() <= proto_limits::BODY_BYTES && bulk_bytes <= proto_limits::BULK_BYTES, "frame too long");
        header.body_bytes = body.len() as u32;
        header.body_sum = crc::crc64(&body);
        header.bulk_bytes = bulk_bytes as u32;
        Self { header, body, bulk }
    }

    fn wire_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.body.len() + self.header.bulk_bytes as usize
    }
}

/// A received frame, checked.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its header.
    pub header: FrameHeader,
    /// The message; its sum was verified.
    pub body: Bytes,
    /// The payload, in memory that a device can write from without a copy. Covered by the block sums in the body.
    pub bulk: Bytes,
}

/// Why no more frames come from a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The stream ended or broke.
    Disconnected(String),
    /// The other side speaks another version of the protocol.
    Version {
        /// The version in its frame.
        theirs: u16,
    },
    /// The first bytes are not Forebay's magic: another program.
    Foreign,
    /// The first bytes are TLS, and this side talks without it.
    Tls,
    /// A frame has not come by the stream that has it.
    Stalled(String),
    /// Not a frame, or damaged.
    Bad(String),
    /// The other side does not believe this side's certificate, or the bytes are not those that it sent.
    Untrusted(String),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(why) => write!(f, "connection lost: {why}"),
            Self::Version { theirs } => write!(
                f,
                "the other side speaks version {theirs} of the protocol, this side version {PROTOCOL_VERSION}; \
                 install the same release on both"
            ),
            Self::Foreign => f.write_str("what answers there does not speak Forebay's protocol"),
            Self::Tls => f.write_str("what answers there wants TLS: give the cluster's keys with --keys DIR"),
            Self::Untrusted(why) | Self::Stalled(why) => f.write_str(why),
            Self::Bad(why) => write!(f, "bad frame, connection closed: {why}"),
        }
    }
}

impl From<EnvError> for FrameError {
    fn from(error: EnvError) -> Self {
        match error.kind {
            EnvErrorKind::Permission => Self::Untrusted(error.message),
            _ => Self::Disconnected(error.message),
        }
    }
}

/// The first bytes of a frame, in every version.
const MAGIC: &[u8] = b"FBF1";

/// Bytes of the frames that went over the streams of one address.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Written by this side.
    pub sent_bytes: Cell<u64>,
    /// Read by this side.
    pub received_bytes: Cell<u64>,
}

/// Reads frames: first the header, so that the caller can wait for memory, then the rest.
pub struct FrameReader {
    half: ReadHalf,
    traffic: Rc<Traffic>,
}

impl FrameReader {
    /// Reads frames from `half`.
    pub fn new(half: ReadHalf) -> Self {
        Self::counting(half, Rc::default())
    }

    /// The same, and counts their bytes.
    pub fn counting(half: ReadHalf, traffic: Rc<Traffic>) -> Self {
        Self { half, traffic }
    }

    /// How long a byte takes to the other side and back; `None` within the machine.
    pub fn round_trip(&self) -> Option<Duration> {
        self.half.round_trip()
    }

    /// Reads the next frame's header. Not cancel-safe, like all methods of this type.
    pub async fn header(&mut self) -> Result<FrameHeader, FrameError> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.half.read_exact(&mut bytes).await?;
        self.checked_header(&bytes)
    }

    fn checked_header(&self, bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let header = parse_header(bytes)?;
        self.half.hear_epoch(header.map_epoch)?;
        Ok(header)
    }

    /// Reads the first header from an unknown peer. Checks the magic first, as another program may send fewer bytes
    /// than a header.
    pub async fn first_header(&mut self) -> Result<FrameHeader, FrameError> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        self.half.read_exact(magic).await?;
        if magic != MAGIC {
            return Err(if is_tls(magic) { FrameError::Tls } else { FrameError::Foreign });
        }
        self.half.read_exact(rest).await?;
        self.checked_header(&bytes)
    }

    /// Reads what follows `header`.
    pub async fn content(&mut self, header: FrameHeader) -> Result<Received, FrameError> {
        let mut body = vec![0; header.body_bytes as usize];
        if !body.is_empty() {
            self.half.read_exact(&mut body).await?;
        }
        header.check_body(&body).map_err(|e| FrameError::Bad(e.message))?;
        let wire_bytes = FRAME_HEADER_BYTES as u64 + u64::from(header.body_bytes) + u64::from(header.bulk_bytes);
        let bulk = match header.bulk_bytes {
            0 => Bytes::new(),
            length => self.half.read_aligned(length as usize).await?.freeze(),
        };
        self.traffic.received_bytes.set(self.traffic.received_bytes.get() + wire_bytes);
        Ok(Received { header, body: body.into(), bulk })
    }
}

/// Whether a record of TLS begins with these bytes: an alert, or a message of the handshake.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, 0..=4, ..])
}

/// Magic and version have the same position in every version, so another version is distinguished from another program.
fn parse_header(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
    let theirs = u16::from_le_bytes([bytes[4], bytes[5]]);
    if &bytes[..4] == MAGIC && theirs != PROTOCOL_VERSION {
        return Err(FrameError::Version { theirs });
    }
    FrameHeader::from_bytes(bytes).map_err(|e| FrameError::Bad(e.to_string()))
}

/// Frames waiting to be written to one connection, which may have several streams. The sender bounds them: requests by
/// slots, replies by requests.
#[derive(Default)]
pub struct Outbox {
    queue: RefCell<VecDeque<Frame>>,
    /// The last number that a frame was given; `None`: they have none.
    order: Cell<Option<u64>>,
    /// Streams that frames are written to.
    streams: Cell<usize>,
    /// Some task will call [`Outbox::send_waiting`].
    called_for: Cell<bool>,
    ready: Notify,
    finish: Latch,
    closed: Latch,
}

impl Outbox {
    /// Queues a frame; dropped if the connection is closed.
    pub fn send(&self, frame: Frame) {
        if self.finish.is_raised() || self.closed.is_raised() {
            return;
        }
        self.push(frame);
        self.ready.notify_one();
    }

    /// From now on frames have numbers ([`FrameHeader::order`]), so that they may go over several streams.
    pub fn count_frames(&self) {
        self.order.set(Some(0));
    }

    fn push(&self, mut frame: Frame) {
        if let Some(last) = self.order.get() {
            frame.header.order = last + 1;
            self.order.set(Some(last + 1));
        }
        self.queue.borrow_mut().push_back(frame);
    }

    /// Queues a frame that goes with the next one. True: the caller must arrange for a call of
    /// [`Outbox::send_waiting`].
    pub fn send_with_next(&self, frame: Frame) -> bool {
        if self.finish.is_raised() || self.closed.is_raised() {
            return false;
        }
        self.push(frame);
        !self.called_for.replace(true)
    }

    /// Writes the frames that wait for another one.
    pub fn send_waiting(&self) {
        self.called_for.set(false);
        self.ready.notify_one();
    }

    /// Closes the connection now.
    pub fn close(&self) {
        self.closed.raise();
        self.queue.borrow_mut().clear();
        self.wake_all();
    }

    /// Closes the connection once all queued frames are written.
    pub fn finish(&self) {
        self.finish.raise();
        self.wake_all();
    }

    fn wake_all(&self) {
        self.ready.notify_waiters();
        self.ready.notify_one();
    }

    /// True once the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.is_raised()
    }

    /// Waits until the connection is closed.
    pub async fn closed(&self) {
        self.closed.wait().await;
    }

    /// Streams that frames are written to now.
    pub fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Number of waiting frames.
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Writes queued frames to one stream, as many as are ready in one call, until the connection is closed. Another call may
    /// write to another stream meanwhile: each takes the next frames when it has written the last ones.
    pub async fn write_to(&self, half: &mut WriteHalf, traffic: &Traffic) {
        let stream = OpenStream::begin(self);
        while !self.closed.is_raised() {
            let batch = self.take_batch();
            if batch.is_empty() {
                if self.finish.is_raised() {
                    return;
                }
                self.ready.notified().await;
                continue;
            }
            if self.streams.get() > 1 && !self.is_empty() {
                self.ready.notify_one();
            }
            let bytes: usize = batch.iter().map(Frame::wire_bytes).sum();
            let parts = gather(batch, half.known_epoch());
            forebay_env::sync::select! {
                biased;
                written = half.write_all(&parts) => if written.is_err() { break },
                () = self.closed.wait() => break,
            }
            traffic.sent_bytes.set(traffic.sent_bytes.get() + bytes as u64);
        }
        self.close();
        drop(stream);
    }

    fn take_batch(&self) -> Vec<Frame> {
        let mut queue = self.queue.borrow_mut();
        let mut bytes = 0;
        let count = queue
            .iter()
            .take(limits::WRITE_FRAMES)
            .take_while(|frame| {
                let fits = bytes < limits::WRITE_BYTES;
                bytes += frame.wire_bytes();
                fits
            })
            .count();
        queue.drain(..count).collect()
    }
}

/// Writes one frame.
pub(crate) async fn write_one(half: &mut WriteHalf, frame: Frame) -> Result<(), FrameError> {
    let parts = gather(vec![frame], half.known_epoch());
    Ok(half.write_all(&parts).await?)
}

/// A stream that frames are written to. Once all frames of a connection that finishes are written to all of its streams, it
/// is closed.
struct OpenStream<'a>(&'a Outbox);

impl<'a> OpenStream<'a> {
    fn begin(outbox: &'a Outbox) -> Self {
        outbox.streams.set(outbox.streams.get() + 1);
        Self(outbox)
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        let left = self.0.streams.get() - 1;
        self.0.streams.set(left);
        if left == 0 {
            self.0.close();
        }
    }
}

/// The parts of a vectored write: headers and bodies are copied together, bulks go as they are.
fn gather(frames: Vec<Frame>, map_epoch: u32) -> Vec<Bytes> {
    let small: usize = frames.iter().map(|f| FRAME_HEADER_BYTES + f.body.len()).sum();
    let mut parts = Vec::with_capacity(frames.iter().map(|f| f.bulk.len() + 1).sum::<usize>() + 1);
    let mut text = Vec::with_capacity(small);
    for frame in frames {
        let header = FrameHeader { map_epoch, ..frame.header };
        text.extend_from_slice(&header.to_bytes());
        text.extend_from_slice(&frame.body);
        if header.bulk_bytes > 0 {
            parts.push(std::mem::take(&mut text).into());
            parts.extend(frame.bulk.into_iter().filter(|b| !b.is_empty()));
        }
    }
    if !text.is_empty() {
        parts.push(text.into());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::message::FrameKind;

    fn frame(body: &'static [u8], bulk: &[&'static [u8]]) -> Frame {
        let bulk = bulk.iter().map(|b| Bytes::from_static(b)).collect();
        Frame::new(FrameHeader::new(FrameKind::Request, 3), Bytes::from_static(body), bulk)
    }

    #[test]
    fn small_frames_share_one_part_and_bulk_is_not_copied() {
        static BULK: &[u8] = &[7; 4096];
        let parts = gather(vec![frame(b"a", &[]), frame(b"bc", &[BULK]), frame(b"d", &[]), frame(b"", &[])], 0);
        let lengths: Vec<usize> = parts.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2 * 128 + 3, 4096, 2 * 128 + 1]);
        assert_eq!(parts[1].as_ptr(), BULK.as_ptr());
    }

    #[test]
    fn a_frame_of_another_version_is_told_from_garbage() {
        let mut bytes = frame(b"", &[]).header.to_bytes();
        bytes[4] = 9;
        assert_eq!(parse_header(&bytes), Err(FrameError::Version { theirs: 9 }));
        bytes[0] = 0;
        assert!(matches!(parse_header(&bytes), Err(FrameError::Bad(_))));
    }

    #[test]
    fn an_alert_of_tls_is_told_from_another_program() {
        for tls in [[0x15, 3, 3, 0], [0x15, 3, 1, 0], [0x16, 3, 3, 2]] {
            assert!(is_tls(&tls), "{tls:?}");
        }
        for other in [*b"FBF1", *b"SSH-", *b"HTTP", [0; 4], [0x15, 2, 3, 0], [0x17, 3, 3, 0]] {
            assert!(!is_tls(&other), "{other:?}");
        }
    }

    #[test]
    fn a_batch_ends_at_its_bytes_but_holds_one_frame_at_least() {
        static BULK: &[u8] = &[0; 4 << 20];
        let outbox = Outbox::default();
        for _ in 0..3 {
            outbox.send(frame(b"x", &[BULK]));
        }
        assert_eq!(outbox.take_batch().len(), 1);
        assert_eq!(outbox.len(), 2);
        outbox.close();
        assert!(outbox.is_empty() && outbox.is_closed());
    }
}
