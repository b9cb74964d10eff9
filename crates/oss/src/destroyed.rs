//! Recently destroyed fids: a late write to one is refused.
//!
//! A client closes a file only after all its writes were replied to, and the MDT destroys only files that nobody has
//! open (an evicted opener is fenced first). So a late write is a fault of its sender. This memory is the second line
//! of defence; it is bounded and does not survive a restart.

use std::collections::{BTreeSet, VecDeque};

use forebay_proto::Fid;

use crate::limits;

/// The last [`limits::DESTROYED_FIDS`] destroyed fids.
#[derive(Default)]
pub struct Destroyed {
    set: BTreeSet<Fid>,
    order: VecDeque<Fid>,
}

impl Destroyed {
    /// Remembers a fid, forgets the oldest if there are too many.
    pub fn insert(&mut self, fid: Fid) {
        if !self.set.insert(fid) {
            return;
        }
        self.order.push_back(fid);
        if self.order.len() > limits::DESTROYED_FIDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    /// True if the fid was destroyed recently.
    pub fn contains(&self, fid: Fid) -> bool {
        self.set.contains(&fid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_destroyed_fid_is_forgotten_beyond_the_bound() {
        let mut destroyed = Destroyed::default();
        let fid = |low| Fid { high: 0, low };
        (0..=limits::DESTROYED_FIDS as u64).for_each(|low| destroyed.insert(fid(low)));
        assert!(!destroyed.contains(fid(0)));
        assert!(destroyed.contains(fid(1)));
    }
}
