//! Slots: the requests of a session in flight.
//!
//! Invariant: a slot is reused only after the reply to its request arrived, or if the request was never sent. So the
//! target needs to keep one reply per slot.
//! Invariant: calls that wait for a slot get one in their order: first come, first served.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::{Rc, Weak},
};

use bytes::Bytes;
use forebay_env::sync::{Notify, oneshot};
use forebay_proto::{
    Fid,
    message::{FrameHeader, Op},
};

use crate::{RpcError, frame::Received, limits, pins::Pin};

/// The result that a waiting call receives.
pub(super) type Outcome = Result<Received, RpcError>;

/// A request in a slot, until its reply comes.
pub(super) struct Pending {
    /// As it is sent; session and incarnation are filled in at each send.
    pub header: FrameHeader,
    pub op: Op,
    pub body: Bytes,
    pub bulk: Vec<Bytes>,
    /// Pinned bytes, for replay; only modifying requests.
    pub pin: Option<Pin>,
    /// See `Call::fid` and `Call::directory`.
    pub fids: [Option<Fid>; 2],
    /// The waiting call; its receiver is gone if the call was dropped.
    pub waiter: oneshot::Sender<Outcome>,
    /// It fails when the session ends ([`super::Call::evictions`]).
    pub is_bound: bool,
    /// It may have reached the target.
    pub sent: bool,
    /// Its position in the order of calls.
    pub order: u64,
}

#[derive(Default)]
struct Slot {
    sequence: u64,
    pending: Option<Pending>,
}

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    /// The slot freed last is used first: fewer reply rows change at the target.
    free: Vec<u16>,
    in_use: usize,
    credits: usize,
    waiting: VecDeque<oneshot::Sender<Lease>>,
    orders: u64,
    /// Set once calls are refused for good.
    refusal: Option<RpcError>,
}

/// All slots of a session.
#[derive(Default)]
pub(super) struct Slots {
    state: RefCell<State>,
    /// Slots are free again, or are given up for good.
    freed: Notify,
}

/// The right to use one slot once. When dropped unused, the slot goes to the next waiter.
pub(super) struct Lease {
    slots: Weak<Slots>,
    slot: u16,
    used: bool,
}

impl Slots {
    /// Makes `count` slots at the first connection; later connections change nothing.
    pub fn open(self: &Rc<Self>, count: u16) {
        {
            let mut state = self.state.borrow_mut();
            if state.slots.is_empty() {
                let count = count.clamp(1, forebay_proto::limits::SLOTS);
                state.slots.resize_with(count.into(), Slot::default);
                state.free = (0..count).rev().collect();
                state.credits = count.into();
            }
        }
        self.grant();
    }

    /// The target allows this many requests in flight.
    pub fn set_credits(self: &Rc<Self>, credits: u16) {
        {
            let mut state = self.state.borrow_mut();
            let credits = usize::from(credits).clamp(1, state.slots.len().max(1));
            if credits == state.credits {
                return;
            }
            state.credits = credits;
        }
        self.grant();
    }

    /// From now on every call fails with `error`, calls in flight too.
    pub fn refuse(&self, error: &RpcError) {
        let pending: Vec<Pending> = {
            let mut state = self.state.borrow_mut();
            state.refusal = Some(error.clone());
            state.waiting.clear();
            state.slots.iter_mut().filter_map(|s| s.pending.take()).collect()
        };
        self.freed.notify_waiters();
        for pending in pending {
            let _ = pending.waiter.send(Err(error.clone()));
        }
    }

    /// A free slot; waits for one if need be.
    pub async fn acquire(self: &Rc<Self>) -> Result<Lease, RpcError> {
        let waiting = {
            let mut state = self.state.borrow_mut();
            if let Some(error) = &state.refusal {
                return Err(error.clone());
            }
            if state.waiting.is_empty()
                && let Some(slot) = state.take_free()
            {
                return Ok(Lease { slots: Rc::downgrade(self), slot, used: false });
            }
            let (grant, granted) = oneshot::channel();
            state.waiting.push_back(grant);
            granted
        };
        match waiting.await {
            Ok(lease) => Ok(lease),
            Err(_) => Err(self.state.borrow().refusal.clone().unwrap_or(RpcError::Closed)),
        }
    }

    /// A free slot, unless a call waits for one or too few would be left for others.
    pub fn reserve(self: &Rc<Self>) -> Option<Lease> {
        let mut state = self.state.borrow_mut();
        if state.refusal.is_some() || !state.has_to_spare() {
            return None;
        }
        let slot = state.take_free()?;
        Some(Lease { slots: Rc::downgrade(self), slot, used: false })
    }

    /// A slot could be reserved.
    pub fn has_to_spare(&self) -> bool {
        self.state.borrow().has_to_spare()
    }

    /// Waits until a slot could be reserved. False: that will never be.
    pub async fn reservable(&self) -> bool {
        loop {
            let freed = self.freed.notified();
            {
                let state = self.state.borrow();
                if state.refusal.is_some() || state.has_to_spare() {
                    return state.refusal.is_none();
                }
            }
            freed.await;
        }
    }

    /// Puts a request into its slot; sets slot and sequence in its header.
    pub fn fill(&self, mut lease: Lease, mut pending: Pending) -> (u16, u64) {
        let mut state = self.state.borrow_mut();
        lease.used = true;
        state.orders += 1;
        pending.order = state.orders;
        let slot = &mut state.slots[usize::from(lease.slot)];
        slot.sequence += 1;
        (pending.header.slot, pending.header.sequence) = (lease.slot, slot.sequence);
        assert!(slot.pending.is_none(), "a leased slot is free");
        slot.pending = Some(pending);
        (lease.slot, slot.sequence)
    }

    /// Calls `with` on the request in `slot` if it is still the one of `sequence`.
    pub fn with<R>(&self, slot: u16, sequence: u64, with: impl FnOnce(&mut Pending) -> R) -> Option<R> {
        let mut state = self.state.borrow_mut();
        let slot = state.slots.get_mut(usize::from(slot)).filter(|s| s.sequence == sequence)?;
        slot.pending.as_mut().map(with)
    }

    /// Takes the request out of its slot, which becomes free.
    pub fn take(self: &Rc<Self>, slot: u16, sequence: u64) -> Option<Pending> {
        let pending = {
            let mut state = self.state.borrow_mut();
            let found = state.slots.get_mut(usize::from(slot)).filter(|s| s.sequence == sequence)?;
            let pending = found.pending.take()?;
            state.put_free(slot);
            pending
        };
        self.grant();
        Some(pending)
    }

    /// (slot, sequence) of all requests, in the order of the calls.
    pub fn in_order(&self) -> Vec<(u16, u64)> {
        let state = self.state.borrow();
        let mut all: Vec<_> = state
            .slots
            .iter()
            .enumerate()
            .filter_map(|(i, slot)| slot.pending.as_ref().map(|p| (p.order, i as u16, slot.sequence)))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, slot, sequence)| (slot, sequence)).collect()
    }

    /// Number of slots in use.
    pub fn in_use(&self) -> usize {
        self.state.borrow().in_use
    }

    fn release(self: &Rc<Self>, slot: u16) {
        self.state.borrow_mut().put_free(slot);
        self.grant();
    }

    /// Gives free slots to the waiting calls.
    fn grant(self: &Rc<Self>) {
        loop {
            let (grant, slot) = {
                let mut state = self.state.borrow_mut();
                while state.waiting.front().is_some_and(oneshot::Sender::is_closed) {
                    state.waiting.pop_front();
                }
                if state.waiting.is_empty() {
                    if state.has_to_spare() {
                        self.freed.notify_waiters();
                    }
                    return;
                }
                let Some(slot) = state.take_free() else { return };
                (state.waiting.pop_front().expect("somebody waits"), slot)
            };
            // If the waiter vanished, the lease comes back when dropped.
            drop(grant.send(Lease { slots: Rc::downgrade(self), slot, used: false }));
        }
    }
}

impl State {
    /// No call waits for a slot, and enough are left for others.
    fn has_to_spare(&self) -> bool {
        self.waiting.is_empty() && self.in_use + limits::UNRESERVED_SLOTS < self.credits
    }

    fn take_free(&mut self) -> Option<u16> {
        if self.in_use >= self.credits {
            return None;
        }
        let slot = self.free.pop()?;
        self.in_use += 1;
        Some(slot)
    }

    fn put_free(&mut self, slot: u16) {
        self.in_use -= 1;
        self.free.push(slot);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.upgrade()
            && !self.used
        {
            slots.release(self.slot);
        }
    }
}
