//! Helpers for tests.

use forebay_client::Attr;
use forebay_proto::Fid;
use fuser::FileAttr;

/// Attributes with this mode; the rest are defaults.
pub fn attr(mode: u32) -> FileAttr {
    crate::convert::file_attr(&Attr {
        fid: Fid::ROOT,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        truncate_epoch: 0,
        attr_epoch: 0,
        flags: 0,
    })
}
