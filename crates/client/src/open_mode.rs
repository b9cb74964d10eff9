//! How a file is opened.

use forebay_proto::message::open_flags;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Fail if the name exists (create).
    pub exclusive: bool,
    /// Cut to zero bytes.
    pub truncate: bool,
    /// Writes are durable when they return (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// To run it as a program: the handle is there as long as the program runs.
    pub execute: bool,
}

impl OpenMode {
    /// For reading only.
    pub const READ: Self =
        Self { read: true, write: false, exclusive: false, truncate: false, sync: false, execute: false };
    /// For writing only.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For reading and writing.
    pub const READ_WRITE: Self = Self { write: true, ..Self::READ };

    pub(crate) fn flags(self) -> u32 {
        let bit = |on: bool, flag: u32| if on { flag } else { 0 };
        bit(self.read, open_flags::READ)
            | bit(self.write, open_flags::WRITE)
            | bit(self.exclusive, open_flags::EXCLUSIVE)
            | bit(self.truncate, open_flags::TRUNCATE)
    }

    /// What is left of the flags once the file is open.
    pub(super) fn access(self) -> u32 {
        self.flags() & (open_flags::READ | open_flags::WRITE)
    }
}
