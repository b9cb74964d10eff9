//! Connections of one listener that have not finished their handshake.
//!
//! Invariant: there are at most `limits::HANDSHAKES`. A new one takes the place of the oldest, so connections that say
//! nothing keep no other out, unless that many arrive while one handshake takes place.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use crate::{latch::Latch, limits};

/// The unfinished handshakes of one listener.
#[derive(Default)]
pub struct Handshakes {
    all: RefCell<Numbered>,
}

#[derive(Default)]
struct Numbered {
    next: u64,
    /// Raised when the handshake has to give way. Oldest first.
    unfinished: BTreeMap<u64, Rc<Latch>>,
}

impl Handshakes {
    /// Counts another handshake. If there are too many, the oldest is displaced.
    pub fn begin(self: &Rc<Self>) -> Unfinished {
        let displaced = Rc::new(Latch::default());
        let mut all = self.all.borrow_mut();
        if all.unfinished.len() >= limits::HANDSHAKES {
            all.unfinished.pop_first().inspect(|(_, oldest)| oldest.raise());
        }
        all.next += 1;
        let number = all.next;
        all.unfinished.insert(number, displaced.clone());
        Unfinished { of: self.clone(), number, displaced }
    }
}

/// A handshake that is counted until this is dropped.
pub struct Unfinished {
    of: Rc<Handshakes>,
    number: u64,
    displaced: Rc<Latch>,
}

impl Unfinished {
    /// Waits until a newer handshake takes its place.
    pub async fn displaced(&self) {
        self.displaced.wait().await;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.of.all.borrow_mut().unfinished.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_handshake_displaces_the_oldest_and_each_is_counted_until_it_is_dropped() {
        let handshakes = Rc::new(Handshakes::default());
        let count = || handshakes.all.borrow().unfinished.len();
        let mut begun: Vec<Unfinished> = (0..limits::HANDSHAKES).map(|_| handshakes.begin()).collect();
        let displaced = |begun: &[Unfinished]| begun.iter().filter(|one| one.displaced.is_raised()).count();
        assert_eq!((count(), displaced(&begun)), (limits::HANDSHAKES, 0));
        begun.extend([handshakes.begin(), handshakes.begin()]);
        assert_eq!((count(), displaced(&begun)), (limits::HANDSHAKES, 2));
        assert!(begun[0].displaced.is_raised() && begun[1].displaced.is_raised());
        // That one was displaced is not counted twice.
        begun.drain(..2);
        assert_eq!((count(), displaced(&begun)), (limits::HANDSHAKES, 0));
        begun.truncate(7);
        assert_eq!(count(), 7);
        begun.clear();
        assert_eq!(count(), 0);
    }
}
