//! What a client knows of a file's size. Pure: the raising itself stands in `file`.
//!
//! Within one truncate epoch a size only grows, and a request of an old epoch is refused by every OST once a truncate
//! was replied. So a size seen in an epoch is a lower bound for every request of that epoch that is accepted.
//!
//! Invariant: a write is acknowledged only when `raised` has reached its end: when *this client* has had a raise (a
//! write, a reservation) replied by stripe 0's target, which it replays if that target dies. What was only *seen* may
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

    /// Somebody told the size in `epoch`; a newer epoch makes everything known before void.
    pub fn see(&mut self, epoch: u64, bytes: u64) {
        if epoch > self.epoch {
            *self = Self::new(epoch, bytes);
        } else if epoch == self.epoch {
            self.seen = self.seen.max(bytes);
        }
    }

    /// Stripe 0's target has replied to this client's raise to `bytes`.
    pub fn raised(&mut self, epoch: u64, bytes: u64) {
        if epoch == self.epoch {
            self.raised = self.raised.max(bytes);
            self.seen = self.seen.max(bytes);
        }
    }

    /// Stripe 0's target has ended the session: this client's raises may be lost.
    pub fn forget_raises(&mut self) {
        // What wanted one has failed, or asks again.
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
mod tests {
    use super::*;
    use crate::testing::Dice;

    #[test]
    fn what_another_raised_does_not_cover_a_write() {
        let mut size = KnownSize::new(1, 100);
        size.see(1, 5000);
        assert!(!size.covers(1, 50));
        assert_eq!(size.next_raise(50), 5000);
        size.raised(1, 5000);
        assert!(size.covers(1, 5000) && !size.covers(1, 5001));
    }

    #[test]
    fn a_newer_epoch_voids_what_was_known_and_an_older_one_says_nothing() {
        let mut size = KnownSize::new(1, 0);
        size.raised(1, 9000);
        size.see(2, 10);
        assert_eq!((size.epoch(), size.seen(), size.covers(2, 1)), (2, 10, false));
        size.see(1, 9000);
        size.raised(1, 9000);
        assert_eq!((size.seen(), size.covers(2, 1)), (10, false));
    }

    #[test]
    fn one_raise_serves_all_that_wait() {
        let mut size = KnownSize::new(1, 0);
        size.want(1, 10);
        size.want(1, 30);
        size.want(1, 20);
        let raise = size.next_raise(10);
        size.raised(1, raise);
        assert!(size.covers(1, 30));
    }

    /// A target of stripe 0 that forgets other clients' raises when it restarts and replays this client's.
    #[test]
    fn a_covered_write_is_within_the_size_after_any_restart() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let (mut size, mut target, mut mine) = (KnownSize::new(0, 0), 0, 0);
            let mut acknowledged = 0;
            for _ in 0..100 {
                match dice.below(4) {
                    0 => target += dice.below(100),
                    1 => size.see(0, target),
                    2 => target = mine,
                    _ => {
                        let end = dice.below(3000);
                        if !size.covers(0, end) {
                            let raise = size.next_raise(end);
                            target = target.max(raise);
                            mine = mine.max(raise);
                            size.raised(0, raise);
                        }
                        acknowledged = acknowledged.max(end);
                    }
                }
                assert!(target >= acknowledged, "seed {seed}");
            }
        }
    }
}
