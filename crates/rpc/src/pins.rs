//! The bound of what a client keeps in memory for replay.
//!
//! Invariant: pins are granted first come, first served; beyond the bound only a single request larger than all of it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
};

use forebay_env::sync::oneshot;

/// Whoever holds pins and can do something to get rid of them.
pub(crate) trait Holder {
    /// The budget runs short: ask for a commit.
    fn relieve(&self);
}

/// Bytes of modifying requests that may be in flight or replied-but-uncommitted, over all sessions that share it.
///
/// A call waits (first come, first served) while the budget is used up; sessions that hold pins are made to ask for a
/// commit from half of it on. One request larger than the whole budget passes alone.
#[derive(Clone)]
pub struct PinBudget {
    inner: Rc<Inner>,
}

struct Inner {
    limit_bytes: u64,
    used_bytes: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, oneshot::Sender<Pin>)>>,
    holders: RefCell<Vec<Weak<dyn Holder>>>,
}

/// Bytes taken from a budget, given back when dropped.
pub(crate) struct Pin {
    budget: Rc<Inner>,
    bytes: u64,
}

impl PinBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let inner = Inner {
            limit_bytes: bytes,
            used_bytes: Cell::new(0),
            waiting: RefCell::default(),
            holders: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Bytes taken now.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.get()
    }

    /// True from half of the budget on, and while anybody waits.
    pub(crate) fn is_short(&self) -> bool {
        self.inner.used_bytes.get() > self.inner.limit_bytes / 2 || !self.inner.waiting.borrow().is_empty()
    }

    /// Lets `holder` hear when the budget runs short.
    pub(crate) fn register(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.inner.holders.borrow_mut();
        holders.retain(|h| h.strong_count() > 0);
        holders.push(holder);
    }

    /// Takes `bytes`, waiting for others to give theirs back.
    pub(crate) async fn acquire(&self, bytes: u64) -> Pin {
        if let Some(pin) = self.inner.try_take(bytes) {
            if self.is_short() {
                self.relieve();
            }
            return pin;
        }
        let (grant, granted) = oneshot::channel();
        self.inner.waiting.borrow_mut().push_back((bytes, grant));
        self.relieve();
        granted.await.expect("a waiter's grant is dropped only with its budget")
    }

    /// The same, if it takes no waiting.
    pub(crate) fn try_acquire(&self, bytes: u64) -> Option<Pin> {
        let pin = self.inner.try_take(bytes)?;
        if self.is_short() {
            self.relieve();
        }
        Some(pin)
    }

    fn relieve(&self) {
        let holders: Vec<_> = self.inner.holders.borrow().iter().filter_map(Weak::upgrade).collect();
        holders.iter().for_each(|h| h.relieve());
    }
}

impl Inner {
    fn try_take(self: &Rc<Self>, bytes: u64) -> Option<Pin> {
        let clear = self.waiting.borrow().is_empty();
        (clear && self.fits(bytes)).then(|| self.take(bytes))
    }

    fn fits(&self, bytes: u64) -> bool {
        let used = self.used_bytes.get();
        used == 0 || used + bytes <= self.limit_bytes
    }

    fn take(self: &Rc<Self>, bytes: u64) -> Pin {
        self.used_bytes.set(self.used_bytes.get() + bytes);
        Pin { budget: self.clone(), bytes }
    }

    /// Serves those who wait, in their order. A grant nobody takes any more comes back as a dropped pin.
    fn serve(self: &Rc<Self>) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            while waiting.front().is_some_and(|(_, grant)| grant.is_closed()) {
                waiting.pop_front();
            }
            let Some((bytes, _)) = waiting.front() else { return };
            if !self.fits(*bytes) {
                return;
            }
            let (bytes, grant) = waiting.pop_front().expect("there is a front");
            drop(waiting);
            drop(grant.send(self.take(bytes)));
        }
    }
}

impl Pin {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.budget.used_bytes.set(self.budget.used_bytes.get() - self.bytes);
        let budget = self.budget.clone();
        budget.serve();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    struct Count(Cell<u32>);
    impl Holder for Count {
        fn relieve(&self) {
            self.0.set(self.0.get() + 1);
        }
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn waiters_are_served_in_order_and_holders_asked_to_commit() {
        let budget = PinBudget::new(100);
        let holder = Rc::new(Count(Cell::new(0)));
        let weak: Weak<dyn Holder> = Rc::downgrade(&(holder.clone() as Rc<dyn Holder>));
        budget.register(weak);
        let Poll::Ready(first) = poll(pin!(budget.acquire(80))) else { panic!("the budget is free") };
        let mut second = pin!(budget.acquire(60));
        let mut third = pin!(budget.acquire(10));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        assert_eq!((budget.used_bytes(), holder.0.get()), (80, 3));
        drop(first);
        assert!(poll(second.as_mut()).is_ready() && poll(third.as_mut()).is_ready());
    }

    #[test]
    fn a_waiter_that_gave_up_does_not_block_the_next() {
        let budget = PinBudget::new(100);
        let Poll::Ready(first) = poll(pin!(budget.acquire(100))) else { panic!("the budget is free") };
        let mut last = {
            let mut gives_up = Box::pin(budget.acquire(100));
            assert!(poll(gives_up.as_mut()).is_pending());
            let mut last = Box::pin(budget.acquire(1));
            assert!(poll(last.as_mut()).is_pending());
            last
        };
        drop(first);
        assert!(poll(last.as_mut()).is_ready());
        assert_eq!(budget.used_bytes(), 0, "the pin was dropped with the output");
    }

    #[test]
    fn a_request_larger_than_the_budget_passes_alone() {
        let budget = PinBudget::new(10);
        assert!(poll(pin!(budget.acquire(1000))).is_ready());
    }
}
