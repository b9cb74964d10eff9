//! The first rows of a new MDT: its superblock and the root directory.

use forebay_env::{Bug, planted};
use forebay_proto::{DecodeError, Fid, Reader, Transno};

use crate::{
    acl::Acls,
    dirent,
    inode::{Body, Directory, Inode, S_IFDIR},
    keys,
    tx::Rows,
    varint,
};

const VERSION: u8 = 1;

/// The owner of a new MDT's root directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Writes the superblock and the root directory. `secret` is random, and belongs to the MDT for ever.
pub fn write(rows: &mut dyn Rows, owner: Owner, secret: u64, now_ns: i64) {
    let mut superblock = vec![VERSION];
    superblock.extend_from_slice(&secret.to_le_bytes());
    rows.put(keys::superblock().as_ref(), superblock.into());
    let mut out = Vec::new();
    root(owner, secret, now_ns).encode(&mut out);
    rows.put(keys::inode(Fid::ROOT).as_ref(), out.into());
    rows.put(keys::inode_count().as_ref(), encode_counter(1).into());
}

fn root(owner: Owner, secret: u64, now_ns: i64) -> Inode {
    let owner = if planted(Bug::RootOwnedByRoot) { Owner::default() } else { owner };
    Inode {
        mode: S_IFDIR | 0o755,
        nlink: 2,
        uid: owner.uid,
        gid: owner.gid,
        size: 0,
        atime_ns: now_ns,
        mtime_ns: now_ns,
        ctime_ns: now_ns,
        btime_ns: now_ns,
        truncate_epoch: 0,
        attr_epoch: 0,
        transno: Transno(0),
        written: false,
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
        body: Body::Dir(Directory {
            parent: Fid::ROOT,
            seed: dirent::seed(secret, Fid::ROOT),
            entries: 0,
            default_layout: None,
        }),
    }
}

/// The secret in a superblock's value.
pub fn decode_superblock(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("superblock: a version this program does not know"));
    }
    r.u64()
}

/// The value of a counter's row.
pub fn encode_counter(value: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    varint::put(&mut out, value);
    out
}

/// Reads a counter's row.
pub fn decode_counter(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(bytes);
    if r.u8()? != VERSION {
        return Err(DecodeError::new("counter: a version this program does not know"));
    }
    varint::get(&mut r)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_directory_belongs_to_the_owner_of_the_cluster() {
        let inode = root(Owner { uid: 1000, gid: 100 }, 42, 7);
        assert_eq!((inode.uid, inode.gid, inode.mode), (1000, 100, S_IFDIR | 0o755));
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn superblock_and_counters_have_the_bytes_of_the_format() {
        assert_eq!(decode_superblock(&[1, 1, 2, 0, 0, 0, 0, 0, 0]), Ok(0x201));
        assert_eq!(encode_counter(300), [1, 0xac, 2]);
        assert_eq!(decode_counter(&[1, 0xac, 2]), Ok(300));
    }
}
