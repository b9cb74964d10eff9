//! GetObject: what stat asks while somebody writes.

use forebay_proto::{ErrorReply, message::GetObject};
use forebay_target::{Answer, Context};

use super::change::describe;
use crate::Oss;

/// Runs a glimpse at an object.
pub async fn run(oss: &Oss, ctx: &Context, request: GetObject) -> Result<Answer, ErrorReply> {
    oss.places_came(ctx, request.object.fid).await?;
    let row = oss.admissible(ctx, &request.object).await?;
    oss.all_told(ctx, request.object.fid, &[]).await?;
    Ok(Answer::read(&describe(row.as_ref())))
}
