//! fallocate(2).

use crate::{Client, ClientResult, OpenFile};

/// What to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Make a hole of it; the size stays.
    Punch,
    /// Make it read as zeros; `keep_size`: do not extend the file.
    Zero {
        /// Do not extend the file.
        keep_size: bool,
    },
    /// Extend the file to its end. Space is not reserved.
    Extend,
}

impl Client {
    /// Changes a range without writing it.
    pub async fn fallocate(&self, _file: &OpenFile, _offset: u64, _length: u64, _what: Allocate) -> ClientResult<()> {
        todo!()
    }
}
