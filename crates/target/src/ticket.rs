//! A place in the order of changes.

use forebay_proto::{Encode, ErrorReply, Transno};
use forebay_store::Txn;

use crate::Answer;

/// A transno given before its change is ready. Changes are applied in the order of tickets; a dropped ticket lets the next
/// one pass.
pub struct Ticket {}

#[allow(clippy::unused_async)]
impl Ticket {
    /// Its transno: the version of the bytes placed under it.
    pub fn transno(&self) -> Transno {
        todo!()
    }

    /// Waits until every earlier ticket was applied or dropped.
    pub async fn turn(&self) {
        todo!()
    }

    /// Applies the change with the request's reply row; panics if it is not its turn. (Of a ticket of
    /// [`crate::Target::admit`]: without a reply row.)
    pub fn apply<R: Encode>(
        self,
        _change: impl FnOnce(&mut Txn) -> Result<R, ErrorReply>,
    ) -> Result<Answer, ErrorReply> {
        todo!()
    }
}
