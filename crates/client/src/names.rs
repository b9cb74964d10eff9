//! Names: lookup, create, make, link, unlink, rename, directories.

use bytes::Bytes;
use forebay_proto::{Fid, message::LayoutSpec};

use crate::{Attr, Caller, Client, ClientResult, DirEntry, OpenFile, OpenMode};

/// A page of a directory.
#[derive(Clone, Debug)]
pub struct DirPage {
    /// In the order of cookies; `.` and `..` come first.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
}

impl Client {
    /// Attributes of the entry `name`; `.` and `..` too.
    pub async fn lookup(&self, _caller: &Caller, _parent: Fid, _name: &[u8]) -> ClientResult<Attr> {
        todo!()
    }

    /// Makes a regular file and opens it; opens the one that is there unless `open.exclusive`.
    ///
    /// `mode`: permission bits, umask applied. `layout`: what is asked for, or the directory's default.
    pub async fn create(
        &self,
        _caller: &Caller,
        _parent: Fid,
        _name: &[u8],
        _mode: u32,
        _open: OpenMode,
        _layout: LayoutSpec,
    ) -> ClientResult<(Attr, OpenFile)> {
        todo!()
    }

    /// Makes a directory.
    pub async fn mkdir(&self, _caller: &Caller, _parent: Fid, _name: &[u8], _mode: u32) -> ClientResult<Attr> {
        todo!()
    }

    /// Makes a fifo, socket or device, or a regular file without opening it. `mode`: type and permission bits.
    pub async fn mknod(
        &self,
        _caller: &Caller,
        _parent: Fid,
        _name: &[u8],
        _mode: u32,
        _rdev: u64,
    ) -> ClientResult<Attr> {
        todo!()
    }

    /// Makes a symbolic link.
    pub async fn symlink(&self, _caller: &Caller, _parent: Fid, _name: &[u8], _target: &[u8]) -> ClientResult<Attr> {
        todo!()
    }

    /// Gives `fid` another name.
    pub async fn link(&self, _caller: &Caller, _fid: Fid, _parent: Fid, _name: &[u8]) -> ClientResult<Attr> {
        todo!()
    }

    /// Takes a name away; not a directory's.
    pub async fn unlink(&self, _caller: &Caller, _parent: Fid, _name: &[u8]) -> ClientResult<()> {
        todo!()
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, _caller: &Caller, _parent: Fid, _name: &[u8]) -> ClientResult<()> {
        todo!()
    }

    /// Moves a name. `flags`: RENAME_NOREPLACE (1), RENAME_EXCHANGE (2).
    pub async fn rename(
        &self,
        _caller: &Caller,
        _from: (Fid, &[u8]),
        _to: (Fid, &[u8]),
        _flags: u32,
    ) -> ClientResult<()> {
        todo!()
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, _fid: Fid) -> ClientResult<Bytes> {
        todo!()
    }

    /// Entries after `cookie` (0 = from the beginning), up to about `max_bytes` of names and attributes.
    pub async fn readdir(&self, _fid: Fid, _cookie: u64, _max_bytes: u32, _attributes: bool) -> ClientResult<DirPage> {
        todo!()
    }
}
