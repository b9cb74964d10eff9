//! Open files.

use std::rc::Rc;

use forebay_proto::{Fid, Layout};

use crate::{Caller, Client, ClientResult};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Fail if the name exists (create).
    pub exclusive: bool,
    /// Cut to zero bytes.
    pub truncate: bool,
    /// Writes are durable when they return (O_SYNC, O_DSYNC).
    pub sync: bool,
}

impl OpenMode {
    /// For reading only.
    pub const READ: Self = Self { read: true, write: false, exclusive: false, truncate: false, sync: false };
    /// For writing only.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };
}

/// An open regular file. Cheap to clone: all clones are one handle.
///
/// Close it with [`Client::close`], which reports errors; if the last clone is dropped, it is closed in the background.
#[derive(Clone)]
pub struct OpenFile {
    pub(crate) inner: Rc<OpenInner>,
}

pub(crate) struct OpenInner {}

impl OpenFile {
    /// The file.
    pub fn fid(&self) -> Fid {
        todo!()
    }

    /// The handle's number, unique in this client.
    pub fn handle(&self) -> u64 {
        todo!()
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        todo!()
    }

    /// The file's layout.
    pub fn layout(&self) -> Rc<Layout> {
        todo!()
    }
}

impl Client {
    /// Opens a regular file.
    pub async fn open(&self, _caller: &Caller, _fid: Fid, _mode: OpenMode) -> ClientResult<OpenFile> {
        todo!()
    }

    /// close(2) of one descriptor: reports acknowledged writes that were lost. The handle stays open.
    pub async fn flush(&self, _file: &OpenFile) -> ClientResult<()> {
        todo!()
    }

    /// Ends the handle: waits for its writes, brings size and times to the MDT. Other clones of it become invalid.
    pub async fn close(&self, _file: OpenFile) -> ClientResult<()> {
        todo!()
    }
}
