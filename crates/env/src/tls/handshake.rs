//! The handshake, by the unbuffered interface of `rustls`.
//!
//! Invariant: whatever asks the session for something shows it all bytes that came and are not used up. `rustls`
//! remembers positions in them, and panics if they are not there. Clear records, which only end a handshake's bytes, are
//! none of its business.

use std::future::poll_fn;

use forebay_keys::ALPN_INTEGRITY_ONLY;
use rustls::{
    ExtractedSecrets,
    client::UnbufferedClientConnection,
    pki_types::CertificateDer,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus},
};

use super::{
    Protection, Secured, closed,
    incoming::Incoming,
    internal,
    key::{Connection, Key, KeySchedule},
    read::TlsReadHalf,
    refused, too_long, unexpected,
    write::TlsWriteHalf,
};
use crate::{
    Bug, EnvResult, Stream,
    limits::TLS_HANDSHAKE_BYTES,
    net::{ReadHalf, ReadHalfInner, WriteHalf, WriteHalfInner},
    planted,
};

pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// One side of a handshake.
struct Session {
    side: Side,
    /// What came and is not used up.
    incoming: Incoming,
    /// Decrypted bytes of the caller that came together with the end of the handshake.
    early: Vec<u8>,
    /// Records to send.
    outgoing: Vec<u8>,
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

/// Runs the handshake.
pub(super) async fn secure(stream: Stream, side: Side) -> EnvResult<Secured> {
    let (mut read, mut write) = stream.split();
    let mut session = Session { side, incoming: Incoming::default(), early: Vec::new(), outgoing: Vec::new() };
    let finished = session.run(&mut read, &mut write).await;
    if finished.is_err() {
        // The alert says to the other side why. After its error the session makes that, and wants no other question.
        let _ = session.process();
    }
    let flushed = session.flush(&mut write).await;
    finished.and(flushed)?;
    let (certificates, protection) = (session.side.peer_certificates(), session.side.protection());
    let Session { side, mut incoming, early, .. } = session;
    if protection == Protection::Integrity && !early.is_empty() {
        return Err(unexpected());
    }
    incoming.put_before(&early);
    let (secrets, connection) = side.into_keys()?;
    let (received, sent) = (Key::new(protection, secrets.rx)?, Key::new(protection, secrets.tx)?);
    let schedule = KeySchedule::new(connection, protection);
    let read = TlsReadHalf::new(read, protection, received, incoming, schedule.clone());
    let write = TlsWriteHalf::new(write, protection, sent, schedule);
    let stream = Stream {
        read: ReadHalf::new(ReadHalfInner::Tls(Box::new(read))),
        write: WriteHalf::new(WriteHalfInner::Tls(Box::new(write))),
        node: None,
    };
    Ok(Secured { stream, certificates, encrypted: protection == Protection::Encrypted })
}

impl Session {
    async fn run(&mut self, read: &mut ReadHalf, write: &mut WriteHalf) -> EnvResult<()> {
        loop {
            match self.process()? {
                Next::Again => continue,
                Next::Ready if !self.side.is_handshaking() => return Ok(()),
                Next::Closed => return Err(closed()),
                // The peer ends its handshake before it sends data.
                Next::More if self.incoming.is_clear() => return Err(unexpected()),
                Next::Ready | Next::More => {}
            }
            self.flush(write).await?;
            if self.incoming.len() >= TLS_HANDSHAKE_BYTES {
                return Err(too_long());
            }
            poll_fn(|cx| self.incoming.poll_fill(cx, read, 0)).await?;
        }
    }

    async fn flush(&mut self, write: &mut WriteHalf) -> EnvResult<()> {
        let outgoing = std::mem::take(&mut self.outgoing);
        match outgoing.is_empty() {
            true => Ok(()),
            false => write.write_all(&[outgoing.into()]).await,
        }
    }

    /// Processes some of what came.
    fn process(&mut self) -> EnvResult<Next> {
        let (outgoing, early, incoming) = (&mut self.outgoing, &mut self.early, self.incoming.of_handshake());
        let (used, next) = match &mut self.side {
            Side::Client(connection) => advance(connection.process_tls_records(incoming), outgoing, early),
            Side::Server(connection) => advance(connection.process_tls_records(incoming), outgoing, early),
        };
        self.incoming.used(used);
        next
    }
}

/// Takes one step. Returns the bytes that are used up, and what the session wants next.
fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    early: &mut Vec<u8>,
) -> (usize, EnvResult<Next>) {
    let UnbufferedStatus { discard, state } = status;
    match state {
        Ok(state) => step(discard, state, outgoing, early),
        Err(error) => (discard, Err(refused(&error))),
    }
}

fn step<Data>(
    mut discard: usize,
    state: ConnectionState<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    early: &mut Vec<u8>,
) -> (usize, EnvResult<Next>) {
    let next = match state {
        ConnectionState::ReadTraffic(mut traffic) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    if !planted(Bug::BytesBehindHandshakeLost) {
                        early.extend_from_slice(record.payload);
                    }
                }
                Some(Err(error)) => break Err(refused(&error)),
                None => break Ok(Next::Again),
            }
        },
        ConnectionState::EncodeTlsData(mut data) => encode(&mut data, outgoing).map(|()| Next::Again),
        ConnectionState::TransmitTlsData(data) => {
            // It is in `outgoing`, which leaves before anything else.
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

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) -> EnvResult<()> {
    let at = outgoing.len();
    let encoded = match data.encode(&mut []) {
        Err(EncodeError::InsufficientSize(needed)) => {
            outgoing.resize(at + needed.required_size, 0);
            data.encode(&mut outgoing[at..])
        }
        encoded => encoded,
    };
    outgoing.truncate(at + encoded.map_err(|error| internal(&error))?);
    Ok(())
}

impl Side {
    fn is_handshaking(&self) -> bool {
        match self {
            Self::Client(connection) => connection.is_handshaking(),
            Self::Server(connection) => connection.is_handshaking(),
        }
    }

    /// What both sides have agreed on.
    fn protection(&self) -> Protection {
        let agreed = match self {
            Self::Client(connection) => connection.alpn_protocol(),
            Self::Server(connection) => connection.alpn_protocol(),
        };
        if agreed == Some(ALPN_INTEGRITY_ONLY) { Protection::Integrity } else { Protection::Encrypted }
    }

    fn peer_certificates(&self) -> Vec<CertificateDer<'static>> {
        let certificates = match self {
            Self::Client(connection) => connection.peer_certificates(),
            Self::Server(connection) => connection.peer_certificates(),
        };
        certificates.unwrap_or_default().to_vec()
    }

    /// The keys of both directions, and what derives later ones. The handshake is complete, and its last bytes are in
    /// the session's `outgoing`.
    fn into_keys(self) -> EnvResult<(ExtractedSecrets, Connection)> {
        let keys = match self {
            Self::Client(connection) => {
                connection.dangerous_into_kernel_connection().map(|(keys, later)| (keys, Connection::Client(later)))
            }
            Self::Server(connection) => {
                connection.dangerous_into_kernel_connection().map(|(keys, later)| (keys, Connection::Server(later)))
            }
        };
        keys.map_err(|error| internal(&error))
    }
}
