//! The writing end. It seals records into a buffer, and sends that when it is full and at the end of each write.

use std::rc::Rc;

use bytes::Bytes;
use rustls::ContentType;

use super::{
    Protection, RECORD_OVERHEAD, RECORD_PLAINTEXT,
    key::{Key, KeySchedule},
};
use crate::{AlignedBuf, EnvResult, limits::TLS_PIECE_BYTES, net::WriteHalf};

/// Parts below this size are put together before they are sealed.
pub(super) const SMALL_PART: usize = 4 << 10;
/// The message before the first record of the next key. It requests no update from the peer (RFC 8446, 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// Bytes that a record adds to its plaintext, with the key update before it.
const RECORD_ADDS: usize = RECORD_OVERHEAD + KEY_UPDATE.len() + RECORD_OVERHEAD;
/// Room for one full record, or for those of as much plaintext in several parts.
const SMALL_OUT: usize = RECORD_PLAINTEXT + 16 * RECORD_ADDS;
/// Room for many records.
const BULK_OUT: usize = TLS_PIECE_BYTES + SMALL_OUT;

pub(crate) struct TlsWriteHalf {
    pub(super) inner: WriteHalf,
    protection: Protection,
    pub(super) key: Key,
    schedule: Rc<KeySchedule>,
    /// Records to send.
    pub(super) out: Option<AlignedBuf>,
    used: usize,
}

impl TlsWriteHalf {
    pub(super) fn new(inner: WriteHalf, protection: Protection, key: Key, schedule: Rc<KeySchedule>) -> Self {
        Self { inner, protection, key, schedule, out: None, used: 0 }
    }

    pub(crate) async fn write_all(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        match self.protection {
            Protection::Encrypted => self.write_encrypted(parts).await,
            Protection::Integrity => self.write_clear(parts).await,
        }
    }

    async fn write_encrypted(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        let bulk = parts.iter().map(Bytes::len).sum::<usize>() > RECORD_PLAINTEXT;
        let mut small = Vec::new();
        for part in parts {
            let is_small = part.len() < SMALL_PART;
            if !is_small || small.len() + part.len() > RECORD_PLAINTEXT {
                self.put(&std::mem::take(&mut small), bulk).await?;
            }
            match is_small {
                true => small.extend_from_slice(part),
                false => self.put(part, bulk).await?,
            }
        }
        self.put(&small, bulk).await?;
        self.send().await
    }

    /// Makes records of `plain`. With `bulk`, one call of the transport sends many of them.
    async fn put(&mut self, plain: &[u8], bulk: bool) -> EnvResult<()> {
        for plain in plain.chunks(RECORD_PLAINTEXT) {
            if self.out.as_ref().is_some_and(|out| out.len() - self.used < plain.len() + RECORD_ADDS) {
                self.send().await?;
            }
            self.seal(ContentType::ApplicationData, plain, bulk)?;
        }
        Ok(())
    }

    pub(super) fn seal(&mut self, content: ContentType, plain: &[u8], bulk: bool) -> EnvResult<()> {
        let (update, room) = (self.next_key()?, if bulk { BULK_OUT } else { SMALL_OUT });
        let out = self.out.get_or_insert_with(|| AlignedBuf::to_be_filled(room));
        if let Some(update) = update {
            out[self.used..][..update.len()].copy_from_slice(&update);
            self.used += update.len();
        }
        self.used += self.key.seal(content, plain, &mut out[self.used..])?;
        Ok(())
    }

    /// The record before the next key, if it is time for that.
    pub(super) fn next_key(&mut self) -> EnvResult<Option<[u8; KEY_UPDATE.len() + RECORD_OVERHEAD]>> {
        if !self.key.is_used_up() && !self.schedule.update_requested.take() {
            return Ok(None);
        }
        let mut record = [0; KEY_UPDATE.len() + RECORD_OVERHEAD];
        self.key.seal(ContentType::Handshake, &KEY_UPDATE, &mut record)?;
        self.key = self.schedule.next_to_send()?;
        Ok(Some(record))
    }

    pub(super) async fn send(&mut self) -> EnvResult<()> {
        let Some(mut out) = self.out.take() else { return Ok(()) };
        out.truncate(std::mem::take(&mut self.used));
        self.inner.write_all(&[out.freeze()]).await
    }

    /// For tests ([`crate::testing`]).
    pub(crate) async fn send_unsealed(&mut self, bytes: Bytes) -> EnvResult<()> {
        self.inner.write_all(&[bytes]).await
    }

    /// For tests ([`crate::testing`]).
    pub(crate) async fn send_record(&mut self, kind: u8, content: &[u8]) -> EnvResult<()> {
        assert!(content.len() <= RECORD_PLAINTEXT);
        self.seal(ContentType::from(kind), content, false)?;
        self.send().await
    }

    /// The records that wait to be sent.
    #[cfg(test)]
    pub(super) fn taken(&mut self) -> Vec<u8> {
        let used = std::mem::take(&mut self.used);
        self.out.take().map_or_else(Vec::new, |out| out[..used].to_vec())
    }
}
