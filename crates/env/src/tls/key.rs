//! The keys of a connection, and the records that they seal and open (RFC 8446, 5).
//!
//! With integrity only, records of data are clear: the content as it is, and a tag. Their key is derived from the
//! connection's, so that no clear record can be taken for a sealed one.
//!
//! Invariant: a key seals at most [`RECORDS_PER_KEY`] records, clear ones included, each with its own sequence number.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use aws_lc_rs::{
    aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use rustls::{
    ConnectionTrafficSecrets, ContentType, Error, PeerMisbehaved,
    client::ClientConnectionData,
    crypto::cipher::{self, Iv, make_tls13_aad},
    kernel::KernelConnection,
    server::ServerConnectionData,
};

use super::{
    CLEAR_TRAILER, Protection, RECORD_HEADER, RECORD_OVERHEAD, RECORD_PLAINTEXT, RECORD_TAG, internal, refused,
    unexpected,
};
use crate::{Bug, EnvResult, limits::TLS_RECORDS_PER_KEY, planted};

/// Tests update their keys often.
const RECORDS_PER_KEY: u64 = if cfg!(test) { 50 } else { TLS_RECORDS_PER_KEY };

/// The key of one direction.
pub(super) struct Key {
    key: LessSafeKey,
    /// Of clear records; with integrity only.
    clear: Option<LessSafeKey>,
    iv: Iv,
    /// Number of the next record.
    sequence: u64,
}

impl Key {
    /// A key, and the number of its next record.
    pub(super) fn new(protection: Protection, (sequence, secrets): (u64, ConnectionTrafficSecrets)) -> EnvResult<Self> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(internal(&"a cipher that this side does not have")),
        };
        let clear = match protection {
            Protection::Encrypted => None,
            Protection::Integrity => Some(clear_key(algorithm, key.as_ref())?),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|error| internal(&error))?;
        Ok(Self { key: LessSafeKey::new(key), clear, iv, sequence })
    }

    /// One record is left: the key update.
    pub(super) fn is_used_up(&self) -> bool {
        self.sequence + 1 >= RECORDS_PER_KEY
    }

    fn nonce(&self) -> Nonce {
        let number = if planted(Bug::NonceRepeated) { self.sequence % 16 } else { self.sequence };
        Nonce::assume_unique_for_key(cipher::Nonce::new(&self.iv, number).0)
    }

    /// What follows `content` in a clear record with this header.
    pub(super) fn seal_clear(&mut self, header: [u8; RECORD_HEADER], content: &[u8]) -> EnvResult<[u8; CLEAR_TRAILER]> {
        assert!(self.sequence < RECORDS_PER_KEY);
        let mut trailer = [0; CLEAR_TRAILER];
        let (sealed, tag) = trailer.split_at_mut(RECORD_HEADER);
        self.clear_key()?
            .seal_out_of_place_scatter(self.nonce(), Aad::from(content), &header, sealed, &[], tag)
            .map_err(|error| internal(&error))?;
        self.sequence += 1;
        Ok(trailer)
    }

    /// Errors: header, content and trailer are not those that the other side sent as its next record.
    pub(super) fn check_clear(
        &mut self,
        header: [u8; RECORD_HEADER],
        content: &[u8],
        trailer: &[u8; CLEAR_TRAILER],
    ) -> EnvResult<()> {
        let (sealed, tag) = trailer.split_at(RECORD_HEADER);
        let mut sent = [0; RECORD_HEADER];
        let opened = self.clear_key()?.open_separate_gather(self.nonce(), Aad::from(content), sealed, tag, &mut sent);
        if opened.is_err() || sent != header {
            return Err(refused(&Error::DecryptError));
        }
        self.sequence += 1;
        Ok(())
    }

    fn clear_key(&self) -> EnvResult<&LessSafeKey> {
        self.clear.as_ref().ok_or_else(|| internal(&"a clear record on an encrypted connection"))
    }

    /// Puts a record of `plain` at the beginning of `out`. Returns its length.
    pub(super) fn seal(&mut self, content: ContentType, plain: &[u8], out: &mut [u8]) -> EnvResult<usize> {
        assert!(plain.len() <= RECORD_PLAINTEXT && self.sequence < RECORDS_PER_KEY);
        let length = plain.len() + RECORD_OVERHEAD;
        let (header, rest) = out[..length].split_at_mut(RECORD_HEADER);
        header.copy_from_slice(&make_tls13_aad(length - RECORD_HEADER));
        let (sealed, end) = rest.split_at_mut(plain.len());
        self.key
            .seal_out_of_place_scatter(self.nonce(), Aad::from(header), plain, sealed, &[content.into()], end)
            .map_err(|error| internal(&error))?;
        self.sequence += 1;
        Ok(length)
    }

    /// Opens `record` where it is: the content follows the header.
    pub(super) fn open(&mut self, record: &mut [u8]) -> EnvResult<(ContentType, usize)> {
        let (header, rest) = record.split_at_mut(RECORD_HEADER);
        let opened = self.key.open_in_place(self.nonce(), Aad::from(&*header), rest);
        let opened = opened.map_err(|_| refused(&Error::DecryptError))?;
        self.sequence += 1;
        content(opened)
    }

    /// Opens `record` to `place`, which is as long as what is sealed ([`sealed_bytes`]). The content comes first.
    pub(super) fn open_to(&mut self, record: &[u8], place: &mut [u8]) -> EnvResult<(ContentType, usize)> {
        let (header, rest) = record.split_at(RECORD_HEADER);
        let (sealed, tag) = rest.split_at(place.len());
        self.key
            .open_separate_gather(self.nonce(), Aad::from(header), sealed, tag, place)
            .map_err(|_| refused(&Error::DecryptError))?;
        self.sequence += 1;
        content(place)
    }
}

/// The key of clear records, derived from `key`.
fn clear_key(algorithm: &'static Algorithm, key: &[u8]) -> EnvResult<LessSafeKey> {
    let derived = Salt::new(HKDF_SHA256, b"forebay").extract(key);
    let derived = derived.expand(&[b"records with integrity only"], algorithm).map_err(|error| internal(&error))?;
    Ok(LessSafeKey::new(UnboundKey::from(derived)))
}

/// Bytes that a record of `length` bytes seals: content, its type, and padding.
pub(super) fn sealed_bytes(length: usize) -> usize {
    length - RECORD_HEADER - RECORD_TAG
}

/// Type and length of the content. Its type follows it, and padding of zeros.
fn content(opened: &[u8]) -> EnvResult<(ContentType, usize)> {
    let length = opened.iter().rposition(|byte| *byte != 0);
    let length = length.ok_or_else(|| refused(&PeerMisbehaved::IllegalTlsInnerPlaintext.into()))?;
    match length <= RECORD_PLAINTEXT {
        true => Ok((opened[length].into(), length)),
        false => Err(refused(&Error::PeerSentOversizedRecord)),
    }
}

/// A connection of `rustls` after its handshake.
pub(super) enum Connection {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// Derives the later keys of both directions. Both halves of a stream share it.
pub(super) struct KeySchedule {
    connection: RefCell<Connection>,
    protection: Protection,
    /// The peer has requested a key update: this side's next record has to be one.
    pub(super) update_requested: Cell<bool>,
}

impl KeySchedule {
    pub(super) fn new(connection: Connection, protection: Protection) -> Rc<Self> {
        Rc::new(Self { connection: RefCell::new(connection), protection, update_requested: Cell::new(false) })
    }

    /// The next key to send with.
    pub(super) fn next_to_send(&self) -> EnvResult<Key> {
        let secrets = match &mut *self.connection.borrow_mut() {
            Connection::Client(connection) => connection.update_tx_secret(),
            Connection::Server(connection) => connection.update_tx_secret(),
        };
        Key::new(self.protection, secrets.map_err(|error| internal(&error))?)
    }

    /// The next key to receive with.
    pub(super) fn next_to_receive(&self) -> EnvResult<Key> {
        let secrets = match &mut *self.connection.borrow_mut() {
            Connection::Client(connection) => connection.update_rx_secret(),
            Connection::Server(connection) => connection.update_rx_secret(),
        };
        Key::new(self.protection, secrets.map_err(|error| internal(&error))?)
    }

    /// Keeps a ticket for the client's next connection. Errors: a server gets none.
    pub(super) fn keep_ticket(&self, ticket: &[u8]) -> EnvResult<()> {
        match &mut *self.connection.borrow_mut() {
            Connection::Client(connection) => {
                connection.handle_new_session_ticket(ticket).map_err(|error| refused(&error))
            }
            Connection::Server(_) => Err(unexpected()),
        }
    }
}
