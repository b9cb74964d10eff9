//! One row: its bytes in a page, and its slot in memory.
//!
//! A row is `suffix bytes u8, value bytes varint, suffix, value`, in a page and in memory alike.

/// A row's offset in the heap (low half) and the head of its suffix (high half), so that slots compare by head.
#[derive(Clone, Copy)]
pub(super) struct Slot(u64);

impl Slot {
    pub(super) fn new(suffix: &[u8], offset: usize) -> Self {
        Self((head(suffix) as u64) << 32 | offset as u64)
    }

    /// The slot of the same row at another offset.
    pub(super) fn moved_to(self, offset: usize) -> Self {
        Self((self.head() as u64) << 32 | offset as u64)
    }

    pub(super) fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn offset(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The first four bytes, zero-filled, as a number that sorts as they do.
pub(super) fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk() {
        Some(first) => u32::from_be_bytes(*first),
        None => {
            let mut bytes = [0; 4];
            bytes[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(bytes)
        }
    }
}

/// Heap positions of one row: `start`, then its suffix, then its value up to `end`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) suffix: usize,
    pub(super) value: usize,
    pub(super) end: usize,
}

impl Span {
    /// The row that starts at `start`; `None` if it does not lie within `bytes` or its length is not in shortest form.
    pub(super) fn parse(bytes: &[u8], start: usize) -> Option<Self> {
        let suffix_bytes = *bytes.get(start)? as usize;
        let first = *bytes.get(start + 1)? as usize;
        let (value_bytes, suffix) = if first < 0x80 {
            (first, start + 2)
        } else {
            let second = *bytes.get(start + 2)? as usize;
            if second < 0x80 {
                (first & 0x7f | second << 7, start + 3)
            } else {
                let third = *bytes.get(start + 3)? as usize;
                (first & 0x7f | (second & 0x7f) << 7 | third << 14, start + 4)
            }
        };
        let value = suffix + suffix_bytes;
        let end = value + value_bytes;
        let shortest = suffix - start == 1 + length_bytes(value_bytes);
        (shortest && end <= bytes.len()).then_some(Self { start, suffix, value, end })
    }

    pub(super) fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// Bytes of a value's length: seven bits each, low ones first, the top bit set on all but the last.
fn length_bytes(value_bytes: usize) -> usize {
    match value_bytes {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

/// Bytes of a row in a page.
pub(super) fn row_bytes(suffix_bytes: usize, value_bytes: usize) -> usize {
    1 + length_bytes(value_bytes) + suffix_bytes + value_bytes
}

/// Appends the row's lengths.
pub(super) fn push_lengths(out: &mut Vec<u8>, suffix_bytes: usize, value_bytes: usize) {
    out.push(suffix_bytes as u8);
    match length_bytes(value_bytes) {
        1 => out.push(value_bytes as u8),
        2 => out.extend([value_bytes as u8 | 0x80, (value_bytes >> 7) as u8]),
        _ => out.extend([value_bytes as u8 | 0x80, (value_bytes >> 7) as u8 | 0x80, (value_bytes >> 14) as u8]),
    }
}
