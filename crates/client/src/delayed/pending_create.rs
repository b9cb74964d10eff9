//! The first writes and SETATTRs of a file whose create is pending.
//!
//! A program that makes a small file writes it at once. Its create is delayed ([`crate::delayed::names`]), and no other client sees the
//! file before the create is applied. Writes and SETATTRs until then wait here; afterwards they are buffered like others.
//!
//! Invariant: writes and SETATTRs on a pending create are part of the file before the create counts as replied, and before anything
//! else is done with the file.
//! Invariant: no more than [`limits::PENDING_CREATE_BYTES`], in order from the first byte on, and only while every OST has granted space
//! for all that this client may buffer.

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, Caller, CommitLevel, SetAttr},
};

use crate::{
    Client, OpenFile, SetAttributes, client::Inner, delayed::granted_space::cost, delayed::queue::Scope,
    delayed::set_attr::DelayedSetAttr, delayed::state::OnPendingCreate, file::FileState, leases::Holds, limits,
    payload::Payload, session::instance::instance_is_over,
};

impl Client {
    /// Takes a write to a file that is still coming. False: it has to wait for it.
    pub(crate) fn write_on_pending_create(
        &self,
        on_pending: &mut OnPendingCreate,
        offset: u64,
        data: &Payload,
    ) -> bool {
        let (here, length) = (&self.inner.write_back, data.len() as u64);
        if on_pending.instance != self.inner.instance() {
            return false;
        }
        let fits = offset == on_pending.bytes && on_pending.bytes + length <= limits::PENDING_CREATE_BYTES;
        let most = self.most_buffered((on_pending.bytes + length) as usize, self.inner.peers.osts());
        let may = self.level() != CommitLevel::Commit && here.has_room_for(length, most);
        if length == 0 || !fits || !may || !self.all_osts_have_room(length) {
            return false;
        }
        here.add(length, 1);
        on_pending.writes.push((offset, data.clone()));
        (on_pending.bytes, on_pending.at_ns) = (on_pending.bytes + length, self.env().unix_time().0);
        if let Some(set_attr) = &mut on_pending.set_attr {
            set_attr.time_changes();
        }
        self.inner.counters.written(data.len());
        true
    }

    /// As [`Client::delay_set_attr`], of a file that is still coming.
    pub(crate) fn set_attr_on_pending_create(
        &self,
        caller: &Caller,
        fid: Fid,
        changes: &SetAttributes,
    ) -> Option<Attr> {
        let made = self.inner.delayed.coming(fid)?;
        let mut on_pending = made.on_pending.borrow_mut();
        let on_pending = on_pending.as_mut()?;
        let options = &self.inner.options;
        let is_over = on_pending.instance != self.inner.instance();
        if caller.uid != 0 || self.level() == CommitLevel::Commit || options.write_back_bytes == 0 || is_over {
            return None;
        }
        let attr = self.delay_or_join_set_attr(fid, &mut on_pending.set_attr, &on_pending.attr, changes)?;
        on_pending.attr = attr.clone();
        Some(Attr { size: on_pending.bytes, ..attr })
    }

    /// What a file that is still coming is like; `with_times`: only if the modification time is known too.
    pub(crate) fn known_of_pending_create(&self, fid: Fid, with_times: bool) -> Option<Attr> {
        let made = self.inner.delayed.coming(fid)?;
        let on_pending = made.on_pending.borrow();
        let on_pending = on_pending.as_ref()?;
        let is_known = !with_times || on_pending.set_attr.as_ref().is_some_and(DelayedSetAttr::has_time);
        is_known.then(|| Attr { size: on_pending.bytes, ..on_pending.attr.clone() })
    }

    /// Waits until a file has come: what was done with it is part of it then.
    pub(crate) async fn settle_coming(&self, fid: Fid) {
        if self.inner.delayed.coming(fid).is_some() && !planted(Bug::PendingWritesLate) {
            self.flush_delayed(Scope::Entries(fid)).await;
        }
    }

    /// The file exists: what was done with it is buffered, or done.
    pub(crate) async fn adopt_pending(&self, on_pending: OnPendingCreate, parent: Fid, file: &OpenFile) {
        let (state, fid) = (file.state().clone(), file.fid());
        state.activity.made_in.set(Some(parent));
        if on_pending.instance != self.inner.instance() && !planted(Bug::InstanceSurvived) {
            return self.lose_pending_of(&state, on_pending);
        }
        self.inner.write_back.subtract(on_pending.bytes, on_pending.writes.len());
        for (offset, data) in &on_pending.writes {
            self.insert_buffered(file, *offset, data, on_pending.at_ns);
        }
        if on_pending.bytes > 0 || on_pending.set_attr.is_some() {
            self.start_ageing();
        }
        let is_ours = self.inner.mdt.leases.may_keep(fid) == Holds::All;
        match on_pending.set_attr {
            Some(set_attr) if is_ours => {
                *state.set_attr.borrow_mut() = Some(set_attr);
                state.is_like(self.inner.mdt.leases.ticket(), &on_pending.attr);
                self.inner.delayed.ended.notify_waiters();
            }
            Some(set_attr) => {
                // Its time of change will be that of the MDT.
                let (slot, request) = set_attr.into_request(fid);
                self.send_set(&state, &SetAttr { at_ns: 0, ..request }, Some(slot)).await;
            }
            None => {}
        }
        if !is_ours && on_pending.bytes > 0 {
            // Others may open it as soon as it is there.
            let _ = self.env().timeout(limits::PENDING_CREATE_FLUSH, self.flush_writes(&state)).await;
        }
    }

    /// The lease on the entries of a directory is given back: what was done with files on a pending create in it is
    /// sent first. The client that caused the recall may have sent its request before the MDT counted the data of these
    /// files as leased.
    pub(crate) async fn flush_made_in(&self, dir: Fid) {
        for file in self.inner.made_in(dir) {
            self.flush_kept(&file).await;
        }
    }

    /// Sends the delayed changes of the file. Its handles report what is lost of them.
    pub(crate) async fn flush_kept(&self, file: &Rc<FileState>) {
        let _ = self.flush_writes(file).await;
        self.flush_delayed(Scope::SetAttr(file.fid)).await;
    }

    /// The file exists, but the MDT has ended the session since: others may have changed it, and its handles report
    /// what is lost.
    fn lose_pending_of(&self, file: &FileState, on_pending: OnPendingCreate) {
        if on_pending.bytes > 0 {
            self.lose_buffered(file.fid, &instance_is_over());
        }
        if on_pending.set_attr.is_some() {
            self.inner.lose_set(file.fid, &instance_is_over().to_string());
        }
        self.lose_pending(file.fid, on_pending);
    }

    /// The file does not come.
    pub(crate) fn lose_pending(&self, fid: Fid, on_pending: OnPendingCreate) {
        self.inner.write_back.subtract(on_pending.bytes, on_pending.writes.len());
        if on_pending.set_attr.is_some() {
            self.inner.end_set(fid);
        }
    }

    /// Whether every OST that a new file may be placed on has granted room for `length` bytes more. Asks them, if not.
    fn all_osts_have_room(&self, length: u64) -> bool {
        let (here, osts) = (&self.inner.write_back, self.inner.peers.osts());
        if osts.is_empty() || osts.len() > limits::PENDING_CREATE_OSTS {
            return false;
        }
        let more = cost(length, self.cuts(length as usize));
        let lacking = here.room.lacking(osts.iter().copied(), here.held() + more);
        if lacking.is_empty() {
            self.check_grants(osts);
            return true;
        }
        if !here.asking.replace(true) {
            let client = self.clone();
            drop(self.env().spawn(async move {
                client.have_room(lacking, more).await;
                client.inner.write_back.asking.set(false);
            }));
        }
        false
    }
}

impl Inner {
    /// Files with delayed changes that were created ahead in the directory.
    pub(crate) fn made_in(&self, dir: Fid) -> Vec<Rc<FileState>> {
        let mut files = self.open_files();
        files.retain(|file| file.activity.made_in.get() == Some(dir) && self.keeps(file));
        files
    }

    /// Changes of the file are delayed or in flight.
    pub(crate) fn keeps(&self, file: &FileState) -> bool {
        !file.buffered.borrow().is_clean() || self.delayed.has(Scope::SetAttr(file.fid))
    }
}
