//! Writes under a lease on the file's data: acknowledged here, sent behind the program; small ones gathered.
//!
//! While this client alone has a file open (the MDT's data-write lease), nobody else can tell where its bytes are. They
//! are sent as soon as a unit of requests is whole, and when they are [`limits::BUFFER_AGE`] old. They are sent before any
//! other operation on the file, when the lease is recalled, and before the last close. So a program that writes on does not wait for
//! round trips, until so much is on its way as may be buffered.
//!
//! Invariant: bytes for one place are sent one after another, in the order in which they were written.
//! Invariant: what cannot be sent is a loss of the file: its handles report it (see `FileState::lose`).
//! Invariant: bounded by [`MountOptions::write_back_bytes`](crate::MountOptions), and by what the OSTs have granted (see [`space`]).

pub(crate) mod parts;
pub(crate) mod space;

use std::{collections::BTreeSet, rc::Rc};

use forebay_env::{Bug, Time, planted};
use forebay_proto::{Fid, message::CommitLevel};

use crate::{
    Client, ClientError, ClientResult, OpenFile,
    delayed::buffered::{Sending, pieces},
    delayed::byte_ranges::claims::OutsideClaims,
    delayed::granted_space,
    delayed::queue::Scope,
    file::{FileState, Writer},
    leases::Holds,
    limits,
    payload::{Payload, Run},
    session::instance::{ClientInstance, instance_is_over},
};
use parts::Parts;

/// What is to be done with a write.
enum Buffering {
    /// It is buffered: acknowledge it.
    Buffered,
    /// Too much is kept already.
    Wait,
    /// These OSTs have not granted room for so much more.
    AskRoom(Vec<u32>, u64),
    /// It is sent.
    Send,
}

impl Client {
    /// Keeps a write back that was begun in `instance`, if that may be. False: it has to be sent.
    pub(crate) async fn buffer_write(
        &self,
        file: &OpenFile,
        offset: u64,
        data: &Payload,
        instance: ClientInstance,
    ) -> bool {
        let holds = self.inner.mdt.leases.holds(file.fid());
        if self.is_short_enough(data.len()) && holds == Holds::Nothing {
            self.ask_for_data(file);
        }
        if data.len() <= limits::BUFFERED_WRITE_BYTES && holds != Holds::All && self.may_buffer_any(file) {
            self.consider_claim(file, offset, data.len() as u64);
        }
        loop {
            if instance != self.inner.instance() {
                return false;
            }
            match self.try_buffer(file, offset, data) {
                Buffering::Buffered => return true,
                Buffering::Send => return false,
                Buffering::Wait => {
                    let fewer = self.inner.write_back.fewer.notified();
                    // What of this file is on its way makes room when it arrives; what is not whole may become so meanwhile.
                    if file.state().buffered.borrow().sending.is_empty() {
                        self.start_sending_everything();
                    }
                    fewer.await;
                }
                Buffering::AskRoom(osts, bytes) => {
                    if !self.have_room(osts, bytes).await {
                        return false;
                    }
                }
            }
        }
    }

    /// The lease may have been recalled for a client that only looked at the file: requests it again, now and then.
    fn ask_for_data(&self, file: &OpenFile) {
        let (now, state) = (self.env().now(), file.state());
        let next = state.asks.data_at.get();
        if now < next || self.inner.options.write_back_bytes == 0 {
            return;
        }
        state.asks.data_at.set(now + limits::ASK_FOR_DATA_PAUSE);
        // The first time it was refused, or recalled, a moment ago.
        if next > Time(0) {
            // Its close waits for the answer: the MDT shall not open it again after that.
            let (client, file, busy) = (self.clone(), file.clone(), state.busy());
            drop(self.env().spawn(async move {
                client.open_again(&file).await;
                drop(busy);
            }));
        }
    }

    fn try_buffer(&self, file: &OpenFile, offset: u64, data: &Payload) -> Buffering {
        let (inner, state, length) = (&self.inner, file.state(), data.len());
        if state.set_attr.borrow().is_none() && inner.delayed.has(Scope::SetAttr(state.fid)) {
            // A time that is being set comes before this.
            return Buffering::Send;
        }
        if !self.may_buffer_any(file) || !self.is_short_enough(length) || state.inline.is_there() {
            return Buffering::Send;
        }
        let holds = inner.mdt.leases.may_keep(file.fid());
        if holds == Holds::Nothing || holds == Holds::Ranges && !state.sharing.covers(offset, length as u64) {
            return Buffering::Send;
        }
        let layout = state.layout();
        if layout.first_gap(offset, length as u64).is_some() {
            return Buffering::Send;
        }
        let here = &inner.write_back;
        if !here.has_room_for(length as u64, self.most_buffered(length, layout.osts())) {
            // Others may fill it with what no server takes just now.
            return if state.buffered.borrow().is_clean() { Buffering::Send } else { Buffering::Wait };
        }
        let osts = || layout.components.iter().flat_map(|component| component.osts.iter().copied());
        let more = granted_space::cost(length as u64, data.parts().len() as u64 + self.cuts(length));
        let lacking = here.room.lacking(osts(), here.held() + more);
        if !lacking.is_empty() {
            return Buffering::AskRoom(lacking.into_iter().collect::<BTreeSet<u32>>().into_iter().collect(), more);
        }
        self.insert_buffered(file, offset, data, self.env().unix_time().0);
        self.check_grants(osts());
        inner.counters.written(length);
        self.start_ageing();
        Buffering::Buffered
    }

    /// Keeps a write back; sends what became whole by it.
    pub(crate) fn insert_buffered(&self, file: &OpenFile, offset: u64, data: &Payload, at_ns: i64) {
        let (here, state, now) = (&self.inner.write_back, file.state(), self.env().now());
        let holds = self.inner.mdt.leases.holds(file.fid());
        file.inner.wrote.set(true);
        state.time_changes();
        let mut kept = state.buffered.borrow_mut();
        if offset > state.size.borrow().seen().max(kept.end()) {
            state.activity.sparse.set(true);
        }
        if kept.parts.is_empty() {
            here.files.borrow_mut().insert(file.fid());
        }
        let attr_epoch = state.attr_epoch();
        kept.by = Some(Writer { file: file.clone(), attr_epoch, at_ns, instance: self.inner.instance() });
        let (before, pieces_before) = (kept.parts.bytes() as u64, kept.parts.pieces() as u64);
        let mut at = offset;
        for part in data.parts() {
            kept.parts.insert(at, part.clone(), now);
            at += part.len() as u64;
        }
        here.bytes.set(here.bytes.get() + kept.parts.bytes() as u64 - before);
        here.pieces.set(here.pieces.get() + kept.parts.pieces() as u64 - pieces_before);
        // In a file that is shared no unit becomes whole.
        let is_much = holds == Holds::Ranges && kept.parts.bytes() >= limits::RANGES_SEND_BYTES;
        if is_much {
            let all = here.take(&mut kept.parts, Parts::take_all);
            drop(kept);
            return self.send_runs(state, all);
        }
        // Each unit by itself: one request, which raises the size too.
        let whole: Vec<Run> = here.take(&mut kept.parts, |parts| parts.take_whole_units(offset, at));
        drop(kept);
        self.send_batches(state, whole.into_iter().map(|unit| vec![unit]));
    }

    /// Bytes that may be buffered once a write of this length is.
    pub(crate) fn most_buffered(&self, length: usize, osts: Vec<u32>) -> u64 {
        let bound = self.inner.options.write_back_bytes;
        if length <= limits::BUFFERED_WRITE_BYTES {
            return bound;
        }
        let soon = (self.inner.peers.bytes_per_s(osts) * limits::WRITE_BEHIND_TERM.as_secs_f64()) as u64;
        bound.min(soon.max(limits::WRITE_BEHIND_LEAST))
    }

    /// How often a write of this length may be cut when it is sent.
    pub(crate) fn cuts(&self, length: usize) -> u64 {
        length as u64 / u64::from(self.inner.options.max_rpc_bytes) + 1
    }

    /// A write of this length may be buffered.
    fn is_short_enough(&self, length: usize) -> bool {
        let bound = self.inner.options.write_back_bytes;
        let most = match length <= limits::BUFFERED_WRITE_BYTES {
            true => bound,
            false => (bound / limits::WRITE_BEHIND_SHARE).min(limits::WRITE_BEHIND_BYTES as u64),
        };
        length as u64 <= most
    }

    /// Writes through this handle need not be durable when they are acknowledged.
    fn may_buffer_any(&self, file: &OpenFile) -> bool {
        self.level_of(file) != CommitLevel::Commit && self.inner.options.write_back_bytes > 0
    }

    /// Sends everything that was written to the file before, and waits until it is there. Fails if meanwhile some was lost:
    /// what comes next would not see it.
    pub(crate) async fn flush_writes(&self, file: &Rc<FileState>) -> ClientResult<()> {
        if file.buffered.borrow().is_clean() {
            return Ok(());
        }
        let losses = file.losses();
        self.start_sending(file);
        let next = file.buffered.borrow().next;
        // It may go with a close that waits for something else to go with.
        self.inner.peers.mdt().session.hurry();
        loop {
            let arrived = file.arrived.notified();
            if file.buffered.borrow().has_sent(next) || planted(Bug::SyncMissesSending) {
                break;
            }
            arrived.await;
        }
        if file.losses() == losses { Ok(()) } else { Err(file.loss()) }
    }

    /// The same of `fid`, if it is open here, and of what other clients buffer (see [`Client::see_all`]).
    pub(crate) async fn flush_writes_of(&self, fid: Fid) -> ClientResult<Option<OutsideClaims>> {
        self.settle_coming(fid).await;
        let Some(file) = self.inner.file(fid) else { return Ok(None) };
        let outside = self.see_all(&file).await?;
        self.flush_writes(&file).await?;
        Ok(Some(outside))
    }

    /// Only what this client buffers of `fid`.
    pub(crate) async fn flush_own_writes_of(&self, fid: Fid) -> ClientResult<()> {
        self.settle_coming(fid).await;
        match self.inner.file(fid) {
            Some(file) => self.flush_writes(&file).await,
            None => Ok(()),
        }
    }

    /// The same before `[start, end)` is read, if that would show.
    pub(crate) async fn flush_writes_before_read(
        &self,
        file: &OpenFile,
        start: u64,
        end: u64,
    ) -> ClientResult<OutsideClaims> {
        let state = file.state();
        let outside = self.see_all(state).await?;
        // What lies within the size that the servers know does not depend on what is kept elsewhere.
        let touches = match planted(Bug::ReadMissesSending) {
            true => state.buffered.borrow().parts.touches(start, end),
            false => end > state.size.borrow().seen() || state.buffered.borrow().touches(start, end),
        };
        if touches {
            self.flush_own_writes_through(file).await?;
        }
        Ok(outside)
    }

    /// As [`Client::flush_writes_of`], through a handle, which need not report the loss again.
    pub(crate) async fn flush_writes_through(&self, file: &OpenFile) -> ClientResult<OutsideClaims> {
        let outside = self.see_all(file.state()).await?;
        self.flush_own_writes_through(file).await?;
        Ok(outside)
    }

    /// Only what this client buffers.
    pub(crate) async fn flush_own_writes_through(&self, file: &OpenFile) -> ClientResult<()> {
        let sent = self.flush_writes(file.state()).await;
        file.report().and(sent)
    }

    /// The same of all files.
    pub(crate) async fn send_everything_kept(&self) {
        self.start_sending_everything();
        for file in self.inner.open_files() {
            // Its handles report what was lost, and `sync_all`.
            let _ = self.flush_writes(&file).await;
        }
    }

    /// Something is kept, or on its way; or others may keep something that this client has a claim beside.
    pub(crate) fn buffers_any(&self) -> bool {
        self.inner.write_back.bytes.get() > 0 || self.inner.open_files().iter().any(|file| file.sharing.is_bound())
    }

    pub(crate) fn start_sending_everything(&self) {
        let files: Vec<Fid> = self.inner.write_back.files.borrow().iter().copied().collect();
        files.into_iter().filter_map(|fid| self.inner.file(fid)).for_each(|file| self.start_sending(&file));
    }

    fn start_sending(&self, file: &Rc<FileState>) {
        let runs = self.inner.write_back.take(&mut file.buffered.borrow_mut().parts, Parts::take_all);
        self.send_runs(file, runs);
    }

    /// Sends what was taken out of the file's parts.
    fn send_runs(&self, file: &Rc<FileState>, runs: Vec<Run>) {
        self.send_batches(file, [runs]);
    }

    /// The same in several batches, each by itself.
    fn send_batches(&self, file: &Rc<FileState>, batches: impl IntoIterator<Item = Vec<Run>>) {
        let mut kept = file.buffered.borrow_mut();
        let by = if kept.parts.is_empty() { kept.by.take() } else { kept.by.clone() };
        if kept.parts.is_empty() {
            self.inner.write_back.files.borrow_mut().remove(&file.fid);
        }
        for runs in batches.into_iter().filter(|runs| !runs.is_empty()) {
            let by = by.clone().expect("somebody has written it");
            let number = kept.next;
            kept.next += 1;
            let ranges = runs.iter().map(|run| (run.offset, run.end())).collect();
            kept.sending.insert(number, Sending { ranges, pieces: pieces(&runs) });
            let client = self.clone();
            drop(self.env().spawn(async move { client.send_batch(by, number, runs).await }));
        }
        // Its last handle may go with it.
        drop(kept);
        drop(by);
    }

    pub(crate) async fn send_batch(&self, by: Writer, number: u64, runs: Vec<Run>) {
        let file = by.file.state().clone();
        let _busy = file.busy();
        loop {
            let arrived = file.arrived.notified();
            if !file.buffered.borrow().has_to_wait(number) || planted(Bug::OlderBytesOvertaken) {
                break;
            }
            arrived.await;
        }
        let length: usize = runs.iter().map(Run::len).sum();
        if by.instance != self.inner.instance() && !planted(Bug::InstanceSurvived) {
            self.lose_buffered(file.fid, &instance_is_over());
        } else {
            let lost = |error: &ClientError| self.lose_buffered(file.fid, error);
            self.write_runs(&by.file, &runs, &|| by.snapshot(), &lost).await;
        }
        runs.iter().for_each(|run| drop(self.bytes_change(file.fid, run.offset..run.end())));
        self.inner.write_back.sent(&mut file.buffered.borrow_mut(), number, length);
        file.arrived.notify_waiters();
    }

    pub(crate) fn lose_buffered(&self, fid: Fid, error: &ClientError) {
        self.inner.report_loss(fid, error.errno, &format!("buffered writes: {error}"));
    }

    /// Sees to it that nothing is kept for longer than [`limits::BUFFER_AGE`].
    pub(crate) fn start_ageing(&self) {
        if self.inner.write_back.ageing.replace(true) {
            return;
        }
        let client = self.clone();
        drop(self.env().spawn(async move {
            let here = &client.inner.write_back;
            while !here.files.borrow().is_empty() || client.inner.delayed.has(Scope::SetAttrs) {
                client.env().sleep(limits::BUFFER_AGE / 2).await;
                client.send_set_of_age(limits::BUFFER_AGE / 2);
                let now = client.env().now();
                let files: Vec<Fid> = here.files.borrow().iter().copied().collect();
                for file in files.into_iter().filter_map(|fid| client.inner.file(fid)) {
                    let older = |parts: &mut Parts| parts.take_older(now, limits::BUFFER_AGE / 2);
                    let runs = here.take(&mut file.buffered.borrow_mut().parts, older);
                    client.send_runs(&file, runs);
                }
            }
            here.ageing.set(false);
        }));
    }
}
