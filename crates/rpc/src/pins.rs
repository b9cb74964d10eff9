//! The bound of the memory that a client pins for replay.
//!
//! Invariant: a session that holds pins takes no more than three quarters of what the others leave. A session that
//! holds none may always take one request. So targets that never commit block no other target, and pinned memory
//! exceeds the bound by at most one request of each session.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
};

use forebay_env::sync::oneshot;

/// A holder of pins that can work towards their release.
pub(crate) trait Holder {
    /// The budget runs short: the holder asks its target for a commit.
    fn relieve(&self);
}

/// Bytes of modifying requests that may be in flight or replied but uncommitted, over all sessions that share the
/// budget.
///
/// Each session has a share, and waits for its own share only: first come, first served. Once half of the budget is
/// used, sessions that hold a large part of their share are made to ask for a commit.
#[derive(Clone)]
pub struct PinBudget {
    inner: Rc<Inner>,
}

struct Inner {
    limit_bytes: u64,
    used_bytes: Cell<u64>,
    waiting: RefCell<VecDeque<Waiter>>,
    shares: RefCell<Vec<Weak<Part>>>,
}

struct Waiter {
    part: Rc<Part>,
    bytes: u64,
    grant: oneshot::Sender<Pin>,
}

/// A session's part of a budget.
pub(crate) struct PinShare {
    budget: Rc<Inner>,
    part: Rc<Part>,
}

struct Part {
    held_bytes: Cell<u64>,
    holder: RefCell<Option<Weak<dyn Holder>>>,
}

/// Bytes taken from a budget, returned when dropped.
pub(crate) struct Pin {
    budget: Rc<Inner>,
    part: Rc<Part>,
    bytes: u64,
}

impl PinBudget {
    /// A budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let inner = Inner {
            limit_bytes: bytes,
            used_bytes: Cell::new(0),
            waiting: RefCell::default(),
            shares: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.get()
    }

    /// A share for one session.
    pub(crate) fn share(&self) -> PinShare {
        let part = Rc::new(Part { held_bytes: Cell::new(0), holder: RefCell::default() });
        let mut shares = self.inner.shares.borrow_mut();
        shares.retain(|share| share.strong_count() > 0);
        shares.push(Rc::downgrade(&part));
        PinShare { budget: self.inner.clone(), part }
    }
}

impl PinShare {
    /// Registers the `holder` to call when the budget runs short and it holds a large part of its share.
    pub fn set_holder(&self, holder: Weak<dyn Holder>) {
        *self.part.holder.borrow_mut() = Some(holder);
    }

    /// True if a commit here would help: the budget runs short and the session holds a large part of its share, or a
    /// call waits for the share.
    pub fn is_short(&self) -> bool {
        self.budget.is_short(&self.part)
    }

    /// Takes `bytes`, after earlier waiters, once the share has space.
    pub async fn acquire(&self, bytes: u64) -> Pin {
        if let Some(pin) = self.try_acquire(bytes) {
            return pin;
        }
        let (grant, granted) = oneshot::channel();
        self.budget.waiting.borrow_mut().push_back(Waiter { part: self.part.clone(), bytes, grant });
        self.budget.relieve();
        granted.await.expect("a waiter's grant is dropped only with its budget")
    }

    /// The same, unless it would have to wait.
    pub fn try_acquire(&self, bytes: u64) -> Option<Pin> {
        let pin = self.budget.try_take(&self.part, bytes)?;
        if self.is_short() {
            self.budget.relieve();
        }
        Some(pin)
    }
}

impl Inner {
    /// Most bytes that the part may hold: three quarters of what the others leave.
    fn allowance(&self, part: &Part) -> u64 {
        let others = self.used_bytes.get() - part.held_bytes.get();
        self.limit_bytes.saturating_sub(others) / 4 * 3
    }

    /// True if the part may take `bytes` now.
    fn allows(&self, part: &Part, bytes: u64) -> bool {
        let held = part.held_bytes.get();
        held == 0 || held + bytes <= self.allowance(part)
    }

    fn is_short(&self, part: &Rc<Part>) -> bool {
        let held = part.held_bytes.get();
        let good_part = held > self.allowance(part) / 8;
        held > 0 && (good_part && self.used_bytes.get() > self.limit_bytes / 2 || self.has_waiter(part))
    }

    fn has_waiter(&self, part: &Rc<Part>) -> bool {
        let waiting = self.waiting.borrow();
        waiting.iter().any(|waiter| Rc::ptr_eq(&waiter.part, part) && !waiter.grant.is_closed())
    }

    fn relieve(&self) {
        let parts: Vec<Rc<Part>> = self.shares.borrow().iter().filter_map(Weak::upgrade).collect();
        for part in parts.iter().filter(|part| self.is_short(part)) {
            let holder = part.holder.borrow().as_ref().and_then(Weak::upgrade);
            if let Some(holder) = holder {
                holder.relieve();
            }
        }
    }

    fn try_take(self: &Rc<Self>, part: &Rc<Part>, bytes: u64) -> Option<Pin> {
        (self.allows(part, bytes) && !self.has_waiter(part)).then(|| self.take(part, bytes))
    }

    fn take(self: &Rc<Self>, part: &Rc<Part>, bytes: u64) -> Pin {
        self.used_bytes.set(self.used_bytes.get() + bytes);
        part.held_bytes.set(part.held_bytes.get() + bytes);
        Pin { budget: self.clone(), part: part.clone(), bytes }
    }

    /// Serves the waiters, those of each share in their order. A grant whose waiter is gone comes back as a dropped
    /// pin.
    fn serve(self: &Rc<Self>) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            waiting.retain(|waiter| !waiter.grant.is_closed());
            let mut passed: Vec<&Rc<Part>> = Vec::new();
            let next = waiting.iter().position(|waiter| {
                let is_first = !passed.iter().any(|part| Rc::ptr_eq(part, &waiter.part));
                let goes = is_first && self.allows(&waiter.part, waiter.bytes);
                if is_first && !goes {
                    passed.push(&waiter.part);
                }
                goes
            });
            let Some(waiter) = next.and_then(|next| waiting.remove(next)) else { return };
            drop(waiting);
            drop(waiter.grant.send(self.take(&waiter.part, waiter.bytes)));
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
        self.part.held_bytes.set(self.part.held_bytes.get() - self.bytes);
        self.budget.serve();
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

    fn take(share: &PinShare, bytes: u64) -> Pin {
        match poll(pin!(share.acquire(bytes))) {
            Poll::Ready(pin) => pin,
            Poll::Pending => panic!("{bytes} are free"),
        }
    }

    #[test]
    fn waiters_are_served_in_order_and_holders_asked_to_commit() {
        let budget = PinBudget::new(100);
        let share = budget.share();
        let holder = Rc::new(Count(Cell::new(0)));
        let weak: Weak<dyn Holder> = Rc::downgrade(&(holder.clone() as Rc<dyn Holder>));
        share.set_holder(weak);
        let first = take(&share, 70);
        assert_eq!(holder.0.get(), 1, "more than half is used");
        let mut second = pin!(share.acquire(60));
        let mut third = pin!(share.acquire(10));
        assert!(poll(second.as_mut()).is_pending() && poll(third.as_mut()).is_pending());
        assert_eq!((budget.used_bytes(), holder.0.get()), (70, 3));
        drop(first);
        assert!(poll(second.as_mut()).is_ready() && poll(third.as_mut()).is_ready());
    }

    #[test]
    fn a_waiter_that_gave_up_does_not_block_the_next() {
        let budget = PinBudget::new(100);
        let share = budget.share();
        let first = take(&share, 100);
        let mut last = {
            let mut gives_up = Box::pin(share.acquire(100));
            assert!(poll(gives_up.as_mut()).is_pending());
            let mut last = Box::pin(share.acquire(1));
            assert!(poll(last.as_mut()).is_pending());
            last
        };
        drop(first);
        assert!(poll(last.as_mut()).is_ready());
        assert_eq!(budget.used_bytes(), 0, "the pin was dropped with the output");
    }

    #[test]
    fn one_request_of_each_session_always_passes() {
        let budget = PinBudget::new(10);
        let [stuck, well] = [budget.share(), budget.share()];
        let _held = [take(&stuck, 7), take(&well, 1000)];
        let mut large = pin!(well.acquire(1000));
        assert!(poll(large.as_mut()).is_pending() && take(&budget.share(), 5).bytes() == 5);
        drop(_held);
        assert!(poll(large.as_mut()).is_ready());
    }

    /// Fills a share until it would have to wait; returns what it holds.
    fn fill(share: &PinShare) -> Vec<Pin> {
        std::iter::from_fn(|| share.try_acquire(1)).collect()
    }

    #[test]
    fn uncommitted_session_leaves_budget_for_others() {
        let budget = PinBudget::new(1000);
        let [first, second, well] = [budget.share(), budget.share(), budget.share()];
        let (held, also_held) = (fill(&first), fill(&second));
        let mut waits = [pin!(first.acquire(1)), pin!(second.acquire(1))];
        assert!(waits.iter_mut().all(|waits| poll(waits.as_mut()).is_pending()));
        assert_eq!((held.len(), also_held.len()), (750, 186));
        for _ in 0..100 {
            assert!(take(&well, 30).bytes() == 30, "those who wait for their own share hold up nobody");
        }
        drop((held, also_held));
        assert!(waits.iter_mut().all(|waits| poll(waits.as_mut()).is_ready()));
        assert_eq!(fill(&well).len(), 750);
    }

    #[test]
    fn only_a_session_that_holds_much_of_the_pin_budget_is_short() {
        let budget = PinBudget::new(1000);
        let [stuck, well] = [budget.share(), budget.share()];
        let _held = fill(&stuck);
        let mut waits = pin!(stuck.acquire(1));
        assert!(poll(waits.as_mut()).is_pending());
        let small = take(&well, 10);
        assert!(stuck.is_short() && !well.is_short());
        let _more = take(&well, 100);
        assert!(well.is_short());
        drop(small);
    }
}
