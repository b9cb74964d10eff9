//! Bytes of pages, as `docs/format.md` (index pages) lays them down. Little-endian.
//!
//! ```text
//!  0  u32  magic "FBIX"
//!  4  u16  version, 1
//!  6  u8   kind: 1 leaf, 2 inner, 3 root
//!  7  u8   prefix bytes
//!  8  u32  page bytes, all of it
//! 12  u32  rows
//! 16  u64  page id
//! 24       prefix, then the rows in key order
//! row:     u8 suffix bytes, varint value bytes, suffix, value
//! ```
//! A row of an inner page or root is a child: the suffix completes the separator (none in the first row), the value is
//! `u64 page id, u64 slab epoch, u64 sum, u32 slab, u32 offset, u32 bytes`.

use bytes::Bytes;

use super::branch::Branch;
use super::frames::Frames;
use super::limits::{KEY_BYTES_MAX, PAGES_MAX, VALUE_BYTES_MAX};
use super::page::{CorruptPage, PageId, PageLocation};
use super::row::{Slot, Span, push_lengths, row_bytes};
use super::rows::Rows;

const MAGIC: &[u8; 4] = b"FBIX";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const CHILD_BYTES: usize = 36;

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Leaf = 1,
    Inner = 2,
    Root = 3,
}

/// A child as an inner page or the root lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) page: PageId,
    pub(super) location: PageLocation,
}

/// Bytes of these rows as a leaf page.
pub(super) fn page_bytes(rows: &Rows) -> usize {
    HEADER_BYTES + rows.body_bytes()
}

pub(super) fn encode_leaf(id: PageId, rows: &Rows) -> Bytes {
    let mut out = start(PageKind::Leaf, id, rows.prefix(), rows.len(), page_bytes(rows));
    (0..rows.len()).for_each(|index| out.extend_from_slice(rows.row(index)));
    finish(out)
}

/// Encodes an inner page or the root; its children all have locations.
pub(super) fn encode_branch(kind: PageKind, id: PageId, branch: &Branch, frames: &Frames) -> Bytes {
    let separators = branch.separators();
    let bytes = (1..branch.len()).map(|position| row_bytes(separators.suffix(position - 1).len(), CHILD_BYTES));
    let bytes = HEADER_BYTES + separators.prefix().len() + row_bytes(0, CHILD_BYTES) + bytes.sum::<usize>();
    let mut out = start(kind, id, separators.prefix(), branch.len(), bytes);
    for position in 0..branch.len() {
        let suffix = if position == 0 { &[] } else { separators.suffix(position - 1) };
        let child = branch.child(position);
        let location = frames.frame(child).location.expect("children are written before the page that lists them");
        push_lengths(&mut out, suffix.len(), CHILD_BYTES);
        out.extend_from_slice(suffix);
        push_child(&mut out, Child { page: child, location });
    }
    finish(out)
}

fn start(kind: PageKind, id: PageId, prefix: &[u8], rows: usize, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[kind as u8, prefix.len() as u8]);
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&(rows as u32).to_le_bytes());
    out.extend_from_slice(&(id.0 as u64).to_le_bytes());
    out.extend_from_slice(prefix);
    out
}

fn finish(out: Vec<u8>) -> Bytes {
    let announced = u32::from_le_bytes(out[8..12].try_into().expect("four bytes"));
    assert_eq!(out.len(), announced as usize, "a page is as long as its header says");
    out.into()
}

fn push_child(out: &mut Vec<u8>, Child { page, location }: Child) {
    for word in [page.0 as u64, location.epoch, location.sum] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for word in [location.slab, location.offset, location.bytes] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// The rows of a leaf page.
pub(super) fn decode_leaf(id: PageId, bytes: &[u8]) -> Result<Rows, CorruptPage> {
    decode(PageKind::Leaf, id, bytes)
}

/// The children of an inner page or the root, and where they lie.
pub(super) fn decode_branch(kind: PageKind, id: PageId, bytes: &[u8]) -> Result<(Branch, Vec<Child>), CorruptPage> {
    let corrupt = |reason| CorruptPage { page: id, reason };
    let rows = decode(kind, id, bytes)?;
    let children = (0..rows.len()).map(|index| decode_child(rows.value(index)));
    let children: Vec<Child> = children.collect::<Result<_, _>>().map_err(corrupt)?;
    let Some(first) = children.first() else {
        return Err(corrupt("it lists no pages"));
    };
    if !rows.suffix(0).is_empty() {
        return Err(corrupt("its first child has a separator"));
    }
    let mut branch = Branch::new(first.page);
    for (index, child) in children.iter().enumerate().skip(1) {
        branch.insert_after(index - 1, &rows.key(index), child.page);
    }
    Ok((branch, children))
}

fn decode_child(value: &[u8]) -> Result<Child, &'static str> {
    let value: &[u8; CHILD_BYTES] = value.try_into().map_err(|_| "a child has a wrong length")?;
    let [page, epoch, sum] = [0, 8, 16].map(|at| word64(value, at));
    let [slab, offset, bytes] = [24, 28, 32].map(|at| word32(value, at));
    if page == 0 || page >= PAGES_MAX as u64 {
        return Err("a child's page number is out of range");
    }
    if (bytes as usize) < HEADER_BYTES {
        return Err("a child is too short");
    }
    Ok(Child { page: PageId(page as u32), location: PageLocation { slab, epoch, offset, bytes, sum } })
}

fn decode(kind: PageKind, id: PageId, bytes: &[u8]) -> Result<Rows, CorruptPage> {
    let corrupt = |reason| CorruptPage { page: id, reason };
    let (header, body) = bytes.split_at_checked(HEADER_BYTES).ok_or(corrupt("it is shorter than its header"))?;
    if header[..4] != *MAGIC {
        return Err(corrupt("it has no magic"));
    }
    if u16::from_le_bytes([header[4], header[5]]) != VERSION {
        return Err(corrupt("its version is unknown"));
    }
    if header[6] != kind as u8 {
        return Err(corrupt("it is of another kind"));
    }
    if word32(header, 8) as usize != bytes.len() {
        return Err(corrupt("its length is wrong"));
    }
    if word64(header, 16) != id.0 as u64 {
        return Err(corrupt("it is another page"));
    }
    decode_rows(kind, header[7], word32(header, 12) as usize, body).map_err(corrupt)
}

fn decode_rows(kind: PageKind, prefix_bytes: u8, count: usize, body: &[u8]) -> Result<Rows, &'static str> {
    if prefix_bytes as usize > body.len() {
        return Err("its prefix passes its end");
    }
    if count > body.len() / 2 {
        return Err("it counts more rows than it can hold");
    }
    let mut slots = Vec::with_capacity(count);
    let mut at = prefix_bytes as usize;
    let mut last: Option<&[u8]> = None;
    for index in 0..count {
        let span = Span::parse(body, at).ok_or("a row passes its end")?;
        let suffix = &body[span.suffix..span.value];
        if prefix_bytes as usize + suffix.len() > KEY_BYTES_MAX || span.end - span.value > VALUE_BYTES_MAX {
            return Err("a row is too long");
        }
        if last.is_some_and(|last| last >= suffix) {
            return Err("its keys do not ascend");
        }
        slots.push(Slot::new(suffix, at));
        at = span.end;
        // The first child has no separator: whatever stands there takes no part in the order.
        last = (kind == PageKind::Leaf || index > 0).then_some(suffix);
    }
    if at != body.len() {
        return Err("bytes follow its last row");
    }
    Ok(Rows::from_page(prefix_bytes, body.to_vec(), slots))
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
