//! Names: lookup, create, make, link, unlink, rename.

use bytes::Bytes;
use forebay_client::{ClientResult, LayoutSpec};
use forebay_proto::Errno;
use fuser::{FileAttr, FileHandle, FopenFlags, RenameFlags};

use crate::{
    caller::{Asker, decided},
    convert,
    data::DATA_FLAGS,
    server::Server,
};

impl Server {
    /// `.` of anything: the kernel has a handle of it, and not the inode.
    pub async fn lookup(&self, parent: u64, name: &[u8]) -> ClientResult<FileAttr> {
        if name == b"." {
            return self.getattr(parent, None).await;
        }
        self.exact(&self.client.lookup(&decided(), self.fid(parent), name).await?).await
    }

    /// Here the server checks permissions too: the file may have come into being after the kernel looked.
    pub async fn create(
        &self,
        asker: Asker,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> ClientResult<(FileAttr, FileHandle, FopenFlags)> {
        let (parent, open) = (self.fid(parent), convert::open_mode(flags));
        let (attr, file) = asker
            .make(mode, async |caller| {
                self.client.create(caller, parent, name, mode, open, LayoutSpec::inherit()).await
            })
            .await?;
        Ok((self.entry(&attr), self.add_file(file), DATA_FLAGS))
    }

    /// A file without a name (O_TMPFILE), made as `create` makes one with a name.
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

    pub async fn mkdir(&self, asker: Asker, parent: u64, name: &[u8], mode: u32) -> ClientResult<FileAttr> {
        let parent = self.fid(parent);
        let made = asker.make(mode, async |caller| self.client.mkdir(caller, parent, name, mode).await).await?;
        Ok(self.entry(&made))
    }

    pub async fn mknod(&self, asker: Asker, parent: u64, name: &[u8], mode: u32, rdev: u32) -> ClientResult<FileAttr> {
        let (parent, rdev) = (self.fid(parent), rdev.into());
        let made = asker.make(mode, async |caller| self.client.mknod(caller, parent, name, mode, rdev).await).await?;
        Ok(self.entry(&made))
    }

    pub async fn symlink(&self, asker: Asker, parent: u64, name: &[u8], target: &[u8]) -> ClientResult<FileAttr> {
        let parent = self.fid(parent);
        let made = asker.make(0, async |caller| self.client.symlink(caller, parent, name, target).await).await?;
        Ok(self.entry(&made))
    }

    pub async fn link(&self, ino: u64, parent: u64, name: &[u8]) -> ClientResult<FileAttr> {
        Ok(self.entry(&self.client.link(&decided(), self.fid(ino), self.fid(parent), name).await?))
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
        self.client.readlink(self.fid(ino)).await
    }
}
