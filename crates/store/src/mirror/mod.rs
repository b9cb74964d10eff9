//! A mirrored store: each part (data, journal) is a pair of copies on two devices. The store above does not know this.
//!
//! By its bytes, each directory of a mirrored target is a target of its own. `mirror.path` in it names the other
//! directory, and a label behind each part says what the copy is. Why this is not done in the journal:
//! `docs/decisions/0012`.
//!
//! Invariant: durable means durable on every copy in sync.
//! Invariant: a copy that was left behind counts again only after it was filled anew, byte for byte.

mod device;
mod dirs;
mod judge;
mod label;
mod membership;
#[expect(clippy::module_inception, reason = "the pair itself, which the module is about")]
mod mirror;
mod open;
mod operate;
mod reads;
mod resync;
mod status;
mod watch;

pub(crate) use device::Device;
pub(crate) use dirs::{Dirs, remember};
pub(crate) use label::Part;
pub(crate) use open::{make, newer_identity, open};
pub use operate::MirrorPlace;
pub(crate) use operate::{alone, replace};
pub use status::{CopyState, CopyStatus, MirrorStatus, PartStatus};
