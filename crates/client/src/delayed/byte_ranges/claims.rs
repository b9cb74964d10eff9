//! Claims of the pieces that are written, and their end.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::message::Claim;

use super::Writing;
use crate::{Client, ClientResult, OpenFile, file::FileState, leases::Holds, limits, tasks::Counted};

/// Something else than a claimed write is under way with a file: nothing is claimed before it ends. The file's state stays the same as
/// long: if it is opened again meanwhile, nothing is claimed through the new handle either.
pub(crate) type OutsideClaims = Counted<FileState>;

impl Client {
    /// Before anything is done with a file but a write: if this client has a claim, it withdraws it, and waits until
    /// all writes that other clients buffered are sent. While the answer lives, nothing is claimed.
    pub(crate) async fn see_all(&self, file: &Rc<FileState>) -> ClientResult<OutsideClaims> {
        let outside = OutsideClaims::new(file, |file| &file.sharing.outside);
        if file.sharing.is_bound() && !planted(Bug::ClaimNotTakenBack) {
            let _turn = file.sharing.turn.lock().await;
            if file.sharing.is_bound() {
                self.inner.mdt.leases.give_up_ranges(file.fid);
                file.sharing.end(self.env().now());
                // What is lost of it, its handles report.
                let _ = self.flush_writes(file).await;
                self.mdt(file.fid, &Claim { fid: file.fid, pieces: Vec::new() }).await?;
                file.sharing.claimed.borrow_mut().clear();
            }
        }
        Ok(outside)
    }

    /// Before a write that is sent at once: in the claimed pieces as it is, elsewhere as [`Client::see_all`] has it.
    pub(crate) async fn begin_write(&self, file: &Rc<FileState>, offset: u64, length: u64) -> ClientResult<Writing> {
        loop {
            let may = !file.sharing.is_bound() || file.sharing.covers(offset, length);
            if may || planted(Bug::ClaimNotTakenBack) {
                return Ok(Writing::new(&file.sharing, offset, offset + length));
            }
            drop(self.see_all(file).await?);
        }
    }

    /// A small write begins for which there is no lease: claims where it and those like it go, now and then.
    pub(crate) fn consider_claim(&self, file: &OpenFile, offset: u64, length: u64) {
        let (now, state) = (self.env().now(), file.state());
        let sharing = &state.sharing;
        sharing.note(file.handle(), offset, length, now);
        let wanted = self.inner.mdt.leases.holds(file.fid()) == Holds::Nothing || sharing.forgotten.get();
        if !wanted || sharing.asking.get() || now < sharing.next.get() {
            return;
        }
        // What is on its way from before need not lie in what is claimed now.
        if (sharing.is_bound() || state.buffered.borrow().is_clean()) && sharing.bind(state.activity.writers.get(), now)
        {
            sharing.asking.set(true);
            // Its close waits for the answer.
            let (client, file, busy) = (self.clone(), state.clone(), state.busy());
            drop(self.env().spawn(async move {
                client.claim(&file).await;
                file.sharing.asking.set(false);
                drop(busy);
            }));
        }
    }

    async fn claim(&self, file: &Rc<FileState>) {
        let sharing = &file.sharing;
        let _turn = sharing.turn.lock().await;
        let pieces = sharing.claimed.borrow().clone();
        if pieces.is_empty() {
            return;
        }
        sharing.forgotten.set(false);
        let asked = self.inner.mdt.leases.ticket();
        let granted = self.mdt(file.fid, &Claim { fid: file.fid, pieces }).await.is_ok_and(|reply| reply.granted);
        let poll = sharing.poll.get();
        sharing.next.set(sharing.next.get().max(self.env().now() + poll));
        sharing.poll.set(if granted { limits::CLAIM_POLL } else { (poll * 2).min(limits::CLAIM_POLL_MOST) });
        if granted {
            self.inner.counters.shared();
            self.inner.mdt.leases.learn_data(asked, file.fid, Holds::Ranges);
            self.inner.listen();
        }
    }
}
