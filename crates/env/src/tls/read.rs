//! The reading end. The transport reads into a buffer. A record is opened from there into the caller's memory if that
//! has room for all of it, and else where it is.

use std::{future::poll_fn, rc::Rc, time::Duration};

use bytes::Bytes;
use rustls::{AlertDescription, ContentType, Error, InvalidMessage};

use super::{
    Protection, RECORD_HEADER, closed,
    incoming::Incoming,
    key::{Key, KeySchedule, sealed_bytes},
    refused, too_long, unexpected,
};
use crate::{EnvResult, limits::TLS_HANDSHAKE_BYTES, net::ReadHalf};

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

pub(crate) struct TlsReadHalf {
    pub(super) inner: ReadHalf,
    protection: Protection,
    pub(super) key: Key,
    pub(super) incoming: Incoming,
    /// Content of a clear record that was longer than what a caller asked for.
    pub(super) rest: Bytes,
    /// Part of a handshake message whose rest is in the next record.
    message: Vec<u8>,
    schedule: Rc<KeySchedule>,
}

impl TlsReadHalf {
    pub(super) fn new(
        inner: ReadHalf,
        protection: Protection,
        key: Key,
        incoming: Incoming,
        schedule: Rc<KeySchedule>,
    ) -> Self {
        Self { inner, protection, key, incoming, rest: Bytes::new(), message: Vec::new(), schedule }
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.inner.round_trip()
    }

    pub(crate) async fn read_exact(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        match self.protection {
            Protection::Encrypted => self.read_encrypted(buf).await,
            Protection::Integrity => self.read_clear(buf).await,
        }
    }

    async fn read_encrypted(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let mut filled = self.incoming.take(buf);
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            match self.incoming.record_bytes()? {
                Some(length) => filled += self.open(length, rest)?,
                None => poll_fn(|cx| self.incoming.poll_fill(cx, &mut self.inner, rest.len())).await?,
            }
        }
        Ok(())
    }

    /// Opens the next record, `length` bytes. Returns how much of its content it has moved to `buf`.
    fn open(&mut self, length: usize, buf: &mut [u8]) -> EnvResult<usize> {
        let (record, sealed) = (self.incoming.next(length), sealed_bytes(length));
        if sealed <= buf.len() {
            return match self.key.open_to(record, &mut buf[..sealed])? {
                (ContentType::ApplicationData, content) if self.message.is_empty() => Ok(content),
                (other, content) => self.process(other, &buf[..content]).map(|()| 0),
            };
        }
        match self.key.open(record)? {
            (ContentType::ApplicationData, content) if self.message.is_empty() => {
                self.incoming.opened(length, content);
                Ok(self.incoming.take(buf))
            }
            (other, content) => {
                let content = record[RECORD_HEADER..][..content].to_vec();
                self.process(other, &content).map(|()| 0)
            }
        }
    }

    /// False within a handshake message whose rest is in the next record.
    pub(super) fn is_between_messages(&self) -> bool {
        self.message.is_empty()
    }

    /// Acts on what is not the caller's.
    pub(super) fn process(&mut self, content: ContentType, bytes: &[u8]) -> EnvResult<()> {
        match content {
            ContentType::Handshake => self.handshake(bytes),
            ContentType::Alert => alert(bytes),
            _ => Err(unexpected()),
        }
    }

    fn handshake(&mut self, bytes: &[u8]) -> EnvResult<()> {
        self.message.extend_from_slice(bytes);
        while let [kind, a, b, c, rest @ ..] = &self.message[..] {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if length > TLS_HANDSHAKE_BYTES {
                return Err(too_long());
            }
            let Some((message, next)) = rest.split_at_checked(length) else { break };
            match (*kind, message) {
                (NEW_SESSION_TICKET, ticket) => self.schedule.keep_ticket(ticket)?,
                // The next record has the next key.
                (KEY_UPDATE, [request @ (0 | 1)]) if next.is_empty() => {
                    self.key = self.schedule.next_to_receive()?;
                    if *request == 1 {
                        self.schedule.update_requested.set(true);
                    }
                }
                _ => return Err(unexpected()),
            }
            self.message.drain(..4 + length);
        }
        Ok(())
    }
}

fn alert(bytes: &[u8]) -> EnvResult<()> {
    match bytes {
        [_, description] => match AlertDescription::from(*description) {
            AlertDescription::CloseNotify => Err(closed()),
            AlertDescription::UserCanceled => Ok(()),
            other => Err(refused(&Error::AlertReceived(other))),
        },
        _ => Err(refused(&InvalidMessage::MessageTooShort.into())),
    }
}
