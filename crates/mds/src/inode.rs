//! The value of an inode's row (docs/format-mdt.md): about 60 bytes for a file with a layout.
//!
//! Invariant: a field with its usual value takes no byte: flags mark the fields that are present. Times are stored as
//! differences to the change time.
//! Invariant: the row holds the whole inode except its extended attributes.

use std::rc::Rc;

use bytes::Bytes;
use forebay_proto::{
    DecodeError, Fid, Layout, Reader, Transno,
    message::{Attr, CommitLevel, InlineBound, LayoutSpec, TenantInfo, attr_flags, choice_flags},
};

use crate::{acl::Acls, layout_row, varint};

const VERSION: u8 = 1;
/// The version of a row with a project, which follows the version.
const VERSION_PROJECT: u8 = 2;

/// `st_mode`: the type bits.
pub const S_IFMT: u32 = 0o170_000;
/// `st_mode`: directory.
pub const S_IFDIR: u32 = 0o040_000;
/// `st_mode`: regular file.
pub const S_IFREG: u32 = 0o100_000;
/// `st_mode`: symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// `st_mode`: fifo.
pub const S_IFIFO: u32 = 0o010_000;
/// `st_mode`: character device.
pub const S_IFCHR: u32 = 0o020_000;
/// `st_mode`: block device.
pub const S_IFBLK: u32 = 0o060_000;
/// `st_mode`: socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// `st_mode`: set user id.
pub const S_ISUID: u32 = 0o4000;
/// `st_mode`: set group id.
pub const S_ISGID: u32 = 0o2000;
/// `st_mode`: sticky.
pub const S_ISVTX: u32 = 0o1000;

/// Bits of the row that mark the fields that follow.
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
    /// Directories only.
    pub const DEFAULT_LAYOUT: u16 = 512;
    /// Regular files only.
    pub const INLINE: u16 = 512;
    pub const WRITTEN: u16 = 1024;
    pub const MTIME_SET: u16 = 2048;
    pub const XATTRS: u16 = 4096;
    pub const SPARSE: u16 = 8192;
    pub const ACL: u16 = 16384;
    /// Its own commit level, its own inline bound, or both.
    pub const CHOICES: u16 = 32768;
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of names (directories: 2, and one for each subdirectory). 0: an orphan.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size of a file in bytes, as far as the MDT knows: a lower bound within the truncate epoch.
    pub size: u64,
    /// Access time, nanoseconds since 1970.
    pub atime_ns: i64,
    /// Modification time.
    pub mtime_ns: i64,
    /// Change time.
    pub ctime_ns: i64,
    /// Birth time.
    pub btime_ns: i64,
    /// Raised by each truncate.
    pub truncate_epoch: u64,
    /// Raised by each utimens and truncate.
    pub attr_epoch: u64,
    /// Transno of the last change.
    pub transno: Transno,
    /// It was opened for writing at least once: it may have objects.
    pub written: bool,
    /// The modification time was set by a client, or when the file was created. The time of the next write replaces it,
    /// whether earlier or later.
    pub mtime_set: bool,
    /// It has extended attributes.
    pub xattrs: bool,
    /// It may have holes.
    pub sparse: bool,
    /// Among its extended attributes are access control lists.
    pub has_acl: bool,
    /// Its bytes are in a row of their own, and no OST has any.
    pub inline: bool,
    /// The commit level of its changes and, of a directory, of changes of its entries; `None`: that of the
    /// client's mount.
    pub level: Option<CommitLevel>,
    /// Up to which size clients send a file's bytes with its close; `None`: the bound of the mount. It is advice to
    /// clients.
    pub inline_bound: Option<InlineBound>,
    /// The project that it belongs to: that of its directory, and a tenant's for all of the tenant's subtree. 0: none.
    pub project: u32,
    /// The requester's tenant, if user 0 of its nodes is anybody to the inode (`tenant.rs`); not part of the row.
    pub guard: Option<Rc<TenantInfo>>,
    /// Those lists, once they were read (`Tx::find_inode`); not part of the row.
    pub acls: Acls,
    /// The part that depends on the type.
    pub body: Body,
}

/// The part of an inode that depends on its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Regular file.
    File(Layout),
    /// Directory.
    Dir(Directory),
    /// Symbolic link and its target.
    Symlink(Bytes),
    /// Fifo, socket or device, with `st_rdev`.
    Special(u64),
}

/// The part of an inode that only directories have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its parent directory; the root is its own parent.
    pub parent: Fid,
    /// Key of the hash of its names.
    pub seed: u64,
    /// Number of entries.
    pub entries: u64,
    /// Default layout of files created in it, if it has its own.
    pub default_layout: Option<LayoutSpec>,
}

impl Inode {
    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }

    /// True if changes are replied only when they are committed, whatever level a request has.
    pub fn commits(&self) -> bool {
        self.level == Some(CommitLevel::Commit)
    }

    /// The directory's part, if it is one.
    pub fn dir(&self) -> Option<&Directory> {
        if let Body::Dir(dir) = &self.body { Some(dir) } else { None }
    }

    /// The directory's part, if it is one.
    pub fn dir_mut(&mut self) -> Option<&mut Directory> {
        if let Body::Dir(dir) = &mut self.body { Some(dir) } else { None }
    }

    /// The layout, if it is a regular file.
    pub fn layout(&self) -> Option<&Layout> {
        if let Body::File(layout) = &self.body { Some(layout) } else { None }
    }

    /// Sets the change time. It never goes back: it may come from an OST's or a client's clock that is ahead of this
    /// server's.
    pub fn changed_at(&mut self, now_ns: i64) {
        self.ctime_ns = self.ctime_ns.max(now_ns);
    }

    /// The attributes as messages carry them.
    pub fn attr(&self, fid: Fid, flags: u32) -> Attr {
        Attr {
            fid,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: if let Body::Special(rdev) = self.body { rdev } else { 0 },
            size: match &self.body {
                Body::Symlink(target) => target.len() as u64,
                _ => self.size,
            },
            atime_ns: self.atime_ns,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            btime_ns: self.btime_ns,
            truncate_epoch: self.truncate_epoch,
            attr_epoch: self.attr_epoch,
            flags: flags
                | choice_flags(self.level)
                | choice_flags(self.inline_bound)
                | (if self.inline { attr_flags::INLINE } else { 0 })
                | (if self.sparse { attr_flags::SPARSE } else { 0 })
                | (if self.xattrs { attr_flags::XATTRS } else { 0 }),
        }
    }

    fn usual_nlink(&self) -> u32 {
        if self.is_dir() { 2 } else { 1 }
    }

    fn fields(&self) -> u16 {
        let default_layout = self.dir().is_some_and(|dir| dir.default_layout.is_some());
        [
            (self.nlink != self.usual_nlink(), field::NLINK),
            (self.uid != 0, field::UID),
            (self.gid != self.uid, field::GID),
            (self.size != 0, field::SIZE),
            (self.mtime_ns != self.ctime_ns, field::MTIME),
            (self.atime_ns != self.ctime_ns, field::ATIME),
            (self.btime_ns != self.ctime_ns, field::BTIME),
            (self.truncate_epoch != 0, field::TRUNCATE_EPOCH),
            (self.attr_epoch != 0, field::ATTR_EPOCH),
            (default_layout, field::DEFAULT_LAYOUT),
            (self.inline, field::INLINE),
            (self.written, field::WRITTEN),
            (self.mtime_set, field::MTIME_SET),
            (self.xattrs, field::XATTRS),
            (self.sparse, field::SPARSE),
            (self.has_acl, field::ACL),
            (self.level.is_some() || self.inline_bound.is_some(), field::CHOICES),
        ]
        .iter()
        .fold(0, |bits, (there, bit)| if *there { bits | bit } else { bits })
    }

    /// Appends the row's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let fields = self.fields();
        match self.project {
            0 => out.push(VERSION),
            project => {
                out.push(VERSION_PROJECT);
                varint::put(out, project.into());
            }
        }
        out.extend_from_slice(&fields.to_le_bytes());
        out.extend_from_slice(&(self.mode as u16).to_le_bytes());
        out.extend_from_slice(&self.ctime_ns.to_le_bytes());
        varint::put_transno(out, self.transno);
        let mut optional = |bit, value| {
            if fields & bit != 0 {
                varint::put(out, value);
            }
        };
        optional(field::NLINK, self.nlink.into());
        optional(field::UID, self.uid.into());
        optional(field::GID, self.gid.into());
        optional(field::SIZE, self.size);
        optional(field::TRUNCATE_EPOCH, self.truncate_epoch);
        optional(field::ATTR_EPOCH, self.attr_epoch);
        let times = [(field::MTIME, self.mtime_ns), (field::ATIME, self.atime_ns), (field::BTIME, self.btime_ns)];
        for (bit, time_ns) in times {
            if fields & bit != 0 {
                varint::put_signed(out, time_ns.wrapping_sub(self.ctime_ns));
            }
        }
        if fields & field::CHOICES != 0 {
            out.push(encode_choices(self.level, self.inline_bound));
        }
        encode_body(&self.body, out);
    }

    /// Reads a row's value.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let project = match r.u8()? {
            VERSION => 0,
            VERSION_PROJECT => varint::get_u32(&mut r)?,
            _ => return Err(DecodeError::new("inode: a version this program does not know")),
        };
        // All sixteen bits are in use: a row with another field has another version.
        let fields = r.u16()?;
        let mode = u32::from(r.u16()?);
        let ctime_ns = r.i64()?;
        let transno = varint::get_transno(&mut r)?;
        let has = |bit| fields & bit != 0;
        let usual_nlink = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
        let nlink = if has(field::NLINK) { varint::get_u32(&mut r)? } else { usual_nlink };
        let uid = if has(field::UID) { varint::get_u32(&mut r)? } else { 0 };
        let gid = if has(field::GID) { varint::get_u32(&mut r)? } else { uid };
        let size = if has(field::SIZE) { varint::get(&mut r)? } else { 0 };
        let truncate_epoch = if has(field::TRUNCATE_EPOCH) { varint::get(&mut r)? } else { 0 };
        let attr_epoch = if has(field::ATTR_EPOCH) { varint::get(&mut r)? } else { 0 };
        let mut time = |bit| match has(bit) {
            true => varint::get_signed(&mut r).map(|difference| ctime_ns.wrapping_add(difference)),
            false => Ok(ctime_ns),
        };
        let (mtime_ns, atime_ns, btime_ns) = (time(field::MTIME)?, time(field::ATIME)?, time(field::BTIME)?);
        let (level, inline_bound) = if has(field::CHOICES) { decode_choices(r.u8()?)? } else { (None, None) };
        Ok(Self {
            mode,
            nlink,
            uid,
            gid,
            size,
            atime_ns,
            mtime_ns,
            ctime_ns,
            btime_ns,
            truncate_epoch,
            attr_epoch,
            transno,
            written: has(field::WRITTEN),
            mtime_set: has(field::MTIME_SET),
            xattrs: has(field::XATTRS),
            sparse: has(field::SPARSE),
            has_acl: has(field::ACL),
            inline: mode & S_IFMT == S_IFREG && has(field::INLINE),
            level,
            inline_bound,
            project,
            guard: None,
            acls: Acls::default(),
            body: decode_body(mode, has(field::DEFAULT_LAYOUT), &mut r)?,
        })
    }
}

/// Bits of the choices' byte that hold the level, and the value for none. The bits above hold the bound's code, 0 for
/// none.
const LEVEL_BITS: u32 = 2;
const NO_LEVEL: u8 = 3;

fn encode_choices(level: Option<CommitLevel>, bound: Option<InlineBound>) -> u8 {
    bound.map_or(0, InlineBound::code) << LEVEL_BITS | level.map_or(NO_LEVEL, CommitLevel::number)
}

fn decode_choices(byte: u8) -> Result<(Option<CommitLevel>, Option<InlineBound>), DecodeError> {
    let (level, code) = (byte & NO_LEVEL, byte >> LEVEL_BITS);
    let choices = (CommitLevel::from_number(level), InlineBound::from_code(code));
    match choices {
        (None, None) => Err(DecodeError::new("inode: a commit level or an inline bound, and there is none")),
        (_, None) if code != 0 => Err(DecodeError::new("inode: an inline bound this program does not know")),
        choices => Ok(choices),
    }
}

fn encode_body(body: &Body, out: &mut Vec<u8>) {
    match body {
        Body::File(layout) => layout_row::encode(layout, out),
        Body::Dir(dir) => {
            varint::put_fid(out, dir.parent);
            out.extend_from_slice(&dir.seed.to_le_bytes());
            varint::put(out, dir.entries);
            if let Some(spec) = &dir.default_layout {
                layout_row::encode_spec(spec, out);
            }
        }
        Body::Symlink(target) => out.extend_from_slice(target),
        Body::Special(rdev) => varint::put(out, *rdev),
    }
}

fn decode_body(mode: u32, has_default_layout: bool, r: &mut Reader<'_>) -> Result<Body, DecodeError> {
    match mode & S_IFMT {
        S_IFREG => layout_row::decode(r).map(Body::File),
        S_IFDIR => Ok(Body::Dir(Directory {
            parent: varint::get_fid(r)?,
            seed: r.u64()?,
            entries: varint::get(r)?,
            default_layout: if has_default_layout { Some(layout_row::decode_spec(r)?) } else { None },
        })),
        S_IFLNK => Ok(Body::Symlink(Bytes::copy_from_slice(r.take(r.remaining())?))),
        S_IFIFO | S_IFSOCK | S_IFCHR | S_IFBLK => Ok(Body::Special(varint::get(r)?)),
        _ => Err(DecodeError::new("inode: a type this program does not know")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A typical file: made a moment ago by a user, one stripe.
    pub(crate) fn plain_file() -> Inode {
        Inode {
            mode: S_IFREG | 0o644,
            nlink: 1,
            uid: 1000,
            gid: 1000,
            size: 0,
            atime_ns: 1_700_000_000_000_000_000,
            mtime_ns: 1_700_000_000_000_000_000,
            ctime_ns: 1_700_000_000_000_000_000,
            btime_ns: 1_700_000_000_000_000_000,
            truncate_epoch: 0,
            attr_epoch: 0,
            transno: Transno(3 << Transno::COUNTER_BITS | 70_000),
            written: true,
            mtime_set: false,
            xattrs: false,
            sparse: false,
            has_acl: false,
            inline: false,
            level: None,
            inline_bound: None,
            project: 0,
            guard: None,
            acls: Acls::default(),
            body: Body::File(Layout::plain(1, 1 << 20, vec![2])),
        }
    }

    fn round_trip(inode: &Inode) -> usize {
        let mut out = Vec::new();
        inode.encode(&mut out);
        assert_eq!(Inode::decode(&out).as_ref(), Ok(inode));
        // A row cut at any length must not panic (a shorter symbolic link's target is still a target).
        (0..out.len()).for_each(|len| drop(Inode::decode(&out[..len])));
        out.len()
    }

    #[test]
    fn every_type_survives_its_bytes() {
        let file = plain_file();
        round_trip(&Inode { project: 300, ..file.clone() });
        let times = Inode { mtime_ns: -5, atime_ns: i64::MAX, btime_ns: i64::MIN, ..file.clone() };
        let spec = LayoutSpec {
            stripe_count: u32::MAX,
            stripe_bytes: 4 << 20,
            stripe_index: 3,
            pool: "flash".into(),
            ..LayoutSpec::inherit()
        };
        let dir = Directory { parent: Fid::ROOT, seed: 77, entries: 1 << 40, default_layout: Some(spec) };
        round_trip(&times);
        round_trip(&Inode {
            nlink: 0,
            gid: 4,
            size: 1 << 60,
            truncate_epoch: 9,
            attr_epoch: 1,
            xattrs: true,
            sparse: true,
            has_acl: true,
            inline: true,
            level: Some(CommitLevel::Memory),
            inline_bound: InlineBound::new(0),
            ..file.clone()
        });
        round_trip(&Inode { mode: S_IFDIR | 0o1777, nlink: 2, body: Body::Dir(dir), ..file.clone() });
        round_trip(&Inode { mode: S_IFLNK | 0o777, body: Body::Symlink("../x".into()), ..file.clone() });
        round_trip(&Inode { mode: S_IFCHR | 0o600, body: Body::Special(0x103), ..file });
    }

    #[test]
    fn a_written_and_closed_file_takes_less_than_60_bytes() {
        let file = plain_file();
        assert!(round_trip(&file) <= 32);
        let closed = Inode {
            size: 1 << 30,
            mtime_ns: file.ctime_ns - 12_345_678,
            btime_ns: file.ctime_ns - 9_000_000_000,
            ..file
        };
        assert!(round_trip(&closed) <= 60);
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn inodes_have_the_bytes_of_the_format() {
        let mut out = Vec::new();
        plain_file().encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        // version, fields, mode, ctime, transno (3, 70000), uid, generation 1, 16 * 64 KiB, 1 stripe, OST 2
        assert_eq!(hex, "010204a48100002a36fe9c971703f0a204e80701100102");
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn bit_512_of_a_file_means_that_its_bytes_lie_in_a_row() {
        let inode = Inode { size: 5, inline: true, ..plain_file() };
        let mut out = Vec::new();
        inode.encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010a06a48100002a36fe9c971703f0a204e8070501100102");
        round_trip(&inode);
        assert_eq!(inode.attr(Fid::ROOT, 0).flags, attr_flags::INLINE);
    }

    /// The golden bytes of docs/format-mdt.md: the level follows the times.
    #[test]
    fn a_level_takes_one_byte_and_a_wrong_one_is_refused() {
        let file = plain_file();
        let inode = Inode { level: Some(CommitLevel::Commit), btime_ns: file.ctime_ns - 1, ..file };
        let mut out = Vec::new();
        inode.encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "014284a48100002a36fe9c971703f0a204e807010201100102");
        for level in [CommitLevel::Memory, CommitLevel::Data, CommitLevel::Commit] {
            let inode = Inode { level: Some(level), ..inode.clone() };
            assert_eq!(round_trip(&inode), out.len());
            assert_eq!(
                (inode.attr(Fid::ROOT, 0).level(), inode.commits()),
                (Some(level), level == CommitLevel::Commit)
            );
        }
        out[20] = 3;
        assert!(Inode::decode(&out).is_err());
    }

    /// The golden bytes of docs/format-mdt.md: the bound is in the level's byte.
    #[test]
    fn an_inline_bound_takes_the_byte_of_the_level_and_a_wrong_one_is_refused() {
        let inode = Inode { inline_bound: InlineBound::new(4096), ..plain_file() };
        let mut out = Vec::new();
        inode.encode(&mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010284a48100002a36fe9c971703f0a204e8071701100102");
        for level in [None, Some(CommitLevel::Memory), Some(CommitLevel::Commit)] {
            for kib in 0..=16 {
                let inode = Inode { level, inline_bound: InlineBound::new(kib << 10), ..inode.clone() };
                assert_eq!(round_trip(&inode), out.len());
                let attr = inode.attr(Fid::ROOT, 0);
                assert_eq!((attr.level(), attr.inline_bound()), (level, inode.inline_bound));
            }
        }
        for wrong in [3, 18 << 2 | 3, 18 << 2, 63 << 2 | 1, 255] {
            out[19] = wrong;
            assert!(Inode::decode(&out).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wild_bytes_are_refused() {
        assert!(Inode::decode(&[]).is_err());
        assert!(Inode::decode(&[2; 64]).is_err());
        assert!(Inode::decode(&[1, 0xff, 0xff, 0, 0]).is_err());
    }
}
