//! OstLatency: how long recent commits took.

use forebay_proto::message::OstLatencyReply;
use forebay_target::Answer;

use crate::Oss;

/// Needs no device: it is replied to even while one is stuck.
pub fn run(oss: &Oss) -> Answer {
    Answer::read(&OstLatencyReply { commit_us: oss.store().commit_latency().as_micros() as u64 })
}
