//! TCP and Unix sockets: vectored, without a copy on the way out and with one small read-ahead on the way in.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsRawFd, RawFd},
    rc::Rc,
};

use bytes::Bytes;
use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
};

use super::errors::net_error;
use crate::{EnvError, EnvErrorKind, EnvResult, limits::READ_AHEAD_BYTES};

/// Parts given to one sendmsg(2); they lie on the stack.
const SEND_PARTS: usize = 64;

pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The reading end, with bytes that came along with earlier ones.
pub(crate) struct SocketReadHalf {
    socket: Rc<Socket>,
    peer: Rc<str>,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
}

pub(crate) struct SocketWriteHalf {
    socket: Rc<Socket>,
    peer: Rc<str>,
}

/// The two halves; the socket closes when both are gone.
pub(super) fn split(socket: Socket, peer: &str) -> (SocketReadHalf, SocketWriteHalf) {
    let (socket, peer) = (Rc::new(socket), Rc::from(peer));
    let ahead = vec![0; READ_AHEAD_BYTES].into_boxed_slice();
    let read = SocketReadHalf { socket: Rc::clone(&socket), peer: Rc::clone(&peer), ahead, start: 0, end: 0 };
    (read, SocketWriteHalf { socket, peer })
}

impl Socket {
    async fn io(&self, interest: Interest, mut call: impl FnMut(RawFd) -> io::Result<usize>) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.async_io(interest, || call(socket.as_raw_fd())).await,
            Self::Unix(socket) => socket.async_io(interest, || call(socket.as_raw_fd())).await,
        }
    }
}

impl SocketReadHalf {
    pub(super) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let mut filled = self.take_ahead(buf);
        while filled < buf.len() {
            let (rest, ahead) = (&mut buf[filled..], &mut self.ahead);
            let wanted = rest.len();
            let read = |fd| readv(fd, &mut [IoSliceMut::new(rest), IoSliceMut::new(ahead)]);
            let n = self.socket.io(Interest::READABLE, read).await;
            let n = n.map_err(|e| net_error(&format!("reading from {}", self.peer), &e))?;
            if n == 0 {
                let message = format!("{} closed the connection", self.peer);
                return Err(EnvError::new(EnvErrorKind::Disconnected, message));
            }
            filled += n.min(wanted);
            self.end = n.saturating_sub(wanted);
        }
        Ok(())
    }

    /// Moves what was read ahead into `buf`; afterwards either is exhausted.
    fn take_ahead(&mut self, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.end - self.start);
        buf[..n].copy_from_slice(&self.ahead[self.start..self.start + n]);
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        n
    }
}

impl SocketWriteHalf {
    pub(super) async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        let (mut parts, mut sent_of_first) = (parts, 0);
        loop {
            while let Some(first) = parts.first().filter(|first| first.len() <= sent_of_first) {
                sent_of_first -= first.len();
                parts = &parts[1..];
            }
            if parts.is_empty() {
                return Ok(());
            }
            let n = self.socket.io(Interest::WRITABLE, |fd| send(fd, parts, sent_of_first)).await;
            sent_of_first += n.map_err(|e| net_error(&format!("writing to {}", self.peer), &e))?;
        }
    }
}

fn send(fd: RawFd, parts: &[Bytes], skip: usize) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SEND_PARTS];
    let count = parts.len().min(SEND_PARTS);
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    slices[0] = IoSlice::new(&parts[0][skip..]);
    // SAFETY: msghdr is plain data for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = count as _;
    // SAFETY: `message` names `count` slices (IoSlice has the layout of iovec) that live through the call.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn readv(fd: RawFd, slices: &mut [IoSliceMut<'_>; 2]) -> io::Result<usize> {
    // SAFETY: the slices (IoSliceMut has the layout of iovec) are writable and live through the call.
    let n = unsafe { libc::readv(fd, slices.as_ptr().cast(), slices.len() as libc::c_int) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}
