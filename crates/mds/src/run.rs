//! Runs an operation: starts it again until everything that it needs is present, then carries out its effects.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use forebay_proto::{ClientId, Encode, Errno, ErrorReply, Fid, SessionId, Transno, message::Empty};
use forebay_store::Txn;
use forebay_target::{Abort, Answer, Attempt, Context, Retry, store_error};

use crate::{
    Mds,
    halt::{Halt, Step, no_space},
    keys::{self, Key},
    leases::{Leases, Use},
    limits,
    memory::Memory,
    placement::Table,
    tenant::Tenant,
    tx::{Alone, Effects, Origin, Sharing, Tx},
};

/// Asks the target about every key that an operation reads.
///
/// A key with another session's uncommitted change makes the reply wait for a commit. The operation continues. Commits
/// are a prefix, so a lost change takes everything built on it with it, and nobody replays an operation whose reply has
/// not left. (Waiting before the operation would starve a reader of a directory that others fill.)
struct Shared<'a> {
    ctx: &'a Context,
    unsettled: Cell<bool>,
    leases: &'a Leases,
    /// Inodes on which other clients hold conflicting leases, so they may still show the previous state: see
    /// [`crate::leases`].
    conflicts: RefCell<BTreeMap<Fid, Use>>,
    /// The leases whose end the operation has waited for so far.
    waited: &'a [Awaiting<'a>],
}

impl<'a> Shared<'a> {
    fn new(ctx: &'a Context, leases: &'a Leases, wants: &'a Wants<'_>) -> Self {
        Self { ctx, unsettled: Cell::new(false), leases, conflicts: RefCell::default(), waited: &wants.awaiting }
    }
}

impl Sharing for Shared<'_> {
    fn note(&self, key: Key) {
        if !self.ctx.is_settled(&[key]) {
            self.unsettled.set(true);
        }
        if !self.ctx.is_replay()
            && let Some(fid) = keys::leased(key.as_ref())
            && self.leases.conflicts(self.ctx.session(), fid, Use::Shows)
        {
            self.conflicts.borrow_mut().insert(fid, Use::Shows);
        }
    }

    fn conflicts(&self) -> BTreeMap<Fid, Use> {
        self.conflicts.take()
    }

    fn waited_for(&self, fid: Fid) -> bool {
        self.waited.iter().any(|awaiting| awaiting.fids.contains(&fid))
    }
}

/// While it exists, leases on these inodes are granted only to the operation that waited for them.
struct Awaiting<'a> {
    mds: &'a Mds,
    fids: BTreeSet<Fid>,
}

impl<'a> Awaiting<'a> {
    fn new(mds: &'a Mds, fids: BTreeSet<Fid>) -> Self {
        fids.iter().for_each(|fid| mds.memory.borrow_mut().leases.await_end(*fid));
        Self { mds, fids }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        let mut memory = self.mds.memory.borrow_mut();
        self.fids.iter().for_each(|fid| memory.leases.stop_awaiting(*fid));
    }
}

/// What an operation turned out to need, collected over its attempts. Its rows are prefetched together, so that
/// prefetching one does not evict another.
struct Wants<'a> {
    rows: Vec<Key>,
    attempts: usize,
    /// Leases that it had to recall: no other session gets them again before it has completed.
    awaiting: Vec<Awaiting<'a>>,
    /// How often it waited for space.
    freed_space: u32,
}

impl Wants<'_> {
    fn new(hint: &[Key]) -> Self {
        Self { rows: hint.to_vec(), attempts: 0, awaiting: Vec::new(), freed_space: 0 }
    }

    /// Counts an attempt. Errors: EAGAIN after too many.
    fn again(&mut self) -> Result<(), ErrorReply> {
        self.attempts += 1;
        if self.attempts < limits::ATTEMPTS {
            return Ok(());
        }
        Err(ErrorReply::new(Errno::EAGAIN, "rows were paged out under the operation again and again: give more memory"))
    }
}

impl Mds {
    /// Executes an operation that changes nothing.
    pub(crate) async fn read<R: Encode>(
        &self,
        ctx: &Context,
        hint: &[Key],
        op: impl Fn(&mut Tx<'_>) -> Step<R>,
    ) -> Attempt<Answer> {
        let (reply, effects) = self.look(ctx, hint, op).await?;
        Ok(Answer::with_bulk(&reply, effects.bulk.into_iter().collect()))
    }

    /// As [`Mds::read`], with a result for the server itself.
    pub(crate) async fn look<R>(
        &self,
        ctx: &Context,
        hint: &[Key],
        op: impl Fn(&mut Tx<'_>) -> Step<R>,
    ) -> Attempt<(R, Effects)> {
        let mut wants = Wants::new(hint);
        loop {
            wants.again()?;
            ctx.prefetch(&wants.rows).await?;
            let (result, effects, unsettled) = {
                let memory = self.memory.borrow();
                let shared = Shared::new(ctx, &memory.leases, &wants);
                let mut txn = ctx.store().begin();
                let mut tx =
                    Tx::new(&mut txn, &shared, &memory, self.origin(ctx, Transno(0))).of_tenant(self.tenant_of(ctx));
                let result = unless_leased(op(&mut tx), &shared.conflicts());
                (result, std::mem::take(&mut tx.effects), shared.unsettled.get())
            };
            let result = match result {
                Ok(reply) => Ok((reply, effects)),
                Err(Halt::Fail(error)) => Err(error.into()),
                Err(halt) => {
                    self.wait_for(ctx.session(), halt, &mut wants).await?;
                    continue;
                }
            };
            if let Ok((_, effects)) = &result {
                self.grant(ctx.session(), &effects.granted);
                self.grant_entries_write(ctx.session(), effects);
            }
            self.settle(ctx, unsettled, None).await?;
            return result;
        }
    }

    /// Looks at rows of which no client is shown anything: waits for no lease and no commit.
    pub(crate) async fn look_unshared<R>(&self, ctx: &Context, op: impl Fn(&Tx<'_>) -> Step<R>) -> Attempt<R> {
        let mut wants = Wants::new(&[]);
        loop {
            wants.again()?;
            ctx.prefetch(&wants.rows).await?;
            let result = {
                let memory = self.memory.borrow();
                let mut txn = ctx.store().begin();
                op(&Tx::new(&mut txn, &Alone, &memory, self.origin(ctx, Transno(0))).of_tenant(self.tenant_of(ctx)))
            };
            match result {
                Ok(found) => return Ok(found),
                Err(Halt::Fail(error)) => return Err(error.into()),
                Err(halt) => self.wait_for(ctx.session(), halt, &mut wants).await?,
            }
        }
    }

    /// Executes an operation that changes the table: one transaction, with its reply.
    pub(crate) async fn modify<R: Encode>(
        &self,
        ctx: &Context,
        hint: &[Key],
        op: impl Fn(&mut Tx<'_>) -> Step<R>,
    ) -> Attempt<Answer> {
        if !self.has_space() {
            let now = self.env.now();
            self.memory.borrow_mut().leases.recall_entries_write(now);
        }
        let mut wants = Wants::new(hint);
        loop {
            wants.again()?;
            ctx.prefetch(&wants.rows).await?;
            let (result, effects, unsettled) = self.attempt(ctx, &wants, &op)?;
            let result = match result {
                Ok(answer) => Ok(answer),
                Err(Halt::Fail(error)) => Err(Abort::Failed(error)),
                Err(Halt::JournalFull) => Err(Abort::Retry(Retry::JournalFull)),
                Err(halt) => {
                    self.wait_for(ctx.session(), halt, &mut wants).await?;
                    continue;
                }
            };
            if result.is_ok() {
                ctx.touch(&effects.touched);
                self.follow(&effects);
                self.note_changes(ctx.session(), &effects);
                self.grant(ctx.session(), &effects.granted);
                self.grant_data(ctx.session(), &effects);
                self.grant_entries_write(ctx.session(), &effects);
            }
            self.settle(ctx, unsettled, result.as_ref().ok().map(|answer| answer.transno)).await?;
            let mut answer = result?;
            self.follow_up(ctx, &answer, &effects).await?;
            answer.bulk.extend(effects.bulk);
            return Ok(answer);
        }
    }

    /// One attempt of [`Mds::modify`], with its effects, and whether its reply waits for a commit of other sessions'
    /// changes.
    fn attempt<R: Encode>(
        &self,
        ctx: &Context,
        wants: &Wants<'_>,
        op: &impl Fn(&mut Tx<'_>) -> Step<R>,
    ) -> Result<(Step<Answer>, Effects, bool), ErrorReply> {
        let memory = self.memory.borrow();
        let shared = Shared::new(ctx, &memory.leases, wants);
        let mut update = ctx.begin()?;
        let origin = self.origin(ctx, update.transno());
        let (result, effects) = execute(update.txn(), &memory, &shared, (origin, self.tenant_of(ctx)), op);
        let result = result.and_then(|reply| update.apply(&reply).map_err(|abort| not_applied(abort, &effects)));
        Ok((result, effects, shared.unsettled.get()))
    }

    /// Executes a change of the server's own, outside of any request.
    pub(crate) async fn change<R>(&self, op: impl Fn(&mut Tx<'_>) -> Step<R>) -> Result<R, ErrorReply> {
        let mut wants = Wants::new(&[]);
        loop {
            wants.again()?;
            self.store.prefetch(&wants.rows).await.map_err(store_error)?;
            let (result, effects) = self.attempt_own(&op)?;
            match result {
                Ok(reply) => {
                    self.follow(&effects);
                    return Ok(reply);
                }
                Err(Halt::JournalFull) => self.store.sync().await.map_err(store_error)?,
                Err(halt) => self.wait_for(SessionId(0), halt, &mut wants).await.map_err(Abort::into_error)?,
            }
        }
    }

    /// One attempt of [`Mds::change`], with its effects.
    fn attempt_own<R>(&self, op: &impl Fn(&mut Tx<'_>) -> Step<R>) -> Result<(Step<R>, Effects), ErrorReply> {
        let target = self.target()?;
        let mut update = target.begin()?;
        let origin = Origin {
            session: SessionId(0),
            client: ClientId::default(),
            is_replay: false,
            transno: update.transno(),
            now_ns: self.env.unix_time().0,
            has_space: true,
            has_space_for_inline: true,
        };
        let (result, effects) = execute(update.txn(), &self.memory.borrow(), &Alone, (origin, None), op);
        let result = result.and_then(|reply| match update.apply(&Empty {}) {
            Ok(_) => Ok(reply),
            Err(abort) => Err(not_applied(abort, &effects)),
        });
        Ok((result, effects))
    }

    /// Waits until the cause of the halt is resolved. Errors: ENOSPC if the operation needs space and there is none.
    async fn wait_for<'a>(&'a self, session: SessionId, halt: Halt, wants: &mut Wants<'a>) -> Attempt<()> {
        match halt {
            Halt::Missing(mut keys) => wants.rows.append(&mut keys),
            Halt::JournalFull => return Err(Abort::Retry(Retry::JournalFull)),
            Halt::Leased(uses) => {
                wants.awaiting.push(Awaiting::new(self, uses.keys().copied().collect()));
                self.recall(session, &uses).await;
            }
            Halt::Truncating(fid) => self.wait_until(|memory| !memory.is_cut(fid)).await,
            Halt::Placing => self.wait_until(|memory| !memory.placing).await,
            Halt::NoSpace if wants.freed_space == limits::FREE_SPACE_ATTEMPTS => return Err(no_space().into()),
            Halt::NoSpace => {
                wants.freed_space += 1;
                if !self.free_space().await? {
                    return Err(no_space().into());
                }
            }
            Halt::Fail(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Recalls the leases of other clients that conflict with what `session` is going to show or change, and waits
    /// until they have ended.
    async fn recall(&self, session: SessionId, uses: &BTreeMap<Fid, Use>) {
        loop {
            let now = self.env.now();
            let Some(end) = self.memory.borrow_mut().leases.recall(session, uses, now) else { return };
            let waiter = self.lease_waits.waiter(self.memory.borrow().leases.may_end(session, uses));
            let ended = waiter.ended();
            self.evict_overdue();
            // The wait ends when the holder releases the lease or its time is over.
            let _ = self.env.timeout(end.since(now), ended).await;
        }
    }

    /// Replies when all other clients have sent what they had buffered at the time of the request.
    pub(crate) async fn flush_buffered(&self, session: SessionId) -> Answer {
        let fids = self.memory.borrow().leases.data.of_others(session);
        // Send all recalls before waiting for one.
        for fid in &fids {
            self.memory.borrow_mut().leases.recall_from_others(session, *fid, self.env.now());
        }
        for fid in fids {
            self.wait_flushed(session, fid).await;
        }
        Answer::read(&Empty {})
    }

    /// Evicts holders that block others for too long; their data leases end once they can write no more.
    pub(crate) fn evict_overdue(&self) {
        let overdue = self.memory.borrow_mut().leases.take_overdue();
        for (session, why) in overdue {
            let mds = self.strong();
            self.env.spawn(async move {
                if let Ok(target) = mds.target() {
                    target.evict(session, &why.words()).await;
                }
            });
        }
    }

    fn grant(&self, session: SessionId, fids: &[Fid]) {
        let leases = &mut self.memory.borrow_mut().leases;
        fids.iter().for_each(|fid| leases.grant(session, *fid));
    }

    fn grant_data(&self, session: SessionId, effects: &Effects) {
        let leases = &mut self.memory.borrow_mut().leases;
        effects.granted_data.iter().for_each(|fid| leases.grant_data(session, *fid));
        effects.reclaimed.iter().for_each(|(fid, holds)| leases.data.reclaim(session, *fid, *holds));
    }

    fn grant_entries_write(&self, session: SessionId, effects: &Effects) {
        let mut memory = self.memory.borrow_mut();
        effects
            .granted_entries_write
            .iter()
            .chain(&effects.changing)
            .for_each(|fid| memory.leases.grant_entries_write(session, *fid));
        for (fid, parent) in &effects.alone {
            memory.leases.set_exclusive(session, *fid, *parent);
        }
        if let Some(fid) = effects.removed
            && memory.leases.data.closed(fid)
        {
            drop(memory);
            self.leases_ended(&[fid]);
        }
    }

    /// Notes changes of a client that also holds a lease on the inode: they are not shown to others yet.
    fn note_changes(&self, session: SessionId, effects: &Effects) {
        let leases = &mut self.memory.borrow_mut().leases;
        effects.changes().for_each(|fid| leases.changed(session, fid));
    }

    fn origin(&self, ctx: &Context, transno: Transno) -> Origin {
        Origin {
            session: ctx.session(),
            client: ctx.client(),
            is_replay: ctx.is_replay(),
            transno,
            now_ns: ctx.time_ns(),
            has_space: self.has_space(),
            has_space_for_inline: self.has_space_for_inline(),
        }
    }

    /// Commit-on-share: other sessions' changes that this reply shows are committed before it leaves. `applied`: the
    /// request's own change.
    async fn settle(&self, ctx: &Context, unsettled: bool, applied: Option<Transno>) -> Attempt<()> {
        match applied {
            _ if !unsettled => {}
            Some(transno) => ctx.target().wait_committed(transno).await?,
            None => ctx.store().sync().await?,
        }
        Ok(())
    }

    /// Shows the new layout of `fid` once `transno` is committed. In its own task, as the request's client may
    /// disconnect.
    fn show_when_committed(&self, fid: Fid, transno: Transno) {
        let mds = self.strong();
        self.env.spawn(async move {
            if let Ok(target) = mds.target()
                && target.wait_committed(transno).await.is_ok()
            {
                mds.memory.borrow_mut().truncating.remove(&fid);
                mds.memory_changed();
            }
        });
    }

    /// Uses a table once it is committed; until then creates wait.
    fn use_when_committed(&self, from: Transno, table: Table) {
        let mds = self.strong();
        self.env.spawn(async move {
            if let Ok(target) = mds.target()
                && target.wait_committed(from).await.is_ok()
            {
                let mut memory = mds.memory.borrow_mut();
                memory.placement.push(from, &table);
                memory.placing = false;
                drop(memory);
                mds.memory_changed();
            }
        });
    }

    /// Waits for everything that must have happened before the reply leaves.
    async fn follow_up(&self, ctx: &Context, answer: &Answer, effects: &Effects) -> Result<(), ErrorReply> {
        if (effects.lease.is_some() || effects.durable) && !ctx.is_replay() {
            ctx.target().wait_committed(answer.transno).await?;
        }
        if let Some(fid) = effects.hidden {
            self.show_when_committed(fid, answer.transno);
            self.wait_until(|memory| !memory.truncating.contains(&fid)).await;
        }
        if let Some((from, table)) = &effects.table {
            self.use_when_committed(*from, table.clone());
            self.wait_until(|memory| !memory.placing).await;
        }
        if let Some(fid) = effects.truncate.filter(|_| !ctx.is_replay()) {
            ctx.target().wait_committed(answer.transno).await?;
            self.start_truncate(fid, false);
            // An OST may be away: other requests of the mount do not wait for it.
            ctx.unblock_later_replies();
            // Wait also for a stuck truncate: after an error it would be applied all the same.
            self.wait_until(|memory| !memory.truncating.contains(&fid)).await;
        }
        Ok(())
    }
}

/// Runs `op` over `txn`. The caller updates the memory right after it has applied that, before any other task runs.
/// Nothing changes while other clients hold leases on what it would change.
fn execute<R>(
    txn: &mut Txn,
    memory: &Memory,
    sharing: &dyn Sharing,
    (origin, tenant): (Origin, Option<Tenant>),
    op: &impl Fn(&mut Tx<'_>) -> Step<R>,
) -> (Step<R>, Effects) {
    let mut tx = Tx::new(txn, sharing, memory, origin).of_tenant(tenant);
    let result = op(&mut tx);
    let effects = std::mem::take(&mut tx.effects);
    let mut conflicts = sharing.conflicts();
    // What a client reclaims after a restart existed before any current lease.
    if result.is_ok() && !origin.is_replay && effects.reclaimed.is_empty() && effects.changing.is_empty() {
        // While a truncate of a file is in progress, no client is shown the file. A client with buffered data may
        // have to wait for the end of that truncate before it can send the data. So a change by the server itself
        // does not wait for leases on that file. (Attribute leases were recalled when the truncate began.)
        let hidden = |fid: &Fid| origin.session == SessionId(0) && memory.truncating.contains(fid);
        let changes = effects.changes().filter(|fid| !hidden(fid));
        let changes = changes.filter(|fid| memory.leases.conflicts(origin.session, *fid, Use::Changes));
        conflicts.extend(changes.map(|fid| (fid, Use::Changes)));
    }
    (unless_leased(result, &conflicts), effects)
}

/// Why the transaction of these effects was not applied.
fn not_applied(abort: Abort, effects: &Effects) -> Halt {
    match abort {
        Abort::Retry(Retry::NotResident) => Halt::Missing(effects.written.clone()),
        Abort::Retry(Retry::JournalFull) => Halt::JournalFull,
        Abort::Failed(error) => Halt::Fail(error),
    }
}

/// Neither a reply nor an error may leave while other clients hold conflicting leases.
fn unless_leased<R>(result: Step<R>, conflicts: &BTreeMap<Fid, Use>) -> Step<R> {
    match result {
        Ok(_) | Err(Halt::Fail(_)) if !conflicts.is_empty() => Err(Halt::Leased(conflicts.clone())),
        result => result,
    }
}
