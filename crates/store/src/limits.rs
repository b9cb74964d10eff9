//! Every bound of the store, with its reason.

use std::time::Duration;

/// The sector every structure is aligned to.
pub const SECTOR: u64 = 4096;
/// Smallest slab: it must hold its header and a run with one whole block (64 KiB). Sites use 1 MiB and more.
pub const SLAB_BYTES_MIN: u64 = 128 << 10;
/// Usual slab.
pub const SLAB_BYTES_DEFAULT: u64 = 16 << 20;
/// Fewest slabs of a store: the reserved ones, and as many for data.
pub const SLABS_MIN: u64 = 12;
/// Longest fragment a caller may place.
pub const FRAGMENT_BYTES: u64 = 4 << 20;
/// Longest extent in the index: what a scan must look back to find everything that covers an offset.
pub const EXTENT_BYTES: u64 = FRAGMENT_BYTES;
/// A run is closed when its payload reaches this.
pub const RUN_BYTES: u64 = 4 << 20;
/// With this many bytes queued, a run is written without waiting for more fragments while the device is not busy.
pub const RUN_BYTES_EAGER: u64 = 1 << 20;
/// Most fragments of one run (bounds its header).
pub const RUN_FRAGMENTS: usize = 1024;
/// Device writes in flight at once: enough for the raw rate of an SSD.
pub const WRITES_IN_FLIGHT: usize = 16;
/// From this many runs in flight on, only runs of full length are written: the device is busy, and each write has a
/// cost.
pub const MIDDLE_RUNS_IN_FLIGHT: usize = 4;
/// From this many runs in flight on, small fragments wait to share the next run.
pub const SMALL_RUNS_IN_FLIGHT: usize = 2;
/// Default of [`crate::OpenOptions::commit_interval`].
pub const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Default of [`crate::OpenOptions::commits_in_flight`].
pub const COMMITS_UNDER_WAY: u32 = 2;
/// Commit latencies are forgotten after this long without a commit.
pub const PACE_TERM: Duration = Duration::from_secs(30);
/// After this long without a change an empty record attests the last lsn.
pub const ATTEST_AFTER: Duration = Duration::from_millis(100);
/// Dirty leaves beyond this start a checkpoint (less on small devices, see `recovery`).
pub const DIRTY_BYTES: u64 = 64 << 20;
/// Bytes of index pages that a checkpoint writes at a time.
pub const CHECKPOINT_BATCH_BYTES: u64 = 512 << 10;
/// Live bytes that the cleaner moves at a time.
pub const COMPACT_BATCH_BYTES: u64 = 4 << 20;
/// Journal bytes for one piece that the cleaner moves: one row is deleted, another is put.
pub const MOVED_ROW_BYTES: u64 = 256;
/// Background cleaning stops after it has emptied more than this many slabs without one more being free.
pub const BACKGROUND_FRUITLESS: u32 = 16;
/// The cleaner reads pieces that lie closer together than this in one read: reading the garbage in between costs less
/// than another request.
pub const COMPACT_GAP_BYTES: u64 = 512 << 10;
/// When slabs for checkpoints are short, a slab is emptied if that gains more than 1/n of it.
pub const LEAST_GAIN_PART: u64 = 32;
/// A slab that the cleaner could not empty is tried again after this long: the cause may have passed.
pub const STUCK_FOR: Duration = Duration::from_secs(30);
/// Slabs that the cleaner empties in parallel: enough to keep a device busy.
pub const VICTIMS_AT_ONCE: usize = 4;
/// On a device of many slabs: free slabs reserved for the cleaner beyond those for checkpoints, to move data to.
pub const CLEANER_SLABS: u32 = 4;
/// One slab in this many is reserved for the cleaner.
pub const CLEANER_SLABS_PART: u32 = 64;
/// Largest slab that the cleaner reads as a whole.
pub const IMAGE_BYTES: u64 = 32 << 20;
/// Callers are quiet when they have sent no request for this long: background cleaning begins.
pub const QUIET: Duration = Duration::from_millis(100);
/// Background cleaning continues until one slab in this many is free. Beyond that it empties only slabs that gain half.
pub const BACKGROUND_FREE_PART: u32 = 4;
/// Passes of the cleaner over one slab whose contents change meanwhile.
pub const COMPACT_ROUNDS: usize = 3;
/// How often a read repeats its index lookup because its bytes moved meanwhile.
pub const READ_RETRIES: usize = 4;
/// Two device reads closer together than this are merged.
pub const READ_GAP_BYTES: u64 = 16 << 10;
/// Longest device read of one piece.
pub const READ_BYTES: u64 = 4 << 20;
/// Slabs in which a failed run is tried before its writer gets the error (other writes succeeded meanwhile).
pub const PLACE_RETRIES: u32 = 8;
/// The store stops after writes have failed in this many slabs one after another, with no success in between. Then the
/// device is bad, not single locations on it. Recovery passes over no fewer slabs when it searches for those opened
/// last.
pub const SUSPECT_SLABS: usize = RECOVERY_SLABS_SCANNED;
/// How long the store's own writes wait for space on a thin-provisioned device before they are tried again.
pub const THIN_RETRY: Duration = Duration::from_secs(1);
/// After failed writes with no slab left to try: how long the writer waits for a slab to become free. Then the store
/// stops.
pub const STRANDED: Duration = Duration::from_secs(5);
/// Bytes of the index for one extent besides its sums, and of its descriptor in a run: counted as used together with
/// the data.
pub const EXTENT_OVERHEAD_BYTES: u64 = 96;
/// Largest slab: locations within a slab are 32 bits.
pub const SLAB_BYTES_MAX: u64 = 1 << 30;
/// Smallest journal.
pub const JOURNAL_BYTES_MIN: u64 = crate::journal::RING_BYTES_MIN + 2 * SECTOR;
/// Most free slabs, beyond the reserved ones, that the cleaner tries to keep ready.
pub const SLABS_IN_HAND: u32 = 64;

/// Most slabs of a store: the pieces of a checkpoint's slab snapshot are listed in one anchor.
pub const fn slabs_max(slab_bytes: u64) -> u64 {
    let piece = if slab_bytes / 4 < 1 << 20 { slab_bytes / 4 } else { 1 << 20 };
    piece / 21 * SNAPSHOT_PIECES
}

/// Pieces of a slab snapshot that an anchor lists.
pub const SNAPSHOT_PIECES: u64 = 100;
const _: () = assert!(5 + 28 * SNAPSHOT_PIECES as usize <= crate::journal::EXTRA_BYTES_MAX);

/// Index pages read at one time for one caller.
pub const PAGES_LOADED_AT_ONCE: usize = 32;
/// Slabs, the last opened first, in whose runs recovery searches for the highest durable lsn. The open ones are among
/// them.
pub const RECOVERY_SLABS_SCANNED: usize = 8;
/// Dirty leaves below this never start a checkpoint.
pub const DIRTY_BYTES_MIN: u64 = 128 << 10;

/// Journal payload reserved for the store's own rows (bad slabs) and attests, beside what callers apply.
pub const OWN_ROWS_BYTES: u64 = SECTOR;
/// A checkpoint starts when more than this part (1/n) of all slabs has been opened since the last one.
pub const OPENED_SINCE_CHECKPOINT: usize = 4;

/// Bytes of the two labels behind each part of a mirrored store. (format)
pub const MIRROR_LABEL_BYTES: u64 = 2 * SECTOR;
/// How often the store checks whether the copies of a mirrored store still exist, and whether new ones do.
pub const MIRROR_WATCH: Duration = Duration::from_secs(1);
/// A copy that does not answer for this long, while the other one does, is left behind.
pub const MIRROR_STUCK: Duration = Duration::from_secs(20);
/// A copy with more locations than this that stay bad after a repair is left behind.
pub const MIRROR_BAD_PLACES: usize = 64;
/// How long a start waits for a copy to answer before it counts as missing. Then an operator is needed.
pub const MIRROR_START: Duration = Duration::from_secs(60);
/// How long a copy that was left behind stays out before it is filled again: a copy that fails repeatedly then costs
/// little.
pub const MIRROR_RETRY: Duration = Duration::from_secs(30);
/// Bytes copied at a time when a copy is filled; writes to them wait meanwhile.
pub const MIRROR_CHUNK_BYTES: u64 = 1 << 20;
/// Progress of filling a copy is made durable after this many bytes.
pub const MIRROR_SAVE_BYTES: u64 = 64 << 20;

/// Where the first slot of a shared journal device may begin. (format)
pub const SLOTS_START: u64 = 1 << 20;
/// Slots begin at multiples of this: no full stripe of a device is shared by two journals.
pub const SLOT_ALIGN_BYTES: u64 = 1 << 20;
/// Most slots of one device: as many as a sector lists. (format)
pub const SLOTS_MAX: usize = 63;
/// How long to wait for the lock of the slot directory, which others hold for a few writes only.
pub const SLOTS_WAIT: Duration = Duration::from_secs(30);
/// How often a held lock is tried again.
pub const SLOTS_RETRY: Duration = Duration::from_millis(20);
/// How long an open waits for a locked slot: the requests of a killed process end after the process.
pub const SLOT_WAIT: Duration = Duration::from_secs(3);
/// Bytes copied at a time when a journal moves.
pub const JOURNAL_COPY_BYTES: u64 = 4 << 20;
/// How long a request that waits for space waits for bytes that others have written and not yet put into the index. The
/// time is bounded: those may be replays that wait for the turn of the waiting request.
pub const PINNED_FOR: Duration = Duration::from_secs(1);
/// While a request waits for others to use their promised space, it wakes the cleaner this often. The cleaner then
/// fails those writes for which no slab can be emptied.
pub const PROMISES_LOOK: Duration = Duration::from_millis(20);
