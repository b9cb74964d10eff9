//! Frames to bytes of a stream, and back.
//!
//! Invariant: payload is never copied on the way out, and comes in once, into memory a device takes as it is.
//! Invariant: nothing is allocated for a length that the header's checksum does not vouch for, nor beyond the protocol's
//! limits; after a bad frame nothing more is read from the stream.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
};

use bytes::Bytes;
use forebay_env::{EnvError, ReadHalf, WriteHalf, sync::Notify};
use forebay_proto::{
    crc, limits as proto_limits,
    message::{FRAME_HEADER_BYTES, FrameHeader, PROTOCOL_VERSION},
};

use crate::{latch::Latch, limits};

/// A frame on its way out.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Lengths and sum fit body and bulk.
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

/// A frame that came in, checked.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its header.
    pub header: FrameHeader,
    /// The message; its sum matched.
    pub body: Bytes,
    /// The payload, in memory a device takes without a copy. Covered by the block sums in the body.
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
    /// The first bytes are none of ours: another program.
    Foreign,
    /// Not a frame, or damaged.
    Bad(String),
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
            Self::Bad(why) => write!(f, "bad frame, connection closed: {why}"),
        }
    }
}

impl From<EnvError> for FrameError {
    fn from(error: EnvError) -> Self {
        Self::Disconnected(error.message)
    }
}

/// What frames of every version begin with.
const MAGIC: &[u8] = b"FBF1";

/// Reads frames: first the header, so that the caller can find room, then the rest.
pub struct FrameReader {
    half: ReadHalf,
}

impl FrameReader {
    /// Reads frames from `half`.
    pub fn new(half: ReadHalf) -> Self {
        Self { half }
    }

    /// The next frame's header. Not cancel-safe, as all of this type.
    pub async fn header(&mut self) -> Result<FrameHeader, FrameError> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.half.read_exact(&mut bytes).await?;
        parse_header(&bytes)
    }

    /// The header that a stranger answers with: another program is told by its first bytes, as it may not send as many.
    pub async fn first_header(&mut self) -> Result<FrameHeader, FrameError> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        let (magic, rest) = bytes.split_at_mut(MAGIC.len());
        self.half.read_exact(magic).await?;
        if magic != MAGIC {
            return Err(FrameError::Foreign);
        }
        self.half.read_exact(rest).await?;
        parse_header(&bytes)
    }

    /// What follows `header`.
    pub async fn content(&mut self, header: FrameHeader) -> Result<Received, FrameError> {
        let mut body = vec![0; header.body_bytes as usize];
        if !body.is_empty() {
            self.half.read_exact(&mut body).await?;
        }
        header.check_body(&body).map_err(|e| FrameError::Bad(e.message))?;
        let bulk = match header.bulk_bytes {
            0 => Bytes::new(),
            length => self.half.read_aligned(length as usize).await?.freeze(),
        };
        Ok(Received { header, body: body.into(), bulk })
    }
}

/// Magic and version lie where they lie in every version, so that a stranger can be told from an old friend.
fn parse_header(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
    let theirs = u16::from_le_bytes([bytes[4], bytes[5]]);
    if &bytes[..4] == MAGIC && theirs != PROTOCOL_VERSION {
        return Err(FrameError::Version { theirs });
    }
    FrameHeader::from_bytes(bytes).map_err(|e| FrameError::Bad(e.to_string()))
}

/// Frames waiting to be written to one connection. Bounded by whoever sends: requests by slots, replies by requests.
#[derive(Default)]
pub struct Outbox {
    queue: RefCell<VecDeque<Frame>>,
    /// Somebody will call [`Outbox::send_waiting`].
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
        self.queue.borrow_mut().push_back(frame);
        self.ready.notify_one();
    }

    /// Queues a frame that goes with the next one. True: the caller is to see to it that [`Outbox::send_waiting`] is called.
    pub fn send_with_next(&self, frame: Frame) -> bool {
        if self.finish.is_raised() || self.closed.is_raised() {
            return false;
        }
        self.queue.borrow_mut().push_back(frame);
        !self.called_for.replace(true)
    }

    /// Sends what waits for another frame.
    pub fn send_waiting(&self) {
        self.called_for.set(false);
        self.ready.notify_one();
    }

    /// Closes the connection now.
    pub fn close(&self) {
        self.closed.raise();
        self.queue.borrow_mut().clear();
        self.ready.notify_one();
    }

    /// Closes the connection when what is queued has been written.
    pub fn finish(&self) {
        self.finish.raise();
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

    /// Frames waiting.
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// True if no frame waits.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Writes what is queued, as much as is ready in one call, until the connection is closed.
    pub async fn write_to(&self, mut half: WriteHalf) {
        while !self.closed.is_raised() {
            let batch = self.take_batch();
            if batch.is_empty() {
                if self.finish.is_raised() {
                    break;
                }
                self.ready.notified().await;
                continue;
            }
            let parts = gather(batch);
            forebay_env::sync::select! {
                biased;
                written = half.write_all(&parts) => if written.is_err() { break },
                () = self.closed.wait() => break,
            }
        }
        self.close();
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

/// The parts of a vectored write: headers and bodies copied together between the bulks, bulks as they are.
fn gather(frames: Vec<Frame>) -> Vec<Bytes> {
    let small: usize = frames.iter().map(|f| FRAME_HEADER_BYTES + f.body.len()).sum();
    let mut parts = Vec::with_capacity(frames.iter().map(|f| f.bulk.len() + 1).sum::<usize>() + 1);
    let mut text = Vec::with_capacity(small);
    for frame in frames {
        text.extend_from_slice(&frame.header.to_bytes());
        text.extend_from_slice(&frame.body);
        if frame.header.bulk_bytes > 0 {
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
        let parts = gather(vec![frame(b"a", &[]), frame(b"bc", &[BULK]), frame(b"d", &[]), frame(b"", &[])]);
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
