//! Reads.

use bytes::Bytes;

use crate::{Client, ClientResult, OpenFile};

impl Client {
    /// Reads `[offset, offset + length)`, cut at the end of the file; holes come as zeros; parts one after another.
    ///
    /// Every byte was verified against the sums its writer made; EIO if a target has no intact copy.
    pub async fn read_parts(&self, _file: &OpenFile, _offset: u64, _length: usize) -> ClientResult<Vec<Bytes>> {
        todo!()
    }

    /// As [`Client::read_parts`], in one piece (copied only if there are several parts).
    pub async fn read(&self, file: &OpenFile, offset: u64, length: usize) -> ClientResult<Bytes> {
        let mut parts = self.read_parts(file, offset, length).await?;
        Ok(match parts.len() {
            0 => Bytes::new(),
            1 => parts.remove(0),
            _ => parts.concat().into(),
        })
    }
}
