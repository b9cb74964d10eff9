//! TLS 1.3 on a stream: the handshake, and the two halves after it. The protocol is that of `rustls`; who is believed is
//! decided by the configuration that the caller brings.
//!
//! Invariant: both halves share one session, which is never borrowed across an await.
//! Invariant: whatever asks the session for something shows it all bytes that came and are not used up. `rustls`
//! remembers positions in them, and panics if they are not there.
//! Invariant: what the session has to send on its own account (a ticket, a key update) leaves before later data, in the
//! next write.

use std::{
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, ServerConfig,
    client::UnbufferedClientConnection,
    pki_types::{CertificateDer, ServerName},
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic},
};

use crate::{
    Bug, EnvError, EnvErrorKind, EnvResult, Stream,
    limits::{TLS_HANDSHAKE_BYTES, TLS_PIECE_BYTES, TLS_RECORD_BYTES},
    net::{ReadHalf, ReadHalfInner, WriteHalf, WriteHalfInner},
    planted,
};

/// What a TLS record adds to its plaintext at most, with all of TLS 1.3's ciphers.
const RECORD_OVERHEAD: usize = 5 + 1 + 16;
/// Longest plaintext of a record.
const RECORD_PLAINTEXT: usize = 16 << 10;
/// Parts below this size are put together before they are encrypted.
const SMALL_PART: usize = 4 << 10;

/// A stream after its handshake.
pub struct Secured {
    /// The stream.
    pub stream: Stream,
    /// The certificates of the other side, its own first. The configuration has verified them.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// Makes TLS of a stream that this side opened. The other side may refuse this side's certificate later: then the first
/// read fails.
pub async fn connect(stream: Stream, config: Arc<ClientConfig>, name: ServerName<'static>) -> EnvResult<Secured> {
    let connection = UnbufferedClientConnection::new(config, name).map_err(|error| refused(&error))?;
    secure(stream, Side::Client(connection)).await
}

/// Makes TLS of a stream that this side accepted.
pub async fn accept(stream: Stream, config: Arc<ServerConfig>) -> EnvResult<Secured> {
    let connection = UnbufferedServerConnection::new(config).map_err(|error| refused(&error))?;
    secure(stream, Side::Server(connection)).await
}

mod words;

fn refused(error: &rustls::Error) -> EnvError {
    let words = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the other side's certificate is of another cluster".into()
        }
        Error::InvalidCertificate(CertificateError::ExpiredContext { .. } | CertificateError::Expired) => {
            "the other side's certificate has expired; if that is too early, look at this machine's clock".into()
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { .. } | CertificateError::NotValidYet) => {
            "the other side's certificate is not valid yet; look at the clocks of both machines".into()
        }
        Error::InvalidCertificate(error) => words::of_certificate(error),
        Error::NoCertificatesPresented => "the other side has shown no certificate".into(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the other side belongs to another cluster than this side's certificate".into()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "to the other side this side's certificate has expired; look at the clocks of both machines".into()
        }
        Error::AlertReceived(alert) => words::of_alert(*alert),
        Error::InvalidMessage(_) => "what is at the other side does not speak TLS 1.3".into(),
        Error::PeerIncompatible(why) => format!("the other side does not speak TLS 1.3 as this side does ({why:?})"),
        error => format!("TLS: {error}"),
    };
    EnvError::new(EnvErrorKind::Permission, words)
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// One side of a TLS connection.
struct Session {
    side: Side,
    /// What came and is not used up.
    incoming: Incoming,
    /// Decrypted bytes that nobody has asked for yet.
    rest: BytesMut,
    /// Records to send before anything else.
    first: Vec<u8>,
}

/// What the session wants next.
enum Next {
    /// To be asked again.
    Again,
    /// More of what the peer sends.
    More,
    /// Nothing: the handshake is complete, and what came is used up but for a part of a record.
    Ready,
    /// Nothing any more: the peer has closed.
    Closed,
}

impl Session {
    /// Processes some of what came. Decrypted bytes go to `plain`.
    fn process(&mut self, plain: &mut impl FnMut(&[u8])) -> EnvResult<Next> {
        let (first, incoming) = (&mut self.first, self.incoming.bytes());
        let (used, next) = match &mut self.side {
            Side::Client(connection) => advance(connection.process_tls_records(incoming), first, plain),
            Side::Server(connection) => advance(connection.process_tls_records(incoming), first, plain),
        };
        self.incoming.used(used);
        next
    }

    /// Appends `plain` to `out`, encrypted, after what has to go first.
    fn encrypt(&mut self, plain: &[u8], out: &mut Outgoing) -> EnvResult<()> {
        loop {
            let (first, incoming, rest) = (&mut self.first, self.incoming.bytes(), &mut self.rest);
            let (used, done) = match &mut self.side {
                Side::Client(connection) => seal(connection.process_tls_records(incoming), first, rest, plain, out),
                Side::Server(connection) => seal(connection.process_tls_records(incoming), first, rest, plain, out),
            };
            self.incoming.used(used);
            if done? {
                return Ok(());
            }
        }
    }

    fn is_handshaking(&self) -> bool {
        match &self.side {
            Side::Client(connection) => connection.is_handshaking(),
            Side::Server(connection) => connection.is_handshaking(),
        }
    }

    fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        let certificates = match &self.side {
            Side::Client(connection) => connection.peer_certificates(),
            Side::Server(connection) => connection.peer_certificates(),
        };
        certificates.unwrap_or_default().to_vec()
    }
}

/// Takes one step. Returns the bytes that are used up, and what the session wants next.
fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    first: &mut Vec<u8>,
    plain: &mut impl FnMut(&[u8]),
) -> (usize, EnvResult<Next>) {
    let UnbufferedStatus { discard, state } = status;
    match state {
        Ok(state) => step(discard, state, first, plain),
        Err(error) => (discard, Err(refused(&error))),
    }
}

fn step<Data>(
    mut discard: usize,
    state: ConnectionState<'_, '_, Data>,
    first: &mut Vec<u8>,
    plain: &mut impl FnMut(&[u8]),
) -> (usize, EnvResult<Next>) {
    let next = match state {
        ConnectionState::ReadTraffic(mut traffic) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain(record.payload);
                }
                Some(Err(error)) => break Err(refused(&error)),
                None => break Ok(Next::Again),
            }
        },
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, first).map(|()| Next::Again),
        ConnectionState::TransmitTlsData(data) => {
            // It is in `first`, which leaves before anything else.
            data.done();
            Ok(Next::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Next::More),
        ConnectionState::WriteTraffic(_) => Ok(Next::Ready),
        ConnectionState::PeerClosed | ConnectionState::Closed => Ok(Next::Closed),
        _ => Err(internal(&"early data, which is never asked for")),
    };
    (discard, next)
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, first: &mut Vec<u8>) -> EnvResult<()> {
    let at = first.len();
    let encoded = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => {
            first.resize(at + needed.required_size, 0);
            data.encode(&mut first[at..])
        }
        encoded => encoded,
    };
    first.truncate(at + encoded.map_err(|error| internal(&error))?);
    Ok(())
}

/// Encrypts `plain` into `out`. Returns the incoming bytes that are used up, and false if the session had something
/// else to do first.
fn seal<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    first: &mut Vec<u8>,
    rest: &mut BytesMut,
    plain: &[u8],
    out: &mut Outgoing,
) -> (usize, EnvResult<bool>) {
    let UnbufferedStatus { discard, state } = status;
    match state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            out.put(first);
            first.clear();
            (discard, out.encrypt(&mut traffic, plain).map(|()| true))
        }
        Ok(state) => {
            let (used, next) = step(discard, state, first, &mut |bytes| rest.put_slice(bytes));
            let done = next.and_then(|next| match next {
                Next::Again => Ok(false),
                _ => Err(closed()),
            });
            (used, done)
        }
        Err(error) => (discard, Err(refused(&error))),
    }
}

fn too_long() -> EnvError {
    EnvError::new(EnvErrorKind::Permission, "TLS: a handshake message longer than any of ours")
}

fn closed() -> EnvError {
    EnvError::new(EnvErrorKind::Disconnected, "TLS: the other side has closed the connection")
}

/// Records to send. The memory is initialised once and used again.
#[derive(Default)]
struct Outgoing {
    buffer: BytesMut,
    used: usize,
}

impl Outgoing {
    fn reserve(&mut self, room: usize) -> &mut [u8] {
        if self.buffer.len() < self.used + room {
            self.buffer.resize(self.used + room, 0);
        }
        &mut self.buffer[self.used..]
    }

    fn put(&mut self, records: &[u8]) {
        self.reserve(records.len())[..records.len()].copy_from_slice(records);
        self.used += records.len();
    }

    fn encrypt<Data>(&mut self, traffic: &mut WriteTraffic<'_, Data>, plain: &[u8]) -> EnvResult<()> {
        let mut room = plain.len() + plain.len().div_ceil(RECORD_PLAINTEXT) * RECORD_OVERHEAD;
        loop {
            match traffic.encrypt(plain, self.reserve(room)) {
                Ok(written) => {
                    self.used += written;
                    return Ok(());
                }
                // A key update goes with it.
                Err(EncryptError::InsufficientSize(needed)) if needed.required_size > room => {
                    room = needed.required_size;
                }
                Err(error) => return Err(internal(&error)),
            }
        }
    }

    /// Sends everything. The memory is used again if the transport has let go of it.
    async fn send(&mut self, write: &mut WriteHalf) -> EnvResult<()> {
        if self.used > 0 {
            let whole = std::mem::take(&mut self.buffer).freeze();
            let records = [whole.slice(..std::mem::take(&mut self.used))];
            write.write_all(&records).await?;
            drop(records);
            self.buffer = whole.try_into_mut().unwrap_or_default();
        }
        Ok(())
    }
}

fn internal(error: &dyn std::fmt::Display) -> EnvError {
    EnvError::new(EnvErrorKind::Other, format!("TLS: {error}"))
}

/// Runs the handshake.
async fn secure(stream: Stream, side: Side) -> EnvResult<Secured> {
    let (mut read, mut write) = stream.split();
    let (incoming, rest) = (Incoming::default(), BytesMut::new());
    let session = Rc::new(RefCell::new(Session { side, incoming, rest, first: Vec::new() }));
    let finished = loop {
        let next = session.borrow_mut().handshake();
        match next {
            Ok(Next::Again) => continue,
            Ok(Next::Ready) if !session.borrow().is_handshaking() => break Ok(()),
            Ok(Next::Closed) => break Err(closed()),
            Ok(Next::Ready | Next::More) => {}
            Err(error) => break Err(error),
        }
        flush(&session, &mut write).await?;
        if session.borrow().incoming.len() >= TLS_HANDSHAKE_BYTES {
            break Err(too_long());
        }
        fill(&session, &mut read, 0).await?;
    };
    if finished.is_err() {
        // The alert says to the other side why.
        while let Ok(Next::Again) = session.borrow_mut().process(&mut |_| ()) {}
    }
    let flushed = flush(&session, &mut write).await;
    finished.and(flushed)?;
    let certificates = session.borrow().peer_certificates();
    let read = TlsReadHalf { inner: read, session: session.clone() };
    let write = TlsWriteHalf { inner: write, session, out: Outgoing::default() };
    let stream = Stream {
        read: ReadHalf::new(ReadHalfInner::Tls(Box::new(read))),
        write: WriteHalf::new(WriteHalfInner::Tls(Box::new(write))),
        node: None,
    };
    Ok(Secured { stream, certificates })
}

async fn flush(session: &RefCell<Session>, write: &mut WriteHalf) -> EnvResult<()> {
    let first = std::mem::take(&mut session.borrow_mut().first);
    match first.is_empty() {
        true => Ok(()),
        false => write.write_all(&[first.into()]).await,
    }
}

/// Reads more; `wanted` bytes of plaintext are expected.
async fn fill(session: &RefCell<Session>, read: &mut ReadHalf, wanted: usize) -> EnvResult<()> {
    poll_fn(|cx| {
        let incoming = &mut session.borrow_mut().incoming;
        let n = ready!(read.poll_some(cx, incoming.room(wanted)))?;
        incoming.end += n;
        Poll::Ready(Ok(()))
    })
    .await
}

/// Bytes that came and are not used up.
#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    fn used(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where the next bytes go; `wanted` bytes of plaintext are expected.
    fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.len());
        }
        let room = TLS_RECORD_BYTES + if wanted > RECORD_PLAINTEXT { TLS_PIECE_BYTES } else { 0 };
        if self.buffer.len() < self.end + room {
            self.buffer.resize(self.end + room, 0);
        }
        &mut self.buffer[self.end..]
    }
}

/// The reading end.
pub(crate) struct TlsReadHalf {
    inner: ReadHalf,
    session: Rc<RefCell<Session>>,
}

impl TlsReadHalf {
    pub(crate) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let mut filled = 0;
        loop {
            let next = self.session.borrow_mut().read(buf, &mut filled)?;
            if filled == buf.len() {
                return Ok(());
            }
            match next {
                Next::Again => {}
                // Less than a record is left, but for the parts of a long handshake message.
                Next::More | Next::Ready if self.session.borrow().incoming.len() >= TLS_HANDSHAKE_BYTES => {
                    return Err(too_long());
                }
                Next::More | Next::Ready => fill(&self.session, &mut self.inner, buf.len() - filled).await?,
                Next::Closed => return Err(closed()),
            }
        }
    }
}

impl Session {
    /// Processes some of what came. The first bytes of the caller may come together with the end of the handshake.
    fn handshake(&mut self) -> EnvResult<Next> {
        let mut rest = std::mem::take(&mut self.rest);
        let next = self.process(&mut |bytes| {
            if !planted(Bug::BytesBehindHandshakeLost) {
                rest.put_slice(bytes);
            }
        });
        self.rest = rest;
        next
    }

    /// Moves decrypted bytes into `buf` behind what is `filled`, and processes what came if that is not enough.
    fn read(&mut self, buf: &mut [u8], filled: &mut usize) -> EnvResult<Next> {
        let ready = self.rest.len().min(buf.len() - *filled);
        buf[*filled..*filled + ready].copy_from_slice(&self.rest[..ready]);
        self.rest.advance(ready);
        *filled += ready;
        if *filled == buf.len() {
            return Ok(Next::Ready);
        }
        let mut rest = std::mem::take(&mut self.rest);
        let next = self.process(&mut |bytes| {
            let (fits, beyond) = bytes.split_at(bytes.len().min(buf.len() - *filled));
            buf[*filled..*filled + fits.len()].copy_from_slice(fits);
            *filled += fits.len();
            rest.put_slice(beyond);
        });
        self.rest = rest;
        next
    }
}

/// The writing end.
pub(crate) struct TlsWriteHalf {
    inner: WriteHalf,
    session: Rc<RefCell<Session>>,
    out: Outgoing,
}

impl TlsWriteHalf {
    pub(crate) async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        let mut small = BytesMut::new();
        for part in parts {
            if part.len() < SMALL_PART {
                small.put_slice(part);
                if small.len() < RECORD_PLAINTEXT - SMALL_PART {
                    continue;
                }
            }
            self.encrypt(&mut small)?;
            if part.len() < SMALL_PART {
                continue;
            }
            for piece in part.chunks(TLS_PIECE_BYTES) {
                self.session.borrow_mut().encrypt(piece, &mut self.out)?;
                if self.out.used >= TLS_PIECE_BYTES {
                    self.out.send(&mut self.inner).await?;
                }
            }
        }
        self.encrypt(&mut small)?;
        self.out.send(&mut self.inner).await
    }

    fn encrypt(&mut self, small: &mut BytesMut) -> EnvResult<()> {
        if !small.is_empty() {
            self.session.borrow_mut().encrypt(small, &mut self.out)?;
            small.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tls/tests.rs"]
mod tests;
