//! Open files and their bytes.

use std::{ops::Range, rc::Rc};

use bytes::Bytes;
use forebay_client::{Allocate, ClientResult, PendingFile, WriteAt, WriteOptions};
use forebay_proto::Errno;
use fuser::{FileHandle, FopenFlags, WriteFlags};

use crate::{
    caller::{Asker, Writer, decided},
    convert, limits,
    pages::Answered,
    server::Server,
    turns,
};

/// All bytes of a file.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// Data bypasses the page cache. Writes to different offsets of a file run in parallel.
pub(crate) const DATA_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

impl Server {
    pub async fn open(self: &Rc<Self>, asker: Asker, ino: u64, flags: i32) -> ClientResult<(FileHandle, FopenFlags)> {
        let (fid, mode) = (self.fid(ino), convert::open_mode(flags));
        // The kernel refuses a writer before this, and anybody else only after it has opened the file, which truncates
        // it. The pages of a running program are left alone.
        self.client.check_not_running(fid, mode)?;
        let open = async || self.client.open_as(&asker, &decided(), fid, mode).await;
        let file = match mode.truncate {
            true => self.change(ino, ALL, Answered::AtOnce, async || Ok((open().await?, ALL))).await?,
            false => open().await?,
        };
        Ok((self.add_file(file), DATA_FLAGS))
    }

    /// Records that the file was read; the kernel asks for access times again after each read. `open_flags`: the
    /// descriptor's current flags. fcntl(2) may have set or cleared O_NOATIME.
    pub async fn note_access(&self, handle: FileHandle, open_flags: i32) -> ClientResult<()> {
        if open_flags & libc::O_NOATIME == 0 {
            self.client.accessed(&self.file(handle)?.file().await?);
        }
        Ok(())
    }

    /// `open_flags`: the descriptor's current flags. fcntl(2) may have set or cleared O_APPEND. Pages of a mapping that
    /// are written back have an offset already.
    #[allow(clippy::too_many_arguments)] // as the kernel's structure
    pub async fn write(
        self: &Rc<Self>,
        asker: Asker,
        ino: u64,
        handle: FileHandle,
        offset: u64,
        data: Bytes,
        kind: WriteFlags,
        open_flags: i32,
    ) -> ClientResult<u32> {
        if kind.contains(WriteFlags::FUSE_WRITE_CACHE) {
            // As on a local file system, a store to a mapping clears no set-id bits or capabilities.
            let (open, bytes) = (self.file(handle)?, data.len() as u32);
            self.write_pages(ino, &open.file().await?, offset, data).await?;
            return Ok(bytes);
        }
        let options = convert::write_options(offset, open_flags);
        let end = match options.at {
            WriteAt::Offset(offset) => offset + data.len() as u64,
            // The offset of an append is known only when it is executed.
            WriteAt::End => u64::MAX,
        };
        self.change(ino, offset..end, Answered::Settled, async || {
            self.write_through(Writer::new(asker, kind), ino, handle, options, data).await
        })
        .await
    }

    /// A write that bypasses the kernel's pages. Returns how many bytes were written, and which range of the file
    /// changed.
    async fn write_through(
        &self,
        writer: Writer,
        ino: u64,
        handle: FileHandle,
        options: WriteOptions,
        data: Bytes,
    ) -> ClientResult<(u32, Range<u64>)> {
        let open = self.file(handle)?;
        let from = match options.at {
            WriteAt::Offset(offset) => self.end_before(ino, &open, offset).await?,
            WriteAt::End => u64::MAX,
        };
        let written = self.client.write_as(&writer, &open, options, data).await?;
        let bytes = written.end - written.start;
        if let (WriteAt::Offset(_), Some(Ok(file))) = (options.at, open.arrived()) {
            turns::after_write(file.writers(), bytes as usize);
        }
        Ok((bytes as u32, from.min(written.start)..written.end))
    }

    /// Where the range that a change at `offset` affects begins: at the end of file, if that is before `offset`. A
    /// mapping may show there what a program has left behind the end.
    async fn end_before(&self, ino: u64, open: &PendingFile, offset: u64) -> ClientResult<u64> {
        if !self.pages.are_there(ino) {
            return Ok(offset);
        }
        let file = open.file().await?;
        match file.leaves_a_gap(offset) {
            true => Ok(self.client.getattr(file.fid(), Some(&file)).await?.size.min(offset)),
            false => Ok(offset),
        }
    }

    /// copy_file_range(2) to the file `ino`. Returns the number of bytes copied: fewer than requested once `enough` is
    /// true.
    /// Errors: EXDEV where the kernel may have pages of `ino`. The kernel would drop all pages of the destination
    /// range, and with them what a mapping changed in them. After EXDEV it reads and writes itself.
    pub async fn copy_range(
        self: &Rc<Self>,
        asker: Asker,
        (from, offset_in): (FileHandle, u64),
        ino: u64,
        (to, offset_out): (FileHandle, u64),
        bytes: u64,
        enough: impl Fn() -> bool,
    ) -> ClientResult<u64> {
        let touched = offset_out..offset_out.saturating_add(bytes);
        self.change(ino, touched, Answered::Settled, async || {
            if self.pages.are_there(ino) {
                return Err(Errno::EXDEV.into());
            }
            let (from, to) = (self.file(from)?.file().await?, self.file(to)?.file().await?);
            from.size_is_used();
            let copied =
                self.client.copy_range_as(&asker, (&from, offset_in), (&to, offset_out), bytes, enough).await?;
            if self.client.accessed(&from) {
                // For this call the kernel does not know that the access time changed.
                self.forget_attributes(from.fid().low);
            }
            Ok((copied, offset_out..offset_out + copied))
        })
        .await
    }

    /// close(2) of one descriptor of the process `owner`, which releases that process's locks on the file.
    pub async fn flush(&self, handle: FileHandle, owner: u64) -> ClientResult<()> {
        // The file's create is pending, so its changes stay buffered: nobody else can observe them.
        let Some(file) = self.file(handle)?.arrived() else { return Ok(()) };
        let file = file?;
        let flushed = self.client.flush(&file).await;
        if self.client.has_locks(file.fid()) {
            let client = self.client.clone();
            let unlocked = self.env.spawn(async move { client.unlock_owner(&file, owner).await });
            // The locks are released after the writes made under them have arrived, however long that takes. close(2)
            // does not wait longer than this for it.
            if let Ok(Some(unlocked)) = self.env.timeout(limits::UNLOCK_TERM, unlocked).await {
                unlocked?;
            }
        }
        flushed
    }

    pub async fn release(&self, handle: FileHandle) -> ClientResult<()> {
        // The program has closed the file and waits for nothing. What it does next may need the file's space.
        let _begun = self.client.begin_close();
        let file = self.take_file(handle)?.file_batched().await?;
        self.client.unlock_handle(&file).await?;
        self.client.close(file).await
    }

    pub async fn fsync(&self, handle: FileHandle, datasync: bool) -> ClientResult<()> {
        self.client.fsync(&self.file(handle)?.file().await?, datasync).await
    }

    pub async fn fallocate(
        self: &Rc<Self>,
        asker: Asker,
        ino: u64,
        handle: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
    ) -> ClientResult<()> {
        let what = allocation(mode)?;
        let end = offset.saturating_add(bytes);
        self.change(ino, offset..end, Answered::Settled, async || {
            let open = self.file(handle)?;
            let start = match what {
                Allocate::Punch | Allocate::Zero { keep_size: true } => offset,
                Allocate::Zero { keep_size: false } => self.end_before(ino, &open, offset).await?,
                // Reserving space changes only bytes behind the end of file.
                Allocate::Reserve { keep_size: true } => end,
                Allocate::Reserve { keep_size: false } => self.end_before(ino, &open, end).await?,
            };
            self.client.fallocate_as(&asker, &open.file().await?, offset, bytes, what).await?;
            Ok(((), start..end))
        })
        .await
    }
}

/// What a mode of fallocate(2) asks for.
fn allocation(mode: i32) -> ClientResult<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP;
    match mode {
        0 => Ok(Allocate::Reserve { keep_size: false }),
        KEEP => Ok(Allocate::Reserve { keep_size: true }),
        PUNCH => Ok(Allocate::Punch),
        ZERO => Ok(Allocate::Zero { keep_size: false }),
        ZERO_KEEP => Ok(Allocate::Zero { keep_size: true }),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_fallocate_that_move_bytes_are_refused() {
        assert_eq!(allocation(0), Ok(Allocate::Reserve { keep_size: false }));
        assert_eq!(allocation(libc::FALLOC_FL_KEEP_SIZE), Ok(Allocate::Reserve { keep_size: true }));
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        assert_eq!(allocation(punch), Ok(Allocate::Punch));
        assert_eq!(allocation(libc::FALLOC_FL_COLLAPSE_RANGE), Err(Errno::EOPNOTSUPP.into()));
        assert_eq!(allocation(libc::FALLOC_FL_PUNCH_HOLE), Err(Errno::EOPNOTSUPP.into()));
    }
}
