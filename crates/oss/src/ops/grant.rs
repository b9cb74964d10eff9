//! Grant: room for what a client is going to write (see `granted`).

use forebay_proto::message::{Grant, GrantReply};
use forebay_target::{Answer, Context};

use crate::Oss;

/// As much of what was asked for as may be.
pub fn run(oss: &Oss, ctx: &Context, request: Grant) -> Answer {
    Answer::read(&GrantReply { bytes: oss.granted.ask(oss.store(), ctx.session(), request.bytes) })
}
