//! Reads requests from the kernel, on the shard.

use std::{
    cell::Cell,
    io::{self, IoSlice, IoSliceMut},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Arena, real::Descriptor, sync::Notify};
use fuser::INodeNo;

use super::{
    Filesystem,
    dispatch::{self, HEADER_BYTES, Header, WRITE_HEADER_BYTES},
};
use crate::limits;

/// `FUSE_NOTIFY_STORE` of linux/fuse.h.
const NOTIFY_STORE: u32 = 4;
/// Its header, its argument (node, offset, bytes of data), and one byte.
const NOTICE_BYTES: usize = 16 + 24 + 1;
/// At least as small as the kernel's pages.
const PAGE_BYTES: u64 = 4096;

/// The mount's descriptor, and what is to be answered over it.
pub(crate) struct Device {
    descriptor: Descriptor,
    open_requests: Cell<usize>,
    answered: Notify,
}

impl Device {
    /// Over a descriptor whose greeting is done.
    pub fn new(descriptor: Descriptor) -> Rc<Self> {
        Rc::new(Self { descriptor, open_requests: Cell::new(0), answered: Notify::new() })
    }

    /// Tells the kernel that a file may be `bytes` long. It changes nothing but how writes of several programs wait.
    pub fn announce_size(&self, ino: INodeNo, bytes: u64) {
        // "Stores" the last byte of the last page, which raises the kernel's idea of the size. A page of which only that is
        // known is read from us before anybody sees it.
        let last = bytes.next_multiple_of(PAGE_BYTES) - 1;
        let mut message = [0; NOTICE_BYTES];
        message[..4].copy_from_slice(&(NOTICE_BYTES as u32).to_ne_bytes());
        message[4..8].copy_from_slice(&NOTIFY_STORE.to_ne_bytes());
        message[16..24].copy_from_slice(&ino.0.to_ne_bytes());
        message[24..32].copy_from_slice(&last.to_ne_bytes());
        message[32..36].copy_from_slice(&1u32.to_ne_bytes());
        self.send(&[IoSlice::new(&message)]);
    }

    /// Sends an answer. An error means that nobody waits for it any more: the request was given up, or the mount is gone.
    pub(super) fn send(&self, slices: &[IoSlice<'_>]) {
        drop(self.descriptor.write(slices));
    }

    pub(super) fn begin(&self) {
        self.open_requests.set(self.open_requests.get() + 1);
    }

    pub(super) fn end(&self) {
        self.open_requests.set(self.open_requests.get() - 1);
        self.answered.notify_one();
    }

    /// Reads and writes need nothing but the servers to end, so waiting for them is no deadlock; a lock may wait for a
    /// request that is not read yet.
    async fn room_for_one_more(&self) {
        while self.open_requests.get() >= limits::OPEN_REQUESTS {
            self.answered.notified().await;
        }
    }
}

/// Serves requests until the mount is taken away.
pub(crate) async fn serve(device: Rc<Device>, filesystem: impl Filesystem) -> io::Result<()> {
    let mut arena = Arena::new(limits::ARENA_BYTES);
    let mut head = [0; WRITE_HEADER_BYTES];
    loop {
        device.room_for_one_more().await;
        let room = arena.room(limits::REQUEST_BYTES as usize);
        let read = device.descriptor.read(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(room)]).await;
        let n = match read {
            Ok(n) => n,
            // Interrupted before it was read; or the mount is gone.
            Err(e) => match e.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => continue,
                Some(libc::ENODEV) => return Ok(()),
                _ => return Err(e),
            },
        };
        let Some(header) = Header::parse(&head[..n.min(HEADER_BYTES)]).filter(|header| header.bytes == n) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel sent what is no request"));
        };
        let more = n.saturating_sub(WRITE_HEADER_BYTES);
        let args = &head[HEADER_BYTES..n.min(WRITE_HEADER_BYTES)];
        if header.is_write() {
            dispatch::write(&device, &filesystem, &header, args, arena.take(more));
        } else if header.is_destroy() {
            return Ok(());
        } else {
            let args: Bytes = [args, &arena.room(more)[..more]].concat().into();
            dispatch::request(&device, &filesystem, &header, &args);
        }
    }
}
