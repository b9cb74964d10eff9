//! Fids of new files, from sequences leased to this client. Pure; the leasing: `fid_leases`.

use std::{cell::RefCell, rc::Rc};

use forebay_env::{Bug, planted, sync::Mutex};
use forebay_proto::{Fid, FidSequence, ids::FID_SEQUENCE_BITS};

use crate::limits;

/// A leased sequence and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub mdt_index: u32,
    pub sequence: FidSequence,
    pub next: u32,
}

impl Lease {
    fn left(&self) -> u32 {
        (1 << FID_SEQUENCE_BITS) - self.next
    }
}

/// What is leased, the sequence in use first.
#[derive(Default)]
pub(crate) struct Leases {
    pub leases: Vec<Lease>,
}

impl Leases {
    pub fn take(&mut self) -> Option<Fid> {
        let lease = self.leases.first_mut()?;
        let fid = Fid::new(lease.mdt_index, lease.sequence, lease.next);
        if !(planted(Bug::FidReused) && lease.next % 64 == 63) {
            lease.next += 1;
        }
        if lease.left() == 0 {
            self.leases.remove(0);
        }
        Some(fid)
    }

    /// Few enough are left that another sequence should be asked for now.
    pub fn is_low(&self) -> bool {
        self.leases.iter().map(Lease::left).sum::<u32>() <= limits::FIDS_AHEAD
    }
}

/// Where the client's new fids come from.
#[derive(Default)]
pub(crate) struct Fids {
    pub leases: Rc<RefCell<Leases>>,
    pub leasing: Rc<Mutex<()>>,
}

impl Fids {
    /// The MDT has ended the session: what was leased is the client's that this one was.
    pub fn forget(&self) {
        self.leases.borrow_mut().leases.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fids_are_taken_once_each_and_the_next_sequence_follows() {
        let mut leases = Leases::default();
        let last = (1 << FID_SEQUENCE_BITS) - 1;
        leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(5), next: last });
        leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(8), next: 1 });
        assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(5), last)));
        assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(8), 1)));
        assert_eq!(leases.take(), Some(Fid::new(0, FidSequence(8), 2)));
    }

    #[test]
    fn another_sequence_is_asked_for_before_the_last_is_used_up() {
        let mut leases = Leases::default();
        assert!(leases.is_low() && leases.take().is_none());
        leases.leases.push(Lease { mdt_index: 0, sequence: FidSequence(5), next: 1 });
        assert!(!leases.is_low());
        leases.leases[0].next = (1 << FID_SEQUENCE_BITS) - limits::FIDS_AHEAD;
        assert!(leases.is_low() && leases.take().is_some());
    }
}
