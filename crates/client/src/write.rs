//! Writes.

use bytes::Bytes;

use crate::{Client, ClientResult, OpenFile};

impl Client {
    /// Writes `data` (its parts one after another) at `offset`; returns how many bytes, fewer only after an error that
    /// the next call reports.
    ///
    /// The parts are not copied: they go to the socket as they are and stay pinned until they are committed.
    pub async fn write(&self, _file: &OpenFile, _offset: u64, _data: impl Into<Payload>) -> ClientResult<usize> {
        todo!()
    }
}

/// Bytes to write: one buffer, or several one after another.
pub struct Payload(pub Vec<Bytes>);

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![bytes.into()])
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(parts: Vec<Bytes>) -> Self {
        Self(parts)
    }
}

impl From<&'static [u8]> for Payload {
    fn from(bytes: &'static [u8]) -> Self {
        Self(vec![Bytes::from_static(bytes)])
    }
}
