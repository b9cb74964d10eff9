//! GetObject: size and times of an object, which stat asks for while the file is being written.

use forebay_proto::message::GetObject;
use forebay_target::{Answer, Attempt, Context};

use super::change::describe;
use crate::Oss;

/// Runs a glimpse at an object.
pub async fn run(oss: &Oss, ctx: &Context, request: GetObject) -> Attempt<Answer> {
    oss.reported_appends_return(ctx, request.object.fid).await?;
    let row = oss.admissible(ctx, &request.object).await?;
    oss.reads_acknowledged(ctx, request.object.fid, &[]).await?;
    Ok(Answer::read(&describe(row.as_ref())))
}
