//! Tickets: places in the queue of changes to apply.

use std::rc::Rc;

use forebay_proto::{Encode, ErrorReply, Fid, Transno};
use forebay_store::Txn;

use crate::{Answer, Attempt, Context, Update, core::Core, update::TransnoOrigin};

/// A transno assigned before its change is ready. Changes are applied in the order of tickets; a dropped ticket lets
/// the next one pass.
pub struct Ticket {
    core: Rc<Core>,
    transno: Transno,
    kind: Kind,
}

enum Kind {
    /// Of a request.
    Request(Context),
    /// Of a replayed request: the place in the queue belongs to the replay until all of it is done.
    Replay(Context),
    /// Of the service itself.
    Own,
    /// Of the service itself, while it replays a request: part of that replay, without its own transno.
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

    /// Its transno: also the version of the bytes written under it.
    pub fn transno(&self) -> Transno {
        self.transno
    }

    /// Waits until every earlier ticket was applied or dropped.
    pub async fn turn(&self) {
        std::future::poll_fn(|cx| self.core.order.poll_turn(self.transno, cx)).await;
    }

    /// Acknowledges a request of level `memory` before its change is applied: the target holds what it needs to apply
    /// it. `fid` is the file that it changes. A reader that calls [`crate::Target::wait_applied`] does not see the
    /// earlier state of that file.
    ///
    /// From now on the change has to succeed; if it does not: [`Context::fail_acknowledged`].
    pub fn reply_early(&self, fid: Fid, reply: &impl Encode) {
        let Kind::Request(ctx) = &self.kind else { panic!("a replay is answered when it is applied") };
        ctx.reply_early(fid, self.transno, reply.to_bytes().into());
    }

    /// Applies the change with the request's reply row; panics if it is not this ticket's turn. (For a ticket of
    /// [`crate::Target::admit`]: without a reply row.)
    pub fn apply<R: Encode>(self, change: impl FnOnce(&mut Txn) -> Attempt<R>) -> Attempt<Answer> {
        let mut update = self.begin()?;
        let reply = change(update.txn())?;
        update.apply(&reply)
    }

    /// As [`Ticket::apply`], for a caller that fills and applies the transaction itself. After a failure the ticket keeps
    /// its place in the queue.
    pub fn begin(&self) -> Result<Update<'_>, ErrorReply> {
        assert!(self.core.order.is_first(self.transno), "ticket {} applied before its turn", self.transno);
        match &self.kind {
            Kind::Request(ctx) | Kind::Replay(ctx) => ctx.begin_as(self.transno, TransnoOrigin::Assigned),
            Kind::Own => Update::begin(&self.core, None, self.transno, TransnoOrigin::Assigned),
            Kind::Rider => Update::begin(&self.core, None, self.transno, TransnoOrigin::Replay),
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
