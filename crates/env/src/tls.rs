//! TLS 1.3 on a stream. The handshake is that of `rustls`; who is believed is decided by the configuration that the
//! caller brings. After it, the two halves make and open the records themselves, with keys that `rustls` derives.
//!
//! Invariant: each half has its own key and sequence number. The halves share only what derives later keys.
//! Invariant: a half holds a buffer only while that has bytes to open or to send.
//! Invariant: a stream is encrypted unless both sides' keys allow integrity only; then its data is clear, and every byte of it
//! is checked before a caller sees it.
//! Not here: the rules of the handshake, of certificates and of tickets. They are in `rustls`.

mod clear;
mod handshake;
mod incoming;
mod key;
mod read;
mod words;
mod write;

use std::sync::Arc;

use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage, ServerConfig,
    client::UnbufferedClientConnection,
    pki_types::{CertificateDer, ServerName},
    server::UnbufferedServerConnection,
};

use self::handshake::{Side, secure};
pub(crate) use self::{read::TlsReadHalf, write::TlsWriteHalf};
use crate::{EnvError, EnvErrorKind, EnvResult, Stream};

/// Longest plaintext of a record.
const RECORD_PLAINTEXT: usize = 16 << 10;
/// Header of a record.
const RECORD_HEADER: usize = 5;
/// Tag of a record, with all of TLS 1.3's ciphers.
const RECORD_TAG: usize = 16;
/// Bytes that a record without padding adds to its plaintext; one of them names the content.
const RECORD_OVERHEAD: usize = RECORD_HEADER + 1 + RECORD_TAG;
/// A record of as much plaintext as fits.
const FULL_RECORD: usize = RECORD_PLAINTEXT + RECORD_OVERHEAD;

/// First byte of a clear record: no type of TLS (RFC 8446, 5.1).
const CLEAR_RECORD: u8 = 0xf1;
/// What follows the content of a clear record: its header once more, sealed, and the tag of header and content.
const CLEAR_TRAILER: usize = RECORD_HEADER + RECORD_TAG;

/// What protects the data of a stream. Its handshake is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    /// Nobody on the way can read or change it.
    Encrypted,
    /// Nobody on the way can change it, or send it twice.
    Integrity,
}

/// A stream after its handshake.
pub struct Secured {
    /// The stream.
    pub stream: Stream,
    /// The certificates of the other side, its own first. The configuration has verified them.
    pub certificates: Vec<CertificateDer<'static>>,
    /// False if its data is clear, and protected against change only.
    pub encrypted: bool,
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

fn refused(error: &rustls::Error) -> EnvError {
    let words = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the other side's certificate is of another cluster".into()
        }
        Error::InvalidCertificate(CertificateError::ExpiredContext { .. } | CertificateError::Expired) => {
            "the other side's certificate has expired by this machine's clock: set that if it is ahead (chrony, ntpd); else \
             the other side needs new keys"
                .into()
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { .. } | CertificateError::NotValidYet) => {
            "the other side's certificate is not valid yet by this machine's clock: set the clocks of both machines (chrony, \
             ntpd), and try again"
                .into()
        }
        Error::InvalidCertificate(error) => words::of_certificate(error),
        Error::NoCertificatesPresented => "the other side has shown no certificate".into(),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            "the other side belongs to another cluster than this side's certificate".into()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            "to the other side this side's certificate is not valid yet, or has expired: set the clocks of both machines \
             (chrony, ntpd); if they are right, this side needs new keys"
                .into()
        }
        Error::AlertReceived(alert) => words::of_alert(*alert),
        Error::InvalidMessage(_) => "what is at the other side does not speak TLS 1.3".into(),
        Error::PeerIncompatible(why) => format!("the other side does not speak TLS 1.3 as this side does ({why:?})"),
        error => format!("TLS: {error}"),
    };
    EnvError::new(EnvErrorKind::Permission, words)
}

fn too_long() -> EnvError {
    EnvError::new(EnvErrorKind::Permission, "TLS: a handshake message longer than any of ours")
}

fn unexpected() -> EnvError {
    refused(&InvalidMessage::UnexpectedMessage("after the handshake").into())
}

fn closed() -> EnvError {
    EnvError::new(EnvErrorKind::Disconnected, "TLS: the other side has closed the connection")
}

fn internal(error: &dyn std::fmt::Display) -> EnvError {
    EnvError::new(EnvErrorKind::Other, format!("TLS: {error}"))
}

#[cfg(test)]
#[path = "tls/tests.rs"]
mod tests;
