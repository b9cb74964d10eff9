//! Attributes of inodes and of the file system.

use std::{rc::Rc, time::Duration};

use forebay_client::{Attr, Caller, ClientResult, OpenFile, SetAttributes, SetTime, StatFs, mode};
use forebay_proto::{Errno, Fid};
use fuser::{FileAttr, FileHandle};

use crate::{
    answer::Attributes,
    caller::{Asker, decided},
    data::ALL,
    pages::Answered,
    server::Server,
};

impl Server {
    /// `handle`: the open file through which the process asks, if any. A handle that is already released does no harm.
    pub async fn getattr(&self, ino: u64, handle: Option<FileHandle>) -> ClientResult<Attributes> {
        match self.current(ino, handle).await {
            Err(error) if error.errno == Errno::ESTALE => {
                let attr = self.races.attr(ino).or_else(|| self.directory_at_last(self.fid(ino))).ok_or(error)?;
                Ok(Attributes { attr: FileAttr { nlink: 0, ..attr }, valid_for: Duration::ZERO })
            }
            current => current,
        }
    }

    /// As [`Server::getattr`], but only for inodes that still exist.
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
        asker: Asker,
        ino: u64,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> ClientResult<Attributes> {
        let Some(size) = changes.size else { return self.set_attributes(asker, ino, handle, changes).await };
        // The kernel writes back no dirty pages of mappings until it has this reply.
        self.change(ino, ALL, Answered::AtOnce, async || {
            let before = match self.pages.are_there(ino) {
                true => self.client.getattr(self.fid(ino), None).await?.size,
                false => size,
            };
            Ok((self.set_attributes(asker, ino, handle, changes).await?, size.min(before)..ALL.end))
        })
        .await
    }

    async fn set_attributes(
        &self,
        asker: Asker,
        ino: u64,
        handle: Option<FileHandle>,
        changes: SetAttributes,
    ) -> ClientResult<Attributes> {
        let fid = self.fid(ino);
        let open = match (handle, changes.size) {
            // ftruncate(2) has the rights of its handle, and no others.
            (Some(handle), Some(_)) => Some(self.file(handle)?.file().await?),
            _ => self.if_open(handle).await,
        };
        let set = self.set_as_allowed(asker, fid, changes, open.as_ref()).await;
        let changed = match set {
            // The file has no name and no handle any more, so nobody can observe the change.
            Err(error) if error.errno == Errno::ESTALE && handle.is_none() => {
                let attr = self.races.attr(ino).ok_or(error)?;
                return Ok(Attributes { attr, valid_for: Duration::ZERO });
            }
            changed => changed?,
        };
        let attr = self.exact(&changed).await?;
        self.note_directory(&attr);
        Ok(Attributes { attr, valid_for: Duration::ZERO })
    }

    /// Sets attributes that the kernel has permitted according to the owner and group that it has cached.
    async fn set_as_allowed(
        &self,
        asker: Asker,
        fid: Fid,
        changes: SetAttributes,
        open: Option<&OpenFile>,
    ) -> ClientResult<Attr> {
        // The kernel leaves it to the file system to drop set-id bits.
        let set = async |caller: &Caller| self.client.setattr_as(&asker, caller, fid, changes.clone(), open).await;
        if asker.is_root() || changes.size.is_some() {
            return set(&decided()).await;
        }
        // In these cases the server decides by the caller's groups, which are not known here: it may clear a bit or
        // refuse.
        let concerns_group = changes.gid.is_some() || changes.mode.is_some_and(|mode| mode & mode::S_ISGID != 0);
        if self.client.known_owner(fid).is_none() && !concerns_group {
            match set(&asker.plain()).await {
                Err(error) if matches!(error.errno, Errno::EPERM | Errno::EACCES) => {}
                done => return done,
            }
        }
        let Some(owner) = self.owner(fid).await? else { return set(&decided()).await };
        match asker.is_still_permitted(owner) {
            true if concerns_group && !asker.has_capability_over(owner) => {
                asker.make(changes.mode.unwrap_or(0), set).await
            }
            true => set(&decided()).await,
            // Write permission may be enough.
            false if is_touched(&changes) => asker.make(0, set).await,
            false if self.drops_set_ids(fid, &changes).await? => set(&decided()).await,
            false => Err(Errno::EPERM.into()),
        }
    }

    /// The kernel has permitted an operation by the owner that it has cached. Checks it against the current owner; see
    /// [`Asker::is_still_permitted`].
    pub async fn is_still_permitted(&self, asker: Asker, fid: Fid) -> ClientResult<bool> {
        Ok(asker.is_root() || self.owner(fid).await?.is_none_or(|owner| asker.is_still_permitted(owner)))
    }

    /// User and group that own the file. `None`: it no longer exists.
    async fn owner(&self, fid: Fid) -> ClientResult<Option<(u32, u32)>> {
        if let Some(owner) = self.client.known_owner(fid) {
            return Ok(Some(owner));
        }
        match self.client.getattr(fid, None).await {
            Err(error) if error.errno == Errno::ESTALE => Ok(None),
            attr => attr.map(|attr| Some((attr.uid, attr.gid))),
        }
    }

    /// Whether the change only clears set-id bits. The kernel clears them before fallocate(2) and copy_file_range(2),
    /// on behalf of any process that has the file open for writing. They may be cleared already.
    async fn drops_set_ids(&self, fid: Fid, changes: &SetAttributes) -> ClientResult<bool> {
        let SetAttributes { mode: Some(mode), uid: None, gid: None, size: None, atime: None, mtime: None } = changes
        else {
            return Ok(false);
        };
        let before = self.client.getattr(fid, None).await?.mode & mode::PERMISSIONS;
        let after = mode & mode::PERMISSIONS;
        Ok(mode::without_set_ids(before, || false) == mode::without_set_ids(after, || false) && after & !before == 0)
    }

    pub async fn statfs(&self) -> ClientResult<StatFs> {
        self.client.statfs().await
    }
}

/// Whether the change only sets times to now. That needs write permission, not ownership or a capability.
fn is_touched(changes: &SetAttributes) -> bool {
    let SetAttributes { mode, uid, gid, size, atime, mtime } = changes;
    let is_now = matches!((atime, mtime), (None, None) | (Some(SetTime::Now), Some(SetTime::Now)));
    is_now && mode.is_none() && uid.is_none() && gid.is_none() && size.is_none()
}
