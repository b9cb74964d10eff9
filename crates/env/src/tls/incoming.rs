//! What came from the transport: the content of one opened record, and the bytes behind it.

use std::{
    ops::Range,
    task::{Context, Poll},
};

use rustls::{ContentType, InvalidMessage};

use super::{CLEAR_RECORD, FULL_RECORD, RECORD_HEADER, RECORD_OVERHEAD, RECORD_PLAINTEXT, refused};
use crate::{
    AlignedBuf, EnvResult,
    limits::{TLS_PIECE_BYTES, TLS_RECORD_BYTES},
    net::ReadHalf,
};

/// Bytes that came and are not used up.
#[derive(Default)]
pub(super) struct Incoming {
    /// Held only while there are any.
    pub(super) buffer: Option<AlignedBuf>,
    /// Content of the last record that was opened, as far as nobody has asked for it.
    content: Range<usize>,
    /// The bytes behind it.
    sealed: Range<usize>,
    /// Of these, whole records of the handshake whose headers have been looked at, as far as they have come.
    of_handshake: usize,
}

impl Incoming {
    /// Bytes that are not opened yet.
    pub(super) fn len(&self) -> usize {
        self.sealed.len()
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut buffer[self.sealed.clone()],
            None => &mut [],
        }
    }

    /// The same up to the first clear record.
    pub(super) fn of_handshake(&mut self) -> &mut [u8] {
        let mut known = self.of_handshake;
        let bytes = self.bytes();
        while let Some([kind, _, _, high, low]) = bytes.get(known..known + RECORD_HEADER)
            && *kind != CLEAR_RECORD
        {
            known += RECORD_HEADER + u16::from_be_bytes([*high, *low]) as usize;
        }
        let end = if bytes.get(known) == Some(&CLEAR_RECORD) { known } else { bytes.len() };
        self.of_handshake = known;
        &mut self.bytes()[..end]
    }

    /// A clear record comes next.
    pub(super) fn is_clear(&mut self) -> bool {
        self.bytes().first() == Some(&CLEAR_RECORD)
    }

    pub(super) fn used(&mut self, bytes: usize) {
        self.sealed.start += bytes;
        self.of_handshake = self.of_handshake.saturating_sub(bytes);
    }

    /// Puts `content` before what is not opened yet.
    pub(super) fn put_before(&mut self, content: &[u8]) {
        let (opened, all) = (content.len(), content.len() + self.len());
        if opened > 0 {
            let mut buffer = AlignedBuf::to_be_filled(all);
            buffer[..opened].copy_from_slice(content);
            buffer[opened..].copy_from_slice(self.bytes());
            *self = Self { buffer: Some(buffer), content: 0..opened, sealed: opened..all, of_handshake: 0 };
        }
    }

    /// Moves content of the last record to `buf`. Returns how much.
    pub(super) fn take(&mut self, buf: &mut [u8]) -> usize {
        let taken = self.content.len().min(buf.len());
        if let Some(buffer) = self.buffer.as_ref().filter(|_| taken > 0) {
            buf[..taken].copy_from_slice(&buffer[self.content.start..][..taken]);
            self.content.start += taken;
        }
        taken
    }

    /// Moves bytes that are not opened yet to `buf`. Returns how many.
    pub(super) fn take_unopened(&mut self, buf: &mut [u8]) -> usize {
        let taken = self.len().min(buf.len());
        buf[..taken].copy_from_slice(&self.bytes()[..taken]);
        self.used(taken);
        if self.sealed.is_empty() {
            self.buffer = None;
        }
        taken
    }

    /// Length of the next record, if it is whole.
    pub(super) fn record_bytes(&mut self) -> EnvResult<Option<usize>> {
        let [kind, _, _, high, low, rest @ ..] = self.bytes() else { return Ok(None) };
        let length = u16::from_be_bytes([*high, *low]) as usize;
        if ContentType::from(*kind) != ContentType::ApplicationData {
            return Err(refused(&InvalidMessage::InvalidContentType.into()));
        }
        if !(RECORD_OVERHEAD..=TLS_RECORD_BYTES).contains(&(RECORD_HEADER + length)) {
            return Err(refused(&InvalidMessage::MessageTooLarge.into()));
        }
        Ok((rest.len() >= length).then_some(RECORD_HEADER + length))
    }

    /// The next record, `length` bytes, which counts as used up.
    pub(super) fn next(&mut self, length: usize) -> &mut [u8] {
        self.used(length);
        let buffer = self.buffer.as_mut().expect("a record lies in it");
        &mut buffer[self.sealed.start - length..self.sealed.start]
    }

    /// The record that was used up last, `length` bytes, has `content` bytes of content.
    pub(super) fn opened(&mut self, length: usize, content: usize) {
        let start = self.sealed.start - length + RECORD_HEADER;
        self.content = start..start + content;
    }

    /// Reads more; `wanted` bytes of content are expected. All content has been taken.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut ReadHalf,
        wanted: usize,
    ) -> Poll<EnvResult<()>> {
        match read.poll_some(cx, self.room(wanted)) {
            Poll::Ready(read) => Poll::Ready(read.map(|n| self.sealed.end += n)),
            Poll::Pending => {
                if self.sealed.is_empty() {
                    self.buffer = None;
                }
                Poll::Pending
            }
        }
    }

    /// Where the next bytes go. Of bulk data it ends where a record ends, if they are full.
    fn room(&mut self, wanted: usize) -> &mut [u8] {
        const BULK: usize = TLS_PIECE_BYTES / RECORD_PLAINTEXT * FULL_RECORD;
        let held = self.len();
        let bytes = if wanted > RECORD_PLAINTEXT { BULK } else { held + TLS_RECORD_BYTES };
        let buffer = match self.buffer.take() {
            Some(mut buffer) if buffer.len() >= bytes => {
                buffer.copy_within(self.sealed.clone(), 0);
                buffer
            }
            small => {
                let mut buffer = AlignedBuf::to_be_filled(bytes);
                if let Some(small) = small {
                    buffer[..held].copy_from_slice(&small[self.sealed.clone()]);
                }
                buffer
            }
        };
        (self.content, self.sealed) = (0..0, 0..held);
        &mut self.buffer.insert(buffer)[held..bytes]
    }
}
