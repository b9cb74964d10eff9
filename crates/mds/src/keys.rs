//! Keys of the metadata server's rows (docs/format-mdt.md).
//!
//! Invariant: the first byte is the kind, in 0x20..=0x7f. Integers are big-endian, so keys sort as their numbers do.

use forebay_proto::{Fid, FidSequence, SessionId, Transno};

/// Secret of the MDT and its index: one row.
pub const SUPERBLOCK: u8 = 0x20;
/// Inode of a fid.
pub const INODE: u8 = 0x21;
/// Name in a directory.
pub const DIRENT: u8 = 0x22;
/// Extended attributes of an inode.
pub const XATTR: u8 = 0x23;
/// Orphan: an inode without a name that is still open.
pub const ORPHAN: u8 = 0x24;
/// Open handle.
pub const HANDLE: u8 = 0x25;
/// Fid sequence leased to a client.
pub const LEASE: u8 = 0x26;
/// Object to be destroyed on an OST.
pub const DESTROY: u8 = 0x27;
/// Truncate to be driven to the OSTs.
pub const TRUNCATE: u8 = 0x28;
/// Counters: inodes, next sequence.
pub const COUNTER: u8 = 0x29;
/// Weights of the OSTs from a transno on.
pub const PLACEMENT: u8 = 0x2a;

/// The file that owns the objects of a fid, where that is another file.
pub const OBJECTS: u8 = 0x2b;
/// Inline data: the bytes of a small file.
pub const INLINE: u8 = 0x2c;

/// Members of the cluster, with how they join, and bans.
pub const MEMBER: u8 = 0x2d;

/// A short key, on the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    bytes: [u8; 40],
    len: u8,
}

impl Key {
    fn new(kind: u8) -> Self {
        let mut bytes = [0; 40];
        bytes[0] = kind;
        Self { bytes, len: 1 }
    }

    fn with(mut self, part: &[u8]) -> Self {
        let at = usize::from(self.len);
        self.bytes[at..at + part.len()].copy_from_slice(part);
        self.len += part.len() as u8;
        self
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_ref().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The superblock's only row.
pub fn superblock() -> Key {
    Key::new(SUPERBLOCK)
}

/// The inode of `fid`.
pub fn inode(fid: Fid) -> Key {
    Key::new(INODE).with(&fid.to_key())
}

/// The name at `cookie` of directory `parent`.
pub fn dirent(parent: Fid, cookie: u64) -> Key {
    dirents(parent).with(&cookie.to_be_bytes())
}

/// Prefix of the keys of all names of `parent`; also the sharing key of the whole set of names.
pub fn dirents(parent: Fid) -> Key {
    Key::new(DIRENT).with(&parent.to_key())
}

/// The cookie of a dirent's key.
pub fn cookie_of(key: &[u8]) -> Option<u64> {
    key.get(17..25)?.try_into().ok().map(u64::from_be_bytes)
}

/// The extended attributes of `fid`.
pub fn xattrs(fid: Fid) -> Key {
    Key::new(XATTR).with(&fid.to_key())
}

/// The orphan row of `fid`.
pub fn orphan(fid: Fid) -> Key {
    Key::new(ORPHAN).with(&fid.to_key())
}

/// An open handle.
pub fn handle(fid: Fid, session: SessionId, handle: u64) -> Key {
    Key::new(HANDLE).with(&fid.to_key()).with(&session.0.to_be_bytes()).with(&handle.to_be_bytes())
}

/// The parts of a handle's key.
pub fn handle_of(key: &[u8]) -> Option<(Fid, SessionId, u64)> {
    let number = |at: usize| key.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    Some((fid_of(key)?, SessionId(number(17)?), number(25)?))
}

/// The lease of `sequence`.
pub fn lease(sequence: FidSequence) -> Key {
    Key::new(LEASE).with(&sequence.0.to_be_bytes())
}

/// The sequence of a lease's key.
pub fn sequence_of(key: &[u8]) -> Option<FidSequence> {
    key.get(1..9)?.try_into().ok().map(u64::from_be_bytes).map(FidSequence)
}

/// The destroy of `fid`'s object on `ost`.
pub fn destroy(ost: u32, fid: Fid) -> Key {
    destroys(ost).with(&fid.to_key())
}

/// Prefix of the keys of one OST's destroys.
pub fn destroys(ost: u32) -> Key {
    Key::new(DESTROY).with(&ost.to_be_bytes())
}

/// The OST and the fid of a destroy's key.
pub fn destroy_of(key: &[u8]) -> Option<(u32, Fid)> {
    Some((key.get(1..5)?.try_into().ok().map(u32::from_be_bytes)?, Fid::from_key(key.get(5..)?)?))
}

/// The truncate of `fid` that is in progress.
pub fn truncate(fid: Fid) -> Key {
    Key::new(TRUNCATE).with(&fid.to_key())
}

/// Number of inodes.
pub fn inode_count() -> Key {
    Key::new(COUNTER).with(&[0])
}

/// The next fid sequence to lease.
pub fn next_sequence() -> Key {
    Key::new(COUNTER).with(&[1])
}

/// The placement table in force for transnos above `from`.
pub fn placement(from: Transno) -> Key {
    Key::new(PLACEMENT).with(&from.0.to_be_bytes())
}

/// The row with the owner of the objects called `fid`.
pub fn objects(fid: Fid) -> Key {
    Key::new(OBJECTS).with(&fid.to_key())
}

/// The inline bytes of `fid`.
pub fn inline(fid: Fid) -> Key {
    Key::new(INLINE).with(&fid.to_key())
}

/// A row of the cluster's members (`membership/rows.rs`).
pub fn member(what: u8, id: &[u8]) -> Key {
    Key::new(MEMBER).with(&[what]).with(id)
}

/// The transno of a placement table's key.
pub fn placement_of(key: &[u8]) -> Option<Transno> {
    key.get(1..9)?.try_into().ok().map(u64::from_be_bytes).map(Transno)
}

/// The fid behind a key's first byte.
pub fn fid_of(key: &[u8]) -> Option<Fid> {
    Fid::from_key(key.get(1..)?)
}

/// The inode whose lease covers a cached copy of the row under `key`.
pub fn leased(key: &[u8]) -> Option<Fid> {
    matches!(key.first(), Some(&(INODE | DIRENT | XATTR))).then(|| fid_of(key))?
}

/// The first key after all those that begin with `prefix` (which must not consist of 0xff bytes only).
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_their_numbers_and_give_their_parts_back() {
        let fid = Fid { high: 1, low: 0x0203 };
        assert!(dirent(fid, 1) < dirent(fid, 256));
        assert_eq!(cookie_of(dirent(fid, 77).as_ref()), Some(77));
        assert_eq!(handle_of(handle(fid, SessionId(4), 5).as_ref()), Some((fid, SessionId(4), 5)));
        assert_eq!(destroy_of(destroy(9, fid).as_ref()), Some((9, fid)));
        assert_eq!(sequence_of(lease(FidSequence(7)).as_ref()), Some(FidSequence(7)));
        assert_eq!(fid_of(&[INODE, 1]), None);
        assert_eq!([inode(fid), dirent(fid, 1), dirents(fid), xattrs(fid)].map(|k| leased(k.as_ref())), [Some(fid); 4]);
        assert_eq!([handle(fid, SessionId(4), 5), orphan(fid)].map(|k| leased(k.as_ref())), [None; 2]);
    }

    #[test]
    fn the_end_of_a_prefix_lies_behind_all_its_keys() {
        assert_eq!(after(&[1, 2]), vec![1, 3]);
        assert_eq!(after(&[1, 0xff, 0xff]), vec![2]);
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn keys_have_the_bytes_of_the_format() {
        let fid = Fid { high: 0, low: 0x0010_0002 };
        assert_eq!(format!("{:?}", inode(fid)), "2100000000000000000000000000100002");
        assert_eq!(
            format!("{:?}", dirent(fid, 0x0123_4567_89ab_cdef)),
            "22000000000000000000000000001000020123456789abcdef"
        );
        assert_eq!(
            format!("{:?}", handle(fid, SessionId(3), 4)),
            "250000000000000000000000000010000200000000000000030000000000000004"
        );
        assert_eq!(format!("{:?}", destroy(2, fid)), "270000000200000000000000000000000000100002");
        assert_eq!(format!("{:?}", lease(FidSequence(1))), "260000000000000001");
        assert_eq!(format!("{:?}", placement(Transno(5))), "2a0000000000000005");
        assert_eq!(format!("{:?}", objects(fid)), "2b00000000000000000000000000100002");
        assert_eq!(format!("{:?}", inline(fid)), "2c00000000000000000000000000100002");
    }
}
