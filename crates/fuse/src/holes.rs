//! Holes as programs ask for them: lseek(2) and `st_blocks`.

use forebay_client::{Attr, ClientResult, OpenFile, mode};
use forebay_proto::Errno;
use fuser::{FileAttr, FileHandle};

use crate::server::Server;

/// Bytes of a block of `st_blocks`.
const BLOCK: u64 = 512;

impl Server {
    /// SEEK_DATA and SEEK_HOLE; the kernel handles the other kinds of lseek(2).
    pub async fn lseek(&self, handle: FileHandle, offset: i64, whence: i32) -> ClientResult<i64> {
        let file = self.file(handle)?.file().await?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        if self.may_have_changed_pages(file.fid()) {
            return self.lseek_without_holes(&file, offset, whence).await;
        }
        let found = match whence {
            libc::SEEK_DATA => self.client.seek_data(&file, offset).await?,
            libc::SEEK_HOLE => self.client.seek_hole(&file, offset).await?,
            _ => return Err(Errno::EINVAL.into()),
        };
        Ok(found as i64)
    }

    /// Changes through a mapping may exist in the kernel only, which does not write them back before this request. Then
    /// the whole file counts as data.
    async fn lseek_without_holes(&self, file: &OpenFile, offset: u64, whence: i32) -> ClientResult<i64> {
        let size = self.client.getattr(file.fid(), Some(file)).await?.size;
        match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE if offset >= size => Err(Errno::ENXIO.into()),
            libc::SEEK_DATA => Ok(offset as i64),
            libc::SEEK_HOLE => Ok(size as i64),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Attributes for stat(2): `st_blocks` is the space that the file occupies.
    pub async fn exact(&self, attr: &Attr) -> ClientResult<FileAttr> {
        let entry = self.entry(attr);
        if !mode::is_file(attr.mode) {
            return Ok(entry);
        }
        let used = self.client.used_bytes(attr).await?;
        Ok(FileAttr { blocks: used.div_ceil(BLOCK), ..entry })
    }
}
