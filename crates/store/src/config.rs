//! How a store is made and opened.

use std::time::Duration;

use forebay_proto::{TargetId, Uuid};

use crate::{MirrorPlace, limits};

/// What [`crate::Store::format`] makes.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The cluster the target belongs to.
    pub cluster: Uuid,
    /// Which target it is.
    pub target: TargetId,
    /// Bytes of a slab: a multiple of 4096, at least [`limits::SLAB_BYTES_MIN`].
    pub slab_bytes: u64,
    /// Bytes of the device's full stripe: device writes are cut at multiples of it. A multiple of 4096.
    pub stripe_bytes: u64,
    /// A device or file for data instead of `DIR/data`.
    pub data_path: Option<String>,
    /// Bytes of the data file; ignored for block devices.
    pub data_bytes: u64,
    /// A device or file for the journal instead of `DIR/journal`.
    pub journal_path: Option<String>,
    /// Bytes of the journal. A device that the target does not share is used whole.
    pub journal_bytes: u64,
    /// If the device at `journal_path` exists and is blank, several targets may share it from now on: the journal takes
    /// a slot of `journal_bytes` on it. On a device that is already shared, the journal takes a slot in any case.
    pub journal_shared: bool,
    /// The device at `journal_path` may be overwritten, whatever it holds, if it is not shared.
    pub journal_overwrite: bool,
    /// The devices or files given for data may be overwritten, unless they hold journals of several targets.
    pub data_overwrite: bool,
    /// Where the second copy of a mirrored store lies.
    pub mirror: Option<MirrorPlace>,
}

impl FormatOptions {
    /// The usual choices for a target with `data_bytes` of data: slabs of 16 MiB (smaller on small devices), a full
    /// stripe of 1 MiB, a journal of 1/64 of the data between 16 MiB and 1 GiB.
    pub fn new(cluster: Uuid, target: TargetId, data_bytes: u64) -> Self {
        Self {
            cluster,
            target,
            slab_bytes: (data_bytes / 128).next_power_of_two().clamp(1 << 20, limits::SLAB_BYTES_DEFAULT),
            stripe_bytes: 1 << 20,
            data_path: None,
            data_bytes,
            journal_path: None,
            journal_bytes: (data_bytes / 64).next_multiple_of(4096).clamp(16 << 20, 1 << 30),
            journal_shared: false,
            journal_overwrite: false,
            data_overwrite: false,
            mirror: None,
        }
    }
}

/// How [`crate::Store::open`] runs a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bound of the table's cache; `None` keeps everything in memory.
    pub cache_bytes: Option<u64>,
    /// A group of transactions closes, to be committed, at the latest this long after its first change.
    pub commit_interval: Duration,
    /// Most groups of transactions that may be committing at once. 1: each waits for the one before it.
    pub commits_in_flight: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            commit_interval: limits::COMMIT_INTERVAL,
            commits_in_flight: limits::COMMITS_UNDER_WAY,
        }
    }
}
