//! TCP and Unix sockets: vectored, without a copy on the way out and with one small read-ahead on the way in.
//!
//! The shard waits for readability, and for writability only while a write is blocked. Otherwise the reader of a Unix
//! socket would wake its writer with every piece that it reads.

use std::{
    ffi::c_int,
    future::poll_fn,
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    rc::Rc,
    sync::LazyLock,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::io::{Interest, unix::AsyncFd};

use super::{busy_poll, errors::net_error};
use crate::{
    EnvError, EnvErrorKind, EnvResult,
    limits::{READ_AHEAD_BYTES, TCP_SEND_BYTES, TCP_UNSENT_BYTES, UNIX_SOCKET_BYTES},
};

/// Parts passed to one sendmsg(2); they lie on the stack.
const SEND_PARTS: usize = 64;

/// A connected, non-blocking socket.
pub(super) struct Socket {
    fd: AsyncFd<OwnedFd>,
}

/// The reading end, with bytes that were read ahead.
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

/// Enlarges a Unix socket's buffer for a large frame, beyond the system's bound if this user may. Any size that the
/// system gives is enough for correctness.
pub(super) fn widen_unix(socket: &impl AsRawFd) {
    if !set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, UNIX_SOCKET_BYTES) {
        set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, UNIX_SOCKET_BYTES);
    }
}

/// Lets a TCP socket have more on its way than the kernel lets it by itself, if this user may. What waits in the socket before it is
/// sent is bounded apart from that, so that of several streams the faster one takes more.
pub(super) fn widen_tcp(socket: &impl AsRawFd) {
    // The kernel counts a size that was set twice.
    if *SYSTEM_BYTES < 2 * i64::from(TCP_SEND_BYTES) {
        set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, TCP_SEND_BYTES);
    }
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, TCP_UNSENT_BYTES);
}

fn set(socket: &impl AsRawFd, level: c_int, option: c_int, value: c_int) -> bool {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is a readable int for the length of the call.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) == 0 }
}

/// What the kernel gives a TCP socket at most by itself.
static SYSTEM_BYTES: LazyLock<i64> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    text.split_ascii_whitespace().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
});

/// The two halves; the socket closes when both are dropped.
pub(super) fn split(socket: Socket, peer: &str) -> (SocketReadHalf, SocketWriteHalf) {
    let (socket, peer) = (Rc::new(socket), Rc::from(peer));
    let ahead = vec![0; READ_AHEAD_BYTES].into_boxed_slice();
    let read = SocketReadHalf { socket: Rc::clone(&socket), peer: Rc::clone(&peer), ahead, start: 0, end: 0 };
    (read, SocketWriteHalf { socket, peer })
}

impl Socket {
    /// Moves a socket to the calling shard.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: watch(fd, Interest::READABLE)? })
    }

    /// Reads into `slices`; waits until there is something to read.
    async fn read(&self, slices: &mut [IoSliceMut<'_>; 2]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, slices)).await
    }

    fn poll_read(&self, cx: &mut Context<'_>, slices: &mut [IoSliceMut<'_>; 2]) -> Poll<io::Result<usize>> {
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match readv(self.fd.as_raw_fd(), slices) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok(n) => {
                    busy_poll::message(n);
                    // There was no more; later bytes are a new edge.
                    if n < room && n > 0 {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                error => return Poll::Ready(error),
            }
        }
    }

    /// Repeats `call` until it does not block.
    async fn write(&self, mut call: impl FnMut(RawFd) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match call(self.fd.as_raw_fd()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let room = watch(self.fd.get_ref().as_fd().try_clone_to_owned()?, Interest::WRITABLE)?;
                    drop(room.writable().await?);
                }
                answer => return answer,
            }
        }
    }
}

fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays valid until it is dropped.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

impl SocketReadHalf {
    /// The least that the network measured within minutes: it contains no queue, here, on the way, or at the other side's program.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        // SAFETY: all fields are numbers, for which zeros are valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&info) as libc::socklen_t;
        let fd = self.socket.fd.as_raw_fd();
        // SAFETY: `info` is writable memory of `length` bytes for the length of the call.
        let answer =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length) };
        let is_known = answer == 0 && !matches!(info.tcpi_min_rtt, 0 | u32::MAX);
        is_known.then(|| Duration::from_micros(info.tcpi_min_rtt.into()))
    }

    pub(super) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let mut filled = self.take_ahead(buf);
        while filled < buf.len() {
            let (rest, ahead) = (&mut buf[filled..], &mut self.ahead);
            let wanted = rest.len();
            let n = self.socket.read(&mut [IoSliceMut::new(rest), IoSliceMut::new(ahead)]).await;
            let n = self.received(n)?;
            filled += n.min(wanted);
            self.end = n.saturating_sub(wanted);
        }
        Ok(())
    }

    pub(super) fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<EnvResult<usize>> {
        let ahead = self.take_ahead(buf);
        if ahead > 0 {
            return Poll::Ready(Ok(ahead));
        }
        let n = ready!(self.socket.poll_read(cx, &mut [IoSliceMut::new(buf), IoSliceMut::new(&mut [])]));
        Poll::Ready(self.received(n))
    }

    fn received(&self, n: io::Result<usize>) -> EnvResult<usize> {
        match n.map_err(|e| net_error(&format!("reading from {}", self.peer), &e))? {
            0 => Err(EnvError::new(EnvErrorKind::Disconnected, format!("{} closed the connection", self.peer))),
            n => Ok(n),
        }
    }

    /// Moves bytes that were read ahead into `buf`; afterwards one of the two is exhausted.
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
            let n = self.socket.write(|fd| send(fd, parts, sent_of_first)).await;
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
