//! Byte streams between nodes.
//!
//! A stream is ordered and reliable until it breaks; a break loses all data in flight. Framing is in `rpc`.

use std::{
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use forebay_keys::{Keys, NodeName};

use crate::{
    Accepted, Address, AlignedBuf, EnvResult,
    network::KnownNode,
    tls::{TlsReadHalf, TlsWriteHalf},
};

/// A listening address.
pub struct Listener {
    pub(crate) half: ListenerHalf,
    /// Those that its connections need.
    pub(crate) keys: Option<Arc<Keys>>,
    /// It also takes those that show no certificate.
    pub(crate) anybody: bool,
}

pub(crate) enum ListenerHalf {
    Real(crate::real::RealListener),
    Sim(crate::sim::SimListener),
}

/// A connected stream; split it to read and write from different tasks.
pub struct Stream {
    pub(crate) read: ReadHalf,
    pub(crate) write: WriteHalf,
    pub(crate) node: Option<Rc<KnownNode>>,
}

/// The reading end. Dropping both ends closes the connection.
pub struct ReadHalf {
    pub(crate) half: ReadHalfInner,
    node: Option<Rc<KnownNode>>,
}

/// The writing end.
pub struct WriteHalf {
    pub(crate) half: WriteHalfInner,
    node: Option<Rc<KnownNode>>,
}

pub(crate) enum ReadHalfInner {
    Real(crate::real::RealReadHalf),
    Sim(crate::sim::SimReadHalf),
    Tls(Box<TlsReadHalf>),
}

pub(crate) enum WriteHalfInner {
    Real(crate::real::RealWriteHalf),
    Sim(crate::sim::SimWriteHalf),
    Tls(Box<TlsWriteHalf>),
}

impl Listener {
    /// The same, for those too that show no certificate. What they may do is up to the caller.
    pub fn for_anybody(self) -> Self {
        Self { anybody: true, ..self }
    }

    /// The address that others connect to (with the actual port if port 0 was requested).
    pub fn address(&self) -> Address {
        match &self.half {
            ListenerHalf::Real(l) => l.address(),
            ListenerHalf::Sim(l) => l.address(),
        }
    }

    /// The next connection.
    pub async fn accept(&mut self) -> EnvResult<Accepted> {
        let (stream, peer) = match &mut self.half {
            ListenerHalf::Real(l) => l.accept().await?,
            ListenerHalf::Sim(l) => l.accept().await?,
        };
        Ok(Accepted { stream, peer, keys: self.keys.clone(), anybody: self.anybody })
    }
}

impl Stream {
    /// The node whose certificate the other side has shown; `None` without TLS.
    pub fn node(&self) -> Option<&NodeName> {
        self.node.as_deref().map(|node| &node.name)
    }

    /// The two ends.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let node = self.node;
        (ReadHalf { node: node.clone(), ..self.read }, WriteHalf { node, ..self.write })
    }
}

impl ReadHalf {
    pub(crate) fn new(half: ReadHalfInner) -> Self {
        Self { half, node: None }
    }

    /// The other side knows this epoch of the cluster's map. Errors: it is banned by now.
    pub fn hear_epoch(&self, epoch: u32) -> EnvResult<()> {
        let Some(node) = &self.node else { return Ok(()) };
        node.check()?;
        node.membership().hear(epoch);
        Ok(())
    }

    /// How long a byte takes to the other side and back, as the network measures it; `None` within the machine.
    pub fn round_trip(&self) -> Option<Duration> {
        match &self.half {
            ReadHalfInner::Real(r) => r.round_trip(),
            ReadHalfInner::Sim(r) => r.round_trip(),
            ReadHalfInner::Tls(r) => r.round_trip(),
        }
    }

    /// Fills all of `buf`. Fails with `Disconnected` if the stream ends before. Not cancel-safe: a dropped read breaks
    /// the framing.
    ///
    /// The real half reads ahead into an internal buffer (8 KiB), so that a small frame costs one system call. It reads
    /// the rest of a large `buf` directly into that.
    pub async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        match &mut self.half {
            ReadHalfInner::Real(r) => r.read_exact(buf).await,
            ReadHalfInner::Sim(r) => r.read_exact(buf).await,
            ReadHalfInner::Tls(r) => r.read_exact(buf).await,
        }
    }

    /// The same. Not for a TLS stream.
    pub(crate) async fn read_plain(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        match &mut self.half {
            ReadHalfInner::Real(r) => r.read_exact(buf).await,
            ReadHalfInner::Sim(r) => r.read_exact(buf).await,
            ReadHalfInner::Tls(_) => unreachable!("TLS is not put into TLS"),
        }
    }

    /// Reads what there is, at least one byte, into the beginning of `buf`; how many. Fails as
    /// [`ReadHalf::read_exact`] does. Not for a TLS stream.
    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<EnvResult<usize>> {
        match &mut self.half {
            ReadHalfInner::Real(r) => r.poll_some(cx, buf),
            ReadHalfInner::Sim(r) => r.poll_some(cx, buf),
            ReadHalfInner::Tls(_) => unreachable!("TLS is not put into TLS"),
        }
    }

    /// Reads `len` bytes into memory that a device can transfer without a copy.
    pub async fn read_aligned(&mut self, len: usize) -> EnvResult<AlignedBuf> {
        let mut buf = AlignedBuf::to_be_filled(len);
        self.read_exact(&mut buf).await?;
        Ok(buf)
    }
}

impl WriteHalf {
    pub(crate) fn new(half: WriteHalfInner) -> Self {
        Self { half, node: None }
    }

    /// The epoch of the cluster's map that this side knows; 0 if it knows none.
    pub fn known_epoch(&self) -> u32 {
        self.node.as_ref().map_or(0, |node| node.membership().epoch())
    }

    /// Writes all `parts`, in order, with as few system calls and copies as the transport allows (vectored).
    /// Not cancel-safe.
    pub async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        match &mut self.half {
            WriteHalfInner::Real(w) => w.write_all(parts).await,
            WriteHalfInner::Sim(w) => w.write_all(parts).await,
            WriteHalfInner::Tls(w) => Box::pin(w.write_all(parts)).await,
        }
    }
}
