//! Conversions between the kernel's structures and the client's. Pure.
#![allow(clippy::disallowed_types)] // a point in time, as the kernel's structures have it; never the clock

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_client::{Attr, OpenMode, SetTime, WriteAt, WriteOptions, mode};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};

use crate::limits;

/// The kernel's private bit of open flags: the file is opened to be executed.
pub(crate) const FMODE_EXEC: i32 = 0x20;

pub(crate) fn file_type(mode: u32) -> FileType {
    match mode & mode::S_IFMT {
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o040_000 => FileType::Directory,
        0o060_000 => FileType::BlockDevice,
        0o120_000 => FileType::Symlink,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.fid.low),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: system_time(attr.atime_ns),
        mtime: system_time(attr.mtime_ns),
        ctime: system_time(attr.ctime_ns),
        crtime: system_time(attr.btime_ns),
        kind: file_type(attr.mode),
        perm: (attr.mode & mode::PERMISSIONS) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: limits::BLOCK_BYTES,
        flags: 0,
    }
}

pub(crate) fn system_time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Access, modification and change time.
pub(crate) fn times_ns(attr: &FileAttr) -> [i64; 3] {
    [attr.atime, attr.mtime, attr.ctime].map(nanoseconds)
}

/// Nanoseconds since 1970. Times outside the range of 64 bits (1677 to 2262) become the nearest in range.
fn nanoseconds(time: SystemTime) -> i64 {
    let of = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => of(after),
        Err(before) => -of(before.duration()),
    }
}

/// A time to set.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(nanoseconds(time)),
    }
}

/// Flags of open(2) as the kernel passes them on.
pub(crate) fn open_mode(flags: i32) -> OpenMode {
    let access = flags & libc::O_ACCMODE;
    OpenMode {
        read: access == libc::O_RDONLY || access == libc::O_RDWR || flags & FMODE_EXEC != 0,
        write: access == libc::O_WRONLY || access == libc::O_RDWR,
        exclusive: flags & libc::O_EXCL != 0,
        truncate: flags & libc::O_TRUNC != 0,
        // O_SYNC contains this bit.
        sync: flags & libc::O_DSYNC != 0,
        execute: flags & FMODE_EXEC != 0,
    }
}

/// A write at `offset` through a descriptor with these flags. fcntl(2) may have set or cleared O_APPEND, and pwritev2(2)
/// sets the others for one write.
pub(crate) fn write_options(offset: u64, flags: i32) -> WriteOptions {
    let at = if flags & libc::O_APPEND != 0 { WriteAt::End } else { WriteAt::Offset(offset) };
    // O_SYNC contains this bit.
    WriteOptions { at, sync: flags & libc::O_DSYNC != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_the_range_survive() {
        for ns in [0, 1, -1, 1_700_000_000_123_456_789, -86_400_000_000_001, i64::MAX] {
            assert_eq!(set_time(TimeOrNow::SpecificTime(system_time(ns))), SetTime::At(ns));
        }
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(set_time(TimeOrNow::SpecificTime(far)), SetTime::At(i64::MAX));
    }

    #[test]
    fn open_flags_say_what_is_wanted() {
        assert_eq!(open_mode(libc::O_RDONLY), OpenMode::READ);
        assert_eq!(open_mode(libc::O_RDWR), OpenMode::READ_WRITE);
        let log = open_mode(libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_SYNC);
        assert_eq!(log, OpenMode { sync: true, ..OpenMode::WRITE });
        assert!(open_mode(libc::O_RDWR | libc::O_TRUNC | libc::O_EXCL).truncate);
        assert_eq!(open_mode(FMODE_EXEC), OpenMode { execute: true, ..OpenMode::READ });
    }

    #[test]
    fn flags_of_a_write_say_where_it_goes_and_whether_it_is_durable() {
        assert_eq!(write_options(9, libc::O_RDWR), WriteOptions::at(9));
        assert_eq!(write_options(9, libc::O_WRONLY | libc::O_APPEND), WriteOptions::END);
        for flags in [libc::O_DSYNC, libc::O_SYNC] {
            assert_eq!(write_options(9, flags), WriteOptions { sync: true, ..WriteOptions::at(9) });
        }
    }

    #[test]
    fn every_file_type_converts_to_a_kernel_type_of_its_own() {
        assert_eq!(file_type(0o100_644), FileType::RegularFile);
        assert_eq!(file_type(0o041_777), FileType::Directory);
        assert_eq!(file_type(0o140_755), FileType::Socket);
    }
}
