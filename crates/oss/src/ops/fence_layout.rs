//! FenceLayout: the MDT has moved bytes of a file, and clients with the layout from before are to fetch the new one.

use forebay_proto::message::{Empty, FenceLayout};
use forebay_target::{Answer, Attempt};

use crate::Oss;

/// Sets the fence in its turn: changes that were admitted, and perhaps replied to, under an older generation are applied
/// first. A change that is admitted later meets the fence when it is applied.
pub async fn run(oss: &Oss, request: FenceLayout) -> Attempt<Answer> {
    let _cutting = oss.cutting();
    let ticket = oss.target().admit();
    ticket.turn().await;
    oss.layout_fences.raise(request.fid, request.layout_generation);
    Ok(Answer::read(&Empty {}))
}
