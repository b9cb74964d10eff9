//! Appends: the range is reserved at stripe 0's target first.

use crate::{Client, ClientResult, OpenFile, write::Payload};

impl Client {
    /// Writes `data` at the end of the file, atomically against other appenders; returns where it begins.
    pub async fn append(&self, _file: &OpenFile, _data: impl Into<Payload>) -> ClientResult<u64> {
        todo!()
    }
}
