//! How an operation is applied: begun anew until all it needs is there, followed by what it entails.

use std::cell::Cell;

use forebay_proto::{ClientId, Encode, Errno, ErrorReply, Fid, SessionId, Transno};
use forebay_store::{StoreError, StoreErrorKind, Txn};
use forebay_target::{Answer, Context, store_error};

use crate::{
    Mds,
    halt::{Halt, Step},
    keys::Key,
    limits,
    placement::Table,
    tx::{Alone, Effects, Origin, Sharing, Tx},
};

/// Asks the target about every key an operation looks under.
///
/// A key with another session's uncommitted change makes the reply wait for a commit. The operation goes on: commits are a
/// prefix, so what is built on the change is lost with it, and until the reply has left nobody will replay it. (Waiting
/// first would starve whoever reads a directory that others fill.)
struct Shared<'a> {
    ctx: &'a Context,
    unsettled: Cell<bool>,
}

impl Sharing for Shared<'_> {
    fn note(&self, key: Key) {
        if !self.ctx.is_settled(&[key]) {
            self.unsettled.set(true);
        }
    }
}

/// Rows an operation was found to need, gathered over its attempts: brought to memory together, so that bringing one does
/// not push out another.
struct Wants {
    rows: Vec<Key>,
    attempts: usize,
}

impl Wants {
    fn new(hint: &[Key]) -> Self {
        Self { rows: hint.to_vec(), attempts: 0 }
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
    ) -> Result<Answer, ErrorReply> {
        let mut wants = Wants::new(hint);
        loop {
            wants.again()?;
            ctx.prefetch(&wants.rows).await?;
            let shared = Shared { ctx, unsettled: Cell::new(false) };
            let result = {
                let memory = self.memory.borrow();
                let mut txn = ctx.store().begin();
                op(&mut Tx::new(&mut txn, &shared, &memory, self.origin(ctx, Transno(0))))
            };
            let result = match result {
                Ok(reply) => Ok(Answer::read(&reply)),
                Err(Halt::Fail(error)) => Err(error),
                Err(halt) => {
                    self.wait_for(halt, &mut wants.rows).await;
                    continue;
                }
            };
            self.settle(ctx, &shared, &result).await?;
            return result;
        }
    }

    /// Executes an operation that changes the table: one transaction, with its reply.
    pub(crate) async fn modify<R: Encode>(
        &self,
        ctx: &Context,
        hint: &[Key],
        op: impl Fn(&mut Tx<'_>) -> Step<R>,
    ) -> Result<Answer, ErrorReply> {
        let mut wants = Wants::new(hint);
        loop {
            wants.again()?;
            ctx.prefetch(&wants.rows).await?;
            let shared = Shared { ctx, unsettled: Cell::new(false) };
            let (mut halted, mut effects) = (None, Effects::default());
            let result = ctx.apply(|txn, transno| {
                self.apply(txn, &shared, self.origin(ctx, transno), &op, &mut effects, &mut halted)
            });
            if let Some(halt) = halted {
                self.wait_for(halt, &mut wants.rows).await;
                continue;
            }
            if lacks_rows(&result) {
                wants.rows.append(&mut effects.written);
                continue;
            }
            if result.is_ok() {
                ctx.touch(&effects.touched);
                self.follow(&effects);
            }
            self.settle(ctx, &shared, &result).await?;
            let answer = result?;
            self.follow_up(ctx, &answer, &effects).await?;
            return Ok(answer);
        }
    }

    /// A change of the server's own, outside of any request.
    pub(crate) async fn change<R>(&self, op: impl Fn(&mut Tx<'_>) -> Step<R>) -> Result<R, ErrorReply> {
        let mut wants = Wants::new(&[]);
        loop {
            wants.again()?;
            self.store.prefetch(&wants.rows).await.map_err(store_error)?;
            let (mut halted, mut effects) = (None, Effects::default());
            let result = self.target()?.apply(|txn, transno| {
                let origin = Origin {
                    session: SessionId(0),
                    client: ClientId::default(),
                    is_replay: false,
                    transno,
                    now_ns: self.env.unix_time().0,
                    has_room: true,
                };
                self.apply(txn, &Alone, origin, &op, &mut effects, &mut halted)
            });
            if let Some(halt) = halted {
                self.wait_for(halt, &mut wants.rows).await;
            } else if lacks_rows(&result) {
                wants.rows.append(&mut effects.written);
            } else if has_errno(&result, StoreErrorKind::Busy) {
                self.store.sync().await.map_err(store_error)?;
            } else {
                let (reply, _) = result?;
                self.follow(&effects);
                return Ok(reply);
            }
        }
    }

    /// Runs `op` over `txn`; memory follows at once, before anything else can run.
    fn apply<R>(
        &self,
        txn: &mut Txn,
        sharing: &dyn Sharing,
        origin: Origin,
        op: &impl Fn(&mut Tx<'_>) -> Step<R>,
        effects: &mut Effects,
        halted: &mut Option<Halt>,
    ) -> Result<R, ErrorReply> {
        let memory = self.memory.borrow();
        let mut tx = Tx::new(txn, sharing, &memory, origin);
        let result = op(&mut tx);
        *effects = std::mem::take(&mut tx.effects);
        result.map_err(|halt| match halt {
            Halt::Fail(error) => error,
            halt => {
                *halted = Some(halt);
                Errno::EAGAIN.into()
            }
        })
    }

    /// Waits until what stopped an operation is there.
    async fn wait_for(&self, halt: Halt, rows: &mut Vec<Key>) {
        match halt {
            Halt::Missing(key) => rows.push(key),
            Halt::Truncating(fid) => self.wait_until(|memory| !memory.truncating.contains(&fid)).await,
            Halt::Placing => self.wait_until(|memory| !memory.placing).await,
            Halt::Fail(_) => {}
        }
    }

    fn origin(&self, ctx: &Context, transno: Transno) -> Origin {
        Origin {
            session: ctx.session(),
            client: ctx.client(),
            is_replay: ctx.is_replay(),
            transno,
            now_ns: self.env.unix_time().0,
            has_room: self.has_room(),
        }
    }

    /// Commit on share: what others changed and this reply shows is committed before it leaves.
    async fn settle(
        &self,
        ctx: &Context,
        shared: &Shared<'_>,
        result: &Result<Answer, ErrorReply>,
    ) -> Result<(), ErrorReply> {
        match result {
            _ if !shared.unsettled.get() => Ok(()),
            Ok(answer) if answer.transno != Transno(0) => ctx.target().wait_committed(answer.transno).await,
            _ => ctx.store().sync().await.map_err(store_error),
        }
    }

    /// The layout of `fid` is shown once `transno` is committed; in a task of its own, as the request's client may go away.
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

    /// A table is used once it is committed; until then creates wait.
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

    /// What has to be true before the reply leaves.
    async fn follow_up(&self, ctx: &Context, answer: &Answer, effects: &Effects) -> Result<(), ErrorReply> {
        if effects.lease.is_some() && !ctx.is_replay() {
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
            self.start_truncate(fid);
            self.wait_until(|memory| !memory.truncating.contains(&fid)).await;
        }
        Ok(())
    }
}

/// Rows that the transaction sets were not in memory: nothing was changed.
fn lacks_rows<R>(result: &Result<R, ErrorReply>) -> bool {
    has_errno(result, StoreErrorKind::NotResident)
}

fn has_errno<R>(result: &Result<R, ErrorReply>, kind: StoreErrorKind) -> bool {
    result.as_ref().is_err_and(|error| error.errno == store_error(StoreError::new(kind, "")).errno)
}
