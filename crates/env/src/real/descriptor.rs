//! A descriptor that is neither socket nor disk, whose shard waits until it can be read.

use std::{
    cell::Cell,
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{busy_poll, errors::file_error};
use crate::{EnvResult, limits::TURN_BYTES};

/// A descriptor (`/dev/fuse`) whose messages are read and written whole, by one call each.
pub struct Descriptor {
    fd: AsyncFd<OwnedFd>,
    /// Bytes read since the other tasks had their turn, or since there was nothing to read.
    turn_bytes: Cell<usize>,
}

impl Descriptor {
    /// Moves `fd` to the calling shard; from now on it does not block.
    pub fn new(fd: OwnedFd) -> EnvResult<Self> {
        let adopt = || {
            // SAFETY: no memory is passed.
            let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
            // SAFETY: as above.
            if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: an owned descriptor stays valid until it is dropped.
            let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::ERROR) };
            Ok(Self { fd: fd.map_err(io::Error::from)?, turn_bytes: Cell::new(0) })
        };
        adopt().map_err(|e| file_error("cannot wait for a descriptor", &e))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The same descriptor for a separate thread, in which a write may block until this shard has acted.
    pub fn for_a_thread(&self) -> io::Result<OwnedFd> {
        self.fd.get_ref().try_clone()
    }

    /// Reads one message into `slices`; waits until there is one.
    pub async fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.others_first().await;
        loop {
            let mut ready = self.fd.ready(Interest::READABLE | Interest::ERROR).await?;
            // SAFETY: the slices (IoSliceMut has the layout of iovec) are writable and live through the call.
            let n = unsafe { libc::readv(self.fd.as_raw_fd(), slices.as_ptr().cast(), slices.len() as libc::c_int) };
            match usize::try_from(n).map_err(|_| io::Error::last_os_error()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.turn_bytes.set(0);
                    ready.clear_ready();
                }
                answer => {
                    if let Ok(n) = answer {
                        self.turn_bytes.set(self.turn_bytes.get() + n);
                        busy_poll::message(n);
                    }
                    return answer;
                }
            }
        }
    }

    /// While bulk messages follow each other without a pause, no other task would get a turn, and no other descriptor
    /// would be polled. Among those are the replies of servers, which allow the next requests to be sent.
    async fn others_first(&self) {
        if self.turn_bytes.get() >= TURN_BYTES {
            self.turn_bytes.set(0);
            // Tokio's own yield: tokio polls the system for events before this task runs again.
            tokio::task::yield_now().await;
        }
    }

    /// True if nothing will ever be read from it again; for /dev/fuse: its mount is gone.
    pub fn has_failed(&self) -> bool {
        let mut asked = libc::pollfd { fd: self.raw(), events: 0, revents: 0 };
        // SAFETY: `asked` is one pollfd, valid for the call.
        let answered = unsafe { libc::poll(&mut asked, 1, 0) };
        answered > 0 && asked.revents & libc::POLLERR != 0
    }

    /// Writes one message.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: the slices (IoSlice has the layout of iovec) live through the call.
        let n = unsafe { libc::writev(self.fd.as_raw_fd(), slices.as_ptr().cast(), slices.len() as libc::c_int) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Write, pipe},
        rc::Rc,
        time::Duration,
    };

    use super::*;

    #[test]
    fn other_descriptors_are_read_while_one_delivers_bulk_without_pause() {
        crate::real::run(async |env| {
            let (bulk, mut bulk_in) = pipe().expect("a pipe");
            let (other, mut other_in) = pipe().expect("a pipe");
            let all = 4 * TURN_BYTES;
            // SAFETY: no memory is passed.
            let room = unsafe { libc::fcntl(bulk_in.as_raw_fd(), libc::F_SETPIPE_SZ, all as libc::c_int) };
            assert!(room >= all as libc::c_int, "room for all of it");
            bulk_in.write_all(&vec![1; all]).expect("there is room");
            let bulk = Descriptor::new(bulk.into()).expect("a descriptor");
            let other = Descriptor::new(other.into()).expect("a descriptor");
            let heard = Rc::new(Cell::new(false));
            drop(env.spawn({
                let heard = heard.clone();
                async move {
                    other.read(&mut [IoSliceMut::new(&mut [0])]).await.expect("what came");
                    heard.set(true);
                }
            }));
            env.sleep(Duration::from_millis(1)).await;
            let mut piece = vec![0; TURN_BYTES / 4];
            // From now on the descriptor is known to be readable.
            let mut read = bulk.read(&mut [IoSliceMut::new(&mut piece)]).await.expect("bulk");
            other_in.write_all(&[1]).expect("a byte");
            while read < all && !heard.get() {
                read += bulk.read(&mut [IoSliceMut::new(&mut piece)]).await.expect("bulk");
            }
            assert!(heard.get() && read <= 3 * TURN_BYTES, "{read} bytes came first");
        });
    }
}
