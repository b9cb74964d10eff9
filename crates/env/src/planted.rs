//! Planted bugs, to check whether the tests detect them: `cargo run --release -p xtask -- planted`.
//!
//! They exist only with the feature `planted`, and only the one that [`CHOICE`] names is active. Without the feature,
//! [`planted`] is `false` at compile time, and a release contains none of them.
//! Not here: the effect of each (where [`planted`] is called), and which test should detect it (`xtask`, planted).

/// The environment variable that names the bug of a run.
pub const CHOICE: &str = "FOREBAY_PLANTED";

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// The name by which it is chosen: `some-bug` of `SomeBug`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => {
                        const NAME: [u8; kebab_length(stringify!($bug))] = kebab(stringify!($bug));
                        match std::str::from_utf8(&NAME) {
                            Ok(name) => name,
                            Err(_) => panic!("names are ASCII"),
                        }
                    })*
                }
            }
        }
    };
}

bugs! {
    /// A record of the journal is accepted whatever its sum.
    JournalSumSkipped,
    /// An OST takes any request for an object from any node of the cluster.
    CapabilityNotChecked,
    /// A tenant's node reaches every inode whose fid it knows.
    TenantNotConfined,
    /// A tenant's node acts as whichever user it names.
    TenantsUserBelieved,
    /// The owner that a mapped tenant's node sets with a Close is taken for an id of the file system.
    IdMapForgottenAtClose,
    /// A mapped tenant's node is shown the file system's ids in listings.
    IdMapSkippedInListings,
    /// Open connections of a banned node go on.
    BanNotHeard,
    /// A token lets a second host in.
    TokenServesTwice,
    /// A host without a certificate may do what a node may.
    StrangerBelieved,
    /// Records of one key have the same nonce as the sixteenth before them.
    NonceRepeated,
    /// A record of the journal counts as durable when it is written, not when it is flushed.
    JournalNotFlushed,
    /// The anchor counts as durable when it is written: the ring before it is reused.
    AnchorNotFlushed,
    /// Everything before a record counts as durable when the record is, even if an earlier record is still in flight.
    DurableOverAHole,
    /// Recovery builds on what it accepted before that is flushed.
    RecoveredNotFlushed,
    /// Records that recovery accepted, and that are not known to be durable, are flushed but not written again.
    RecoveredNotRewritten,
    /// An anchor of the journal is accepted whatever its sum.
    AnchorSumSkipped,
    /// The header of a run is accepted whatever its sum.
    RunHeaderSumSkipped,
    /// A run is accepted in any slab, and any opening of a slab, in which it is found: also if it was written
    /// elsewhere, or earlier.
    RunPlaceUnchecked,
    /// The length of a misplaced run (at the place of another run of its slab) is believed.
    MisplacedRunTrusted,
    /// The last transaction of the journal is not redone.
    LastRedoSkipped,
    /// Commits do not flush the data device before the record.
    DataNotFlushed,
    /// Writes are acknowledged before the device has their bytes.
    WriteNotAwaited,
    /// A failed flush of the data device is treated as successful.
    FlushErrorIgnored,
    /// Checkpoints do not flush their pages before the anchor.
    CheckpointNotFlushed,
    /// An emptied slab is reused before the commit of the change that emptied it.
    SlabReusedEarly,
    /// Tombstones are not written: a rebuild finds deleted data.
    TombstonesSkipped,
    /// A rebuild treats rotten bytes as a write that was cut off.
    RotTakenForTorn,
    /// A client keeps cached bytes of a file when it writes them.
    OwnWriteNotForgotten,
    /// The sizes that a kernel acts by are not watched.
    SizesNotWatched,
    /// The kernel keeps pages from before a write.
    StalePagesKept,
    /// Pages are written back whole, even if a write came after they were read.
    StalePageWritten,
    /// A client caches bytes that it read, although a crash may undo them.
    UncommittedKept,
    /// A restarted OST forgets what it had granted.
    GrantsForgotten,
    /// A client uses cached bytes of a file after its lease has ended.
    BytesOutliveLease,
    /// fsync does not wait for the open of the handle through which the file was written.
    OpensNotSynced,
    /// Bytes are read without a check of their sums.
    ReadSumSkipped,
    /// An OST accepts bytes that do not match their writer's sums.
    WriteSumSkipped,
    /// An OST forgets to remove the bytes beyond a truncate.
    TruncateKeepsBytes,
    /// Writes from before a truncate are accepted after it.
    TruncateEpochIgnored,
    /// Requests under a layout from before a fence are accepted.
    LayoutFenceIgnored,
    /// Other clients read bytes whose writer has no reply yet.
    UnacknowledgedShown,
    /// Other clients read an append once its reply has left, although the append may get another offset if the reply is
    /// lost.
    UnacknowledgedAppendShown,
    /// The reply to a write reports a size from another writer that has no reply yet.
    UnacknowledgedSizeShown,
    /// A replayed append gets another offset than before the crash, although other clients report its offset.
    AppendOffsetForgotten,
    /// A file is as long as its append reservations, before their bytes are written.
    ReservationShownEmpty,
    /// The home accepts bytes for a cancelled reservation over a later append.
    AppendsDoNotFence,
    /// Bytes of a cancelled append stay beyond the end of the file.
    CancelledBytesLeft,
    /// OSTs accept bytes for a reservation that another append has now.
    ReservationNotFenced,
    /// A client that closes a file does not ask for the outcome of a change that an OST has not replied to.
    UnansweredNotAsked,
    /// Of two syncs that overlap only one reports a loss.
    LossReportedToOne,
    /// A request that is sent again is executed again.
    ReplyCacheDropped,
    /// A fence is replied to, but has no effect.
    FenceSkipped,
    /// Requests to an earlier incarnation are executed.
    OldIncarnationServed,
    /// Replays run as they arrive, not in the order of their transnos.
    ReplaysUnordered,
    /// Replays are replied to, not executed.
    ReplaysSkipped,
    /// A replay that was executed already is executed again.
    ReplaysRepeated,
    /// Replies do not wait for the requested commit.
    CommitLevelIgnored,
    /// Changes acknowledged at level `memory` and not applied yet are neither waited for nor shown.
    EarlyRepliesIgnored,
    /// The commit level of a file or directory is ignored, at the MDT and at clients.
    LevelOfInodeIgnored,
    /// Other clients' changes are shown, and built upon, before they are durable.
    CommitOnShareSkipped,
    /// A client pins nothing for replay.
    NothingKeptForReplay,
    /// A client drops entries that a newer incarnation has not executed.
    ReplayListMixesIncarnations,
    /// A client does not report what an eviction lost.
    LossNotReported,
    /// Attributes of an open file change for a user whom the kernel takes for its owner, although another mount gave
    /// the file to another owner.
    StaleOwnerTrusted,
    /// A replay takes the time of its execution: file times that were shown before the crash are later afterwards.
    ReplayTakesNewTime,
    /// A client acknowledges recalls and goes on using the leases.
    RecallIgnored,
    /// Buffered bytes that are sent overtake older ones of the same place.
    OlderBytesOvertaken,
    /// The size is not raised after buffered bytes that went to several OSTs.
    BufferedSizeNotRaised,
    /// A sync does not wait for buffered bytes that are on their way.
    SyncMissesSending,
    /// A read does not wait for the client's own buffered bytes that are on their way.
    ReadMissesSending,
    /// A data-write lease is returned before the buffered writes were sent: the client reports that they are, and they are not.
    FlushedBeforeSent,
    /// A client returns a directory's lease before its delayed changes are applied.
    EntriesLeaseReturnedEarly,
    /// The MDT applies a delayed change although the lease that it was acknowledged under has ended.
    LateChangeMade,
    /// A client with delayed changes does not report that after a restart of the MDT.
    NamesNotReclaimed,
    /// `..` is looked up among the cached entries of a directory.
    DotDotFromCache,
    /// A close does not send the deferred atime.
    AccessTimeNotSent,
    /// A deferred atime moves the change time.
    AccessMovesChangeTime,
    /// Another client is shown the links of a file whose entry was removed.
    ExclusiveFileShown,
    /// A statahead lookup returns other names without leases on their inodes.
    StataheadUnleased,
    /// A client does not acknowledge the recall of the last lease that it had.
    LastRecallNotAcknowledged,
    /// A client that claimed ranges of a file accesses other ranges without withdrawing the claim.
    ClaimNotTakenBack,
    /// A file with byte-range write leases of several clients is opened without a recall.
    RangeLeasesNotRecalled,
    /// The withdrawal of a claim is replied to before other clients have sent what they buffer.
    ClaimEndNotAwaited,
    /// Overlapping claims count as disjoint.
    OverlappingClaimsGranted,
    /// Bytes that came with an open are read even if the file has changed since.
    InlineBytesNotAsked,
    /// A client writes to the OSTs of a file that is inline at the MDT.
    InlineNotOutlined,
    /// The inline bound of a file or directory is ignored.
    InlineBoundIgnored,
    /// The MDT makes a file inline that other handles have open.
    InlineTakenFromOthers,
    /// The inline bytes of a file are removed from the MDT before they are on its OSTs.
    OutlinedBeforeWritten,
    /// The MDT reports that a file is outlined before it is durable that the inline bytes are gone.
    OutlineEndNotSynced,
    /// A data-write lease is returned before the attributes that were set under it are sent.
    AttributesNotSettled,
    /// Writes on a pending create are buffered only after the file was truncated.
    PendingWritesLate,
    /// Buffered writes that are sent after a time was set change it.
    SetTimeUndone,
    /// OSTs are not notified of a time that is set while others write: those writes do not move it.
    SetTimeNotReported,
    /// A client gives an object id to two files.
    FidReused,
    /// A client sends requests that it began before its eviction as the client instance that it is afterwards.
    InstanceSurvived,
    /// The MDT grants what an evicted client held before the client is fenced.
    GrantedBeforeFence,
    /// An unlinked file is destroyed although it is open.
    OpenFileReaped,
    /// The objects of a removed file are not destroyed.
    ObjectsLeaked,
    /// A file that a rename replaces keeps its link.
    ReplacedKeepsLink,
    /// Locks are not reclaimed after a restart of the MDT.
    LocksNotReclaimed,
    /// A store goes on serving after its files were deleted.
    DeletedServed,
    /// The root directory of a new MDT belongs to root, whichever user owns the cluster.
    RootOwnedByRoot,
    /// Bytes that came together with the end of a TLS handshake are thrown away.
    BytesBehindHandshakeLost,
    /// A client takes any node of the cluster for the MDT.
    RoleNotChecked,
    /// A node may resume the session of another.
    SessionOfAnyNode,
    /// Frames of a session that come by several streams are handled in the order in which they come.
    FramesAsTheyCome,
}

/// The length of [`kebab`].
const fn kebab_length(name: &str) -> usize {
    let bytes = name.as_bytes();
    let (mut length, mut at) = (bytes.len(), 1);
    while at < bytes.len() {
        length += bytes[at].is_ascii_uppercase() as usize;
        at += 1;
    }
    length
}

/// `SomeBug` as `some-bug`. A capital letter begins a word.
const fn kebab<const LENGTH: usize>(name: &str) -> [u8; LENGTH] {
    let bytes = name.as_bytes();
    let mut kebab = [b'-'; LENGTH];
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() {
        to += (from > 0 && bytes[from].is_ascii_uppercase()) as usize;
        kebab[to] = bytes[from].to_ascii_lowercase();
        (from, to) = (from + 1, to + 1);
    }
    kebab
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
    fn the_name_of_a_bug_is_its_variant_in_kebab_case() {
        assert_eq!(Bug::EntriesLeaseReturnedEarly.name(), "entries-lease-returned-early");
        assert_eq!(Bug::DurableOverAHole.name(), "durable-over-a-hole");
        assert_eq!(Bug::FidReused.name(), "fid-reused");
    }

    #[cfg(not(feature = "planted"))]
    #[test]
    fn a_program_without_the_feature_has_none() {
        assert!(Bug::ALL.iter().all(|bug| !planted(*bug)));
    }
}
