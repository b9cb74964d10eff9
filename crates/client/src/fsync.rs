//! Durability: of one file, of everything.

use forebay_proto::Fid;

use crate::{Client, ClientResult, OpenFile};

impl Client {
    /// Commits all uncommitted changes of the file by anyone, on every target of its layout, and its inode and first
    /// name at the MDT (also with `datasync`: without them the data could not be found).
    pub async fn fsync(&self, _file: &OpenFile, _datasync: bool) -> ClientResult<()> {
        todo!()
    }

    /// Commits the names and attributes of a directory.
    pub async fn fsync_dir(&self, _fid: Fid) -> ClientResult<()> {
        todo!()
    }

    /// When it returns, everything this client was acknowledged is durable, on every target.
    pub async fn sync_all(&self) -> ClientResult<()> {
        todo!()
    }
}
