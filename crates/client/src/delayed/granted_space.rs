//! Space that OSTs have granted for buffered writes. Pure; the requests: `write_back/space.rs`.
//!
//! Invariant: no more is counted on than an OST has granted; what it uses up on the way is counted twice rather than not at all.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use forebay_env::{Time, sync::Mutex};
use forebay_proto::Errno;
use forebay_rpc::RpcError;

use crate::limits;

/// What a write of so many bytes, in so many pieces, uses up of a grant.
pub(crate) fn cost(bytes: u64, pieces: u64) -> u64 {
    bytes + pieces * limits::PIECE_SPACE_BYTES
}

/// The cost as a request states it.
pub(crate) fn request_cost(bytes: u64, pieces: usize) -> u32 {
    u32::try_from(cost(bytes, pieces as u64)).expect("a request has few bytes")
}

/// What the OSTs have granted.
#[derive(Default)]
pub(crate) struct GrantedSpace {
    osts: RefCell<BTreeMap<u32, Share>>,
    /// The task that gives back what is not used runs.
    pub ageing: Cell<bool>,
    /// The client is unmounted.
    pub over: Cell<bool>,
}

/// What one has.
#[derive(Default)]
pub(crate) struct Share {
    /// Granted, not used yet, and counted on.
    pub left: u64,
    /// The most that was counted on at a time since so little was held: writes were acknowledged because so much was granted.
    pub relied: u64,
    /// The OST may have set aside so much, as far as is known here.
    pub granted: u64,
    /// All that was used so far.
    pub used: u64,
    /// There was less than was wanted: no request for more before this time.
    pub refused_until: Time,
    /// A request for more than is needed now is in flight.
    pub asking: bool,
    /// It is being given back.
    pub giving: bool,
    /// Somebody counted on it since that was looked at last.
    pub wanted: bool,
    /// Requests to it are sent one after another.
    pub turn: Rc<Mutex<()>>,
}

impl Share {
    /// The grant is gone with its session.
    fn forget(&mut self) {
        (self.left, self.relied, self.granted) = (0, 0, 0);
    }
}

impl GrantedSpace {
    /// Which of `osts` have not granted `bytes`. The others are counted on.
    pub fn lacking(&self, osts: impl IntoIterator<Item = u32>, bytes: u64) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let mut lacks = |ost: &u32| match shares.get_mut(ost) {
            Some(share) if share.left >= bytes => {
                (share.wanted, share.relied) = (true, share.relied.max(bytes));
                false
            }
            _ => true,
        };
        osts.into_iter().filter(|ost| lacks(ost)).collect()
    }

    /// What came of a request that might use so much of it: all but those refused for want of room count as if they had.
    pub fn asked<T>(&self, ost: u32, bytes: u32, result: &Result<T, RpcError>) {
        let is_refused = matches!(result, Err(RpcError::Reply(reply)) if reply.errno == Errno::ENOSPC);
        if bytes > 0 && !is_refused {
            self.used(ost, bytes.into());
        }
    }

    /// So much was used of it.
    pub fn used(&self, ost: u32, bytes: u64) {
        self.with(ost, |share| (share.left, share.used) = (share.left.saturating_sub(bytes), share.used + bytes));
    }

    /// The OST may have been started again: what is buffered and on its way, and nothing more until it has granted that.
    ///
    /// All of that was granted before it was acknowledged. Less of the grant may be left as far as is known: what was used while a
    /// reply to [`Grant`](forebay_proto::message::Grant) was on its way is counted twice.
    pub fn claim(&self, ost: u32, held: u64) -> u64 {
        self.with(ost, |share| {
            share.left = held.min(share.left.max(share.relied));
            share.left
        })
    }

    /// No more than `held` is counted on from now on.
    pub fn give_up(&self, ost: u32, held: u64) {
        self.with(ost, |share| (share.left, share.relied) = (share.left.min(held), share.relied.min(held)));
    }

    /// The OST has ended the session, and its grant with it.
    pub fn forget(&self, ost: u32) {
        self.with(ost, Share::forget);
    }

    /// What comes is another client's, to whom nothing was granted.
    pub fn forget_all(&self) {
        self.osts.borrow_mut().values_mut().for_each(Share::forget);
    }

    /// The sessions are closed, and all that was granted went with them.
    pub fn end(&self) {
        self.over.set(true);
    }

    /// One of them had less than was wanted, a moment ago.
    pub fn any_refuses(&self, osts: &[u32], now: Time) -> bool {
        let shares = self.osts.borrow();
        osts.iter().any(|ost| shares.get(ost).is_some_and(|share| share.refused_until > now))
    }

    /// Which of `osts` have less than `bytes` left, and are to be asked for more.
    pub fn low(&self, osts: impl IntoIterator<Item = u32>, bytes: u64, now: Time) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let mut is_low = |ost: &u32| {
            let share = shares.entry(*ost).or_default();
            share.left < bytes && share.refused_until <= now && !std::mem::replace(&mut share.asking, true)
        };
        osts.into_iter().filter(|ost| is_low(ost)).collect()
    }

    /// Grants above `held` that nothing has relied on since the last call: they are being given back now.
    pub fn unused(&self, held: u64) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let is_unused = |share: &mut Share| {
            let is_wanted = std::mem::take(&mut share.wanted);
            !is_wanted && share.granted > held && !std::mem::replace(&mut share.giving, true)
        };
        shares.iter_mut().filter_map(|(ost, share)| is_unused(share).then_some(*ost)).collect()
    }

    pub fn has_any(&self) -> bool {
        self.osts.borrow().values().any(|share| share.granted > 0)
    }

    pub fn with<T>(&self, ost: u32, look: impl FnOnce(&mut Share) -> T) -> T {
        look(self.osts.borrow_mut().entry(ost).or_default())
    }
}

#[cfg(test)]
mod tests;
