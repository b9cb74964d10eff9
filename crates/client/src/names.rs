//! Names: lookup, create, make, link, unlink, rename, directories.

use bytes::Bytes;
use forebay_proto::{
    Errno, Fid,
    message::{Create, LayoutSpec, Link, Lookup, Make, ReadDir, ReadLink, Rename, Rmdir, Unlink, open_flags},
};

use crate::{Attr, Caller, Client, ClientResult, DirEntry, OpenFile, OpenMode, limits, mode, tasks::detached};

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
    pub async fn lookup(&self, caller: &Caller, parent: Fid, name: &[u8]) -> ClientResult<Attr> {
        let request = Lookup { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name) };
        for _ in 0..limits::STALE_ATTEMPTS {
            let entry = self.mdt(parent, &request).await?;
            match self.complete(entry).await {
                // The file went before the OSTs were asked: the name stands for another by now, or for none.
                Err(error) if error.errno == Errno::ESTALE => {}
                other => return other,
            }
        }
        Err(Errno::ESTALE.into())
    }

    /// Makes a regular file and opens it; opens the one that is there unless `open.exclusive`.
    ///
    /// `mode`: permission bits, umask applied or in it ([`mode::with_umask`]). `layout`: what is asked for, or the directory's default.
    pub async fn create(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        open: OpenMode,
        layout: LayoutSpec,
    ) -> ClientResult<(Attr, OpenFile)> {
        let (client, caller, name) = (self.clone(), caller.clone(), Bytes::copy_from_slice(name));
        detached(self.env(), async move {
            let (fid, handle) = (client.new_fid().await?, client.new_handle());
            let flags = open.flags();
            let request = Create { caller: caller.clone(), parent, name, fid, mode, flags, handle, layout };
            let reply = client.mdt(fid, &request).await?;
            let (attr, created) = (reply.attr.clone(), reply.created);
            let file = client.opened(caller, reply, handle, open)?;
            if created {
                // Nobody can have written to it before this reply left the MDT.
                return Ok((attr, file));
            }
            Ok((client.with_sizes(attr, Some(&file.layout())).await?, file))
        })
        .await
    }

    /// Makes a regular file without a name, as if in `parent`, and opens it. It ends with its last handle, unless
    /// [`Client::link`] gives it a name; with `open.exclusive` it never gets one.
    pub async fn create_nameless(
        &self,
        caller: &Caller,
        parent: Fid,
        mode: u32,
        open: OpenMode,
    ) -> ClientResult<(Attr, OpenFile)> {
        let (client, caller) = (self.clone(), caller.clone());
        detached(self.env(), async move {
            let (fid, handle) = (client.new_fid().await?, client.new_handle());
            let (name, flags, layout) = (Bytes::new(), open.flags() | open_flags::NAMELESS, LayoutSpec::inherit());
            let request = Create { caller: caller.clone(), parent, name, fid, mode, flags, handle, layout };
            let reply = client.mdt(fid, &request).await?;
            Ok((reply.attr.clone(), client.opened(caller, reply, handle, open)?))
        })
        .await
    }

    /// Makes a directory.
    pub async fn mkdir(&self, caller: &Caller, parent: Fid, name: &[u8], mode: u32) -> ClientResult<Attr> {
        self.make(caller, parent, name, mode::with_type(mode, mode::S_IFDIR), 0, &[]).await
    }

    /// Makes a fifo, socket or device, or a regular file without opening it. `mode`: type and permission bits.
    pub async fn mknod(&self, caller: &Caller, parent: Fid, name: &[u8], mode: u32, rdev: u64) -> ClientResult<Attr> {
        if mode::is_special(mode) {
            return self.make(caller, parent, name, mode, rdev, &[]).await;
        }
        let request = Create {
            caller: caller.clone(),
            parent,
            name: Bytes::copy_from_slice(name),
            fid: self.new_fid().await?,
            mode: mode & (mode::PERMISSIONS | mode::UMASK),
            flags: crate::open_flags::EXCLUSIVE,
            handle: 0,
            layout: LayoutSpec::inherit(),
        };
        Ok(self.mdt(request.fid, &request).await?.attr)
    }

    /// Makes a symbolic link.
    pub async fn symlink(&self, caller: &Caller, parent: Fid, name: &[u8], target: &[u8]) -> ClientResult<Attr> {
        self.make(caller, parent, name, mode::S_IFLNK | 0o777, 0, target).await
    }

    async fn make(
        &self,
        caller: &Caller,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u64,
        symlink: &[u8],
    ) -> ClientResult<Attr> {
        let request = Make {
            caller: caller.clone(),
            parent,
            name: Bytes::copy_from_slice(name),
            fid: self.new_fid().await?,
            mode,
            rdev,
            symlink: Bytes::copy_from_slice(symlink),
        };
        Ok(self.mdt(request.fid, &request).await?.attr)
    }

    /// Gives `fid` another name.
    pub async fn link(&self, caller: &Caller, fid: Fid, parent: Fid, name: &[u8]) -> ClientResult<Attr> {
        let request = Link { caller: caller.clone(), fid, parent, name: Bytes::copy_from_slice(name) };
        let entry = self.mdt(fid, &request).await?;
        let attr = entry.attr.clone();
        match self.complete(entry).await {
            // It was linked, and all its names went before the OSTs were asked.
            Err(error) if error.errno == Errno::ESTALE => Ok(attr),
            other => other,
        }
    }

    /// Takes a name away; not a directory's.
    pub async fn unlink(&self, caller: &Caller, parent: Fid, name: &[u8]) -> ClientResult<()> {
        let request = Unlink { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name) };
        Ok(self.mdt(parent, &request).await.map(drop)?)
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, caller: &Caller, parent: Fid, name: &[u8]) -> ClientResult<()> {
        let request = Rmdir { caller: caller.clone(), parent, name: Bytes::copy_from_slice(name) };
        Ok(self.mdt(parent, &request).await.map(drop)?)
    }

    /// Moves a name. `flags`: RENAME_NOREPLACE (1), RENAME_EXCHANGE (2).
    pub async fn rename(&self, caller: &Caller, from: (Fid, &[u8]), to: (Fid, &[u8]), flags: u32) -> ClientResult<()> {
        let request = Rename {
            caller: caller.clone(),
            from_parent: from.0,
            from_name: Bytes::copy_from_slice(from.1),
            to_parent: to.0,
            to_name: Bytes::copy_from_slice(to.1),
            flags,
        };
        Ok(self.mdt(from.0, &request).await.map(drop)?)
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, fid: Fid) -> ClientResult<Bytes> {
        Ok(self.mdt(fid, &ReadLink { fid }).await?.target)
    }

    /// Entries after `cookie` (0 = from the beginning), up to about `max_bytes` of names and attributes.
    ///
    /// With `attributes`, those of a file that somebody has open for writing are asked for from the OSTs too.
    pub async fn readdir(&self, fid: Fid, cookie: u64, max_bytes: u32, attributes: bool) -> ClientResult<DirPage> {
        let request = ReadDir { fid, cookie, max_bytes, with_attributes: attributes };
        let reply = self.mdt(fid, &request).await?;
        let mut entries = reply.entries;
        for entry in &mut entries {
            if entry.attr.as_ref().is_some_and(crate::attributes::size_is_on_osts) {
                // The file may be gone by now; then the name comes without attributes.
                entry.attr = self.getattr(entry.fid, None).await.ok();
            }
        }
        Ok(DirPage { entries, end: reply.end })
    }
}
