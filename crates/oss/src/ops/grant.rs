//! Grant: space for what a client is going to write (see `grants`).

use forebay_proto::message::{Grant, GrantReply};
use forebay_target::{Answer, Context};

use crate::Oss;

/// Grants as much of the request as the limits allow.
pub fn run(oss: &Oss, ctx: &Context, request: Grant) -> Answer {
    Answer::read(&GrantReply { bytes: oss.grants.ask(oss.store(), ctx.session(), request.bytes) })
}
