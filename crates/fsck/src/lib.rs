//! The checker: reads a target's bytes by `docs/format.md` and `docs/format-mdt.md`, and tells what is wrong with them.
//!
//! It shares no code with the store: decoders, recovery and rules are written a second time, so that one is a check of the
//! other. [`check`] looks at one target (from its directory, read-only), [`check_cluster`] compares several, [`repair`] mends
//! what can be mended safely, and makes a lost journal anew.
//!
//! Invariant: nothing on disk makes it panic, or take memory or time without bound; damage is a [`Finding`].
//! Invariant: what it checks is what recovery would have: the last checkpoint and the journal's redo.
//! Not here: rebuilding a table from the slabs (to come).

mod check;
mod cluster;
mod error;
mod finding;
pub mod format;
mod halves;
mod journal;
pub mod limits;
mod media;
mod rebuild;
mod repair;
mod report;
pub mod rows;
mod slabs;
mod table;

use forebay_env::{Boxed, Env};

pub use cluster::{ClusterOptions, Quiet, check_cluster};
pub use error::{FsckError, FsckErrorKind, FsckResult};
pub use finding::{Device, Finding, Kind, Place, Severity};
pub use repair::{RepairOptions, repair};
pub use report::{Inventory, MdtInventory, Report, Stats, exit};

/// How much is checked.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Read all live file data and compare it with its sums.
    pub verify_data: bool,
    /// Check what rows mean. Off: only the store beneath them (for stores that hold rows of no server).
    pub rows: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { verify_data: false, rows: true }
    }
}

/// Checks the target in `dir`, without writing to its devices (it takes the target's lock file).
///
/// Errors: `NoTarget`, `InUse` while it is served, `Unsupported`, `Io`. Damage is no error: it is in the report.
pub fn check<'a>(env: &'a Env, dir: &'a str, options: CheckOptions) -> Boxed<'a, FsckResult<Report>> {
    Box::pin(async move { Ok(check::examine(env, dir, &options, false).await?.report) })
}
