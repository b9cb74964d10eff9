//! One operation per file.

mod allocate;
mod append;
mod change;
mod complete_append;
mod destroy;
mod fence_layout;
mod get_object;
mod grant;
mod list;
mod map;
mod pace;
mod punch;
mod raise_size;
mod read;
mod remove_written;
mod reserve_append;
mod set_capability_keys;
mod statfs;
mod truncate;
mod watch_size;
mod write;

use std::rc::Rc;

use bytes::Bytes;
use forebay_proto::{Decode, Errno, ErrorReply, message::Op};
use forebay_target::{Answer, Attempt, Context};

use crate::Oss;

/// Decodes a request and runs its operation.
pub async fn dispatch(oss: &Rc<Oss>, ctx: &Context, op: Op, body: &[u8], bulk: Bytes) -> Attempt<Answer> {
    match op {
        Op::Write | Op::WritePieces => {
            let bytes = bulk.len() as u64;
            let request = match op {
                Op::Write => write::one_piece(Decode::from_bytes(body)?),
                _ => Decode::from_bytes(body)?,
            };
            let answer = write::run(oss, ctx, request, bulk).await?;
            ctx.target().note_write(bytes);
            Ok(answer)
        }
        Op::WriteReserved => {
            let bytes = bulk.len() as u64;
            let answer = write::run_reserved(oss, ctx, Decode::from_bytes(body)?, bulk).await?;
            ctx.target().note_write(bytes);
            Ok(answer)
        }
        Op::Append => {
            let bytes = bulk.len() as u64;
            let answer = append::run(oss, ctx, Decode::from_bytes(body)?, bulk).await?;
            ctx.target().note_write(bytes);
            Ok(answer)
        }
        Op::Read | Op::ReadPieces => {
            let request = match op {
                Op::Read => read::one_piece(Decode::from_bytes(body)?),
                _ => Decode::from_bytes(body)?,
            };
            let bytes = read::bytes(&request)?;
            let answer = read::run(oss, ctx, request).await?;
            ctx.target().note_read(bytes);
            Ok(answer)
        }
        Op::RaiseSize => raise_size::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::ReserveAppend => reserve_append::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::CompleteAppend => complete_append::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::RemoveWritten => remove_written::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::TruncateObject => truncate::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::Punch => punch::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::Destroy => destroy::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::SetCapabilityKeys => set_capability_keys::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::FenceLayout => fence_layout::run(oss, Decode::from_bytes(body)?).await,
        Op::GetObject => get_object::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::OstStatFs => Ok(statfs::run(oss)),
        Op::OstLatency => Ok(pace::run(oss)),
        Op::Grant => Ok(grant::run(oss, ctx, Decode::from_bytes(body)?)),
        Op::Allocate => allocate::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::MapObject => map::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::WatchSize => watch_size::run(oss, ctx, Decode::from_bytes(body)?).await,
        Op::ListObjects => list::run(oss, Decode::from_bytes(body)?).await,
        other => Err(ErrorReply::new(Errno::EOPNOTSUPP, format!("an OST does not do {}", other.name())).into()),
    }
}
