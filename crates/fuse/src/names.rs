//! Directory operations: lookup, create, make, link, unlink, rename.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_client::ClientResult;
use forebay_proto::Errno;
use fuser::{FileAttr, FileHandle, FopenFlags, RenameFlags};

use crate::{
    answer::Entry,
    caller::{Asker, decided},
    convert,
    data::DATA_FLAGS,
    kernel::Told,
    limits,
    server::Server,
};

impl Server {
    /// `name` may be `.`, of any kind of file: the kernel has a file handle and not the inode. `holds`: hold the inode
    /// for a moment.
    pub async fn lookup(self: &Rc<Self>, parent: u64, name: &[u8], holds: bool) -> ClientResult<Entry> {
        if name == b"." {
            let attr = self.current(parent, None).await?.attr;
            return Ok(Entry::There(Told::once(attr)));
        }
        let (mut attempts, most) = (1, if holds { limits::HOLD_ATTEMPTS } else { limits::LOOKUP_ATTEMPTS });
        loop {
            match self.found(parent, name, holds).await {
                Err(error) if error.errno == Errno::ENOENT => {
                    let name_for = self.name_for(parent, name, None);
                    return if name_for.is_zero() { Err(error) } else { Ok(Entry::Absent(name_for)) };
                }
                Err(error) if error.errno == Errno::ESTALE && holds && attempts == 1 && self.is_gone(parent).await => {
                    return Err(Errno::ENOENT.into());
                }
                // The inode went away between two requests: the name is gone, or leads to another inode by now.
                Err(error) if error.errno == Errno::ESTALE && attempts < most => attempts += 1,
                found => return found,
            }
        }
    }

    /// Whether the inode no longer exists.
    pub async fn is_gone(&self, ino: u64) -> bool {
        let known = self.client.getattr(self.fid(ino), None).await;
        known.is_err_and(|error| error.errno == Errno::ESTALE)
    }

    async fn found(self: &Rc<Self>, parent: u64, name: &[u8], holds: bool) -> ClientResult<Entry> {
        let mut attr = self.client.lookup(&decided(), self.fid(parent), name).await?;
        if holds {
            attr = self.hold(parent, name, attr).await?;
        }
        let exact = self.exact(&attr).await?;
        let attributes_for = self.client.attributes_for(&attr);
        Ok(self.named(parent, name, exact, attributes_for))
    }

    /// Here the server checks permissions too: the file may have been created after the kernel's lookup.
    pub async fn create(
        &self,
        asker: Asker,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> ClientResult<(Told, FileHandle, FopenFlags)> {
        let (dir, open) = (self.fid(parent), convert::open_mode(flags));
        let create = async |caller: &_| self.client.create_pending(caller, dir, name, mode, open).await;
        let (attr, file) = asker.make(mode, create).await?;
        let name_for = self.name_for(parent, name, Some(attr.fid));
        let attributes_for = self.tell_new(attr.fid.low, self.client.new_file_for(attr.fid));
        Ok((Told { attr: self.entry(&attr), attributes_for, name_for }, self.add_file(file), DATA_FLAGS))
    }

    /// Makes a file without a name (O_TMPFILE), as `create` makes one with a name.
    pub async fn tmpfile(
        &self,
        asker: Asker,
        parent: u64,
        mode: u32,
        flags: i32,
    ) -> ClientResult<(FileAttr, FileHandle, FopenFlags)> {
        let (parent, open) = (self.fid(parent), convert::open_mode(flags));
        let (attr, file) =
            asker.make(mode, async |caller| self.client.create_nameless(caller, parent, mode, open).await).await?;
        Ok((self.entry(&attr), self.add_file(file), DATA_FLAGS))
    }

    pub async fn mkdir(&self, asker: Asker, parent: u64, name: &[u8], mode: u32) -> ClientResult<Entry> {
        let dir = self.fid(parent);
        let made = asker.make(mode, async |caller| self.client.mkdir(caller, dir, name, mode).await).await?;
        Ok(self.named(parent, name, self.entry(&made), self.client.attributes_for(&made)))
    }

    pub async fn mknod(&self, asker: Asker, parent: u64, name: &[u8], mode: u32, rdev: u32) -> ClientResult<Entry> {
        let (dir, rdev) = (self.fid(parent), rdev.into());
        let made = asker.make(mode, async |caller| self.client.mknod(caller, dir, name, mode, rdev).await).await?;
        Ok(self.named(parent, name, self.entry(&made), self.client.attributes_for(&made)))
    }

    pub async fn symlink(&self, asker: Asker, parent: u64, name: &[u8], target: &[u8]) -> ClientResult<Entry> {
        let dir = self.fid(parent);
        let made = asker.make(0, async |caller| self.client.symlink(caller, dir, name, target).await).await?;
        Ok(self.named(parent, name, self.entry(&made), self.client.attributes_for(&made)))
    }

    /// `thread` calls link(2). If its link comes too late a second time, the error is final.
    pub async fn link(&self, thread: u32, ino: u64, parent: u64, name: &[u8]) -> ClientResult<Entry> {
        let linked = self.client.link(&decided(), self.fid(ino), self.fid(parent), name).await;
        let attr = linked.map_err(|error| match error.errno {
            Errno::ESTALE => self.races.late_link(thread, parent, name).into(),
            _ => error,
        })?;
        Ok(self.named(parent, name, self.entry(&attr), Duration::ZERO))
    }

    pub async fn unlink(&self, parent: u64, name: &[u8]) -> ClientResult<()> {
        self.client.unlink(&decided(), self.fid(parent), name).await
    }

    pub async fn rmdir(&self, parent: u64, name: &[u8]) -> ClientResult<()> {
        self.client.rmdir(&decided(), self.fid(parent), name).await
    }

    pub async fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> ClientResult<()> {
        if flags.contains(RenameFlags::RENAME_WHITEOUT) {
            return Err(Errno::EINVAL.into());
        }
        let (from, to) = ((self.fid(from.0), from.1), (self.fid(to.0), to.1));
        self.client.rename(&decided(), from, to, flags.bits()).await
    }

    pub async fn readlink(&self, ino: u64) -> ClientResult<Bytes> {
        match self.client.readlink(self.fid(ino)).await {
            Err(error) if error.errno == Errno::ESTALE => self.races.target(ino).ok_or(error),
            read => read,
        }
    }
}
