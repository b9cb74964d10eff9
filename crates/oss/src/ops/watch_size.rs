//! WatchSize: waits until a file is larger than the client knows.

use forebay_proto::{
    Errno, ErrorReply,
    message::{WatchSize, WatchSizeReply},
};
use forebay_target::{Answer, Attempt, Context};

use crate::{Oss, limits};

/// Runs a request. The session watches the file from now on, unless the request ends the watch.
pub async fn run(oss: &Oss, ctx: &Context, request: WatchSize) -> Attempt<Answer> {
    let (session, fid) = (ctx.session(), request.object.fid);
    if request.ends {
        oss.watches.end(session, fid);
        return Ok(Answer::read(&WatchSizeReply { file_bytes: request.known_bytes }));
    }
    let until = oss.env().now() + limits::WATCH_WAIT;
    let words = || ErrorReply::new(Errno::ENOSPC, "too many sizes are watched");
    let news = oss.watches.knows(session, fid, request.known_bytes).ok_or_else(words)?;
    loop {
        // Registered before the row is read, so that a change in between is not missed.
        let more = news.notified();
        // Truncates in between do not matter: the current size counts.
        let row = oss.load_applied(fid).await?;
        let file_bytes = row.map_or(0, |row| row.file_bytes);
        let left = until.since(oss.env().now());
        if file_bytes > request.known_bytes || !request.waits || left.is_zero() {
            return Ok(Answer::read(&WatchSizeReply { file_bytes }));
        }
        let _ = oss.env().timeout(left, more).await;
    }
}
