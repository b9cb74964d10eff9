//! Attributes of inodes and of the file system.

use forebay_client::{ClientResult, SetAttributes, StatFs};
use fuser::{FileAttr, FileHandle};

use crate::{caller::decided, convert, server::Server};

impl Server {
    /// `handle`: through which the process asks, if it does; a handle that is gone by now does not matter.
    pub async fn getattr(&self, ino: u64, handle: Option<FileHandle>) -> ClientResult<FileAttr> {
        let open = handle.and_then(|handle| self.file(handle).ok());
        self.exact(&self.client.getattr(self.fid(ino), open.as_ref().map(|open| &open.file)).await?).await
    }

    pub async fn setattr(
        &self,
        ino: u64,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> ClientResult<FileAttr> {
        let open = handle.and_then(|handle| self.file(handle).ok());
        let file = open.as_ref().map(|open| &open.file);
        self.exact(&self.client.setattr(&decided(), self.fid(ino), changes, file).await?).await
    }

    /// Drops set-id bits, if there are any, before somebody without CAP_FSETID changes the content.
    pub async fn drop_set_ids(&self, ino: u64) -> ClientResult<()> {
        let fid = self.fid(ino);
        let permissions = self.client.getattr(fid, None).await?.mode & forebay_client::mode::PERMISSIONS;
        let left = convert::without_set_ids(permissions);
        if left != permissions {
            let changes = SetAttributes { mode: Some(left), ..SetAttributes::default() };
            self.client.setattr(&decided(), fid, changes, None).await?;
        }
        Ok(())
    }

    pub async fn statfs(&self) -> ClientResult<StatFs> {
        self.client.statfs().await
    }
}
