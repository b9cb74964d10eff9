//! Attributes, extended attributes, layouts.

use bytes::Bytes;
use forebay_proto::{Fid, Layout, message::LayoutSpec};

use crate::{Attr, Caller, Client, ClientResult, OpenFile};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's now.
    Now,
    /// Nanoseconds since 1970.
    At(i64),
}

/// Attributes to change; `None` = as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

impl Client {
    /// Attributes as they are now: the OSTs are asked for size and times while anybody has the file open for writing.
    ///
    /// `open`: a handle the caller has; a loss of its acknowledged writes is reported here too.
    pub async fn getattr(&self, _fid: Fid, _open: Option<&OpenFile>) -> ClientResult<Attr> {
        todo!()
    }

    /// Changes attributes. Through an `open` handle a truncate needs no permission (ftruncate).
    pub async fn setattr(
        &self,
        _caller: &Caller,
        _fid: Fid,
        _changes: SetAttributes,
        _open: Option<&OpenFile>,
    ) -> ClientResult<Attr> {
        todo!()
    }

    /// Value of an extended attribute. ENODATA if there is none.
    pub async fn getxattr(&self, _caller: &Caller, _fid: Fid, _name: &[u8]) -> ClientResult<Bytes> {
        todo!()
    }

    /// Sets an extended attribute. `flags`: XATTR_CREATE (1), XATTR_REPLACE (2).
    pub async fn setxattr(
        &self,
        _caller: &Caller,
        _fid: Fid,
        _name: &[u8],
        _value: &[u8],
        _flags: u32,
    ) -> ClientResult<()> {
        todo!()
    }

    /// Names of the extended attributes, sorted.
    pub async fn listxattr(&self, _fid: Fid) -> ClientResult<Vec<Bytes>> {
        todo!()
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, _caller: &Caller, _fid: Fid, _name: &[u8]) -> ClientResult<()> {
        todo!()
    }

    /// A directory's default layout, or the layout of a file nobody has written.
    pub async fn set_layout(&self, _caller: &Caller, _fid: Fid, _layout: LayoutSpec) -> ClientResult<()> {
        todo!()
    }

    /// A regular file's layout, and a directory's default where it has one of its own.
    pub async fn get_layout(&self, _fid: Fid) -> ClientResult<(Option<Layout>, Option<LayoutSpec>)> {
        todo!()
    }
}
