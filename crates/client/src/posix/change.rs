//! Changes of a file's bytes on behalf of a process: write(2), truncates, fallocate(2), copy_file_range(2).
//!
//! Invariant: set-id bits and capabilities that the change removes ([`crate::posix::privileges`]) are gone before the
//! change of bytes begins. A truncate is the exception: there they go right after it, before the call returns.
//! Invariant: an append has no offset before the OST that executes it has chosen one. It waits for no other append here.

use std::ops::Range;

use bytes::Bytes;
use forebay_proto::Fid;

use crate::{
    Allocate, Attr, Caller, Client, ClientResult, OpenFile, OpenMode, PendingFile, SetAttributes,
    posix::privileges::Process,
};

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// To this offset.
    Offset(u64),
    /// To the end of the file, as it is when the write is executed (O_APPEND).
    End,
}

/// The options of one write. A descriptor's flags may change between two writes (fcntl(2)), and some belong to one
/// write only (pwritev2(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Where it goes.
    pub at: WriteAt,
    /// Durable when it returns (O_SYNC, O_DSYNC, RWF_SYNC, RWF_DSYNC), also if the file was opened without
    /// [`OpenMode::sync`].
    pub sync: bool,
}

impl WriteOptions {
    /// A write at `offset`.
    pub const fn at(offset: u64) -> Self {
        Self { at: WriteAt::Offset(offset), sync: false }
    }

    /// An append.
    pub const END: Self = Self { at: WriteAt::End, sync: false };

    /// The offset, if the write may be taken while the file's create is pending.
    fn early_offset(self) -> Option<u64> {
        match self.at {
            WriteAt::Offset(offset) if !self.sync => Some(offset),
            _ => None,
        }
    }
}

impl Client {
    /// Writes `data` for `process`. Returns the range of the file that it has written, which is shorter than `data` only
    /// if the rest failed ([`Client::write`]).
    pub async fn write_as(
        &self,
        process: &impl Process,
        file: &PendingFile,
        options: WriteOptions,
        data: Bytes,
    ) -> ClientResult<Range<u64>> {
        let bytes = data.len() as u64;
        if let Some(offset) = options.early_offset()
            && file.write(offset, &data)
        {
            return Ok(offset..offset + bytes);
        }
        let file = file.file().await?;
        self.drop_privileges(process, &file).await?;
        let written = match options.at {
            WriteAt::Offset(offset) => offset..offset + self.write(&file, offset, data).await? as u64,
            WriteAt::End => {
                let start = self.append(&file, data).await?;
                start..start + bytes
            }
        };
        // A write through a handle that was opened with `sync` is durable already.
        if options.sync && !file.mode().sync {
            self.fsync(&file, true).await?;
        }
        Ok(written)
    }

    /// Opens a regular file for `process`: [`Client::open`]. A truncate drops set-id bits and capabilities.
    pub async fn open_as(
        &self,
        process: &impl Process,
        caller: &Caller,
        fid: Fid,
        mode: OpenMode,
    ) -> ClientResult<OpenFile> {
        let file = self.open(caller, fid, mode).await?;
        if mode.truncate
            && let Err(error) = self.drop_privileges(process, &file).await
        {
            // The caller has no handle to close.
            self.close(file).await?;
            return Err(error);
        }
        Ok(file)
    }

    /// Changes attributes for `process`: [`Client::setattr`]. A change of size drops set-id bits and capabilities.
    pub async fn setattr_as(
        &self,
        process: &impl Process,
        caller: &Caller,
        fid: Fid,
        changes: SetAttributes,
        open: Option<&OpenFile>,
    ) -> ClientResult<Attr> {
        let resizes = changes.size.is_some();
        let attr = self.setattr(caller, fid, changes, open).await?;
        if resizes { self.drop_privileges_of(process, attr, open).await } else { Ok(attr) }
    }

    /// Changes a range without writing it, for `process`: [`Client::fallocate`].
    pub async fn fallocate_as(
        &self,
        process: &impl Process,
        file: &OpenFile,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> ClientResult<()> {
        self.drop_privileges(process, file).await?;
        self.fallocate(file, offset, length, what).await
    }

    /// Copies a range for `process`: [`Client::copy_range`].
    pub async fn copy_range_as(
        &self,
        process: &impl Process,
        from: (&OpenFile, u64),
        to: (&OpenFile, u64),
        length: u64,
        enough: impl Fn() -> bool,
    ) -> ClientResult<u64> {
        self.drop_privileges(process, to.0).await?;
        self.copy_range(from, to, length, enough).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_with_an_offset_that_need_not_be_durable_goes_ahead_of_a_pending_create() {
        assert_eq!(WriteOptions::at(7).early_offset(), Some(7));
        assert_eq!(WriteOptions { sync: true, ..WriteOptions::at(7) }.early_offset(), None);
        assert_eq!(WriteOptions::END.early_offset(), None);
    }
}
