//! Messages of advisory locks: flock(2), fcntl(2) and its locks of open file descriptions.

use crate::{Fid, wire_struct};

/// Values of [`LockSpec::kind`]. Locks of different kinds never meet, as on a local file system.
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
    /// Nobody else has any.
    pub const EXCLUSIVE: u32 = 2;
}

/// Values of [`Lock::how`].
pub mod lock_how {
    /// Set it now, or tell who is in the way.
    pub const TRY: u32 = 0;
    /// Change nothing; tell who is in the way.
    pub const TEST: u32 = 1;
    /// Change nothing; answer when nobody is in the way any more, or after a while.
    pub const WAIT: u32 = 2;
}

wire_struct! {
    /// A lock of a range of a file.
    pub struct LockSpec {
        /// [`lock_kind`].
        pub kind: u32,
        /// Within the session: a process or an open file description, as the kernel numbers them.
        pub owner: u64,
        /// [`lock_mode`].
        pub mode: u32,
        /// First byte.
        pub start: u64,
        /// Last byte; `i64::MAX` = all that may ever follow.
        pub end: u64,
        /// The process, to be told to those who ask (F_GETLK).
        pub pid: u32,
        /// The handle it was set through: it is let go of with it.
        pub handle: u64,
    }
}

wire_struct! {
    /// Sets, changes, lets go of, or asks about a lock. The same request again changes nothing.
    pub struct Lock {
        /// Of what.
        pub fid: Fid,
        /// [`lock_how`].
        pub how: u32,
        /// Which.
        pub lock: LockSpec,
    }
}

wire_struct! {
    /// What became of it.
    pub struct LockReply {
        /// It is set (`TRY`), or could be (`TEST`, `WAIT`).
        pub granted: bool,
        /// Somebody in the way, if it is known who.
        pub holder: Option<LockSpec>,
    }
}

wire_struct! {
    /// A lock to bring back.
    pub struct HeldLock {
        /// Of what.
        pub fid: Fid,
        /// Which.
        pub lock: LockSpec,
    }
}
