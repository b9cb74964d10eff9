//! What a client knows of a file's size. Pure: the raising itself stands in `file`.
//!
//! Within one truncate epoch a size only grows, and a request of an old epoch is refused by every OST once a truncate
//! was replied. So a size seen in an epoch is a lower bound for every request of that epoch that is accepted.
//!
//! Invariant: a write is acknowledged only when `raised` has reached its end: when *this client* has had a raise (a
//! write, a reservation) replied by the home, which it replays if the home dies. What was only *seen* may
//! have been raised by a client that is gone.

/// What a client knows of one file's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSize {
    epoch: u64,
    seen: u64,
    raised: u64,
    wanted: u64,
}

impl KnownSize {
    pub fn new(epoch: u64, bytes: u64) -> Self {
        Self { epoch, seen: bytes, raised: 0, wanted: 0 }
    }

    /// The truncate epoch that requests carry.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The file is at least this long.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// A size in `epoch` was received; a newer epoch makes everything known before void.
    pub fn see(&mut self, epoch: u64, bytes: u64) {
        if epoch > self.epoch {
            *self = Self::new(epoch, bytes);
        } else if epoch == self.epoch {
            self.seen = self.seen.max(bytes);
        }
    }

    /// The home has replied to this client's raise to `bytes`.
    pub fn raised(&mut self, epoch: u64, bytes: u64) {
        if epoch == self.epoch {
            self.raised = self.raised.max(bytes);
            self.seen = self.seen.max(bytes);
        }
    }

    /// The home has ended the session: this client's raises may be lost.
    pub fn forget_raises(&mut self) {
        // The reads that wanted one have failed, or request it again.
        (self.raised, self.wanted) = (0, 0);
    }

    /// A write of `epoch` ends at `end`: it wants the size to be raised that far.
    pub fn want(&mut self, epoch: u64, end: u64) {
        if epoch == self.epoch {
            self.wanted = self.wanted.max(end);
        }
    }

    /// True if a write of `epoch` that ends at `end` may be acknowledged.
    pub fn covers(&self, epoch: u64, end: u64) -> bool {
        epoch == self.epoch && end <= self.raised
    }

    /// What to raise to, for all that want it and at least to `end`: one raise serves many.
    ///
    /// It repeats what was seen: then later writes below that need no raise of their own.
    pub fn next_raise(&self, end: u64) -> u64 {
        end.max(self.wanted).max(self.seen)
    }
}

#[cfg(test)]
mod tests;
