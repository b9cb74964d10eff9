//! Bytes to write, in parts, never copied: slices of them go to the socket and stay pinned for replay.

use bytes::Bytes;
use forebay_proto::{Fid, WriteId, crc, limits::BLOCK_BYTES, message::Piece};

/// Bytes to write: one buffer, or several one after another.
#[derive(Clone, Debug, Default)]
pub struct Payload(Vec<Bytes>);

impl Payload {
    /// All bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts, in order.
    pub(crate) fn parts(&self) -> &[Bytes] {
        &self.0
    }

    /// The first `length` bytes, to be written at `offset`.
    pub(crate) fn into_run(self, offset: u64, length: usize) -> Run {
        let run = Run { offset, parts: self.0 };
        if run.len() == length { run } else { run.part(0, length) }
    }
}

/// Bytes of one range of the file, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub offset: u64,
    pub parts: Vec<Bytes>,
}

impl Run {
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    pub fn end(&self) -> u64 {
        self.offset + self.len() as u64
    }

    /// All but the first `bytes`.
    pub fn skip(&self, bytes: usize) -> Self {
        self.part(bytes, self.len() - bytes)
    }

    fn part(&self, start: usize, length: usize) -> Self {
        let mut parts = Vec::with_capacity(self.parts.len());
        slice_into(&self.parts, start, length, &mut parts);
        Self { offset: self.offset + start as u64, parts }
    }
}

/// `length` bytes from the `start`th of `parts` on, as slices of them.
pub(crate) fn slice_into(parts: &[Bytes], mut start: usize, mut length: usize, out: &mut Vec<Bytes>) {
    for part in parts {
        if length == 0 {
            return;
        }
        if start >= part.len() {
            start -= part.len();
            continue;
        }
        let end = part.len().min(start + length);
        length -= end - start;
        out.push(part.slice(start..end));
        start = 0;
    }
    assert!(length == 0, "one asks for no more than there is");
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![bytes.into()])
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(parts: Vec<Bytes>) -> Self {
        Self(parts)
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Self(vec![Bytes::from_static(bytes)])
    }
}

/// Block sums of `pieces` of an object, whose bytes `parts` are, one after another.
///
/// Shape: blocks are cut at multiples of 64 KiB of the object's offset; the first and the last of a piece may be short.
pub(crate) fn block_sums(
    fid: Fid,
    write_id: WriteId,
    pieces: impl IntoIterator<Item = Piece>,
    parts: &[Bytes],
) -> Vec<u64> {
    let mut rest = parts.iter().filter(|part| !part.is_empty()).map(|part| &part[..]);
    let mut part: &[u8] = &[];
    let of_piece = |piece: Piece| crc::blocks(piece.offset, piece.length.into(), BLOCK_BYTES);
    let sum = |(block, block_bytes): (u64, u64)| {
        let mut plain = None;
        let mut left = block_bytes as usize;
        while left > 0 {
            if part.is_empty() {
                part = rest.next().expect("the blocks are as long as the parts");
            }
            let (head, tail) = part.split_at(left.min(part.len()));
            let sum = crc::crc64(head);
            plain = Some(plain.map_or(sum, |before| crc::combine(before, sum, head.len() as u64)));
            left -= head.len();
            part = tail;
        }
        crc::seal(fid, block, write_id, plain.expect("a block is not empty"), block_bytes)
    };
    pieces.into_iter().flat_map(of_piece).map(sum).collect()
}

/// The sum of all of `parts`, as of one block at offset 0: of who does not know yet where they will lie.
pub(crate) fn whole_sum(fid: Fid, write_id: WriteId, parts: &[Bytes]) -> u64 {
    let sum = |(whole, length): (Option<u64>, u64), part: &Bytes| {
        let (plain, bytes) = (crc::crc64(part), part.len() as u64);
        (Some(whole.map_or(plain, |before| crc::combine(before, plain, bytes))), length + bytes)
    };
    let (plain, length) = parts.iter().filter(|part| !part.is_empty()).fold((None, 0), sum);
    crc::seal(fid, 0, write_id, plain.unwrap_or(0), length)
}

#[cfg(test)]
mod tests;
