//! Turns results of the client into replies to the kernel.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::{ClientError, ClientResult, StatFs};
use forebay_proto::{Errno, limits::NAME_BYTES};
use fuser::{FileAttr, FileHandle, Generation};

use crate::{
    kernel::{
        ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyStatfs, ReplyWrite, ReplyXattr, Told,
    },
    limits,
    locks::Found,
    server::Server,
    xattrs::Sized,
};

/// Fids are never reused, so one generation is enough.
pub(crate) const GENERATION: Generation = Generation(0);

/// What a name leads to.
pub(crate) enum Entry {
    There(Told),
    /// The name does not exist. The kernel may cache that for this long.
    Absent(Duration),
}

/// Attributes, and how long the kernel may cache them.
pub(crate) struct Attributes {
    pub attr: FileAttr,
    pub valid_for: Duration,
}

/// A reply that takes a `T`, or an error.
pub(crate) trait Answer<T>: 'static {
    fn done(self, value: T);
    fn failed(self, errno: fuser::Errno);
}

/// Replies to the kernel. Errors that matter to the administrator also go to the log.
pub(crate) fn answer<T>(server: &Server, reply: impl Answer<T>, result: ClientResult<T>) {
    match result {
        Ok(value) => reply.done(value),
        Err(error) => refuse(server, &error, |errno| reply.failed(errno)),
    }
}

/// Logs I/O errors and stale handles. Errors such as a missing name are not logged.
fn tell(server: &Server, error: &ClientError) {
    if matches!(error.errno, Errno::EIO | Errno::ESTALE) && !error.message.is_empty() {
        server.env.log(&format!("mount: {error}"));
    }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0 as i32)
}

/// Replies with an error. Errors that matter to the administrator also go to the log.
pub(crate) fn refuse(server: &Server, error: &ClientError, reply: impl FnOnce(fuser::Errno)) {
    tell(server, error);
    reply(errno(error.errno));
}

/// Closes a file whose handle the kernel did not take: the program was killed during the open.
pub(crate) async fn opened(server: &Server, handle: FileHandle, taken: bool) {
    if !taken && let Err(error) = server.release(handle).await {
        tell(server, &error);
    }
}

impl Answer<Vec<Bytes>> for ReplyData {
    fn done(self, parts: Vec<Bytes>) {
        self.parts(&parts);
    }
    fn failed(self, errno: fuser::Errno) {
        self.error(errno);
    }
}

macro_rules! answers {
    ($($reply:ident($value:ident: $type:ty) => |$self:ident| $done:expr;)*) => {
        $(impl Answer<$type> for $reply {
            fn done($self, $value: $type) {
                $done
            }
            fn failed(self, errno: fuser::Errno) {
                self.error(errno);
            }
        })*
    };
}

answers! {
    ReplyEmpty(_nothing: ()) => |self| self.ok();
    ReplyEntry(entry: Entry) => |self| match entry {
        Entry::There(told) => self.entry(&told, GENERATION),
        Entry::Absent(name_for) => self.absent(name_for),
    };
    ReplyAttr(attributes: Attributes) => |self| self.attr(attributes.valid_for, &attributes.attr);
    ReplyData(data: Bytes) => |self| self.data(&data);
    ReplyWrite(written: u32) => |self| self.written(written);
    ReplyLock(found: Found) => |self| self.locked(found.start, found.end, found.kind, found.pid);
    ReplyLseek(offset: i64) => |self| self.offset(offset);
    ReplyXattr(value: Sized) => |self| match value {
        Sized::Length(bytes) => self.size(bytes),
        Sized::Value(value) => self.data(&value),
    };
    ReplyStatfs(space: StatFs) => |self| {
        let block = limits::STATFS_BLOCK_BYTES;
        let blocks = |bytes: u64| bytes / u64::from(block);
        let (total, free, available) =
            (blocks(space.total_bytes), blocks(space.free_bytes), blocks(space.available_bytes));
        let files = space.files.saturating_add(space.files_free);
        self.statfs(total, free, available, files, space.files_free, block, NAME_BYTES as u32, block)
    };
}
