//! Fids of new files, from sequences leased to this client; the next sequence is leased before the last is used up.

use std::{cell::RefCell, rc::Rc};

use forebay_env::{Bug, planted, sync::Mutex};
use forebay_proto::{Errno, Fid, FidSequence, ids::FID_SEQUENCE_BITS, message::LeaseSequence};
use forebay_rpc::RpcError;

use crate::{Client, ClientResult, limits, tasks::detached};

/// A leased sequence and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    mdt_index: u32,
    sequence: FidSequence,
    next: u32,
}

impl Lease {
    fn left(&self) -> u32 {
        (1 << FID_SEQUENCE_BITS) - self.next
    }
}

/// What is leased, the sequence in use first.
#[derive(Default)]
struct Leases {
    leases: Vec<Lease>,
}

impl Leases {
    fn take(&mut self) -> Option<Fid> {
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
    fn is_low(&self) -> bool {
        self.leases.iter().map(Lease::left).sum::<u32>() <= limits::FIDS_AHEAD
    }
}

/// Where the client's new fids come from.
#[derive(Default)]
pub(crate) struct Fids {
    leases: Rc<RefCell<Leases>>,
    leasing: Rc<Mutex<()>>,
}

impl Fids {
    /// The MDT has ended the session: what was leased is the client's that this one was.
    pub fn forget(&self) {
        self.leases.borrow_mut().leases.clear();
    }
}

impl Client {
    /// A fid nobody has used.
    pub(crate) async fn new_fid(&self) -> ClientResult<Fid> {
        loop {
            let taken = self.inner.mdt.fids.leases.borrow_mut().take();
            if let Some(fid) = taken {
                self.lease_ahead();
                return Ok(fid);
            }
            detached(self.env(), self.clone().lease(false)).await?;
        }
    }

    /// Makes something that has a fid nobody has used. Where the MDT ended the session before it was asked, the fid is not this
    /// client's to give any more: then with another.
    pub(crate) async fn with_new_fid<T>(&self, make: impl AsyncFn(Fid) -> Result<T, RpcError>) -> ClientResult<T> {
        loop {
            let fid = self.new_fid().await?;
            let instance = self.inner.instance();
            match make(fid).await {
                Err(RpcError::Reply(reply)) if reply.errno == Errno::EINVAL && instance != self.inner.instance() => {}
                made => return Ok(made?),
            }
        }
    }

    /// As [`Client::new_fid`], if there is one without waiting.
    pub(crate) fn fid_at_once(&self) -> Option<Fid> {
        let fid = self.inner.mdt.fids.leases.borrow_mut().take()?;
        self.lease_ahead();
        Some(fid)
    }

    fn lease_ahead(&self) {
        let fids = &self.inner.mdt.fids;
        if fids.leases.borrow().is_low() && fids.leasing.try_lock().is_ok() {
            // A failure shows when the last fid is gone and the lease is waited for.
            drop(self.env().spawn(self.clone().lease(true)));
        }
    }

    /// Leases a sequence unless another task did meanwhile; `ahead`: before the last is used up.
    async fn lease(self, ahead: bool) -> ClientResult<()> {
        let fids = &self.inner.mdt.fids;
        let _turn = fids.leasing.lock().await;
        let enough = if ahead { !fids.leases.borrow().is_low() } else { !fids.leases.borrow().leases.is_empty() };
        if enough {
            return Ok(());
        }
        let instance = self.inner.instance();
        let reply = self.mdt(Fid::ROOT, &LeaseSequence {}).await?;
        if instance != self.inner.instance() {
            // It may have been leased to the client that this one was.
            return Ok(());
        }
        // Number 0 stays unused: a fid is never all zeros.
        let lease = Lease { mdt_index: reply.mdt_index, sequence: reply.sequence, next: 1 };
        fids.leases.borrow_mut().leases.push(lease);
        Ok(())
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
