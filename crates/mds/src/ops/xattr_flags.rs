//! The flags of setxattr(2).

use forebay_proto::Errno;

/// `XATTR_CREATE`.
pub const CREATE: u32 = 1;
/// `XATTR_REPLACE`.
pub const REPLACE: u32 = 2;

/// Applies the flags, given whether the attribute `is_there`. Errors: EEXIST, ENODATA.
pub fn check(flags: u32, is_there: bool) -> Result<(), Errno> {
    match is_there {
        true if flags & CREATE != 0 => Err(Errno::EEXIST),
        false if flags & REPLACE != 0 => Err(Errno::ENODATA),
        _ => Ok(()),
    }
}
