//! Planted bugs, to check whether the tests detect them: `cargo run --release -p xtask -- planted`.
//!
//! They exist only with the feature `planted`, and only the one that [`CHOICE`] names is active. Without the feature,
//! [`planted`] is `false` at compile time, and a release contains none of them.
//! Not here: the effect of each (where [`planted`] is called), and which test should detect it (`xtask`, planted).

/// The environment variable that names the bug of a run.
pub const CHOICE: &str = "FOREBAY_PLANTED";

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// The name by which it is chosen.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A record of the journal is accepted whatever its sum.
    JournalSumSkipped = "journal-sum-skipped",
    /// A record of the journal counts as durable when it is written, not when it is flushed.
    JournalNotFlushed = "journal-not-flushed",
    /// The anchor counts as durable when it is written: the ring before it is reused.
    AnchorNotFlushed = "anchor-not-flushed",
    /// Everything before a record counts as durable when the record is, even if an earlier record is still in flight.
    DurableOverAHole = "durable-over-a-hole",
    /// Recovery builds on what it accepted before that is flushed.
    RecoveredNotFlushed = "recovered-not-flushed",
    /// Records that recovery accepted, and that are not known to be durable, are flushed but not written again.
    RecoveredNotRewritten = "recovered-not-rewritten",
    /// An anchor of the journal is accepted whatever its sum.
    AnchorSumSkipped = "anchor-sum-skipped",
    /// The header of a run is accepted whatever its sum.
    RunHeaderSumSkipped = "run-header-sum-skipped",
    /// A run is accepted in any slab, and any opening of a slab, in which it is found: also if it was written
    /// elsewhere, or earlier.
    RunPlaceUnchecked = "run-place-unchecked",
    /// The length of a misplaced run (at the place of another run of its slab) is believed.
    MisplacedRunTrusted = "stray-run-believed",
    /// The last transaction of the journal is not redone.
    LastRedoSkipped = "last-redo-skipped",
    /// Commits do not flush the data device before the record.
    DataNotFlushed = "data-not-flushed",
    /// Writes are acknowledged before the device has their bytes.
    WriteNotAwaited = "write-not-awaited",
    /// A failed flush of the data device is treated as successful.
    FlushErrorIgnored = "flush-error-ignored",
    /// Checkpoints do not flush their pages before the anchor.
    CheckpointNotFlushed = "checkpoint-not-flushed",
    /// An emptied slab is reused before the commit of the change that emptied it.
    SlabReusedEarly = "slab-reused-early",
    /// Tombstones are not written: a rebuild finds deleted data.
    TombstonesSkipped = "tombstones-skipped",
    /// A rebuild treats rotten bytes as a write that was cut off.
    RotTakenForTorn = "rot-taken-for-torn",
    /// A client keeps cached bytes of a file when it writes them.
    OwnWriteNotForgotten = "own-write-not-forgotten",
    /// The sizes that a kernel acts by are not watched.
    SizesNotWatched = "sizes-not-watched",
    /// The kernel keeps pages from before a write.
    StalePagesKept = "stale-pages-kept",
    /// Pages are written back whole, even if a write came after they were read.
    StalePageWritten = "stale-page-written",
    /// A client caches bytes that it read, although a crash may undo them.
    UncommittedKept = "uncommitted-kept",
    /// A restarted OST forgets what it had granted.
    GrantsForgotten = "grants-forgotten",
    /// A client uses cached bytes of a file after its lease has ended.
    BytesOutliveLease = "bytes-outlive-lease",
    /// fsync does not wait for the open of the handle through which the file was written.
    OpensNotSynced = "opens-not-synced",
    /// Bytes are read without a check of their sums.
    ReadSumSkipped = "read-sum-skipped",
    /// An OST accepts bytes that do not match their writer's sums.
    WriteSumSkipped = "write-sum-skipped",
    /// An OST forgets to remove the bytes beyond a truncate.
    TruncateKeepsBytes = "truncate-keeps-bytes",
    /// Writes from before a truncate are accepted after it.
    TruncateEpochIgnored = "truncate-epoch-ignored",
    /// Requests under a layout from before a fence are accepted.
    LayoutFenceIgnored = "layout-fence-ignored",
    /// Other clients read bytes whose writer has no reply yet.
    UnacknowledgedShown = "unacknowledged-shown",
    /// Other clients read an append once its reply has left, although the append may get another offset if the reply is
    /// lost.
    UnacknowledgedAppendShown = "unacknowledged-append-shown",
    /// The reply to a write reports a size from another writer that has no reply yet.
    UnacknowledgedSizeShown = "unacknowledged-size-shown",
    /// A replayed append gets another offset than before the crash, although other clients report its offset.
    AppendOffsetForgotten = "append-offset-forgotten",
    /// A file is as long as its append reservations, before their bytes are written.
    ReservationShownEmpty = "reservation-shown-empty",
    /// The home accepts bytes for a cancelled reservation over a later append.
    AppendsDoNotFence = "appends-do-not-fence",
    /// Bytes of a cancelled append stay beyond the end of the file.
    CancelledBytesLeft = "cancelled-bytes-left",
    /// OSTs accept bytes for a reservation that another append has now.
    ReservationNotFenced = "reservation-not-fenced",
    /// A client that closes a file does not ask for the outcome of a change that an OST has not replied to.
    UnansweredNotAsked = "unanswered-not-asked",
    /// A request that is sent again is executed again.
    ReplyCacheDropped = "reply-cache-dropped",
    /// A fence is replied to, but has no effect.
    FenceSkipped = "fence-skipped",
    /// Requests to an earlier incarnation are executed.
    OldIncarnationServed = "old-incarnation-served",
    /// Replays run as they arrive, not in the order of their transnos.
    ReplaysUnordered = "replays-unordered",
    /// Replays are replied to, not executed.
    ReplaysSkipped = "replays-skipped",
    /// Replies do not wait for the requested commit.
    CommitLevelIgnored = "commit-level-ignored",
    /// Changes acknowledged at level `memory` and not applied yet are neither waited for nor shown.
    EarlyRepliesIgnored = "held-is-ignored",
    /// The commit level of a file or directory is ignored, at the MDT and at clients.
    LevelOfInodeIgnored = "level-of-inode-ignored",
    /// Other clients' changes are shown, and built upon, before they are durable.
    CommitOnShareSkipped = "commit-on-share-skipped",
    /// A client pins nothing for replay.
    NothingKeptForReplay = "nothing-kept-for-replay",
    /// A client drops entries that a newer incarnation has not executed.
    ReplayListMixesIncarnations = "replay-list-mixes-incarnations",
    /// A client does not report what an eviction lost.
    LossNotReported = "loss-not-told",
    /// Attributes of an open file change for a user whom the kernel takes for its owner, although another mount gave
    /// the file to another owner.
    StaleOwnerTrusted = "owner-of-before-believed",
    /// A replay takes the time of its execution: file times that were shown before the crash are later afterwards.
    ReplayTakesNewTime = "replay-takes-new-time",
    /// A client acknowledges recalls and goes on using the leases.
    RecallIgnored = "recall-ignored",
    /// A client reports that it has sent its buffered writes, and has not.
    FlushedBeforeSent = "flushed-before-sent",
    /// A client returns a directory's lease before its delayed changes are applied.
    EntriesLeaseReturnedEarly = "names-given-back-early",
    /// The MDT applies a delayed change although the lease that it was acknowledged under has ended.
    LateChangeMade = "late-change-made",
    /// A client with delayed changes does not report that after a restart of the MDT.
    NamesNotReclaimed = "names-not-reclaimed",
    /// `..` is looked up among the cached entries of a directory.
    DotDotFromCache = "way-up-taken-for-a-name",
    /// A close does not send the deferred atime.
    AccessTimeNotSent = "access-time-not-sent",
    /// A deferred atime moves the change time.
    AccessMovesChangeTime = "access-moves-change-time",
    /// Another client is shown the links of a file whose entry was removed.
    ExclusiveFileShown = "lone-file-shown",
    /// A statahead lookup returns other names without leases on their inodes.
    StataheadUnleased = "names-ahead-unleased",
    /// A client does not acknowledge the recall of the last lease that it had.
    LastRecallNotAcknowledged = "last-recall-unsaid",
    /// A client that claimed ranges of a file accesses other ranges without withdrawing the claim.
    ClaimNotTakenBack = "claim-not-taken-back",
    /// A file with byte-range write leases of several clients is opened without a recall.
    RangeLeasesNotRecalled = "shares-not-recalled",
    /// The withdrawal of a claim is replied to before other clients have sent what they buffer.
    ClaimEndNotAwaited = "claim-end-not-awaited",
    /// Overlapping claims count as disjoint.
    OverlappingClaimsGranted = "meeting-claims-shared",
    /// Bytes that came with an open are read even if the file has changed since.
    InlineBytesNotAsked = "inline-bytes-not-asked",
    /// A client writes to the OSTs of a file that is inline at the MDT.
    InlineNotOutlined = "inline-not-outlined",
    /// The inline bound of a file or directory is ignored.
    InlineBoundIgnored = "inline-bound-ignored",
    /// The MDT makes a file inline that other handles have open.
    InlineTakenFromOthers = "inline-taken-from-others",
    /// The inline bytes of a file are removed from the MDT before they are on its OSTs.
    OutlinedBeforeWritten = "outlined-before-written",
    /// The MDT reports that a file is outlined before it is durable that the inline bytes are gone.
    OutlineEndNotSynced = "outline-end-not-synced",
    /// A data-write lease is returned before the attributes that were set under it are sent.
    AttributesNotSettled = "attributes-not-settled",
    /// Writes on a pending create are buffered only after the file was truncated.
    PendingWritesLate = "early-bytes-come-late",
    /// Buffered writes that are sent after a time was set change it.
    SetTimeUndone = "set-time-undone",
    /// OSTs are not notified of a time that is set while others write: those writes do not move it.
    SetTimeNotReported = "set-time-not-told",
    /// A client gives an object id to two files.
    FidReused = "fid-reused",
    /// A client sends requests that it began before its eviction as the client instance that it is afterwards.
    InstanceSurvived = "instance-survived",
    /// The MDT grants what an evicted client held before the client is fenced.
    GrantedBeforeFence = "granted-before-fence",
    /// An unlinked file is destroyed although it is open.
    OpenFileReaped = "open-file-reaped",
    /// The objects of a removed file are not destroyed.
    ObjectsLeaked = "objects-leaked",
    /// A file that a rename replaces keeps its link.
    ReplacedKeepsLink = "replaced-keeps-link",
    /// Locks are not reclaimed after a restart of the MDT.
    LocksNotReclaimed = "locks-not-reclaimed",
    /// A store goes on serving after its files were deleted.
    DeletedServed = "deleted-served",
    /// The root directory of a new MDT belongs to root, whichever user owns the cluster.
    RootOwnedByRoot = "root-owned-by-root",
}

/// True if `bug` was chosen for this run.
#[cfg(feature = "planted")]
pub fn planted(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var(CHOICE).unwrap_or_default()) == bug.name()
}

/// Never: this program has no planted bugs.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_all_different() {
        let names: std::collections::BTreeSet<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(names.len(), Bug::ALL.len());
    }

    #[cfg(not(feature = "planted"))]
    #[test]
    fn a_program_without_the_feature_has_none() {
        assert!(Bug::ALL.iter().all(|bug| !planted(*bug)));
    }
}
