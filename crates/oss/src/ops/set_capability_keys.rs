//! SetCapabilityKeys: the MDT tells with which keys it signs capabilities.

use forebay_proto::message::{Empty, SetCapabilityKeys};
use forebay_target::{Answer, Attempt, Context};

use crate::{Oss, capabilities};

/// The keys count once they are applied, and are durable with the reply: replays are checked by them after a restart.
pub async fn run(oss: &Oss, ctx: &Context, request: SetCapabilityKeys) -> Attempt<Answer> {
    let Some(row) = oss.capabilities.row_of(&request)? else { return Ok(Answer::read(&Empty {})) };
    let ticket = ctx.admit();
    ticket.turn().await;
    ctx.prefetch(&[capabilities::ROW]).await?;
    let answer = ticket.apply(|txn| {
        txn.put(capabilities::ROW, row);
        Ok(Empty {})
    })?;
    if !ctx.is_replay() {
        oss.target().wait_committed(answer.transno).await?;
    }
    oss.capabilities.set(&request)?;
    Ok(answer)
}
