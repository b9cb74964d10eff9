//! Runs the queue of delayed operations: a request is sent after the operations that it depends on were executed.
//!
//! One flush for all: [`Client::flush_delayed`]. One way to call the MDT: [`Client::call`], which flushes what is in
//! scope, and sends.
//! Losses of delayed operations are reported by [`Inner::report_loss`], those of an ended session by [`crate::session::eviction`].

use forebay_env::{Boxed, Bug, planted};
use forebay_proto::{
    Errno, Fid,
    message::{Op, Operation},
};
use forebay_rpc::{Call, Called, Reservation, RpcError};

use super::queue::{OpNumber, Scope};
use crate::{Client, ClientError, client::Inner, limits, tasks::Counted};

/// A close that has begun: [`Scope::Closes`] waits until this is dropped.
pub struct CloseBegun {
    client: Client,
    number: OpNumber,
}

impl Drop for CloseBegun {
    fn drop(&mut self) {
        let delayed = &self.client.inner.delayed;
        delayed.queue.borrow_mut().end_close(self.number);
        delayed.ended.notify_waiters();
    }
}

impl Client {
    /// A program has closed a file and does not wait for it: whoever needs the space of removed files waits until the result is dropped.
    pub fn begin_close(&self) -> CloseBegun {
        let number = self.inner.delayed.queue.borrow_mut().add_close();
        CloseBegun { client: self.clone(), number }
    }

    /// Returns when all operations in `scope` that were delayed by now have ended. SETATTRs that are acknowledged while it waits for changes
    /// of entries have ended, too: a reply from before them must not count after them.
    pub(crate) async fn flush_delayed(&self, scope: Scope<'_>) {
        let is_skipped = matches!(scope, Scope::SetAttr(_)) && planted(Bug::AttributesNotSettled);
        for part in scope.parts().into_iter().flatten() {
            if self.inner.delayed.has(part) && !is_skipped {
                self.flush_pending(part).await;
            }
        }
    }

    fn flush_pending<'a>(&'a self, scope: Scope<'a>) -> Boxed<'a, ()> {
        Box::pin(async move {
            let delayed = &self.inner.delayed;
            let mark = delayed.queue.borrow().mark();
            let _hurry = scope.has_entries().then(|| Counted::new(&self.inner, |inner| &inner.delayed.waiting));
            loop {
                let ended = delayed.ended.notified();
                if !delayed.queue.borrow().has_until(scope, mark) {
                    return;
                }
                let set_attrs = delayed.queue.borrow().set_attrs_until(scope, mark);
                // Of a file whose create is in the queue the SETATTR is sent after that.
                set_attrs
                    .into_iter()
                    .filter_map(|fid| self.inner.file(fid))
                    .for_each(|file| self.start_set_attr(&file));
                // Some may be in a request that waits for another one to go with.
                self.inner.peers.mdt().session.hurry();
                ended.await;
            }
        })
    }

    /// Delays an operation. If the session only lacks a slot for it, tries again when it has one: without that the operation would wait for
    /// all that are delayed, and then for a reply of its own. `None`: the MDT has to execute it.
    pub(crate) async fn with_slot<T>(&self, delay: impl Fn() -> Option<T>) -> Option<T> {
        let until = self.env().now() + limits::SLOT_WAIT;
        loop {
            self.inner.delayed.lacked_slot.set(false);
            if let Some(delayed) = delay() {
                return Some(delayed);
            }
            let now = self.env().now();
            if !self.inner.delayed.lacked_slot.get() || now >= until {
                return None;
            }
            // Requests that wait for others to go with hold slots, too.
            let session = self.inner.peers.mdt().session.clone();
            session.hurry();
            if !matches!(self.env().timeout(until.since(now), session.reservable()).await, Ok(true)) {
                return None;
            }
        }
    }

    /// A slot for an operation that is delayed. `None`: there is none to spare.
    pub(crate) fn reserve_slot(&self, bytes: usize) -> Option<Reservation> {
        let session = &self.inner.peers.mdt().session;
        let slot = session.reserve(bytes);
        // Without space to pin, waiting for a slot would not help.
        self.inner.delayed.lacked_slot.set(slot.is_none() && !session.has_slot_to_spare());
        slot
    }

    /// Asks the MDT after the delayed operations in `scope` were executed.
    pub(crate) async fn call<O: Operation>(
        &self,
        request: &O,
        scope: Scope<'_>,
        call: Call,
    ) -> Result<Called<O::Reply>, RpcError> {
        self.flush_delayed(scope).await;
        let begun = self.env().now();
        let called = self.inner.peers.mdt().call(request, call).await?;
        // The target answers that one itself.
        if O::OP != Op::Sync {
            self.inner.mdt.leases.heard(begun);
        }
        Ok(called)
    }
}

impl Inner {
    /// An acknowledged change of `fid` (a file, or a directory's entries) is lost: its handles report it, or the next one that is opened,
    /// or the directory's next fsync.
    pub(crate) fn report_loss(&self, fid: Fid, errno: Errno, what: &str) -> ClientError {
        self.env.log(&format!("client: an acknowledged change of {fid} is lost: {what}"));
        self.losses.lose(1);
        self.note_loss(fid, errno, what)
    }
}
