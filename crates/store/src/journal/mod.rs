//! Write-ahead journal of one target: two anchors and a ring of records (`docs/format.md`).
//!
//! Invariant: a transaction is recovered whole or not at all, and what is recovered is a prefix of what was appended.
//! Invariant: a bad record below the highest durable lsn that anything intact names is corruption; above
//! it, a torn tail.
//! Invariant: no record is overwritten before an anchor that no longer needs it is durable.
//! Invariant: after a failed write or flush nothing is acknowledged any more; the failure sticks.
//! Not here, but in the store: what a payload means, when to commit or checkpoint, how long to idle before an attest.

mod anchor;
mod error;
mod geometry;
mod judge;
mod limits;
mod record;
mod recover;
mod ring;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;

use bytes::Bytes;
use forebay_env::{AlignedBuf, Disk, EnvResult};
use forebay_proto::{Incarnation, Uuid};

pub use anchor::{Anchor, RootLocation};
pub use error::{JournalError, JournalErrorKind, JournalResult};
pub use limits::{EXTRA_BYTES_MAX, RING_BYTES_MIN};
pub use recover::Recovered;
#[cfg(test)]
pub use recover::Transaction;
pub use writer::Journal;

/// Bytes of the anchors, which come first: they make a device a journal.
pub const ANCHORS_BYTES: u64 = limits::RING_START;

/// The target whose journal begins with these sectors, if an intact anchor says so.
pub fn owner(sectors: &[u8]) -> Option<Uuid> {
    sectors.chunks(limits::SECTOR as usize).take(2).find_map(anchor::owner)
}

/// True if an interrupted write of anchors of `target` may have left these sectors, and nothing else lies there.
pub fn is_begun(sectors: &[u8], target: Uuid) -> bool {
    sectors.chunks(limits::SECTOR as usize).take(2).all(|sector| anchor::is_begun(sector, target))
}

/// Writes zeros over both anchors, durably: the device is no journal any more.
pub async fn blank(disk: &Disk) -> EnvResult<()> {
    let zeros: Bytes = AlignedBuf::zeroed(ANCHORS_BYTES as usize).freeze();
    disk.write_durable(0, vec![zeros]).await?;
    disk.flush().await
}

/// A position in the journal: bytes since its beginning; never wraps; a multiple of the sector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A position between two records, with what the next record must continue from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Checkpoint {
    /// Where the next record begins; redo starts here.
    pub lsn: Lsn,
    /// The incarnation at this position.
    pub incarnation: Incarnation,
    /// Sum of the record that ends here; 0 at the journal's beginning.
    pub prev_sum: u64,
}

/// The owner of the journal; every record and anchor names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    target: Uuid,
    /// Raised by `fsck --repair`: older records then belong to no journal.
    generation: u32,
    /// Random, from the anchor, mixed into every record's sum. So bytes that a user stores in a payload never pass for
    /// a record, whatever else that user knows.
    salt: u64,
}
