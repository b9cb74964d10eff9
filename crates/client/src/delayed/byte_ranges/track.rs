//! Where the writes of one handle go: whether they are as long and as far from each other as the ones before. Pure.

use forebay_env::Time;
use forebay_proto::message::Pieces;

use crate::limits;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    start: u64,
    length: u64,
    /// 0 while there was one write only.
    stride: u64,
    last: u64,
    writes: u64,
    /// When the first of them began, and the last.
    pub since: Time,
    pub at: Time,
}

impl Track {
    /// Of a handle through which `length` bytes are written at `offset`, first of all.
    pub fn new(offset: u64, length: u64, at: Time) -> Self {
        Self { start: offset, length, stride: 0, last: offset, writes: 1, since: at, at }
    }

    /// The next write.
    pub fn note(&mut self, offset: u64, length: u64, at: Time) {
        let step = offset.saturating_sub(self.last);
        let fits = length == self.length && step >= length && (self.stride == 0 || step == self.stride);
        if fits {
            *self = Self { stride: step, last: offset, writes: self.writes + 1, at, ..*self };
        } else {
            *self = Self::new(offset, length, at);
        }
    }

    /// What is expected of it, if anything is. Of writes without gaps it is not known where they end.
    pub fn expected(&self) -> Option<Pieces> {
        let strided = self.writes >= limits::TRACK_WRITES && self.stride > self.length;
        strided.then(|| Pieces::endless(self.start, self.length, self.stride)).flatten()
    }
}

#[cfg(test)]
mod tests;
