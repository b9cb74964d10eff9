//! Every bound of the store, with its reason.

use std::time::Duration;

/// The sector every structure is aligned to.
pub const SECTOR: u64 = 4096;
/// Smallest slab: it must hold its header and a run with one whole block (64 KiB). Sites use 1 MiB and more.
pub const SLAB_BYTES_MIN: u64 = 128 << 10;
/// Usual slab.
pub const SLAB_BYTES_DEFAULT: u64 = 16 << 20;
/// Fewest slabs of a store: those kept back, and as many for data.
pub const SLABS_MIN: u64 = 12;
/// Longest fragment a caller may place.
pub const FRAGMENT_BYTES: u64 = 4 << 20;
/// Longest extent in the index: what a scan must look back to find everything that covers an offset.
pub const EXTENT_BYTES: u64 = FRAGMENT_BYTES;
/// A run is closed when its payload reaches this.
pub const RUN_BYTES: u64 = 4 << 20;
/// With this much queued a run does not wait for company while the device is not busy.
pub const RUN_BYTES_EAGER: u64 = 1 << 20;
/// Most fragments of one run (bounds its header).
pub const RUN_FRAGMENTS: usize = 1024;
/// Device writes in flight at once: enough for the raw rate of an SSD.
pub const WRITES_IN_FLIGHT: usize = 16;
/// Runs in flight beyond which what waits goes in runs of full length: the device is busy, and each write costs.
pub const MIDDLE_RUNS_IN_FLIGHT: usize = 4;
/// Runs in flight beyond which small fragments wait to share the next run.
pub const SMALL_RUNS_IN_FLIGHT: usize = 2;
/// Default of [`crate::OpenOptions::commit_interval`].
pub const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Default of [`crate::OpenOptions::commits_under_way`].
pub const COMMITS_UNDER_WAY: u32 = 2;
/// What commits took is forgotten when there were none for so long.
pub const PACE_TERM: Duration = Duration::from_secs(30);
/// After this long without a change an empty record attests the last lsn.
pub const ATTEST_AFTER: Duration = Duration::from_millis(100);
/// Dirty leaves beyond this start a checkpoint (smaller on small devices, see `Space`).
pub const DIRTY_BYTES: u64 = 64 << 20;
/// Index pages written at one time by a checkpoint.
pub const CHECKPOINT_BATCH_BYTES: u64 = 512 << 10;
/// Live bytes the cleaner moves at one time.
pub const COMPACT_BATCH_BYTES: u64 = 4 << 20;
/// Journal bytes of one piece that the cleaner moves: a row goes, another comes.
pub const MOVED_ROW_BYTES: u64 = 256;
/// Slabs emptied ahead of need without one more being free, after which the cleaner leaves it at that.
pub const FRUITLESS_AHEAD: u32 = 16;
/// The cleaner reads what lies closer than this in one read: garbage in between costs less than another request.
pub const COMPACT_GAP_BYTES: u64 = 512 << 10;
/// The least that is worth emptying a slab for when slabs for checkpoints are short: one part in so many.
pub const LEAST_GAIN_PART: u64 = 32;
/// A slab that the cleaner could not empty is tried again after this long: what made it fail may be over.
pub const STUCK_FOR: Duration = Duration::from_secs(30);
/// Slabs the cleaner empties side by side: enough to keep a device busy.
pub const VICTIMS_AT_ONCE: usize = 4;
/// Free slabs beyond those of checkpoints that callers leave to the cleaner, on a device of many slabs: room to work in.
pub const CLEANER_SLABS: u32 = 4;
/// One slab in so many is left to the cleaner.
pub const CLEANER_SLABS_PART: u32 = 64;
/// Largest slab that the cleaner reads as a whole.
pub const IMAGE_BYTES: u64 = 32 << 20;
/// Callers are quiet when they asked for nothing this long: the cleaner works ahead.
pub const QUIET: Duration = Duration::from_millis(100);
/// The cleaner works ahead until one slab in so many is free (further only where half of a slab is gained).
pub const FREE_AHEAD: u32 = 4;
/// Rounds the cleaner spends on one slab whose blocks change under it.
pub const COMPACT_ROUNDS: usize = 3;
/// Times a read looks the index up again because the bytes moved meanwhile.
pub const READ_RETRIES: usize = 4;
/// Two device reads closer than this are made one.
pub const READ_GAP_BYTES: u64 = 16 << 10;
/// Longest device read of one piece.
pub const READ_BYTES: u64 = 4 << 20;
/// Slabs a failed run is tried in before its writer is told (other writes succeeded meanwhile).
pub const PLACE_RETRIES: u32 = 8;
/// Slabs in which writes failed one after another, with no success in between, after which the store stops: the device is
/// bad, not places on it. No more than recovery passes over when it looks for the slabs opened last.
pub const SUSPECT_SLABS: usize = RECOVERY_SLABS_SCANNED;
/// How long what the store itself writes waits for room on a thin device before it is tried again.
pub const THIN_RETRY: Duration = Duration::from_secs(1);
/// How long a slab may take to become free where writes failed and none is left to try; then the store stops.
pub const STRANDED: Duration = Duration::from_secs(5);
/// Bytes the index takes for one extent besides its sums, and its descriptor in a run: counted as used with the data.
pub const EXTENT_OVERHEAD_BYTES: u64 = 96;
/// Largest slab: places within a slab are 32 bits.
pub const SLAB_BYTES_MAX: u64 = 1 << 30;
/// Smallest journal.
pub const JOURNAL_BYTES_MIN: u64 = crate::journal::RING_BYTES_MIN + 2 * SECTOR;
/// Slabs the cleaner likes to have in hand beyond those kept back.
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
/// Slabs, the last opened first, whose runs recovery asks for the highest durable lsn. The open ones are among them.
pub const RECOVERY_SLABS_SCANNED: usize = 8;
/// Dirty leaves below this never start a checkpoint.
pub const DIRTY_BYTES_MIN: u64 = 128 << 10;

/// Journal payload kept for the store's own rows (news of bad slabs) and attests beside what callers apply.
pub const OWN_ROWS_BYTES: u64 = SECTOR;
/// A checkpoint is made when more than this part (1/n) of all slabs was opened since the last one.
pub const OPENED_SINCE_CHECKPOINT: usize = 4;

/// Bytes of the two labels behind each part of a mirrored store. (format)
pub const MIRROR_LABEL_BYTES: u64 = 2 * SECTOR;
/// How often it is looked whether the copies of a mirrored store are still there, and whether new ones are.
pub const MIRROR_WATCH: Duration = Duration::from_secs(1);
/// A copy that does not answer for so long, while the other one does, is left behind.
pub const MIRROR_STUCK: Duration = Duration::from_secs(20);
/// Places of one copy that stay bad when they are mended, after which it is left behind.
pub const MIRROR_BAD_PLACES: usize = 64;
/// So long a start waits for a copy before it takes it for missing: then an operator is needed.
pub const MIRROR_START: Duration = Duration::from_secs(60);
/// So long a copy that was left behind stays away before it is filled anew: one that fails again and again costs little.
pub const MIRROR_RETRY: Duration = Duration::from_secs(30);
/// What is copied at a time when a copy is filled; writes to it wait meanwhile.
pub const MIRROR_CHUNK_BYTES: u64 = 1 << 20;
/// After so much of it, how far it came is made durable.
pub const MIRROR_SAVE_BYTES: u64 = 64 << 20;

/// Where the first slot of a shared journal device may begin. (format)
pub const SLOTS_START: u64 = 1 << 20;
/// Slots begin at multiples of this: no full stripe of a device is shared by two journals.
pub const SLOT_ALIGN_BYTES: u64 = 1 << 20;
/// Slots of one device: what a sector lists. (format)
pub const SLOTS_MAX: usize = 63;
/// So long the directory of slots is waited for, which others hold for a few writes only.
pub const SLOTS_WAIT: Duration = Duration::from_secs(30);
/// How often it is tried meanwhile.
pub const SLOTS_RETRY: Duration = Duration::from_millis(20);
/// So long an opening waits for a slot that is locked: what a killed process had in flight ends after it does.
pub const SLOT_WAIT: Duration = Duration::from_secs(3);
/// What is copied at a time when a journal moves.
pub const JOURNAL_COPY_BYTES: u64 = 4 << 20;
/// So long who waits for room waits for bytes that others have placed and not put into the index yet. (Not for good: replays that are
/// placed may wait for the turn of the one that waits.)
pub const PINNED_FOR: Duration = Duration::from_secs(1);
/// Who waits for others to use what they were promised wakes the cleaner so often, which gives up one of them that is stranded.
pub const PROMISES_LOOK: Duration = Duration::from_millis(20);
