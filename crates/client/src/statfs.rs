//! Space of the whole cluster.

use crate::{Client, ClientResult};

/// Space of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes that can hold file data, used or not.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub available_bytes: u64,
    /// Inodes there can be.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
}

impl Client {
    /// Space of all OSTs together, inodes of the MDT.
    pub async fn statfs(&self) -> ClientResult<StatFs> {
        todo!()
    }
}
