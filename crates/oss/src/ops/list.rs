//! ListObjects: for the MDT's collection.

use forebay_proto::{
    Fid,
    message::{ListObjects, ListObjectsReply},
};
use forebay_target::{Answer, Attempt};

use crate::{Oss, limits, object};

/// Lists objects in the order of fids, a page at a time.
pub async fn run(oss: &Oss, request: ListObjects) -> Attempt<Answer> {
    oss.target().wait_applied(None).await;
    let mut from = object::sequence_start(request.from).to_vec();
    if request.after != Fid::default() {
        from = object::key(request.after).to_vec();
        from.push(0);
    }
    let to = object::sequence_start(request.to);
    let limit = request.limit.clamp(1, limits::LIST_OBJECTS) as usize;
    let rows = oss.store().scan(&from, &to, limit).await?;
    let fids = rows.iter().filter_map(|(key, _)| object::fid_of(key)).collect();
    Ok(Answer::read(&ListObjectsReply { fids, end: rows.len() < limit }))
}
