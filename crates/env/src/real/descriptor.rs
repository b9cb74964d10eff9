//! A descriptor that is no socket and no disk: a shard waits until it can be read.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{busy_poll, errors::file_error};
use crate::EnvResult;

/// A descriptor (`/dev/fuse`) whose messages are read and written whole, by one call each.
pub struct Descriptor {
    fd: AsyncFd<OwnedFd>,
}

impl Descriptor {
    /// Takes `fd` to the calling shard; from now on it does not block.
    pub fn new(fd: OwnedFd) -> EnvResult<Self> {
        let adopt = || {
            // SAFETY: no memory is passed.
            let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
            // SAFETY: as above.
            if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: an owned descriptor stays what it is until it is dropped.
            let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE | Interest::ERROR) };
            Ok(Self { fd: fd.map_err(io::Error::from)? })
        };
        adopt().map_err(|e| file_error("cannot wait for a descriptor", &e))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads one message into `slices`; waits for one.
    pub async fn read(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.ready(Interest::READABLE | Interest::ERROR).await?;
            // SAFETY: the slices (IoSliceMut has the layout of iovec) are writable and live through the call.
            let n = unsafe { libc::readv(self.fd.as_raw_fd(), slices.as_ptr().cast(), slices.len() as libc::c_int) };
            match usize::try_from(n).map_err(|_| io::Error::last_os_error()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                answer => {
                    if let Ok(n) = answer {
                        busy_poll::message(n);
                    }
                    return answer;
                }
            }
        }
    }

    /// True if nothing will ever be read from it again: of /dev/fuse, that its mount is gone.
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
