//! Paths, for users of the library. Components are separated by `/`; symbolic links are followed.

use bytes::Bytes;
use forebay_proto::Fid;

use crate::{Attr, Caller, Client, ClientResult, OpenFile, OpenMode, write::Payload};

impl Client {
    /// Attributes of what `path` names.
    pub async fn resolve(&self, _caller: &Caller, _path: &str) -> ClientResult<Attr> {
        todo!()
    }

    /// The directory in which `path`'s last component lies (or would lie), and that component.
    pub async fn resolve_parent<'p>(&self, _caller: &Caller, _path: &'p str) -> ClientResult<(Fid, &'p [u8])> {
        todo!()
    }

    /// Opens the file `path` names.
    pub async fn open_path(&self, _caller: &Caller, _path: &str, _mode: OpenMode) -> ClientResult<OpenFile> {
        todo!()
    }

    /// Makes the file `path` if it does not exist, and opens it.
    pub async fn create_path(&self, _caller: &Caller, _path: &str, _open: OpenMode) -> ClientResult<OpenFile> {
        todo!()
    }

    /// Makes the directory `path` and those above it; not an error if they exist.
    pub async fn make_dirs(&self, _caller: &Caller, _path: &str) -> ClientResult<Fid> {
        todo!()
    }

    /// A whole file.
    pub async fn read_file(&self, _caller: &Caller, _path: &str) -> ClientResult<Bytes> {
        todo!()
    }

    /// Replaces a whole file's content (made if it does not exist). Not durable yet: see [`Client::sync_all`].
    pub async fn write_file(&self, _caller: &Caller, _path: &str, _data: impl Into<Payload>) -> ClientResult<()> {
        todo!()
    }

    /// Everything below `path`, parents before children: paths relative to it, and attributes.
    pub async fn walk(&self, _caller: &Caller, _path: &str) -> ClientResult<Vec<(String, Attr)>> {
        todo!()
    }
}
