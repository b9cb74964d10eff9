//! Data of a stream with integrity only.
//!
//! A clear record is its header (type, and the length of its content in three bytes), the content, and a trailer. Large
//! contents are neither copied before they are sent nor after they came: the caller's own memory is sent from and
//! filled. What is no data (tickets, key updates, alerts) comes in TLS's own records, sealed.
//!
//! Invariant: what a caller has asked for is in its memory before it is checked, and the read fails if it is wrong.

use bytes::{Bytes, BytesMut};
use rustls::{ContentType, InvalidMessage};

use super::{
    CLEAR_RECORD, CLEAR_TRAILER, RECORD_HEADER, RECORD_OVERHEAD, TlsReadHalf, TlsWriteHalf, refused, unexpected,
    write::SMALL_PART,
};
use crate::{
    EnvResult,
    limits::{TLS_CLEAR_BYTES, TLS_RECORD_BYTES},
};

impl TlsWriteHalf {
    pub(super) async fn write_clear(&mut self, parts: &[Bytes]) -> EnvResult<()> {
        let mut out = Clear::default();
        let mut small = BytesMut::new();
        for part in parts {
            let is_small = part.len() < SMALL_PART;
            if !is_small || small.len() + part.len() > TLS_CLEAR_BYTES {
                self.put_clear(small.split().freeze(), &mut out)?;
            }
            match is_small {
                true => small.extend_from_slice(part),
                false => self.put_clear(part.clone(), &mut out)?,
            }
        }
        self.put_clear(small.freeze(), &mut out)?;
        out.end();
        self.inner.write_all(&out.parts).await
    }

    /// Makes records of `content`.
    fn put_clear(&mut self, mut content: Bytes, out: &mut Clear) -> EnvResult<()> {
        while !content.is_empty() {
            let content = content.split_to(content.len().min(TLS_CLEAR_BYTES));
            if let Some(record) = self.next_key()? {
                out.between.extend_from_slice(&record);
            }
            let [_, length @ ..] = (content.len() as u32).to_be_bytes();
            let header = [CLEAR_RECORD, 0, length[0], length[1], length[2]];
            let trailer = self.key.seal_clear(header, &content)?;
            out.between.extend_from_slice(&header);
            out.put(content);
            out.between.extend_from_slice(&trailer);
        }
        Ok(())
    }
}

/// Records to send.
#[derive(Default)]
struct Clear {
    parts: Vec<Bytes>,
    /// What is between the last part and the next one.
    between: BytesMut,
}

impl Clear {
    fn put(&mut self, content: Bytes) {
        if content.len() < SMALL_PART {
            return self.between.extend_from_slice(&content);
        }
        self.end();
        self.parts.push(content);
    }

    fn end(&mut self) {
        if !self.between.is_empty() {
            self.parts.push(self.between.split().freeze());
        }
    }
}

impl TlsReadHalf {
    pub(super) async fn read_clear(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let mut filled = self.take_rest(buf);
        while filled < buf.len() {
            let mut header = [0; RECORD_HEADER];
            self.fill(&mut header).await?;
            filled += match header[0] {
                CLEAR_RECORD => self.clear_record(header, &mut buf[filled..]).await?,
                _ => self.sealed_record(header).await.map(|()| 0)?,
            };
        }
        Ok(())
    }

    /// Reads the content of a record with this header. Returns how much of it is in `buf`; the rest waits.
    async fn clear_record(&mut self, header: [u8; RECORD_HEADER], buf: &mut [u8]) -> EnvResult<usize> {
        let length = u32::from_be_bytes([0, header[2], header[3], header[4]]) as usize;
        if header[1] != 0 || length > TLS_CLEAR_BYTES {
            return Err(refused(&InvalidMessage::MessageTooLarge.into()));
        }
        if !self.is_between_messages() {
            return Err(unexpected());
        }
        let mut trailer = [0; CLEAR_TRAILER];
        if let Some(content) = buf.get_mut(..length) {
            self.fill(content).await?;
            self.fill(&mut trailer).await?;
            return self.key.check_clear(header, content, &trailer).map(|()| length);
        }
        let mut content = vec![0; length];
        self.fill(&mut content).await?;
        self.fill(&mut trailer).await?;
        self.key.check_clear(header, &content, &trailer)?;
        self.rest = content.into();
        Ok(self.take_rest(buf))
    }

    /// Moves content that waits to `buf`. Returns how much.
    fn take_rest(&mut self, buf: &mut [u8]) -> usize {
        let taken = self.rest.len().min(buf.len());
        buf[..taken].copy_from_slice(&self.rest.split_to(taken));
        if self.rest.is_empty() {
            // It held the buffer.
            self.rest = Bytes::new();
        }
        taken
    }

    /// Reads and acts on a record with this header that is not data.
    async fn sealed_record(&mut self, header: [u8; RECORD_HEADER]) -> EnvResult<()> {
        let [kind, _, _, high, low] = header;
        let length = u16::from_be_bytes([high, low]) as usize;
        if ContentType::from(kind) != ContentType::ApplicationData {
            return Err(refused(&InvalidMessage::InvalidContentType.into()));
        }
        if !(RECORD_OVERHEAD..=TLS_RECORD_BYTES).contains(&(RECORD_HEADER + length)) {
            return Err(refused(&InvalidMessage::MessageTooLarge.into()));
        }
        let mut record = vec![0; RECORD_HEADER + length];
        record[..RECORD_HEADER].copy_from_slice(&header);
        self.fill(&mut record[RECORD_HEADER..]).await?;
        let (content, bytes) = self.key.open(&mut record)?;
        // Data is never sealed here: it would be somebody's who did not agree to integrity only.
        self.process(content, &record[RECORD_HEADER..][..bytes])
    }

    /// Fills `buf` with what came: first what came together with the end of the handshake.
    async fn fill(&mut self, buf: &mut [u8]) -> EnvResult<()> {
        let taken = self.incoming.take_unopened(buf);
        self.inner.read_plain(&mut buf[taken..]).await
    }
}

#[cfg(test)]
mod tests;
