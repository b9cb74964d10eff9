//! Pages of the table (docs/format.md).

use bytes::Bytes;
use forebay_proto::crc::crc64;

use super::{Location, word32, word64};
use crate::limits;

const MAGIC: &[u8; 4] = b"FBIX";
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const CHILD_BYTES: usize = 36;

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Holds rows.
    Leaf = 1,
    /// Lists leaves.
    Inner = 2,
    /// Lists inner pages.
    Root = 3,
}

/// A page in the list of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// Lower bound of its keys; empty for the first child.
    pub separator: Vec<u8>,
    /// The page's number.
    pub page: u64,
    /// The page's location.
    pub location: Location,
}

/// A row: key and value.
pub type Row = (Vec<u8>, Bytes);

/// Decodes the rows of a leaf. `bytes` must be exactly the page, and `sum` the sum that its parent names.
pub fn decode_leaf(page: u64, sum: u64, bytes: &Bytes) -> Result<Vec<Row>, &'static str> {
    let rows = decode(PageKind::Leaf, page, sum, bytes)?;
    if rows.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err("its keys do not ascend");
    }
    Ok(rows)
}

/// Decodes the children of an inner page or of the root.
pub fn decode_branch(kind: PageKind, page: u64, sum: u64, bytes: &Bytes) -> Result<Vec<Child>, &'static str> {
    let rows = decode(kind, page, sum, bytes)?;
    if rows.is_empty() {
        return Err("it lists no pages");
    }
    if kind == PageKind::Inner && rows.len() > limits::INNER_CHILDREN {
        return Err("it lists more pages than it can");
    }
    let mut children: Vec<Child> = rows.into_iter().map(child).collect::<Result<_, _>>()?;
    if children[0].separator.len() != usize::from(bytes[7]) {
        return Err("its first child has a separator");
    }
    // The bytes before the first child's suffix are the page's prefix, not a separator.
    children[0].separator.clear();
    if children[1..].windows(2).any(|pair| pair[0].separator >= pair[1].separator) {
        return Err("its separators do not ascend");
    }
    Ok(children)
}

fn child((separator, value): Row) -> Result<Child, &'static str> {
    if value.len() != CHILD_BYTES {
        return Err("a child has a wrong length");
    }
    let location = Location {
        slab: word32(&value, 24),
        epoch: word64(&value, 8),
        at: u64::from(word32(&value, 28)),
        bytes: u64::from(word32(&value, 32)),
        sum: word64(&value, 16),
    };
    let page = word64(&value, 0);
    if page == 0 || page >= limits::PAGES {
        return Err("a child's number is impossible");
    }
    if location.bytes < HEADER_BYTES as u64 || location.bytes > u64::from(limits::PAGE_BYTES) {
        return Err("a child's length is impossible");
    }
    Ok(Child { separator, page, location })
}

fn decode(kind: PageKind, page: u64, sum: u64, bytes: &Bytes) -> Result<Vec<Row>, &'static str> {
    if bytes.len() < HEADER_BYTES || bytes[..4] != *MAGIC {
        return Err("it is no page");
    }
    if crc64(bytes) != sum {
        return Err("its sum is not the one that names it");
    }
    if u16::from_le_bytes([bytes[4], bytes[5]]) != VERSION {
        return Err("its version is not known here");
    }
    if bytes[6] != kind as u8 {
        return Err("it is of another kind");
    }
    if word32(bytes, 8) as usize != bytes.len() {
        return Err("its length is not the one that names it");
    }
    if word64(bytes, 16) != page {
        return Err("it is another page");
    }
    rows(bytes, usize::from(bytes[7]), word32(bytes, 12) as usize)
}

fn rows(bytes: &Bytes, prefix_bytes: usize, count: usize) -> Result<Vec<Row>, &'static str> {
    let body = HEADER_BYTES + prefix_bytes;
    let prefix = bytes.get(HEADER_BYTES..body).ok_or("its prefix passes its end")?;
    if count > (bytes.len() - body) / 2 {
        return Err("it counts more rows than it can hold");
    }
    let mut rows = Vec::with_capacity(count);
    let mut at = body;
    for _ in 0..count {
        let suffix_bytes = usize::from(*bytes.get(at).ok_or("a row passes its end")?);
        let (value_bytes, length_bytes) = value_length(bytes.get(at + 1..).unwrap_or_default())?;
        let suffix_at = at + 1 + length_bytes;
        let value_at = suffix_at + suffix_bytes;
        let end = value_at + value_bytes;
        if end > bytes.len() {
            return Err("a row passes its end");
        }
        if prefix_bytes + suffix_bytes > limits::KEY_BYTES || value_bytes > limits::VALUE_BYTES {
            return Err("a row is too long");
        }
        rows.push(([prefix, &bytes[suffix_at..value_at]].concat(), bytes.slice(value_at..end)));
        at = end;
    }
    if at == bytes.len() { Ok(rows) } else { Err("bytes follow its last row") }
}

/// Decodes a value's length. Returns it with the number of bytes it takes: one to three, in the shortest form.
fn value_length(bytes: &[u8]) -> Result<(usize, usize), &'static str> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(3).enumerate() {
        let last = *byte < 0x80 || index == 2;
        value |= usize::from(if index == 2 { *byte } else { byte & 0x7f }) << (7 * index);
        if last {
            let shortest = index == 0 || value >> (7 * index) != 0;
            return if shortest && *byte < 0x80 { Ok((value, index + 1)) } else { Err("a length is malformed") };
        }
    }
    Err("a row passes its end")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A page made by hand; rows are (suffix, value).
    pub(crate) fn page(kind: u8, number: u64, prefix: &[u8], rows: &[(&[u8], &[u8])]) -> Bytes {
        let mut body = prefix.to_vec();
        for (suffix, value) in rows {
            body.push(suffix.len() as u8);
            let mut length = value.len();
            while length >= 0x80 {
                body.push(length as u8 | 0x80);
                length >>= 7;
            }
            body.push(length as u8);
            body.extend_from_slice(suffix);
            body.extend_from_slice(value);
        }
        let mut out = b"FBIX\x01\0".to_vec();
        out.extend([kind, prefix.len() as u8]);
        out.extend((24 + body.len() as u32).to_le_bytes());
        out.extend((rows.len() as u32).to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(body);
        out.into()
    }

    fn child_value(page: u64, bytes: u32) -> Vec<u8> {
        let mut value = Vec::new();
        [page, 8, 9].iter().for_each(|word| value.extend(word.to_le_bytes()));
        [1, 4096, bytes].iter().for_each(|word| value.extend(word.to_le_bytes()));
        value
    }

    fn leaf(bytes: &Bytes) -> Result<Vec<Row>, &'static str> {
        decode_leaf(5, crc64(bytes), bytes)
    }

    #[test]
    fn a_leaf_made_by_hand_is_read() {
        let bytes = page(1, 5, b"ab", &[(b"", b"x"), (b"c", &[7; 300])]);
        let rows = leaf(&bytes).unwrap();
        assert_eq!(rows[0], (b"ab".to_vec(), Bytes::from_static(b"x")));
        assert_eq!((rows[1].0.clone(), rows[1].1.len()), (b"abc".to_vec(), 300));
        assert!(leaf(&page(1, 5, b"", &[])).unwrap().is_empty());
    }

    #[test]
    fn leaves_that_break_the_rules_are_refused() {
        let good = page(1, 5, b"ab", &[(b"", b"x"), (b"c", &[7; 300])]);
        assert!(decode_leaf(5, crc64(&good) ^ 1, &good).is_err() && decode_leaf(6, crc64(&good), &good).is_err());
        for bytes in [
            page(2, 5, b"", &[]),
            page(1, 5, b"", &[(b"b", b""), (b"a", b"")]),
            page(1, 5, b"", &[(b"a", b""), (b"a", b"")]),
            page(1, 5, &[1; 60], &[(&[1; 10], b"")]),
            good.slice(..good.len() - 1),
        ] {
            assert!(leaf(&bytes).is_err());
        }
        // Random bytes with a right sum must not panic either.
        for at in 0..good.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut wild = good.to_vec();
                wild[at] = value;
                let _ = leaf(&wild.into());
            }
        }
    }

    #[test]
    fn a_branch_made_by_hand_is_read() {
        let (a, b, c) = (child_value(3, 100), child_value(4, 100), child_value(6, 100));
        let bytes = page(2, 5, b"p", &[(b"", &a), (b"a", &b), (b"b", &c)]);
        let children = decode_branch(PageKind::Inner, 5, crc64(&bytes), &bytes).unwrap();
        assert_eq!(children[0].separator, b"");
        assert_eq!((children[1].separator.clone(), children[1].page), (b"pa".to_vec(), 4));
        assert_eq!(children[2].location, Location { slab: 1, epoch: 8, at: 4096, bytes: 100, sum: 9 });
        let branch = |bytes: Bytes| decode_branch(PageKind::Inner, 5, crc64(&bytes), &bytes);
        assert!(branch(page(2, 5, b"", &[])).is_err());
        assert!(branch(page(2, 5, b"", &[(b"x", &a)])).is_err());
        assert!(branch(page(2, 5, b"", &[(b"", &a), (b"b", &b), (b"a", &c)])).is_err());
        assert!(branch(page(2, 5, b"", &[(b"", &child_value(0, 100))])).is_err());
        assert!(branch(page(2, 5, b"", &[(b"", &child_value(1, 5))])).is_err());
    }

    #[test]
    fn lengths_are_read_in_their_shortest_form_only() {
        assert_eq!(value_length(&[5]), Ok((5, 1)));
        assert_eq!(value_length(&[0xac, 2]), Ok((300, 2)));
        assert_eq!(value_length(&[0x80, 0x80, 1]), Ok((1 << 14, 3)));
        assert!(value_length(&[0x85, 0]).is_err() && value_length(&[0x80, 0x80, 0x80]).is_err());
        assert!(value_length(&[]).is_err() && value_length(&[0x80]).is_err());
    }
}
