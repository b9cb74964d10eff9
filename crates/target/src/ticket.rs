//! A place in the order of changes.

use std::rc::Rc;

use forebay_proto::{Encode, ErrorReply, Fid, Transno};
use forebay_store::Txn;

use crate::{Answer, Context, core::Core};

/// A transno given before its change is ready. Changes are applied in the order of tickets; a dropped ticket lets the next
/// one pass.
pub struct Ticket {
    core: Rc<Core>,
    transno: Transno,
    kind: Kind,
}

enum Kind {
    /// Of a request.
    Request(Context),
    /// Of a request that is replayed: the place in line is the replay's until all of it is done.
    Replay(Context),
    /// Of the service itself.
    Own,
    /// Of the service itself, while it replays a request: a part of that, without a transno of its own.
    Rider,
}

impl Ticket {
    pub(crate) fn of_request(core: Rc<Core>, ctx: Context) -> Self {
        if let Some(transno) = ctx.replay_transno() {
            return Self { core, transno, kind: Kind::Replay(ctx) };
        }
        let transno = core.order.give();
        core.order.join(transno);
        ctx.admitted(transno);
        Self { core, transno, kind: Kind::Request(ctx) }
    }

    pub(crate) fn own(core: Rc<Core>) -> Self {
        if let Some(transno) = core.replaying.get() {
            return Self { core, transno, kind: Kind::Rider };
        }
        let transno = core.order.give();
        core.order.join(transno);
        Self { core, transno, kind: Kind::Own }
    }

    /// Its transno: the version of the bytes placed under it.
    pub fn transno(&self) -> Transno {
        self.transno
    }

    /// Waits until every earlier ticket was applied or dropped.
    pub async fn turn(&self) {
        std::future::poll_fn(|cx| self.core.order.poll_turn(self.transno, cx)).await;
    }

    /// Answers before the change is applied, to a request of level `memory`: the target holds what it needs for that. `fid` is what
    /// it changes: who looks at that with [`crate::Target::wait_applied`] does not see it as it was before.
    ///
    /// From now on the change has to succeed; if it does not: [`Context::break_word`].
    pub fn answer_early(&self, fid: Fid, reply: &impl Encode) {
        let Kind::Request(ctx) = &self.kind else { panic!("a replay is answered when it is applied") };
        ctx.answer_early(fid, self.transno, reply.to_bytes().into());
    }

    /// Applies the change with the request's reply row; panics if it is not its turn. (Of a ticket of
    /// [`crate::Target::admit`]: without a reply row.)
    pub fn apply<R: Encode>(
        self,
        change: impl FnOnce(&mut Txn) -> Result<R, ErrorReply>,
    ) -> Result<Answer, ErrorReply> {
        self.try_apply(change)
    }

    /// As [`Ticket::apply`]; if it fails the place in line is kept.
    pub fn try_apply<R: Encode>(
        &self,
        change: impl FnOnce(&mut Txn) -> Result<R, ErrorReply>,
    ) -> Result<Answer, ErrorReply> {
        assert!(self.core.order.is_first(self.transno), "ticket {} applied before its turn", self.transno);
        match &self.kind {
            Kind::Request(ctx) | Kind::Replay(ctx) => ctx.apply_as(self.transno, |txn, _| change(txn)),
            Kind::Own | Kind::Rider => {
                let moves = matches!(self.kind, Kind::Own);
                let (reply, _) = self.core.apply_own(self.transno, moves, |txn, _| change(txn))?;
                Ok(Answer { transno: self.transno, ..Answer::read(&reply) })
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if matches!(self.kind, Kind::Request(_) | Kind::Own) {
            self.core.order.leave(self.transno);
        }
        if let Kind::Request(ctx) = &self.kind {
            ctx.left_line(self.transno);
        }
    }
}
