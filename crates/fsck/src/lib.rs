//! The checker: reads a target's bytes according to `docs/format.md` and `docs/format-mdt.md`, and reports what is
//! wrong with them.
//!
//! It shares no code with the store. Decoders, recovery and rules are written a second time, so that each
//! implementation checks the other. [`check`] examines one target (by its directory, read-only). [`check_cluster`]
//! compares several. [`repair`] repairs what is safe to repair, and rebuilds a lost journal.
//!
//! Invariant: nothing on disk makes it panic, or use unbounded memory or time. Damage is a [`Finding`].
//! Invariant: it checks the state that recovery would produce: the last checkpoint and the journal's redo.
//! Not here: rebuilding a damaged table from the slabs (to come). Only an OST that lost its journal is rebuilt from its
//! slabs.

mod check;
mod cluster;
mod error;
mod examined;
mod finding;
pub mod format;
mod halves;
mod journal;
pub mod limits;
mod lost;
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
pub use repair::RepairOptions;
pub use report::{Inventory, MdtInventory, Report, Stats, exit};

/// What to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Read all live file data and verify its checksums.
    pub verify_data: bool,
    /// Check the contents of rows. If false, check only the store beneath them, for stores whose rows belong to no
    /// server.
    pub rows: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { verify_data: false, rows: true }
    }
}

/// Checks the target in `dir`, without writing to its devices (it takes the target's lock file).
///
/// Errors: `NoTarget`, `InUse` while it is served, `Unsupported`, `Io`. Damage is not an error: it is in the report.
pub fn check<'a>(env: &'a Env, dir: &'a str, options: CheckOptions) -> Boxed<'a, FsckResult<Report>> {
    Box::pin(async move { Ok(check::examine(env, dir, &options, false).await?.report) })
}

/// Checks the target in `dir` and repairs what it can; makes a lost journal anew. The report says what was repaired.
///
/// Errors: as for [`check`], `Unsupported` also if this program may only read the target, and `CannotRepair` if the
/// damage is deeper than repair can handle yet; then nothing was changed.
pub fn repair<'a>(env: &'a Env, dir: &'a str, options: RepairOptions) -> Boxed<'a, FsckResult<Report>> {
    Box::pin(async move {
        repair::refuse_what_may_only_be_read(env, dir)?;
        match lost::lost(env, dir).await? {
            Some(lost) => rebuild::rebuild(env, dir, &options, lost).await,
            None => repair::repair(env, dir, &options).await,
        }
    })
}
