//! Delayed SETATTR: owner, mode and times of a file that is being written go with its close.
//!
//! `tar x`, `cp -p` and `rsync` write a file, set its times, owner and mode, and close it. Under the data-write lease no other client sees
//! the file meanwhile. So the client acknowledges a SETATTR from what it knows, and sends it with the close; or when the lease is
//! recalled, or after [`limits::BUFFER_AGE`].
//!
//! Invariant: a request that shows or changes attributes at the MDT is sent after the delayed SETATTRs were replied
//! ([`Client::flush_delayed`]). Exceptions: closes, delayed changes of entries, and locks.
//! Invariant: a delayed SETATTR has a slot of the session from the beginning: in flight it waits for no other client.
//! Invariant: a recall of the data-write lease is acknowledged after it was replied.
//! Invariant: bytes that were written before it do not change the time that it sets, though they may be sent later: they carry the
//! earlier attribute epoch.

use std::{rc::Rc, time::Duration};

use forebay_proto::{
    Errno, Fid,
    limits::INLINE_BYTES,
    message::{Attr, Caller, CommitLevel, SetAttr},
};
use forebay_rpc::{Call, Reservation, RpcError};

use crate::{
    Client, ClientError, SetAttributes,
    client::Inner,
    delayed::{queue::Scope, set_attr::DelayedSetAttr},
    file::FileState,
    leases::Holds,
    limits,
};

impl Client {
    /// Sets attributes of a file without a request. `None`: the MDT has to set them.
    ///
    /// The kernel names no handle with fchown, fchmod and futimens.
    pub(crate) fn delay_set_attr(&self, caller: &Caller, fid: Fid, changes: &SetAttributes) -> Option<Attr> {
        let inner = &self.inner;
        let Some(state) = inner.file(fid) else { return self.set_attr_on_pending_create(caller, fid, changes) };
        let is_ours = inner.mdt.leases.may_keep(fid) == Holds::All && state.losses() == 0 && !state.inline.is_there();
        let is_durable = self.level() == CommitLevel::Commit || state.attributes.level.get().commits();
        let may = caller.uid == 0 && !is_durable && inner.options.write_back_bytes > 0;
        if !is_ours || !may || state.activity.writers.get() == 0 || state.activity.reopening.any() {
            return None;
        }
        let attr = self.delay_or_join_set_attr(fid, &mut state.set_attr.borrow_mut(), &self.like(&state)?, changes)?;
        inner.mdt.leases.links_change(fid);
        state.is_like(inner.mdt.leases.ticket(), &attr);
        self.start_ageing();
        Some(attr)
    }

    /// Keeps back what is set of a file that is `like` that, with what was `set` before; what it is like then.
    pub(crate) fn delay_or_join_set_attr(
        &self,
        fid: Fid,
        set_attr: &mut Option<DelayedSetAttr>,
        like: &Attr,
        changes: &SetAttributes,
    ) -> Option<Attr> {
        let inner = &self.inner;
        // Of owners and set-id bits, a tenant may not have all.
        let is_plain =
            changes.uid.is_none() && changes.gid.is_none() && changes.mode.is_none_or(|mode| mode & 0o6000 == 0);
        if self.tenant().is_some() && !is_plain || self.is_guarded(like.uid) {
            return None;
        }
        if set_attr.is_none() && inner.delayed.has(Scope::SetAttr(fid)) {
            return None;
        }
        let now_ns = self.env().unix_time().0;
        let attr = changes.applied(like.clone(), now_ns)?;
        let at_ns = attr.ctime_ns;
        let changes = changes.at(now_ns);
        match set_attr.as_mut() {
            Some(before) => {
                before.changes.then(&changes);
                before.at_ns = at_ns;
            }
            None => {
                // The file's bytes may go along.
                let bytes = INLINE_BYTES + 2 * limits::CHANGE_BYTES;
                let slot = self.reserve_slot(bytes)?;
                *set_attr = Some(DelayedSetAttr { slot, changes, at_ns, since: self.env().now() });
                inner.delayed.queue.borrow_mut().add_set_attr(fid);
            }
        }
        Some(attr)
    }

    /// Attributes of a file that only this client has open: if nothing has happened to it since they were received.
    fn like(&self, file: &FileState) -> Option<Attr> {
        let (asked, mut attr) = file.attributes.like.borrow().clone()?;
        attr.size = attr.size.max(file.size.borrow().seen()).max(file.buffered.borrow().end());
        if let Some((_, written_ns)) = file.told().filter(|(epoch, _)| *epoch == attr.attr_epoch) {
            attr.ctime_ns = attr.ctime_ns.max(written_ns);
        }
        self.inner.mdt.leases.is_unchanged(file.fid, asked).then_some(attr)
    }

    /// Attributes of a file of which some are delayed, the modification time among them: nothing was written since. The
    /// kernel requests them before it changes the owner.
    pub(crate) fn known_as_set(&self, fid: Fid) -> Option<Attr> {
        if !self.inner.delayed.has(Scope::SetAttr(fid)) {
            return None;
        }
        let Some(file) = self.inner.file(fid) else { return self.known_of_pending_create(fid, true) };
        let has_time = file.set_attr.borrow().as_ref().is_some_and(DelayedSetAttr::has_time);
        if has_time { self.like_of_ours(&file) } else { None }
    }

    /// The same but for the times, of any file that only this client has open.
    pub(crate) fn known_but_times(&self, fid: Fid) -> Option<Attr> {
        match self.inner.file(fid) {
            Some(file) => self.like_of_ours(&file),
            None => self.known_of_pending_create(fid, false),
        }
    }

    fn like_of_ours(&self, file: &FileState) -> Option<Attr> {
        let is_ours = self.inner.mdt.leases.may_keep(file.fid) == Holds::All && file.losses() == 0;
        if is_ours { self.like(file) } else { None }
    }

    /// Sends what has been delayed for `age`.
    pub(crate) fn send_set_of_age(&self, age: Duration) {
        let now = self.env().now();
        let set_attrs = self.inner.delayed.queue.borrow().set_attrs();
        for fid in set_attrs {
            if let Some(file) = self.inner.file(fid) {
                let is_old = file.set_attr.borrow().as_ref().is_some_and(|set_attr| set_attr.since + age <= now);
                if is_old {
                    self.start_set_attr(&file);
                }
            }
        }
    }

    /// Sends the delayed attributes of the file, if they are not in flight.
    pub(crate) fn start_set_attr(&self, file: &Rc<FileState>) {
        let Some(set_attr) = file.set_attr.take() else { return };
        let (client, file, busy) = (self.clone(), file.clone(), file.busy());
        drop(self.env().spawn(async move {
            let (slot, request) = set_attr.into_request(file.fid);
            client.send_set(&file, &request, Some(slot)).await;
            drop(busy);
        }));
    }

    /// Sets what was answered before.
    pub(crate) async fn send_set(&self, file: &FileState, request: &SetAttr, slot: Option<Reservation>) {
        let (inner, fid) = (&self.inner, file.fid);
        let call = Call { fid: Some(fid), ..Call::level(self.level()) };
        let asked = inner.mdt.leases.ticket();
        match self.mdt_in(slot, request, call).await {
            Ok(called) => {
                file.adopt(asked, &called.reply.attr, called.reply.layout.as_ref());
                let is_same = inner.mdt.leases.is_unchanged(fid, asked);
                inner.mdt.leases.touch_at(fid, called.transno);
                if is_same {
                    file.is_like(inner.mdt.leases.ticket(), &called.reply.attr);
                }
            }
            Err(error) => drop(inner.lose_set(fid, &error.to_string())),
        }
        inner.end_set(fid);
    }

    /// Attributes that went with a close are set, or lost.
    pub(crate) fn closed_set(&self, file: &FileState, outcome: Result<(), &RpcError>) {
        if let Err(error) = outcome {
            self.inner.lose_set(file.fid, &error.to_string());
        }
        self.inner.end_set(file.fid);
    }
}

impl Inner {
    /// No attribute of it is delayed any more.
    pub(crate) fn end_set(&self, fid: Fid) {
        self.delayed.queue.borrow_mut().end_set_attr(fid);
        self.delayed.ended.notify_waiters();
    }

    pub(crate) fn lose_set(&self, fid: Fid, reason: &str) -> ClientError {
        self.report_loss(fid, Errno::EIO, &format!("attributes that were set: {reason}"))
    }

    /// The MDT has ended the session: what was not sent may not be set any more, over what others did since.
    pub(crate) fn lose_all_set(&self, reason: &str) {
        let set_attrs = self.delayed.queue.borrow().set_attrs();
        for fid in set_attrs {
            if let Some(file) = self.file(fid)
                && file.set_attr.take().is_some()
            {
                self.lose_set(fid, reason);
                self.end_set(fid);
            }
        }
    }
}
