//! Attributes of inodes and of the file system.

use std::{rc::Rc, time::Duration};

use forebay_client::{ClientResult, OpenFile, SetAttributes, StatFs};
use forebay_proto::Errno;
use fuser::{FileAttr, FileHandle};

use crate::{answer::Attributes, caller::decided, convert, data::ALL, pages::Answered, server::Server};

impl Server {
    /// `handle`: through which the process asks, if it does; a handle that is gone by now does not matter.
    pub async fn getattr(&self, ino: u64, handle: Option<FileHandle>) -> ClientResult<Attributes> {
        match self.current(ino, handle).await {
            Err(error) if error.errno == Errno::ESTALE => {
                let attr = self.races.attr(ino).or_else(|| self.directory_at_last(self.fid(ino))).ok_or(error)?;
                Ok(Attributes { attr: FileAttr { nlink: 0, ..attr }, valid_for: Duration::ZERO })
            }
            current => current,
        }
    }

    /// The same of what is there.
    pub async fn current(&self, ino: u64, handle: Option<FileHandle>) -> ClientResult<Attributes> {
        let open = self.if_open(handle).await;
        let known = self.client.getattr(self.fid(ino), open.as_ref()).await?;
        let attr = self.exact(&known).await?;
        self.note_directory(&attr);
        Ok(Attributes { attr, valid_for: self.client.attributes_for(&known) })
    }

    async fn if_open(&self, handle: Option<FileHandle>) -> Option<OpenFile> {
        self.file(handle?).ok()?.file().await.ok()
    }

    pub async fn setattr(
        self: &Rc<Self>,
        ino: u64,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> ClientResult<Attributes> {
        let Some(size) = changes.size else { return self.set_attributes(ino, handle, changes).await };
        // Until it has the answer the kernel keeps back what mappings changed.
        self.change(ino, ALL, Answered::AtOnce, async || {
            let before = match self.pages.are_there(ino) {
                true => self.client.getattr(self.fid(ino), None).await?.size,
                false => size,
            };
            Ok((self.set_attributes(ino, handle, changes).await?, size.min(before)..ALL.end))
        })
        .await
    }

    async fn set_attributes(
        &self,
        ino: u64,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> ClientResult<Attributes> {
        let fid = self.fid(ino);
        let open = match (handle, changes.size) {
            // ftruncate(2): what that handle may do, and nothing more.
            (Some(handle), Some(_)) => Some(self.file(handle)?.file().await?),
            _ => self.if_open(handle).await,
        };
        let sets_ids = changes.mode.is_some_and(|mode| convert::without_set_ids(mode) != mode);
        let changed = match self.client.setattr(&decided(), fid, changes, open.as_ref()).await {
            // Whatever is done to it, nobody can see any more.
            Err(error) if error.errno == Errno::ESTALE && handle.is_none() => {
                let attr = self.races.attr(ino).ok_or(error)?;
                return Ok(Attributes { attr, valid_for: Duration::ZERO });
            }
            changed => changed?,
        };
        if sets_ids {
            self.got_set_ids(fid);
        }
        let attr = self.exact(&changed).await?;
        self.note_directory(&attr);
        Ok(Attributes { attr, valid_for: Duration::ZERO })
    }

    /// Drops set-id bits, if there are any, before somebody without CAP_FSETID changes the content.
    pub async fn drop_set_ids(&self, ino: u64) -> ClientResult<()> {
        let fid = self.fid(ino);
        let permissions = self.client.getattr(fid, None).await?.mode & forebay_client::mode::PERMISSIONS;
        let left = convert::without_set_ids(permissions);
        if left != permissions {
            let changes = SetAttributes { mode: Some(left), ..SetAttributes::default() };
            self.client.setattr(&decided(), fid, changes, None).await?;
            self.forget_attributes(ino);
        }
        Ok(())
    }

    pub async fn statfs(&self) -> ClientResult<StatFs> {
        self.client.statfs().await
    }
}
