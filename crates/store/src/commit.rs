//! Group commit.
//!
//! Transactions are applied to the running group. It closes by time, by size (a part of the journal) or on demand;
//! while it commits, the next group runs. The order is that of an ordered-mode journal. A group's runs are on the
//! device before its transactions are applied, and its tombstones before its record. Then the data device is flushed,
//! unless nothing was written since its last flush. Then the record is written and flushed, and `last_committed` moves.
//!
//! While a record is in flight, the next group may close, have its data flushed and send its record after it (decision
//! 35). So a change that arrives during a commit does not wait for two commits.
//!
//! Invariant: records are written in the order of their groups, each behind the flush of its data. The committed groups
//! are a prefix, whichever record is durable first.
//! Invariant: a checkpoint begins only when everything applied has been appended to the journal.

use std::{rc::Rc, time::Duration};

use forebay_env::{Bug, Time, planted};
use forebay_proto::Transno;

use crate::{
    StoreResult,
    core::Core,
    journal::{Checkpoint, Lsn},
    limits,
    redo::Redo,
    slab::{
        allocator::Group,
        writer::{Class, Item},
    },
    snapshot::{SlabRow, Snapshot},
};

/// First byte of the keys of bad slabs: slab (u32, big-endian) -> reason.
pub(crate) const BAD_SLAB_SPACE: u8 = 0x02;

/// The group that transactions are applied to.
pub(crate) struct Running {
    pub number: Group,
    pub redo: Redo,
    pub transno: Transno,
    pub tombstones: Vec<Item>,
    pub first_at: Option<Time>,
}

impl Running {
    fn new(number: Group) -> Self {
        Self { number, redo: Redo::default(), transno: Transno(0), tombstones: Vec::new(), first_at: None }
    }

    fn is_empty(&self) -> bool {
        self.redo.len() == 0 && self.tombstones.is_empty()
    }
}

/// Why a group closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Its first change was old enough.
    Time,
    /// The journal, the index in memory or the free slabs ran short.
    Size,
    /// A caller waits for it.
    Demand,
}

/// A closed group whose record is in flight.
struct Sent {
    number: Group,
    transno: Transno,
    /// End of its record in the journal.
    end: Lsn,
}

/// State of the commits.
pub(crate) struct CommitState {
    pub running: Running,
    pub committed: Group,
    /// The running group is to close at once; the first reason given.
    pub demanded: Option<Close>,
    /// Highest transno appended to the journal.
    pub appended_transno: Transno,
    /// A begun checkpoint: the commit that began it leaves it here for the checkpoint task.
    pub snapshot: Option<BegunCheckpoint>,
    /// True until an empty record has attested what is durable.
    pub unattested: bool,
}

/// A checkpoint whose table is frozen.
pub(crate) struct BegunCheckpoint {
    pub at: Checkpoint,
    /// The last group that it contains: the anchor names the checkpoint only when that group is durable.
    pub group: Group,
    pub slabs: Snapshot,
}

impl CommitState {
    /// Nothing is applied yet; `transno` is the highest that recovery found.
    pub(crate) fn new(transno: Transno) -> Self {
        Self {
            running: Running::new(1),
            committed: 0,
            demanded: None,
            appended_transno: transno,
            snapshot: None,
            unattested: true,
        }
    }
}

impl Core {
    /// Bytes at which a group closes. `Txn::apply` refuses changes with which it would exceed three times as many.
    pub(crate) fn group_bytes_max(&self) -> u64 {
        self.journal.ring_bytes() / 8
    }

    /// True if admission has to wait for a commit or a checkpoint to free journal space.
    pub(crate) fn journal_crowded(&self) -> bool {
        let running = self.commit.borrow().running.redo.len() as u64;
        // Callers that are admitted and have not applied yet have space for another group.
        let room = self.journal.room_for(running + self.group_bytes_max() + limits::OWN_ROWS_BYTES);
        !room || running > self.group_bytes_max() * 3 / 2 || self.journal.used_fraction() > 0.75
    }

    /// True if dirty pages might find no free slab when they are written. A checkpoint that finds none never ends, as
    /// the pages that it supersedes become free only with it. Where the store holds only tables, changes make no
    /// reservation. They wait here while the cleaner refills the slabs reserved for checkpoints, as long as it finds
    /// something to clean.
    fn pages_crowded(&self) -> bool {
        let alloc = self.alloc.borrow();
        let (free, tables_only) = (alloc.free_count(), alloc.data_live() == 0);
        let dirty = self.table.borrow().dirty_bytes() as u64;
        let too_dirty = dirty > self.dirty_bytes_max && dirty + dirty / 2 > u64::from(free) * self.slab_usable();
        too_dirty || (tables_only && free < self.reserved_slabs && !self.cleaner_rests.get())
    }

    /// Waits until the journal, and the slabs for pages, have space for what the caller is about to apply.
    pub(crate) async fn admits(&self) -> StoreResult<()> {
        self.journal_admits().await?;
        if !self.pages_crowded() {
            return Ok(());
        }
        self.wake_checkpoint.notify_one();
        self.wake_cleaner.notify_one();
        self.until(|| (!self.journal_crowded() && !self.pages_crowded()).then_some(())).await
    }

    /// Waits until the journal has space for what the caller is about to apply. The cleaner waits for this only.
    pub(crate) async fn journal_admits(&self) -> StoreResult<()> {
        if !self.journal_crowded() {
            return Ok(());
        }
        self.demand_commit(Close::Size);
        self.until(|| (!self.journal_crowded()).then_some(())).await
    }

    /// Closes the running group as soon as the limit on concurrent commits allows.
    pub(crate) fn demand_commit(&self, why: Close) {
        self.commit.borrow_mut().demanded.get_or_insert(why);
        self.wake_commit.notify_one();
    }

    /// Waits until `group` is durable.
    pub(crate) async fn committed(&self, group: Group) -> StoreResult<()> {
        self.until(|| (self.committed_group() >= group).then_some(())).await
    }

    /// Makes everything applied so far durable.
    pub(crate) async fn sync(&self) -> StoreResult<()> {
        let group = {
            let commit = self.commit.borrow();
            if commit.running.is_empty() { commit.running.number - 1 } else { commit.running.number }
        };
        if group > self.committed_group() {
            self.demand_commit(Close::Demand);
        }
        self.committed(group).await
    }

    /// The commit task: one group after another, until the store stops.
    pub(crate) async fn commit_loop(self: Rc<Self>) {
        loop {
            let why = self.wait_for_reason().await;
            if self.check_running().is_err() {
                return;
            }
            let most = u64::from(self.options.commits_in_flight.max(1));
            if self.until(|| (self.commits_in_flight() < most).then_some(())).await.is_err() {
                return;
            }
            let began = self.env.now();
            self.pace.begin(began);
            let outcome = self.send_group().await;
            match self.stop_on_error(outcome) {
                Err(_) => return,
                Ok(None) => {
                    self.pace.forget(began);
                    self.after_commit();
                }
                Ok(Some(sent)) => {
                    let core = self.clone();
                    drop(self.env.spawn(async move {
                        let outcome = core.settle_group(sent).await;
                        if core.stop_on_error(outcome).is_ok() {
                            core.note_commit(why, began);
                            core.after_commit();
                        }
                    }));
                }
            }
        }
    }

    /// Number of groups that are closed and not durable.
    pub(crate) fn commits_in_flight(&self) -> u64 {
        let commit = self.commit.borrow();
        commit.running.number - 1 - commit.committed
    }

    /// Waits until the running group is to close, and returns why; any reason once the store has stopped.
    async fn wait_for_reason(&self) -> Close {
        loop {
            let wake = self.wake_commit.notified();
            self.evict();
            if self.check_running().is_err() {
                return Close::Demand;
            }
            if let Some(why) = self.reason_to_close() {
                return why;
            }
            let (wait, idle) = match self.commit.borrow().running.first_at {
                Some(first) => (Some(self.time_left(first)), false),
                None if self.commit.borrow().unattested => (Some(limits::ATTEST_AFTER), true),
                None => (None, false),
            };
            match wait {
                None => wake.await,
                Some(wait) => {
                    let woken = self.env.timeout(wait, wake).await.is_ok();
                    if !woken && idle {
                        self.attest().await;
                    }
                }
            }
        }
    }

    fn reason_to_close(&self) -> Option<Close> {
        let mut commit = self.commit.borrow_mut();
        if let Some(why) = commit.demanded.take() {
            let needed = self.may_begin_checkpoint() || !commit.running.is_empty() || self.writer.has_retired();
            return needed.then_some(why);
        }
        commit.running.first_at.is_some_and(|first| self.time_left(first).is_zero()).then_some(Close::Time)
    }

    fn time_left(&self, first: Time) -> Duration {
        self.options.commit_interval.saturating_sub(self.env.now().since(first))
    }

    /// Writes the last record of a clean stop. Meanwhile no group may be between its append and the flush of its data.
    pub(crate) async fn attest_clean(&self) -> StoreResult<()> {
        let _gate = self.journal_gate.lock().await;
        self.journal.attest_clean().await?;
        Ok(())
    }

    async fn attest(&self) {
        self.commit.borrow_mut().unattested = false;
        let outcome = self.journal.attest().await.map_err(Into::into);
        if let Ok(lsn) = self.stop_on_error(outcome) {
            self.durable_lsn.set(self.durable_lsn.get().max(lsn.0));
        }
    }

    /// Closes the running group, makes its data durable and starts to write its record.
    async fn send_group(&self) -> StoreResult<Option<Sent>> {
        self.note_retired_slabs().await?;
        // Between the append of a group and the flush of its data, no task may write its record: data comes first.
        let _gate = self.journal_gate.lock().await;
        let Some(closed) = self.close()? else { return Ok(None) };
        if !closed.tombstones.is_empty() && !planted(Bug::TombstonesSkipped) {
            self.stats.borrow_mut().tombstones += closed.tombstones.len() as u64;
            self.writer.write(Class::System, closed.tombstones).await?;
        }
        if !planted(Bug::DataNotFlushed) {
            self.flush_data().await?;
        }
        let end = self.journal.start_writing()?;
        Ok(Some(Sent { number: closed.number, transno: closed.transno, end }))
    }

    /// Waits until the group's record and all before it are durable. Only then is the commit announced.
    async fn settle_group(&self, sent: Sent) -> StoreResult<()> {
        let durable = self.journal.durable_at(sent.end).await?;
        self.durable_lsn.set(self.durable_lsn.get().max(durable.0));
        let mut commit = self.commit.borrow_mut();
        // The task of a later group may get here first.
        commit.committed = commit.committed.max(sent.number);
        drop(commit);
        self.writer.note_committed(sent.transno);
        if sent.transno > *self.last_committed.borrow() {
            self.last_committed.send_replace(sent.transno);
        }
        Ok(())
    }

    /// Puts rows for newly retired slabs into the running group.
    async fn note_retired_slabs(&self) -> StoreResult<()> {
        for slab in self.writer.take_retired() {
            let mut key = vec![BAD_SLAB_SPACE];
            key.extend(slab.to_be_bytes());
            self.resident(|table| table.get(&key).map(drop)).await?;
            self.put_own_row(&key, b"\x01write failed");
        }
        Ok(())
    }

    /// Appends the running group to the journal and starts the next. If a checkpoint is wanted, it begins in between.
    fn close(&self) -> StoreResult<Option<Running>> {
        let mut commit = self.commit.borrow_mut();
        let next = Running::new(commit.running.number + 1);
        let mut closed = std::mem::replace(&mut commit.running, next);
        let empty = closed.is_empty();
        if empty {
            commit.running = Running::new(closed.number); // the number was not used
        } else if closed.redo.len() > 0 {
            let payload = std::mem::take(&mut closed.redo).into_bytes();
            let wraps_before = self.journal.position().lsn.0 / self.journal.ring_bytes();
            let end = self.journal.append(&payload)?;
            let mut stats = self.stats.borrow_mut();
            stats.journal_bytes += payload.len() as u64;
            stats.journal_wraps += end.0 / self.journal.ring_bytes() - wraps_before;
        }
        commit.appended_transno = commit.appended_transno.max(closed.transno);
        if self.may_begin_checkpoint() {
            let mut counts = self.checkpoints.get();
            counts.begun = counts.wanted;
            self.checkpoints.set(counts);
            let group = if empty { closed.number - 1 } else { closed.number };
            commit.snapshot = Some(self.begin_checkpoint(group, commit.appended_transno));
            self.progress.notify_waiters();
        }
        commit.unattested = true;
        Ok((!empty).then_some(closed))
    }

    /// True if a checkpoint is wanted and the previous one is finished.
    fn may_begin_checkpoint(&self) -> bool {
        let counts = self.checkpoints.get();
        counts.wanted > counts.begun && counts.begun == counts.finished
    }

    fn begin_checkpoint(&self, group: Group, transno: Transno) -> BegunCheckpoint {
        self.table.borrow_mut().begin_checkpoint();
        let alloc = self.alloc.borrow();
        self.checkpoint_epoch.set(alloc.newest_epoch());
        let row = |slab: &crate::slab::allocator::Slab| SlabRow {
            epoch: slab.epoch,
            data_live: slab.data_live,
            tombstones: slab.tombstones,
        };
        let slabs = alloc.slabs().map(|(_, slab)| row(slab)).collect();
        let slabs = Snapshot { transno, next_epoch: 0, free: Vec::new(), slabs };
        BegunCheckpoint { at: self.journal.position(), group, slabs }
    }

    fn note_commit(&self, why: Close, began: Time) {
        let now = self.env.now();
        self.pace.end(began, now);
        let us = now.since(began).as_micros() as u64;
        let mut stats = self.stats.borrow_mut();
        stats.commit_us.record(us);
        match why {
            Close::Time => stats.closed_by_time += 1,
            Close::Size => stats.closed_by_size += 1,
            Close::Demand => stats.closed_on_demand += 1,
        }
    }

    fn after_commit(&self) {
        self.promises.set_nothing_to_clean(None);
        self.collect_slabs();
        self.wake_checkpoint.notify_one();
        self.wake_cleaner.notify_one();
    }
}
