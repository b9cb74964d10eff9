//! Space at the OSTs for buffered writes: granted before anything is acknowledged.
//!
//! Invariant: what is kept and on its way costs no more than is left of the grant of each OST that it may go to.
//! Invariant: no more is counted on than an OST has granted; what it uses up on the way is counted twice rather than not at all.
//! Bounded: what nobody counted on for [`limits::GRANT_TERM`] is given back.

use forebay_proto::message::Grant;
use forebay_rpc::Call;

use crate::{Client, errors::Trouble, limits, tasks::try_all};

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
                // Without it, the writer that needs space requests it.
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

    /// All that this client may buffer, and as much to go on with while more is requested.
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
        // First here: nothing relies on it any more when the OST receives the request.
        here.room.give_up(ost, held);
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
                        // If the request is lost here, it is tried again.
                        let _ = client.give_back(ost).await;
                        client.inner.write_back.room.with(ost, |share| share.giving = false);
                    }));
                }
            }
            here.room.ageing.set(false);
        }));
    }
}
