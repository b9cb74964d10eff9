//! Background work of the server: drives its logs to the OSTs, ends sessions, reaps orphans, collects objects, polls
//! space.
//!
//! Invariant: all of it is repeatable. Work that a crash interrupts starts again from the rows.

mod collect;
mod destroy;
mod fid_sequences;
mod poll;
mod reap;
mod sessions;
mod silence;
mod truncate;

use std::rc::Rc;

use crate::Mds;

impl Mds {
    /// After recovery: resumes everything that a crash may have interrupted.
    pub(crate) async fn start_background(self: Rc<Self>) {
        let truncating: Vec<_> = self.memory.borrow().truncating.iter().copied().collect();
        truncating.into_iter().for_each(|fid| self.start_truncate(fid, true));
        self.osts.indices().into_iter().for_each(|ost| self.start_destroys(ost));
        let mds = Rc::downgrade(&self);
        self.env.spawn(async move { poll::run(mds).await });
        let mds = Rc::downgrade(&self);
        self.env.spawn(async move { fid_sequences::run(mds).await });
        let mds = Rc::downgrade(&self);
        self.env.spawn(async move { silence::run(mds).await });
        self.end_lost_sessions();
        self.reap_orphans().await;
    }

    /// Drives the logged destroys of an OST.
    pub(crate) fn start_destroys(self: &Rc<Self>, ost: u32) {
        let mds = Rc::downgrade(self);
        self.env.spawn(async move { destroy::drive(mds, ost).await });
    }

    /// Logs why a background step failed. The step is repeated, at the next start at the latest.
    pub(crate) fn log_failure(&self, what: &str, error: &dyn std::fmt::Display) {
        self.env.log(&format!("{}: {what}: {error}", self.store.identity().target));
    }
}
