//! Bytes to write, in parts, never copied: slices of them go to the socket and stay pinned for replay.

use bytes::Bytes;
use forebay_proto::{Fid, WriteId, crc, limits::BLOCK_BYTES};

use crate::io::plan::FileRange;

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

    /// All but the first `bytes`.
    pub(crate) fn skip(&self, bytes: usize) -> Self {
        let mut rest = Vec::with_capacity(self.0.len());
        self.slice_into(bytes, self.len() - bytes, &mut rest);
        Self(rest)
    }

    /// `length` bytes from `start`, as slices of the parts.
    fn slice_into(&self, mut start: usize, mut length: usize, out: &mut Vec<Bytes>) {
        for part in &self.0 {
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
        assert!(length == 0, "the plan asks for no more than there is");
    }

    /// The parts, in order.
    pub(crate) fn parts(&self) -> &[Bytes] {
        &self.0
    }

    /// The bytes of `ranges` of the file, if the payload begins at file offset `origin`.
    pub(crate) fn gather(&self, origin: u64, ranges: &[FileRange]) -> Vec<Bytes> {
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            self.slice_into((range.offset - origin) as usize, range.length as usize, &mut parts);
        }
        parts
    }
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

/// Block sums of `parts`, which lie one after another from `offset` of the object on.
///
/// Shape: blocks are cut at multiples of 64 KiB of the object's offset; the first and the last may be short.
pub(crate) fn block_sums(fid: Fid, offset: u64, write_id: WriteId, parts: &[Bytes]) -> Vec<u64> {
    let length = parts.iter().map(|part| part.len() as u64).sum();
    let mut rest = parts.iter().filter(|part| !part.is_empty()).map(|part| &part[..]);
    let mut part: &[u8] = &[];
    crc::blocks(offset, length, BLOCK_BYTES)
        .map(|(block, block_bytes)| {
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
        })
        .collect()
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
