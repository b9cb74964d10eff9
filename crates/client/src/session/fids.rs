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

    /// Few enough are left that another sequence should be requested now.
    pub fn is_low(&self) -> bool {
        self.leases.iter().map(Lease::left).sum::<u32>() <= limits::FIDS_LEFT
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
mod tests;
