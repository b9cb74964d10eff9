//! Messages of advisory locks: flock(2), fcntl(2) and its open file description locks.

use crate::{Fid, wire_struct};

/// Values of [`LockSpec::kind`]. Locks of different kinds never conflict, as on a local file system.
pub mod lock_kind {
    /// fcntl(2): of a process, or of an open file description; any range.
    pub const FCNTL: u32 = 1;
    /// flock(2): of an open file description; always the whole file.
    pub const FLOCK: u32 = 2;
}

/// Values of [`LockSpec::mode`].
pub mod lock_mode {
    /// Not locked.
    pub const NONE: u32 = 0;
    /// Others may share it.
    pub const SHARED: u32 = 1;
    /// No other owner has a lock.
    pub const EXCLUSIVE: u32 = 2;
}

/// Values of [`Lock::how`].
pub mod lock_how {
    /// Set the lock now, or report a conflicting one.
    pub const TRY: u32 = 0;
    /// Change nothing; report a conflicting lock.
    pub const TEST: u32 = 1;
    /// Change nothing; reply when no lock conflicts any more, or after a while.
    pub const WAIT: u32 = 2;
}

wire_struct! {
    /// A lock of a range of a file.
    pub struct LockSpec {
        /// [`lock_kind`].
        pub kind: u32,
        /// Identifies the owner within the session: a process or an open file description, as the kernel numbers them.
        pub owner: u64,
        /// [`lock_mode`].
        pub mode: u32,
        /// First byte.
        pub start: u64,
        /// Last byte; `i64::MAX` = to the end of the file, however long it becomes.
        pub end: u64,
        /// The process, reported by F_GETLK.
        pub pid: u32,
        /// The handle that it was set through: the lock is released when that is closed.
        pub handle: u64,
    }
}

wire_struct! {
    /// Sets, changes, releases or tests a lock. A repeated request changes nothing.
    pub struct Lock {
        /// The file.
        pub fid: Fid,
        /// [`lock_how`].
        pub how: u32,
        /// The lock.
        pub lock: LockSpec,
    }
}

wire_struct! {
    /// The result of a [`Lock`].
    pub struct LockReply {
        /// It is set (`TRY`), or could be (`TEST`, `WAIT`).
        pub granted: bool,
        /// A conflicting lock, if one is known.
        pub holder: Option<LockSpec>,
    }
}

wire_struct! {
    /// A lock to reclaim.
    pub struct HeldLock {
        /// The file.
        pub fid: Fid,
        /// The lock.
        pub lock: LockSpec,
    }
}
