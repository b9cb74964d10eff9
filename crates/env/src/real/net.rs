//! Listening and connecting over TCP, Unix sockets and within the process.

use std::{
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::{
    errors::{connect_error, net_error},
    mem::{self, MemEnd, MemListener},
    socket::{self, Socket, SocketReadHalf, SocketWriteHalf},
};
use crate::{
    Address, EnvError, EnvErrorKind, EnvResult, Network, PeerIdentity, Stream,
    net::{ListenerHalf, ReadHalf, ReadHalfInner, WriteHalf, WriteHalfInner},
    network::beyond_loopback,
};

pub(crate) enum RealListener {
    Tcp(TcpListener, Address),
    Unix(UnixListener, SocketFile),
    Mem(MemListener),
}

pub(crate) enum RealReadHalf {
    Socket(SocketReadHalf),
    Mem(Arc<MemEnd>),
}

pub(crate) enum RealWriteHalf {
    Socket(SocketWriteHalf),
    Mem(Arc<MemEnd>),
}

pub(super) async fn listen(address: &Address, network: &Network) -> EnvResult<ListenerHalf> {
    let half = match address {
        Address::Tcp(host_port) => listen_tcp(host_port, network).await?,
        Address::Unix(path) => listen_unix(path)?,
        Address::Mem(name) => RealListener::Mem(mem::listen(name)?),
    };
    Ok(ListenerHalf::Real(half))
}

async fn listen_tcp(host_port: &str, network: &Network) -> EnvResult<RealListener> {
    let error = |e| net_error(&format!("cannot listen on tcp:{host_port}"), &e);
    let listener = TcpListener::bind(host_port).await.map_err(error)?;
    let local = listener.local_addr().map_err(error)?;
    let address = Address::Tcp(local.to_string());
    if network.is_loopback_only() && !local.ip().is_loopback() {
        return Err(beyond_loopback(&address));
    }
    Ok(RealListener::Tcp(listener, address))
}

/// A socket file without a listener is left over from a crash, and is replaced.
fn listen_unix(path: &str) -> EnvResult<RealListener> {
    let error = |e| net_error(&format!("cannot listen on unix:{path}"), &e);
    let listener = match UnixListener::bind(path) {
        Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) && is_stale(path) => {
            std::fs::remove_file(path).and_then(|()| UnixListener::bind(path))
        }
        answer => answer,
    };
    let listener = listener.map_err(error)?;
    let inode = std::fs::symlink_metadata(path).map_err(error)?.ino();
    Ok(RealListener::Unix(listener, SocketFile { path: path.to_string(), inode }))
}

fn is_stale(path: &str) -> bool {
    let answer = std::os::unix::net::UnixStream::connect(path);
    answer.is_err_and(|e| e.raw_os_error() == Some(libc::ECONNREFUSED))
}

/// The file of a listening Unix socket; removed with the listener unless another file took its place.
pub(crate) struct SocketFile {
    path: String,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

pub(super) async fn connect(address: &Address, network: &Network) -> EnvResult<Stream> {
    let error = |e| connect_error(&format!("cannot connect to {address}"), &e);
    match address {
        Address::Tcp(host_port) => {
            let socket = TcpStream::connect(host_port).await.map_err(error)?;
            if network.is_loopback_only() && !socket.peer_addr().map_err(error)?.ip().is_loopback() {
                return Err(beyond_loopback(address));
            }
            tcp_stream(socket, &address.to_string())
        }
        Address::Unix(path) => {
            let socket = UnixStream::connect(path).await.map_err(error)?;
            unix_stream(socket, &address.to_string())
        }
        Address::Mem(name) => Ok(mem_stream(mem::connect(name)?)),
    }
}

fn tcp_stream(socket: TcpStream, peer: &str) -> EnvResult<Stream> {
    let error = |e| net_error(&format!("setting up the connection with {peer}"), &e);
    socket.set_nodelay(true).map_err(error)?;
    socket::widen_tcp(&socket);
    socket_stream(socket.into_std().map_err(error)?.into(), peer)
}

fn unix_stream(socket: UnixStream, peer: &str) -> EnvResult<Stream> {
    socket::widen_unix(&socket);
    let socket = socket.into_std().map_err(|e| net_error(&format!("setting up the connection with {peer}"), &e))?;
    socket_stream(socket.into(), peer)
}

fn socket_stream(fd: OwnedFd, peer: &str) -> EnvResult<Stream> {
    let socket = Socket::new(fd).map_err(|e| net_error(&format!("setting up the connection with {peer}"), &e))?;
    let (read, write) = socket::split(socket, peer);
    Ok(stream(RealReadHalf::Socket(read), RealWriteHalf::Socket(write)))
}

fn mem_stream(end: Arc<MemEnd>) -> Stream {
    stream(RealReadHalf::Mem(end.clone()), RealWriteHalf::Mem(end))
}

fn stream(read: RealReadHalf, write: RealWriteHalf) -> Stream {
    Stream {
        read: ReadHalf::new(ReadHalfInner::Real(read)),
        write: WriteHalf::new(WriteHalfInner::Real(write)),
        node: None,
    }
}

impl RealListener {
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Tcp(_, address) => address.clone(),
            Self::Unix(_, file) => Address::Unix(file.path.clone()),
            Self::Mem(listener) => listener.address(),
        }
    }

    pub(crate) async fn accept(&mut self) -> EnvResult<(Stream, PeerIdentity)> {
        loop {
            match self.accept_once().await {
                // The client disconnected before it was accepted, or a filter refuses it: that is not the listener's
                // error.
                Err(e) if e.kind == EnvErrorKind::Disconnected => {}
                answer => return answer,
            }
        }
    }

    async fn accept_once(&mut self) -> EnvResult<(Stream, PeerIdentity)> {
        let error = |address: &dyn std::fmt::Display, e: std::io::Error| -> EnvError {
            net_error(&format!("cannot accept on {address}"), &e)
        };
        match self {
            Self::Tcp(listener, address) => {
                let (socket, peer) = listener.accept().await.map_err(|e| error(address, e))?;
                let peer = format!("tcp:{peer}");
                Ok((tcp_stream(socket, &peer)?, PeerIdentity::Unknown(peer)))
            }
            Self::Unix(listener, file) => {
                let (socket, _) = listener.accept().await.map_err(|e| error(&file.path, e))?;
                let peer = socket.peer_cred().map_or_else(
                    |_| PeerIdentity::Unknown("unix:".into()),
                    |cred| PeerIdentity::Process { uid: cred.uid(), gid: cred.gid(), pid: cred.pid() },
                );
                Ok((unix_stream(socket, &peer.to_string())?, peer))
            }
            Self::Mem(listener) => {
                let (end, peer) = listener.accept().await;
                Ok((mem_stream(end), PeerIdentity::Named(peer)))
            }
        }
    }
}

impl RealReadHalf {
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Socket(half) => half.round_trip(),
            Self::Mem(_) => None,
        }
    }

    pub(crate) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        match self {
            Self::Socket(half) => half.read_exact(buf).await,
            Self::Mem(end) => end.read_exact(buf).await,
        }
    }

    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<EnvResult<usize>> {
        match self {
            Self::Socket(half) => half.poll_some(cx, buf),
            Self::Mem(end) => end.poll_read(cx, buf, 1, &mut 0),
        }
    }
}

impl RealWriteHalf {
    pub(crate) async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        match self {
            Self::Socket(half) => half.write_all(parts).await,
            Self::Mem(end) => end.write_all(parts).await,
        }
    }
}
