//! Directory entries: their cookies and the values of their rows (docs/format-mdt.md).
//!
//! A name's cookie is 48 bits of a hash keyed per directory, then a collision number of 15 bits. While any name of a
//! hash exists, collision number 0 of that hash has a row, perhaps without a name of its own. The row holds the highest
//! collision number in use. So a lookup finds all candidates without a scan, and no number ever shifts.
//!
//! Invariant: cookies are positive 63-bit numbers above 2 (0 is the start, 1 `.`, 2 `..`).

use bytes::Bytes;
use forebay_proto::{DecodeError, Fid, Reader};

use crate::{limits, siphash::siphash13, varint};

const VERSION: u8 = 1;
const TYPE_BITS: u8 = 0x0f;
const EMPTY: u8 = 0x10;
const MORE: u8 = 0x20;

/// Cookie of `.`.
pub const COOKIE_DOT: u64 = 1;
/// Cookie of `..`.
pub const COOKIE_DOT_DOT: u64 = 2;

/// Second half of the key of all name hashes.
const HASH_DOMAIN: u64 = u64::from_le_bytes(*b"fbdirent");

/// The cookie of `name`'s collision number 0, in a directory whose hash key is `seed`.
pub fn first_cookie(seed: u64, name: &[u8]) -> u64 {
    let hash = siphash13(seed, HASH_DOMAIN, name) >> 16;
    hash.max(1) << 15
}

/// The hash key of a new directory: derived from the MDT's secret, so that a replayed mkdir gives the same key.
pub fn seed(secret: u64, fid: Fid) -> u64 {
    siphash13(secret, u64::from_le_bytes(*b"fbdirkey"), &fid.to_key())
}

/// A name and the inode that it points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub fid: Fid,
    /// Type bits of its mode (`st_mode`, without permissions).
    pub mode: u32,
    /// The name.
    pub name: Bytes,
}

/// A row of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// The name at this cookie; `None` if the row exists only for collision number 0.
    pub entry: Option<Entry>,
    /// At collision number 0: the highest number in use under this hash.
    pub highest: u16,
}

impl Dirent {
    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = self.entry.as_ref().map_or(EMPTY, |entry| (entry.mode >> 12) as u8 & TYPE_BITS);
        out.push(VERSION);
        out.push(kind | if self.highest > 0 { MORE } else { 0 });
        if self.highest > 0 {
            varint::put(out, self.highest.into());
        }
        if let Some(entry) = &self.entry {
            varint::put_fid(out, entry.fid);
            out.extend_from_slice(&entry.name);
        }
    }

    /// Reads a row's value; the name shares `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("dirent: a version this program does not know"));
        }
        let kind = r.u8()?;
        let highest = if kind & MORE != 0 { varint::get(&mut r)? } else { 0 };
        if highest >= u64::from(limits::COLLISIONS) {
            return Err(DecodeError::new("dirent: the collision number is out of bounds"));
        }
        let highest = highest as u16;
        if kind & EMPTY != 0 {
            return Ok(Self { entry: None, highest });
        }
        let fid = varint::get_fid(&mut r)?;
        let name = bytes.slice(bytes.len() - r.remaining()..);
        Ok(Self { entry: Some(Entry { fid, mode: u32::from(kind & TYPE_BITS) << 12, name }), highest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{S_IFDIR, S_IFREG};

    fn entry(name: &'static str, mode: u32) -> Entry {
        Entry { fid: Fid { high: 0, low: 0x10_0002 }, mode, name: name.into() }
    }

    fn hex(dirent: &Dirent) -> String {
        let mut out = Vec::new();
        dirent.encode(&mut out);
        assert_eq!(Dirent::decode(&out.clone().into()).as_ref(), Ok(dirent));
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn dirents_have_the_bytes_of_the_format() {
        assert_eq!(hex(&Dirent { entry: Some(entry("ab", S_IFREG)), highest: 0 }), "0108008280406162");
        assert_eq!(hex(&Dirent { entry: Some(entry("ab", S_IFDIR)), highest: 3 }), "012403008280406162");
        assert_eq!(hex(&Dirent { entry: None, highest: 300 }), "0130ac02");
    }

    #[test]
    fn cookies_are_positive_and_leave_the_reserved_ones_alone() {
        for number in 0..1000u32 {
            let cookie = first_cookie(number.into(), &number.to_le_bytes());
            assert!(cookie > COOKIE_DOT_DOT && cookie <= i64::MAX as u64 - 0x7fff && cookie & 0x7fff == 0);
        }
    }

    #[test]
    fn the_hash_of_names_never_changes() {
        assert_eq!(first_cookie(1, b"a name"), first_cookie(1, b"a name"));
        assert_ne!(first_cookie(1, b"a name"), first_cookie(2, b"a name"));
        assert_eq!(first_cookie(0x1234, b"hello") >> 15, siphash13(0x1234, HASH_DOMAIN, b"hello") >> 16);
    }
}
