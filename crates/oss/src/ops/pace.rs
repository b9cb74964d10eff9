//! OstPace: how long commits take lately.

use forebay_proto::message::OstPaceReply;
use forebay_target::Answer;

use crate::Oss;

/// Asks no device: it is answered though one is stuck.
pub fn run(oss: &Oss) -> Answer {
    Answer::read(&OstPaceReply { commit_us: oss.store().commit_pace().as_micros() as u64 })
}
