//! OstStatFs: bytes used and free.

use forebay_proto::message::OstStatFsReply;
use forebay_store::Store;
use forebay_target::Answer;

use crate::Oss;

/// Space as admission sees it: what is available can be written.
pub fn run(oss: &Oss) -> Answer {
    let (space, granted_bytes) = (oss.store().space(), oss.grants.bytes());
    Answer::read(&OstStatFsReply {
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        objects: oss.objects.get(),
        granted_bytes: Store::promise_weight(granted_bytes),
        promisable_bytes: oss.store().promisable_bytes() + granted_bytes,
    })
}
