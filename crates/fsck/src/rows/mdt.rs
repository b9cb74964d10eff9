//! Rows of an MDT: inodes, names, logs (docs/format-mdt.md).

use bytes::Bytes;
use forebay_proto::{
    Decode, DecodeError, Fid, Layout, Reader, Transno, Uuid,
    limits::{self as proto_limits, INLINE_BYTES},
    message::{IdMaps, TenantInfo},
};

use super::{layout, siphash::siphash13};
use crate::{format::varint, limits};

const VERSION: u8 = 1;
/// With a project, which follows.
const VERSION_PROJECT: u8 = 2;
/// Type bits of a mode.
pub const TYPE_MASK: u32 = 0o170_000;
/// Directory.
pub const DIRECTORY: u32 = 0o040_000;
/// Regular file.
pub const REGULAR: u32 = 0o100_000;
/// Symbolic link.
pub const SYMLINK: u32 = 0o120_000;

/// Bits that say which fields an inode's row has.
mod field {
    pub const NLINK: u16 = 1;
    pub const UID: u16 = 2;
    pub const GID: u16 = 4;
    pub const SIZE: u16 = 8;
    pub const MTIME: u16 = 16;
    pub const ATIME: u16 = 32;
    pub const BTIME: u16 = 64;
    pub const TRUNCATE_EPOCH: u16 = 128;
    pub const ATTR_EPOCH: u16 = 256;
    /// In the row of a directory.
    pub const DEFAULT_LAYOUT: u16 = 512;
    /// In the row of a regular file.
    pub const INLINE: u16 = 512;
    pub const WRITTEN: u16 = 1024;
    pub const XATTRS: u16 = 4096;
    pub const SPARSE: u16 = 8192;
    pub const ACL: u16 = 16384;
    pub const CHOICES: u16 = 32768;
}

/// Flag of a handle: the file may be written through it.
pub const HANDLE_WRITES: u8 = 2;
/// Value of the two low bits of the choices byte: no commit level.
const NO_LEVEL: u8 = 3;
/// Largest value of the bits above: one more than the inline bound in KiB.
const HIGHEST_BOUND: u8 = 1 + (INLINE_BYTES >> 10) as u8;

/// The fields of an inode that fsck needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Size.
    pub size: u64,
    /// Raised by each truncate.
    pub truncate_epoch: u64,
    /// Transno of the last change.
    pub transno: Transno,
    /// True if it may have objects.
    pub written: bool,
    /// True if it has extended attributes.
    pub xattrs: bool,
    /// True if it may have holes.
    pub sparse: bool,
    /// True if its bytes are in a row of the MDT.
    pub inline: bool,
    /// The part that depends on its type.
    pub body: Body,
    /// The range of a directory's entry count in the value; for repair.
    pub entries_at: std::ops::Range<usize>,
}

/// The part of an inode that depends on its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A file, with its layout.
    File(Layout),
    /// A directory.
    Directory {
        /// The parent directory.
        parent: Fid,
        /// Hash key of its names.
        seed: u64,
        /// Entry count.
        entries: u64,
    },
    /// Anything else.
    Other,
}

impl Inode {
    /// Decodes a row's value.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value);
        match r.u8()? {
            VERSION => {}
            VERSION_PROJECT => drop(varint::get_u32(&mut r)?),
            _ => return Err(DecodeError::new("its version is not known here")),
        }
        // All sixteen bits are in use.
        let fields = r.u16()?;
        let has = |bit: u16| fields & bit != 0;
        let mode = u32::from(r.u16()?);
        r.i64()?; // change time
        let transno = varint::get_transno(&mut r)?;
        let usual_nlink = if mode & TYPE_MASK == DIRECTORY { 2 } else { 1 };
        let nlink = if has(field::NLINK) { varint::get_u32(&mut r)? } else { usual_nlink };
        for bit in [field::UID, field::GID] {
            if has(bit) {
                varint::get_u32(&mut r)?;
            }
        }
        let size = if has(field::SIZE) { varint::get(&mut r)? } else { 0 };
        let truncate_epoch = if has(field::TRUNCATE_EPOCH) { varint::get(&mut r)? } else { 0 };
        if has(field::ATTR_EPOCH) {
            varint::get(&mut r)?;
        }
        for bit in [field::MTIME, field::ATIME, field::BTIME] {
            if has(bit) {
                varint::get_signed(&mut r)?;
            }
        }
        if has(field::CHOICES) && !are_choices(r.u8()?) {
            return Err(DecodeError::new("its commit level or inline bound is not known here"));
        }
        let (body, entries_at) = decode_body(mode, has(field::DEFAULT_LAYOUT), value.len(), &mut r)?;
        let (written, xattrs, sparse) = (has(field::WRITTEN), has(field::XATTRS), has(field::SPARSE));
        if has(field::ACL) && !xattrs {
            return Err(DecodeError::new("an inode with access control lists and without extended attributes"));
        }
        let inline = mode & TYPE_MASK == REGULAR && has(field::INLINE);
        Ok(Self { mode, nlink, size, truncate_epoch, transno, written, xattrs, sparse, inline, body, entries_at })
    }

    /// The file type.
    pub fn file_type(&self) -> u32 {
        self.mode & TYPE_MASK
    }

    /// The row's value with another link count; for repair.
    pub fn with_nlink(value: &[u8], nlink: u32) -> Result<Vec<u8>, DecodeError> {
        let inode = Self::decode(value)?;
        let fields_at = fields_at(value)?;
        let fields = u16::from_le_bytes([value[fields_at], value[fields_at + 1]]);
        let at = value.len() - Reader::new(nlink_rest(value)?).remaining();
        let usual_nlink = if inode.file_type() == DIRECTORY { 2 } else { 1 };
        let mut old = Reader::new(&value[at..]);
        if fields & field::NLINK != 0 {
            varint::get_u32(&mut old)?;
        }
        let after = &value[value.len() - old.remaining()..];
        let fields = if nlink == usual_nlink { fields & !field::NLINK } else { fields | field::NLINK };
        let mut out = value[..at].to_vec();
        out[fields_at..fields_at + 2].copy_from_slice(&fields.to_le_bytes());
        if nlink != usual_nlink {
            varint::put(&mut out, nlink.into());
        }
        out.extend_from_slice(after);
        Ok(out)
    }

    /// The value of a directory's row with another entry count; for repair.
    pub fn with_entries(value: &[u8], entries: u64) -> Result<Vec<u8>, DecodeError> {
        let inode = Self::decode(value)?;
        let mut out = value[..inode.entries_at.start].to_vec();
        if matches!(inode.body, Body::Directory { .. }) {
            varint::put(&mut out, entries);
        }
        out.extend_from_slice(&value[inode.entries_at.end..]);
        Ok(out)
    }
}

/// True for a valid choices byte: a commit level, an inline bound, or both.
fn are_choices(byte: u8) -> bool {
    byte != NO_LEVEL && byte >> 2 <= HIGHEST_BOUND
}

/// Where the fields' bits are: behind the version, and the project if there is one.
fn fields_at(value: &[u8]) -> Result<usize, DecodeError> {
    let mut r = Reader::new(value);
    if r.u8()? == VERSION_PROJECT {
        varint::get_u32(&mut r)?;
    }
    Ok(value.len() - r.remaining())
}

/// The value from the link count on.
fn nlink_rest(value: &[u8]) -> Result<&[u8], DecodeError> {
    let mut r = Reader::new(value);
    // Fields, mode, change time.
    r.take(fields_at(value)? + 12)?;
    varint::get_transno(&mut r)?;
    r.take(r.remaining())
}

fn decode_body(
    mode: u32,
    has_default_layout: bool,
    length: usize,
    r: &mut Reader<'_>,
) -> Result<(Body, std::ops::Range<usize>), DecodeError> {
    let nothing = length..length;
    match mode & TYPE_MASK {
        REGULAR => Ok((Body::File(layout::decode(r)?), nothing)),
        DIRECTORY => {
            let (parent, seed) = (varint::get_fid(r)?, r.u64()?);
            let from = length - r.remaining();
            let entries = varint::get(r)?;
            let entries_at = from..length - r.remaining();
            if has_default_layout {
                layout::decode_default(r)?;
            }
            Ok((Body::Directory { parent, seed, entries }, entries_at))
        }
        SYMLINK if r.is_empty() || r.remaining() > proto_limits::SYMLINK_BYTES => {
            Err(DecodeError::new("its target's length is impossible"))
        }
        SYMLINK => Ok((Body::Other, nothing)),
        0o010_000 | 0o020_000 | 0o060_000 | 0o140_000 => varint::get(r).map(|_| (Body::Other, nothing)),
        _ => Err(DecodeError::new("its type is not known here")),
    }
}

/// A row of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// What the name refers to. `None`: the row only reserves collision number 0.
    pub entry: Option<Entry>,
    /// At collision number 0: the highest number in use for this hash.
    pub highest: u64,
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub fid: Fid,
    /// Its file type bits.
    pub file_type: u32,
    /// The name.
    pub name: Bytes,
}

impl Dirent {
    /// Decodes a row's value.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(value);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("its version is not known here"));
        }
        let kind = r.u8()?;
        let highest = if kind & 0x20 != 0 { varint::get(&mut r)? } else { 0 };
        if highest >= limits::COLLISIONS {
            return Err(DecodeError::new("its collision number is impossible"));
        }
        if kind & 0x10 != 0 {
            return Ok(Self { entry: None, highest });
        }
        let fid = varint::get_fid(&mut r)?;
        let name = Bytes::copy_from_slice(r.take(r.remaining())?);
        Ok(Self { entry: Some(Entry { fid, file_type: u32::from(kind & 0x0f) << 12, name }), highest })
    }
}

/// Cookie of collision number 0 of `name` in a directory with the hash key `seed`.
pub fn first_cookie(seed: u64, name: &[u8]) -> u64 {
    (siphash13(seed, u64::from_le_bytes(*b"fbdirent"), name) >> 16).max(1) << 15
}

/// The hash key of the directory `fid`, from the MDT's secret.
pub fn seed_of(secret: u64, fid: Fid) -> u64 {
    siphash13(secret, u64::from_le_bytes(*b"fbdirkey"), &fid.to_key())
}

/// True if a directory may contain this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= proto_limits::NAME_BYTES
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
}

/// Parent and cookie in a name's key.
pub fn dirent_key(key: &[u8]) -> Option<(Fid, u64)> {
    if key.len() != 25 {
        return None;
    }
    Some((Fid::from_key(&key[1..17])?, u64::from_be_bytes(key[17..].try_into().ok()?)))
}

/// Fid, session and number in a handle's key.
pub fn handle_key(key: &[u8]) -> Option<(Fid, u64, u64)> {
    if key.len() != 33 {
        return None;
    }
    let number = |at: usize| key[at..at + 8].try_into().ok().map(u64::from_be_bytes);
    Some((Fid::from_key(&key[1..17])?, number(17)?, number(25)?))
}

/// OST and fid in a destroy's key.
pub fn destroy_key(key: &[u8]) -> Option<(u32, Fid)> {
    if key.len() != 21 {
        return None;
    }
    Some((u32::from_be_bytes(key[1..5].try_into().ok()?), Fid::from_key(&key[5..])?))
}

/// The number in a key of nine bytes: a lease's sequence, or a placement's transno.
pub fn number_key(key: &[u8]) -> Option<u64> {
    if key.len() == 9 { key[1..].try_into().ok().map(u64::from_be_bytes) } else { None }
}

/// Decodes a truncate or a change of layout in progress: its epoch.
pub fn decode_truncate(value: &[u8]) -> Result<u64, DecodeError> {
    let mut r = version_2(value)?;
    let (epoch, _attr_epoch) = (varint::get(&mut r)?, varint::get(&mut r)?);
    match r.u8()? {
        0 => drop(varint::get(&mut r)?),
        1 => layout::skip_numbers(&mut r)?,
        2 => layout::decode_default(&mut r)?,
        3 => drop(varint::get_fid(&mut r)?),
        4 => drop(varint::get(&mut r)?),
        5 => {}
        _ => return Err(DecodeError::new("its purpose is not known here")),
    }
    Ok(epoch)
}

/// Decodes the owner of a fid's objects.
pub fn decode_objects(value: &[u8]) -> Result<Fid, DecodeError> {
    varint::get_fid(&mut versioned(value)?)
}

/// Decodes an inline row: the number of its bytes.
pub fn decode_inline(value: &[u8]) -> Result<u64, DecodeError> {
    match versioned(value)?.remaining() {
        0 => Err(DecodeError::new("bytes of a file that has none")),
        bytes if bytes <= INLINE_BYTES => Ok(bytes as u64),
        _ => Err(DecodeError::new("more bytes than lie in a row")),
    }
}

/// Decodes a counter.
pub fn decode_counter(value: &[u8]) -> Result<u64, DecodeError> {
    varint::get(&mut versioned(value)?)
}

/// Encodes a counter's value; for repair.
pub fn encode_counter(count: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    varint::put(&mut out, count);
    out
}

/// Decodes the superblock: the MDT's secret.
pub fn decode_superblock(value: &[u8]) -> Result<u64, DecodeError> {
    versioned(value)?.u64()
}

/// Decodes a lease: its owner.
pub fn decode_lease(value: &[u8]) -> Result<[u8; 16], DecodeError> {
    versioned(value)?.array()
}

/// Decodes an orphan: whether it may get a name.
pub fn decode_orphan(value: &[u8]) -> Result<bool, DecodeError> {
    match versioned(value)?.u8()? {
        flags @ 0..=1 => Ok(flags == 1),
        _ => Err(DecodeError::new("an orphan with flags this program does not know")),
    }
}

/// Decodes a destroy, which has only a version.
pub fn decode_mark(value: &[u8]) -> Result<(), DecodeError> {
    versioned(value).map(drop)
}

/// Decodes a handle: its flags.
pub fn decode_handle(value: &[u8]) -> Result<u8, DecodeError> {
    versioned(value)?.u8()
}

/// Decodes a placement table: index and weight of each OST. Pools follow.
pub fn decode_placement(value: &[u8]) -> Result<Vec<(u32, u8)>, DecodeError> {
    let mut r = version_2(value)?;
    let count = varint::get(&mut r)?;
    if count > r.remaining() as u64 / 2 {
        return Err(DecodeError::new("it claims more OSTs than there are bytes"));
    }
    let weights = (0..count).map(|_| Ok((varint::get_u32(&mut r)?, r.u8()?))).collect::<Result<_, DecodeError>>()?;
    for _ in 0..varint::get(&mut r)? {
        let length = usize::from(r.u8()?);
        layout::check_pool(r.take(length)?)?;
        layout::skip_numbers(&mut r)?;
    }
    Ok(weights)
}

/// Decodes extended attributes: the names, each with the length of its value.
pub fn decode_xattrs(value: &[u8]) -> Result<Vec<(Vec<u8>, usize)>, DecodeError> {
    let mut r = versioned(value)?;
    let mut names: Vec<(Vec<u8>, usize)> = Vec::new();
    while !r.is_empty() {
        let length = usize::from(r.u8()?);
        let name = r.take(length)?.to_vec();
        let bytes = usize::try_from(varint::get(&mut r)?).unwrap_or(usize::MAX);
        r.take(bytes)?;
        if names.last().is_some_and(|(last, _)| *last >= name) {
            return Err(DecodeError::new("its names do not ascend"));
        }
        names.push((name, bytes));
    }
    if names.is_empty() { Err(DecodeError::new("it lists nothing")) } else { Ok(names) }
}

fn version_2(value: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut r = Reader::new(value);
    if r.u8()? != 2 {
        return Err(DecodeError::new("its version is not known here"));
    }
    Ok(r)
}

fn versioned(value: &[u8]) -> Result<Reader<'_>, DecodeError> {
    let mut r = Reader::new(value);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("its version is not known here"));
    }
    Ok(r)
}

/// Checks a row of the cluster's members: its key, and that its value has the fields of its kind.
pub fn check_member(key: &[u8], value: &[u8]) -> Result<(), DecodeError> {
    const WRONG: DecodeError = DecodeError::new("the key of a member's row is wrong");
    let mut r = Reader::new(value);
    let version = r.u8()?;
    // Of tenants, those with id maps have another version.
    if version != 1 && !(version == 2 && key.get(1) == Some(&6)) {
        return Err(DecodeError::new("a member's row has an unknown version"));
    }
    let (what, id) = key.get(1..).and_then(<[u8]>::split_first).ok_or(WRONG)?;
    let fields: fn(&mut Reader<'_>) -> Result<(), DecodeError> = match (what, id.len()) {
        (0, 0) => return r.u32().map(drop),
        (1, 32) => |r: &mut Reader<'_>| {
            String::decode(r)?;
            String::decode(r)?;
            i64::decode(r)?;
            i64::decode(r)?;
            Bytes::decode(r).map(drop)
        },
        (2, 32) => |r: &mut Reader<'_>| String::decode(r).and_then(|_| i64::decode(r)).map(drop),
        (3, 5) => |r: &mut Reader<'_>| {
            Bytes::decode(r)?;
            Uuid::decode(r)?;
            Vec::<String>::decode(r).map(drop)
        },
        (4, 32) => |r: &mut Reader<'_>| {
            String::decode(r)?;
            String::decode(r)?;
            Bytes::decode(r).map(drop)
        },
        (5, 0) => |r: &mut Reader<'_>| {
            Bytes::decode(r)?;
            u32::decode(r)?;
            i64::decode(r).map(drop)
        },
        (6, 4) if version == 2 => |r: &mut Reader<'_>| {
            Fid::decode(r)?;
            bool::decode(r)?;
            TenantInfo::decode(r)?;
            IdMaps::decode(r).map(drop)
        },
        (6, 4) => |r: &mut Reader<'_>| {
            Fid::decode(r)?;
            bool::decode(r)?;
            TenantInfo::decode(r).map(drop)
        },
        (7, 32) => return r.u32().map(drop),
        _ => return Err(WRONG),
    };
    fields(&mut r.prefixed()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_link_count_of_an_inode_with_a_project_can_be_mended() {
        let plain = unhex("010204a48100002a36fe9c971703f0a204e80701100102");
        for project in [5_u32, 300] {
            let mut value = vec![2];
            varint::put(&mut value, project.into());
            value.extend_from_slice(&plain[1..]);
            let mended = Inode::with_nlink(&value, 3).expect("it can be read");
            let again = Inode::decode(&mended).expect("it can be read");
            assert_eq!((again.nlink, again.size), (3, Inode::decode(&value).expect("the same").size));
            assert_eq!(Inode::with_nlink(&mended, 1), Ok(value));
        }
    }

    #[test]
    fn the_golden_inode_is_read() {
        let value = unhex("010204a48100002a36fe9c971703f0a204e80701100102");
        let inode = Inode::decode(&value).unwrap();
        assert_eq!((inode.mode, inode.nlink, inode.written, inode.size), (0o100_644, 1, true, 0));
        assert_eq!(
            (inode.transno, &inode.body),
            (Transno(3 << 40 | 70_000), &Body::File(Layout::plain(1, 1 << 20, vec![2])))
        );
        (0..value.len()).for_each(|end| assert!(Inode::decode(&value[..end]).is_err()));
    }

    #[test]
    fn bit_512_of_a_file_says_where_its_bytes_lie() {
        assert!(Inode::decode(&unhex("010a06a48100002a36fe9c971703f0a204e8070501100102")).unwrap().inline);
        assert!(!Inode::decode(&unhex("010204a48100002a36fe9c971703f0a204e80701100102")).unwrap().inline);
    }

    #[test]
    fn a_commit_level_stands_behind_the_times() {
        let mut value = unhex("014284a48100002a36fe9c971703f0a204e807010201100102");
        assert_eq!(Inode::decode(&value).unwrap().body, Body::File(Layout::plain(1, 1 << 20, vec![2])));
        let more = Inode::with_nlink(&value, 3).unwrap();
        assert_eq!((Inode::decode(&more).unwrap().nlink, more.len()), (3, value.len() + 1));
        (0..value.len()).for_each(|end| assert!(Inode::decode(&value[..end]).is_err()));
        value[20] = 3;
        assert!(Inode::decode(&value).is_err());
    }

    #[test]
    fn an_inline_bound_stands_in_the_byte_of_the_level() {
        let mut value = unhex("010284a48100002a36fe9c971703f0a204e8071701100102");
        assert_eq!(Inode::decode(&value).unwrap().body, Body::File(Layout::plain(1, 1 << 20, vec![2])));
        for (byte, is_one) in
            [(17 << 2 | 2, true), (17 << 2 | 3, true), (1 << 2 | 3, true), (18 << 2, false), (255, false)]
        {
            value[19] = byte;
            assert_eq!(Inode::decode(&value).is_ok(), is_one, "{byte}");
        }
    }

    fn directory(nlink: Option<u8>) -> Vec<u8> {
        let fields = if nlink.is_some() { 1u16 } else { 0 };
        let mut value = vec![1];
        value.extend(fields.to_le_bytes());
        value.extend(0o040_755u16.to_le_bytes());
        value.extend([0; 8]);
        value.extend([0, 5]);
        value.extend(nlink);
        value.extend([0, 1]);
        value.extend(77u64.to_le_bytes());
        value.push(3);
        value
    }

    #[test]
    fn counts_are_replaced_and_nothing_else() {
        let body = Body::Directory { parent: Fid::ROOT, seed: 77, entries: 3 };
        let inode = Inode::decode(&directory(None)).unwrap();
        assert_eq!((inode.nlink, inode.transno, inode.body), (2, Transno(5), body));
        assert_eq!(Inode::with_nlink(&directory(None), 4).unwrap(), directory(Some(4)));
        assert_eq!(Inode::with_nlink(&directory(Some(4)), 2).unwrap(), directory(None));
        let more = Inode::decode(&Inode::with_entries(&directory(Some(4)), 300).unwrap()).unwrap();
        assert_eq!(more.body, Body::Directory { parent: Fid::ROOT, seed: 77, entries: 300 });
        assert_eq!(more.nlink, 4);
    }

    #[test]
    fn the_golden_names_are_read() {
        let entry =
            |file_type| Entry { fid: Fid { high: 0, low: 0x10_0002 }, file_type, name: Bytes::from_static(b"ab") };
        let read = |text| Dirent::decode(&unhex(text)).unwrap();
        assert_eq!(read("0108008280406162"), Dirent { entry: Some(entry(REGULAR)), highest: 0 });
        assert_eq!(read("012403008280406162"), Dirent { entry: Some(entry(DIRECTORY)), highest: 3 });
        assert_eq!(read("0130ac02"), Dirent { entry: None, highest: 300 });
        assert!(Dirent::decode(&[1]).is_err() && Dirent::decode(&[1, 0x20, 0xff, 0xff, 3]).is_err());
    }

    #[test]
    fn logs_and_counters_are_read() {
        assert_eq!(decode_truncate(&[2, 3, 4, 0, 0xac, 2]), Ok(3));
        assert_eq!(decode_truncate(&[2, 3, 4, 1, 2, 7, 0xac, 2]), Ok(3));
        assert_eq!(decode_truncate(&[2, 3, 4, 2, 5, 0, 0, 0, 0]), Ok(3));
        assert_eq!(decode_truncate(&[2, 3, 4, 3, 0, 0xac, 2]), Ok(3));
        assert_eq!(decode_truncate(&[2, 3, 4, 4, 0xac, 2]), Ok(3));
        assert_eq!(decode_truncate(&[2, 3, 4, 5]), Ok(3));
        assert!(decode_truncate(&[2, 3, 4, 6]).is_err() && decode_truncate(&[1, 3, 4, 0, 2]).is_err());
        assert_eq!(decode_objects(&[1, 0, 0xac, 2]), Ok(Fid { high: 0, low: 300 }));
        assert_eq!(
            (decode_inline(b"\x01abc"), decode_inline(&[1; INLINE_BYTES + 1])),
            (Ok(3), Ok(INLINE_BYTES as u64))
        );
        assert!([&[1][..], b"\x02abc", &[1; INLINE_BYTES + 2]].iter().all(|row| decode_inline(row).is_err()));
        assert_eq!(decode_counter(&[1, 0xac, 2]), Ok(300));
        assert_eq!(encode_counter(300), [1, 0xac, 2]);
        let table = b"\x02\x02\x00\x10\xac\x02\x00\x01\x04fast\x02\x00\xac\x02";
        assert_eq!(decode_placement(table), Ok(vec![(0, 16), (300, 0)]));
        assert!(decode_placement(&[2, 0xff, 0xff, 0xff, 0x7f, 1]).is_err());
        assert_eq!(decode_handle(&[1, 3]), Ok(3));
        assert_eq!(
            destroy_key(&unhex("270000000200000000000000000000000000100002")),
            Some((2, Fid { high: 0, low: 0x10_0002 }))
        );
        assert_eq!(decode_xattrs(b"\x01\x06user.a\x02hi"), Ok(vec![(b"user.a".to_vec(), 2)]));
        assert!(decode_xattrs(b"\x01\x06user.a\x03hi").is_err() && decode_xattrs(b"\x01").is_err());
        assert!(decode_xattrs(b"\x01\x01b\x00\x01a\x00").is_err());
    }

    #[test]
    fn names_have_rules() {
        assert!(is_name(b"a") && is_name(&[b'x'; 255]) && is_name(b"..."));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(!is_name(bad));
        }
        assert!(first_cookie(5, b"x").is_multiple_of(1 << 15));
    }

    #[test]
    fn rows_of_members_are_checked_by_their_kind() {
        let key = |what: u8, length: usize| [&[0x2d, what][..], &vec![7; length]].concat();
        let value = |fields: &[&[u8]]| {
            let fields = fields.concat();
            [&[1][..], &(fields.len() as u32).to_le_bytes(), &fields].concat()
        };
        let (ost, empty): (&[u8], &[u8]) = (b"\x03\0\0\0ost", &[0; 4]);
        assert_eq!(check_member(&key(0, 0), &[1, 5, 0, 0, 0]), Ok(()));
        assert_eq!(check_member(&key(1, 32), &value(&[ost, ost, &[0; 16], empty])), Ok(()));
        assert_eq!(check_member(&key(2, 32), &value(&[ost, &[0; 8]])), Ok(()));
        assert_eq!(check_member(&key(3, 5), &value(&[empty, &[0; 16], empty])), Ok(()));
        assert_eq!(check_member(&key(4, 32), &value(&[ost, ost, empty])), Ok(()));
        let wrong = [(key(5, 32), value(&[ost])), (key(2, 31), value(&[ost, &[0; 8]])), (key(2, 32), value(&[ost]))];
        assert!(wrong.iter().all(|(key, value)| check_member(key, value).is_err()));
        assert!(check_member(&key(0, 0), &[2, 5, 0, 0, 0]).is_err());
        // Name, path, no ranges, squashed user and group, flags, end; then two empty maps.
        let (head, tenant) = ([0; 16].as_slice(), [&36_u32.to_le_bytes()[..], &[0; 16], &[1; 20]].concat());
        let head = [head, &[1]].concat();
        let maps = [&8_u32.to_le_bytes()[..], &[0; 8]].concat();
        let versioned = |version: u8, fields: &[&[u8]]| [&[version][..], &value(fields)[1..]].concat();
        assert_eq!(check_member(&key(6, 4), &versioned(1, &[&head, &tenant])), Ok(()));
        assert_eq!(check_member(&key(6, 4), &versioned(2, &[&head, &tenant, &maps])), Ok(()));
        assert!(check_member(&key(6, 4), &versioned(2, &[&head, &tenant])).is_err(), "without its maps");
        assert!(check_member(&key(6, 4), &versioned(3, &[&head, &tenant, &maps])).is_err());
    }
}
