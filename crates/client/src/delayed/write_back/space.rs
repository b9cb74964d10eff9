//! GrantedSpace at the OSTs for what is kept back: granted before anything is acknowledged.
//!
//! Invariant: what is kept and on its way costs no more than is left of the grant of each OST that it may go to.
//! Invariant: no more is counted on than an OST has granted; what it uses up on the way is counted twice rather than not at all.
//! Bounded: what nobody counted on for [`limits::GRANT_TERM`] is given back.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use forebay_env::{Time, sync::Mutex};
use forebay_proto::{Errno, message::Grant};
use forebay_rpc::{Call, RpcError};

use super::WriteBack;
use crate::{Client, errors::Trouble, limits, tasks::try_all};

/// What a write of so many bytes, in so many pieces, uses up of a grant.
pub(crate) fn cost(bytes: u64, pieces: u64) -> u64 {
    bytes + pieces * limits::PIECE_ROOM_BYTES
}

/// As a request tells it.
pub(crate) fn request_cost(bytes: u64, pieces: usize) -> u32 {
    u32::try_from(cost(bytes, pieces as u64)).expect("a request has few bytes")
}

/// What the OSTs have granted.
#[derive(Default)]
pub(crate) struct GrantedSpace {
    osts: RefCell<BTreeMap<u32, Share>>,
    /// The task that gives back what is not used runs.
    ageing: Cell<bool>,
    /// The client is unmounted.
    over: Cell<bool>,
}

/// What one has.
#[derive(Default)]
struct Share {
    /// Granted, not used yet, and counted on.
    left: u64,
    /// The OST may have set aside so much, as far as is known here.
    granted: u64,
    /// All that was used so far.
    used: u64,
    /// There was less than was wanted: it is not asked again before.
    refused_until: Time,
    /// It is being asked for more than is needed now.
    asking: bool,
    /// It is being given back.
    giving: bool,
    /// Somebody counted on it since that was looked at last.
    wanted: bool,
    /// It is asked one thing after another.
    turn: Rc<Mutex<()>>,
}

impl GrantedSpace {
    /// Which of `osts` have not granted `bytes`. The others are counted on.
    pub fn lacking(&self, osts: impl IntoIterator<Item = u32>, bytes: u64) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let mut lacks = |ost: &u32| match shares.get_mut(ost) {
            Some(share) if share.left >= bytes => {
                share.wanted = true;
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
    fn used(&self, ost: u32, bytes: u64) {
        self.with(ost, |share| (share.left, share.used) = (share.left.saturating_sub(bytes), share.used + bytes));
    }

    /// The OST may have been started again: what is counted on, and nothing more until it has granted that.
    pub fn claim(&self, ost: u32, held: u64) -> u64 {
        self.with(ost, |share| {
            share.left = share.left.min(held);
            share.left
        })
    }

    /// The OST has ended the session, and its grant with it.
    pub fn forget(&self, ost: u32) {
        self.with(ost, |share| (share.left, share.granted) = (0, 0));
    }

    /// What comes is another client's, to whom nothing was granted.
    pub fn forget_all(&self) {
        self.osts.borrow_mut().values_mut().for_each(|share| (share.left, share.granted) = (0, 0));
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
    fn low(&self, osts: impl IntoIterator<Item = u32>, bytes: u64, now: Time) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let mut is_low = |ost: &u32| {
            let share = shares.entry(*ost).or_default();
            share.left < bytes && share.refused_until <= now && !std::mem::replace(&mut share.asking, true)
        };
        osts.into_iter().filter(|ost| is_low(ost)).collect()
    }

    /// What nobody has counted on since this was asked last, and is more than `held`: it is being given back now.
    fn unused(&self, held: u64) -> Vec<u32> {
        let mut shares = self.osts.borrow_mut();
        let is_unused = |share: &mut Share| {
            let is_wanted = std::mem::take(&mut share.wanted);
            !is_wanted && share.granted > held && !std::mem::replace(&mut share.giving, true)
        };
        shares.iter_mut().filter_map(|(ost, share)| is_unused(share).then_some(*ost)).collect()
    }

    fn has_any(&self) -> bool {
        self.osts.borrow().values().any(|share| share.granted > 0)
    }

    fn with<T>(&self, ost: u32, look: impl FnOnce(&mut Share) -> T) -> T {
        look(self.osts.borrow_mut().entry(ost).or_default())
    }
}

impl WriteBack {
    /// What is kept and on its way costs so much.
    pub fn held(&self) -> u64 {
        cost(self.bytes.get(), self.pieces.get())
    }

    /// What of that counts on the grant of an OST; no more is counted on from now on.
    pub fn counted_on(&self, ost: u32) -> u64 {
        self.room.claim(ost, self.held())
    }
}

impl Client {
    /// Whether each of the OSTs has granted, or grants now, room for `more` beside all that this client keeps.
    pub(crate) async fn have_room(&self, osts: Vec<u32>, more: u64) -> bool {
        let here = &self.inner.write_back;
        if here.room.any_refuses(&osts, self.env().now()) {
            return false;
        }
        let asks = osts.iter().map(|ost| {
            let (client, ost) = (self.clone(), *ost);
            async move { client.ask_room(ost, more).await }
        });
        let asked = try_all(self.env(), asks).await;
        asked.is_ok() && here.room.lacking(osts, here.held() + more).is_empty()
    }

    /// Asks for more where little is left, before it is missed.
    pub(crate) fn check_grants(&self, osts: impl IntoIterator<Item = u32>) {
        let enough = self.wanted_room() - self.inner.options.write_back_bytes / 2;
        for ost in self.inner.write_back.room.low(osts, enough, self.env().now()) {
            let client = self.clone();
            drop(self.env().spawn(async move {
                // Without it, whoever needs it asks.
                let _ = client.ask_room(ost, enough).await;
                client.inner.write_back.room.with(ost, |share| share.asking = false);
            }));
        }
    }

    /// Gives back what is not counted on, to a write of this client's own that was refused. True: there was any.
    pub(crate) async fn give_room_back(&self, osts: &[u32]) -> bool {
        let mut any = false;
        for ost in osts {
            any |= self.give_back(*ost).await.unwrap_or(false);
        }
        any
    }

    /// All that this client may keep, and as much to go on with while more is asked for.
    fn wanted_room(&self) -> u64 {
        self.inner.options.write_back_bytes.saturating_mul(2)
    }

    /// Asks an OST for all that is wanted, if it has not granted room for `more` meanwhile.
    async fn ask_room(&self, ost: u32, more: u64) -> Result<(), Trouble> {
        let here = &self.inner.write_back;
        let turn = here.room.with(ost, |share| share.turn.clone());
        let _turn = turn.lock().await;
        let (left, used) = here.room.with(ost, |share| (share.left, share.used));
        if left >= here.held() + more {
            return Ok(());
        }
        let bytes = self.wanted_room().max(here.held() + more);
        // Also if nobody is here any more when the answer comes.
        here.room.with(ost, |share| share.granted = share.granted.max(bytes));
        self.look_after_grants();
        let instance = self.inner.instance();
        let reply = self.ost(ost, &Grant { bytes }, Call::default()).await?.reply;
        if instance != self.inner.instance() {
            // It may have been granted to the client that this one was; or to the one that it is now, which gives it back.
            here.room.with(ost, |share| share.granted = share.granted.max(bytes));
            self.look_after_grants();
            return Ok(());
        }
        let refused_until = self.env().now() + limits::GRANT_PAUSE;
        here.room.with(ost, |share| {
            // What was used meanwhile the OST may have taken off, or not.
            share.left = reply.bytes.saturating_sub(share.used - used);
            share.granted = reply.bytes;
            if reply.bytes < bytes {
                share.refused_until = refused_until;
            }
        });
        Ok(())
    }

    /// Gives back to an OST what is not counted on. True: there was any.
    async fn give_back(&self, ost: u32) -> Result<bool, Trouble> {
        let here = &self.inner.write_back;
        let turn = here.room.with(ost, |share| share.turn.clone());
        let _turn = turn.lock().await;
        let held = here.held();
        // First here: nobody counts on it any more when the OST hears of it.
        here.room.claim(ost, held);
        if here.room.with(ost, |share| share.granted) <= held {
            return Ok(false);
        }
        let instance = self.inner.instance();
        let reply = self.ost(ost, &Grant { bytes: held }, Call::default()).await?.reply;
        let is_former = instance != self.inner.instance();
        here.room.with(ost, |share| {
            // As in `ask_room`.
            share.granted = if is_former { share.granted.max(held) } else { reply.bytes };
        });
        if is_former {
            self.look_after_grants();
        }
        Ok(true)
    }

    /// Sees to it that what is not used is given back.
    fn look_after_grants(&self) {
        if self.inner.write_back.room.ageing.replace(true) {
            return;
        }
        let client = self.clone();
        drop(self.env().spawn(async move {
            let here = &client.inner.write_back;
            while here.room.has_any() && !here.room.over.get() {
                client.env().sleep(limits::GRANT_TERM).await;
                for ost in here.room.unused(here.held()) {
                    let client = client.clone();
                    drop(client.env().clone().spawn(async move {
                        // What is not heard of here is tried again.
                        let _ = client.give_back(ost).await;
                        client.inner.write_back.room.with(ost, |share| share.giving = false);
                    }));
                }
            }
            here.room.ageing.set(false);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(left: &[(u32, u64)]) -> GrantedSpace {
        let room = GrantedSpace::default();
        left.iter().for_each(|(ost, left)| room.with(*ost, |share| (share.left, share.granted) = (*left, *left)));
        room
    }

    #[test]
    fn what_is_used_is_not_left() {
        let room = room(&[(1, 1000), (2, 300)]);
        assert_eq!(room.lacking([1, 2, 3], 500), [2, 3]);
        room.used(1, 600);
        assert_eq!(room.lacking([1, 2, 3], 400), [2, 3]);
        assert_eq!(room.lacking([1], 401), [1]);
        room.used(1, 600);
        assert_eq!(room.lacking([1], 1), [1]);
    }

    #[test]
    fn a_target_that_may_have_restarted_hears_what_is_counted_on_and_no_more_is() {
        let room = room(&[(1, 1000), (2, 300)]);
        assert_eq!((room.claim(1, 400), room.claim(2, 400), room.claim(3, 400)), (400, 300, 0));
        assert_eq!(room.lacking([1, 2], 401), [1, 2]);
        room.forget(1);
        assert_eq!(room.lacking([1], 1), [1]);
    }

    #[test]
    fn what_nobody_counted_on_for_a_while_is_found() {
        let room = room(&[(1, 1000), (2, 1000), (3, 0)]);
        assert_eq!(room.lacking([1, 2], 10), []);
        assert_eq!(room.unused(0), []);
        assert_eq!(room.lacking([2], 10), []);
        assert_eq!((room.unused(1000), room.unused(999)), (vec![], vec![1, 2]));
        assert_eq!(room.unused(0), [], "it is being given back");
        // What the OST may have, though nobody counts on it any more.
        let room = self::room(&[(1, 1000)]);
        assert_eq!((room.claim(1, 0), room.has_any(), room.unused(0)), (0, true, vec![1]));
    }

    #[test]
    fn an_ost_that_had_less_is_not_asked_again_at_once() {
        let room = room(&[(1, 100), (2, 100)]);
        room.with(1, |share| share.refused_until = Time(50));
        assert!(room.any_refuses(&[1, 2], Time(49)) && !room.any_refuses(&[1, 2], Time(50)));
        assert_eq!(room.low([1, 2], 200, Time(49)), [2]);
        assert_eq!(room.low([1, 2], 200, Time(50)), [1], "the other one is being asked");
    }
}
