//! Bugs planted on purpose, to see whether the tests notice: `cargo run --release -p xtask -- planted`.
//!
//! Only with the feature `planted` are there any, and only the one that [`CHOICE`] names; without the feature
//! [`planted`] is `false` at compile time, and a release contains none of them.
//! Not here: what each does (where it is asked for), and who should notice (`xtask`, planted).

/// The environment variable that names the bug of a run.
pub const CHOICE: &str = "FOREBAY_PLANTED";

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
        /// What can be broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// How it is chosen.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A record of the journal counts whatever its sum.
    JournalSumSkipped = "journal-sum-skipped",
    /// A record of the journal counts as durable when it is written, not flushed.
    JournalNotFlushed = "journal-not-flushed",
    /// The anchor counts as durable when it is written: the ring before it is used again.
    AnchorNotFlushed = "anchor-not-flushed",
    /// Everything before a record counts as durable when the record is, though one before it is still on its way.
    DurableOverAHole = "durable-over-a-hole",
    /// What recovery accepted is built on before it is flushed.
    RecoveredNotFlushed = "recovered-not-flushed",
    /// What recovery accepted, and nobody knows to be durable, is flushed and not written again.
    RecoveredNotRewritten = "recovered-not-rewritten",
    /// An anchor of the journal counts whatever its sum.
    AnchorSumSkipped = "anchor-sum-skipped",
    /// The header of a run counts whatever its sum.
    RunHeaderSumSkipped = "run-header-sum-skipped",
    /// A run counts for whichever slab, and opening of it, it is found in: also one that was written elsewhere, or before.
    RunPlaceUnchecked = "run-place-unchecked",
    /// A run at the place of another one of its slab is believed in how far it reaches.
    StrayRunBelieved = "stray-run-believed",
    /// The last transaction of the journal is not redone.
    LastRedoSkipped = "last-redo-skipped",
    /// Commits do not flush the data device before the record.
    DataNotFlushed = "data-not-flushed",
    /// Writes are acknowledged before the device has their bytes.
    WriteNotAwaited = "write-not-awaited",
    /// A failed flush of the data device is taken for a good one.
    FlushErrorIgnored = "flush-error-ignored",
    /// Checkpoints do not flush their pages before the anchor.
    CheckpointNotFlushed = "checkpoint-not-flushed",
    /// An emptied slab is used again before the commit of what emptied it.
    SlabReusedEarly = "slab-reused-early",
    /// Tombstones are not written: a rebuild finds what was deleted.
    TombstonesSkipped = "tombstones-skipped",
    /// A rebuild takes rotten bytes for a write that was cut off.
    RotTakenForTorn = "rot-taken-for-torn",
    /// What a client keeps of a file's bytes is not forgotten when it writes them.
    OwnWriteNotForgotten = "own-write-not-forgotten",
    /// Nobody watches the sizes that a kernel acts by.
    SizesNotWatched = "sizes-not-watched",
    /// The kernel keeps pages from before a write.
    StalePagesKept = "stale-pages-kept",
    /// Pages are written back whole, also where a write came after they were read.
    StalePageWritten = "stale-page-written",
    /// A client keeps bytes that it read though a crash may take them back.
    UncommittedKept = "uncommitted-kept",
    /// An OST that was started again does not know what it had granted.
    GrantsForgotten = "grants-forgotten",
    /// A client believes bytes that it keeps of a file whatever became of the lease.
    BytesOutliveLease = "bytes-outlive-lease",
    /// fsync does not wait for the handle through which its file was written.
    OpensNotSynced = "opens-not-synced",
    /// Bytes are read without a look at their sums.
    ReadSumSkipped = "read-sum-skipped",
    /// An OST takes bytes that are not what their writer summed.
    WriteSumSkipped = "write-sum-skipped",
    /// An OST forgets to remove the bytes beyond a truncate.
    TruncateKeepsBytes = "truncate-keeps-bytes",
    /// Writes of before a truncate are taken after it.
    TruncateEpochIgnored = "truncate-epoch-ignored",
    /// Bytes are shown to others whose writer has not been told that they are written.
    UnheardShown = "unheard-shown",
    /// An append is shown to others when its reply has left, though it may lie elsewhere if that is lost.
    UnheardAppendShown = "unheard-append-shown",
    /// Who writes to a file is told of a size that others made, and were not told of.
    UntoldSizeTold = "untold-size-told",
    /// An append that had a place before a crash is given another one, though others tell which it had.
    PlaceForgotten = "place-forgotten",
    /// A file is as long as its appends' places, before their bytes are there.
    PlaceShownEmpty = "place-shown-empty",
    /// The home takes bytes for a place that is void over an append that came meanwhile.
    AppendsDoNotFence = "appends-do-not-fence",
    /// What was written for an append that came to nothing stays beyond the end of its file.
    VoidPlacesLeft = "void-places-left",
    /// OSTs take bytes for a place that was given to another append meanwhile.
    PlaceNotFenced = "place-not-fenced",
    /// A client that closes a file does not ask what became of a change that an OST has not answered.
    UnansweredNotAsked = "unanswered-not-asked",
    /// A request that comes again is executed again.
    ReplyCacheDropped = "reply-cache-dropped",
    /// A fence is answered, and fences nobody.
    FenceSkipped = "fence-skipped",
    /// Requests to an earlier incarnation are executed.
    OldIncarnationServed = "old-incarnation-served",
    /// Replays run as they come, not in the order of their transnos.
    ReplaysUnordered = "replays-unordered",
    /// Replays are answered, not executed.
    ReplaysSkipped = "replays-skipped",
    /// Replies do not wait for the commit that was asked for.
    CommitLevelIgnored = "commit-level-ignored",
    /// What was answered at level `memory` and is not applied yet is neither waited for nor shown.
    HeldIsIgnored = "held-is-ignored",
    /// The commit level of a file or directory counts for nothing, at the MDT and at clients.
    LevelOfInodeIgnored = "level-of-inode-ignored",
    /// What others changed is shown, and built upon, before it is durable.
    CommitOnShareSkipped = "commit-on-share-skipped",
    /// A client keeps nothing for replay.
    NothingKeptForReplay = "nothing-kept-for-replay",
    /// A client drops what a newer incarnation has not executed.
    ReplayListMixesIncarnations = "replay-list-mixes-incarnations",
    /// A client does not tell of what an eviction lost.
    LossNotTold = "loss-not-told",
    /// Attributes of what is open change for whom the kernel takes for its owner, though another mount gave it away.
    OwnerOfBeforeBelieved = "owner-of-before-believed",
    /// A replay takes the time at which it is executed: times of files that were shown before are later afterwards.
    ReplayTakesNewTime = "replay-takes-new-time",
    /// A client acknowledges recalls and goes on believing.
    RecallIgnored = "recall-ignored",
    /// A client says that it has sent what it kept back, and has not.
    FlushedBeforeSent = "flushed-before-sent",
    /// A client gives a directory back before its changes have come to pass.
    NamesGivenBackEarly = "names-given-back-early",
    /// The MDT makes a change that was answered under a lease that has ended.
    LateChangeMade = "late-change-made",
    /// A client with answered changes does not say so after a restart of the MDT.
    NamesNotReclaimed = "names-not-reclaimed",
    /// `..` is looked for among the names of a directory that are kept.
    WayUpTakenForAName = "way-up-taken-for-a-name",
    /// A close does not bring the access time of what was read.
    AccessTimeNotSent = "access-time-not-sent",
    /// An access time that was read moves the change time.
    AccessMovesChangeTime = "access-moves-change-time",
    /// Another client is shown the links of a file whose name was taken away.
    LoneFileShown = "lone-file-shown",
    /// A lookup brings other names with it, and their inodes are not leased.
    NamesAheadUnleased = "names-ahead-unleased",
    /// A client does not say that it has heard of the recall of the last that it kept.
    LastRecallUnsaid = "last-recall-unsaid",
    /// A client that claimed its places in a file looks at others without taking the claim back.
    ClaimNotTakenBack = "claim-not-taken-back",
    /// A file of which several keep something back is opened without a recall.
    SharesNotRecalled = "shares-not-recalled",
    /// A claim that is taken back is answered before others have sent what they keep back.
    ClaimEndNotAwaited = "claim-end-not-awaited",
    /// Claims count as apart wherever they lie.
    MeetingClaimsShared = "meeting-claims-shared",
    /// Bytes that came with an open are read whatever became of the file.
    InlineBytesNotAsked = "inline-bytes-not-asked",
    /// A client writes to OSTs of a file whose bytes lie with the MDT.
    InlineNotOutlined = "inline-not-outlined",
    /// The inline bound of a file or directory counts for nothing.
    InlineBoundIgnored = "inline-bound-ignored",
    /// The MDT takes the bytes of a file that others have open.
    InlineTakenFromOthers = "inline-taken-from-others",
    /// The bytes of a file leave the MDT before they are on its OSTs.
    OutlinedBeforeWritten = "outlined-before-written",
    /// It is told that the bytes of a file are on its OSTs before it is durable that they have left the MDT.
    OutlineEndNotSynced = "outline-end-not-synced",
    /// A lease on data is given back before attributes that were set under it are sent.
    AttributesNotSettled = "attributes-not-settled",
    /// What was written to a file that was still being made is kept back only after it was cut.
    EarlyBytesComeLate = "early-bytes-come-late",
    /// Bytes that are sent after a time was set change it.
    SetTimeUndone = "set-time-undone",
    /// OSTs are not told of a time that is set while others write: what those write does not move it.
    SetTimeNotTold = "set-time-not-told",
    /// A client gives an object id to two files.
    FidReused = "fid-reused",
    /// What a client began before the MDT ended its session it sends afterwards, as the client that it is by then.
    EraSurvived = "era-survived",
    /// The MDT grants what an evicted client held before it is fenced.
    GrantedBeforeFence = "granted-before-fence",
    /// An unlinked file goes although it is open.
    OpenFileReaped = "open-file-reaped",
    /// The objects of a removed file are not destroyed.
    ObjectsLeaked = "objects-leaked",
    /// A file that a rename replaces keeps its link.
    ReplacedKeepsLink = "replaced-keeps-link",
    /// Locks are not reclaimed after a restart of the MDT.
    LocksNotReclaimed = "locks-not-reclaimed",
    /// A store serves on when its files were deleted.
    DeletedServed = "deleted-served",
    /// The root directory of a new MDT belongs to root, whoever owns the cluster.
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
