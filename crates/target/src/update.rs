//! Updates: transactions of a request or of the service itself, from their beginning until they are applied.

use bytes::Bytes;
use forebay_proto::{Encode, ErrorReply, Transno};
use forebay_store::Txn;

use crate::{Answer, Attempt, Context, core::Core};

/// A transaction under a transno. If it is dropped, nothing is changed and no transno is used up.
///
/// Nothing may be awaited before it is applied.
pub struct Update<'a> {
    core: &'a Core,
    /// The request whose reply row it includes; `None`: a change of the service itself.
    request: Option<&'a Context>,
    txn: Txn,
    transno: Transno,
    origin: TransnoOrigin,
}

/// Where the transno of an update comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransnoOrigin {
    /// It is the next one, and assigned when the update is applied.
    Next,
    /// A ticket or a replay has it.
    Assigned,
    /// It belongs to the replay that the service executes, which applies other updates under it.
    Replay,
}

impl<'a> Update<'a> {
    /// Errors: STOPPED.
    pub(crate) fn begin(
        core: &'a Core,
        request: Option<&'a Context>,
        transno: Transno,
        origin: TransnoOrigin,
    ) -> Result<Self, ErrorReply> {
        core.check_running()?;
        Ok(Self { core, request, txn: core.store.begin(), transno, origin })
    }

    /// Its transno.
    pub fn transno(&self) -> Transno {
        self.transno
    }

    /// The transaction.
    pub fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Applies the transaction; that of a request with its reply row.
    pub fn apply(mut self, reply: &impl Encode) -> Attempt<Answer> {
        let Self { core, request, transno, origin, .. } = self;
        let body = Bytes::from(reply.to_bytes());
        if let Some(ctx) = request {
            ctx.keep_reply(&mut self.txn, transno, &body)?;
        }
        if origin == TransnoOrigin::Next {
            assert!(core.order.peek() == transno, "{transno} was assigned while its update was prepared");
        }
        if origin != TransnoOrigin::Replay {
            self.txn.set_transno(transno);
        }
        let point = core.apply(self.txn)?;
        if origin != TransnoOrigin::Replay {
            core.order.applied(transno);
        }
        if let Some(ctx) = request {
            ctx.note_applied(transno, &body, point);
        }
        if origin == TransnoOrigin::Next {
            core.order.give();
        }
        Ok(Answer { body, transno, ..Answer::default() })
    }
}
