//! Reads requests from the kernel, on the shard.

use std::{
    cell::Cell,
    io::{self, IoSlice, IoSliceMut},
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::{Arena, real::Descriptor, sync::Notify};

use super::{
    Filesystem,
    dispatch::{self, HEADER_BYTES, Header, WRITE_HEADER_BYTES},
};
use crate::limits;

/// The mount's descriptor, and what is to be answered over it.
pub(super) struct Device {
    descriptor: Descriptor,
    open_requests: Cell<usize>,
    answered: Notify,
}

impl Device {
    /// Sends an answer. An error means that nobody waits for it any more: the request was given up, or the mount is gone.
    pub fn send(&self, slices: &[IoSlice<'_>]) {
        drop(self.descriptor.write(slices));
    }

    pub fn begin(&self) {
        self.open_requests.set(self.open_requests.get() + 1);
    }

    pub fn end(&self) {
        self.open_requests.set(self.open_requests.get() - 1);
        self.answered.notify_one();
    }

    async fn room_for_one_more(&self) {
        while self.open_requests.get() >= limits::OPEN_REQUESTS {
            self.answered.notified().await;
        }
    }
}

/// Serves requests until the mount is taken away.
pub(crate) async fn serve(descriptor: Descriptor, filesystem: impl Filesystem) -> io::Result<()> {
    let device = Rc::new(Device { descriptor, open_requests: Cell::new(0), answered: Notify::new() });
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
            let args: Bytes = [args, arena.last(more)].concat().into();
            dispatch::request(&device, &filesystem, &header, &args);
        }
    }
}
