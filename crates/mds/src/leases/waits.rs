//! Requests that wait for the end of leases, by inode. The end of a lease wakes only the requests that wait for its
//! inode: waking all would make the cost of one request grow with the number of clients.

use std::{cell::RefCell, collections::BTreeMap, pin::Pin, rc::Rc, task::Poll};

use forebay_env::sync::Notify;
use forebay_proto::Fid;

/// All waiting requests.
#[derive(Default)]
pub struct LeaseWaits {
    waited: RefCell<BTreeMap<Fid, Rc<Notify>>>,
    /// Wakes all: leases on unknown inodes have ended.
    pub all: Notify,
}

impl LeaseWaits {
    /// Wakes the requests that wait for one of `fids`.
    pub fn ended(&self, fids: &[Fid]) {
        let waited = self.waited.borrow();
        fids.iter().filter_map(|fid| waited.get(fid)).for_each(|waited| waited.notify_waiters());
    }

    /// Registers a request that is going to wait for `fids`.
    pub fn waiter(&self, fids: Vec<Fid>) -> Waiter<'_> {
        let mut waited = self.waited.borrow_mut();
        let ends = fids.into_iter().map(|fid| (fid, waited.entry(fid).or_default().clone())).collect();
        Waiter { waits: self, ends }
    }
}

/// A waiting request.
pub struct Waiter<'a> {
    waits: &'a LeaseWaits,
    ends: Vec<(Fid, Rc<Notify>)>,
}

impl Waiter<'_> {
    /// Completes when a lease on one of them has ended after this call, or when leases on unknown inodes have.
    pub fn ended(&self) -> impl Future<Output = ()> + '_ {
        let all = std::iter::once(&self.waits.all);
        let each = self.ends.iter().map(|(_, end)| &**end);
        let mut ends: Vec<Pin<Box<_>>> = all.chain(each).map(|end| Box::pin(end.notified())).collect();
        std::future::poll_fn(move |context| {
            let over = ends.iter_mut().any(|end| end.as_mut().poll(context).is_ready());
            if over { Poll::Ready(()) } else { Poll::Pending }
        })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waited = self.waits.waited.borrow_mut();
        for (fid, end) in self.ends.drain(..) {
            drop(end);
            if waited.get(&fid).is_some_and(|end| Rc::strong_count(end) == 1) {
                waited.remove(&fid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    #[test]
    fn the_end_of_a_lease_wakes_the_waiters_for_its_inode_only() {
        let waits = LeaseWaits::default();
        let waiter = |fids: &[u64]| waits.waiter(fids.iter().copied().map(fid).collect());
        let is_over =
            |end: Pin<&mut dyn Future<Output = ()>>| end.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let both = waiter(&[1, 2]);
        {
            let (one, two) = (waiter(&[1]), waiter(&[2]));
            let (mut first, mut second, mut third) = (pin!(one.ended()), pin!(two.ended()), pin!(both.ended()));
            assert!(!is_over(first.as_mut()) && !is_over(second.as_mut()) && !is_over(third.as_mut()));
            waits.ended(&[fid(2), fid(3)]);
            assert!(!is_over(first.as_mut()) && is_over(second.as_mut()) && is_over(third.as_mut()));
            // Also wakes a waiter that has not begun to wait.
            let mut later = pin!(two.ended());
            waits.all.notify_waiters();
            assert!(is_over(first.as_mut()) && is_over(later.as_mut()));
        }
        assert_eq!(waits.waited.borrow().len(), 2);
        drop(both);
        assert!(waits.waited.borrow().is_empty());
    }
}
