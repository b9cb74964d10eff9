//! Calls that open files, transfer bytes and make them durable.

use std::os::fd::AsRawFd;

use super::{
    answer::{Answer, Fact},
    call::{Call, Data, SlotId},
    place::{PAGE, Place, Slot, open_at, owned, text},
    sys::{Arg::*, Asked, sys},
};

/// Most bytes of a read of a whole file, and of a read of its end.
const WHOLE: usize = 4 << 20;
/// Capacity of a pipe.
const PIPE: usize = 64 << 10;

impl Place {
    /// Makes the call, if it is one of these.
    pub fn data_call(&mut self, call: &Call) -> Option<Answer> {
        Some(match call {
            Call::Open { slot, path, flags, mode } => {
                let opened = open_at(libc::AT_FDCWD.into(), path, *flags, *mode);
                self.keep(*slot, opened, *flags)
            }
            Call::Openat { slot, dir, path, flags, mode } => {
                let opened = open_at(self.fd(*dir), path, *flags, *mode);
                self.keep(*slot, opened, *flags)
            }
            Call::Reopen { slot, from, flags } => {
                let opened = self.reopened(*from, *flags);
                self.keep(*slot, opened, *flags)
            }
            Call::Close { slot } => self.close(*slot).into(),
            Call::Dup { slot, to } => self.dup(*slot, *to),
            Call::SetFlags { slot, flags } => {
                let flags = if self.direct(*slot) { flags & !libc::O_APPEND | libc::O_DIRECT } else { *flags };
                sys(libc::SYS_fcntl, &mut [Int(self.fd(*slot)), Int(libc::F_SETFL.into()), Int(flags.into())]).into()
            }
            Call::GetFlags { slot } => {
                sys(libc::SYS_fcntl, &mut [Int(self.fd(*slot)), Int(libc::F_GETFL.into())]).into()
            }
            Call::Read { .. } | Call::Pread { .. } | Call::Readv { .. } | Call::Preadv2 { .. } => self.read(call),
            Call::Write { .. } | Call::Pwrite { .. } | Call::Writev { .. } | Call::Pwritev2 { .. } => self.write(call),
            Call::Lseek { slot, .. } | Call::SeekData { slot, .. } if self.about[*slot].directory() => Ok(0).into(),
            Call::Lseek { slot, offset, whence } => {
                sys(libc::SYS_lseek, &mut [Int(self.fd(*slot)), Int(*offset), Int((*whence).into())]).into()
            }
            Call::SeekData { slot, offset, whence } => self.seek_data(*slot, *offset, *whence),
            Call::Truncate { path, size } => sys(libc::SYS_truncate, &mut [Text(&text(path)), Int(*size)]).into(),
            Call::Ftruncate { slot, size } => sys(libc::SYS_ftruncate, &mut [Int(self.fd(*slot)), Int(*size)]).into(),
            Call::Fallocate { slot, mode, at, length } => {
                let mode = if self.local { super::known::fallocate_mode(*mode) } else { *mode };
                sys(libc::SYS_fallocate, &mut [Int(self.fd(*slot)), Int(mode.into()), Int(*at), Int(*length)]).into()
            }
            Call::CopyFileRange { .. } | Call::Sendfile { .. } | Call::SpliceIn { .. } | Call::SpliceOut { .. } => {
                self.move_bytes(call)
            }
            Call::Fsync { slot } => sys(libc::SYS_fsync, &mut [Int(self.fd(*slot))]).into(),
            Call::Fdatasync { slot } => sys(libc::SYS_fdatasync, &mut [Int(self.fd(*slot))]).into(),
            Call::SyncFileRange { slot, at, length, flags } => {
                let mut args = [Int(self.fd(*slot)), Int(*at), Int(*length), Int((*flags).into())];
                sys(libc::SYS_sync_file_range, &mut args).into()
            }
            Call::Fadvise { slot, at, length, advice } => {
                let mut args = [Int(self.fd(*slot)), Int(*at), Int(*length), Int((*advice).into())];
                sys(libc::SYS_fadvise64, &mut args).into()
            }
            Call::Contents { path } => match open_at(libc::AT_FDCWD.into(), path, libc::O_RDONLY | libc::O_NONBLOCK, 0)
            {
                Ok(fd) => contents(owned(fd).as_raw_fd().into()),
                Err(errno) => Err(errno).into(),
            },
            _ => return None,
        })
    }

    fn direct(&self, slot: SlotId) -> bool {
        self.slots[slot].as_ref().is_some_and(|open| open.direct)
    }

    /// Puts a descriptor into the slot, in place of the previous one.
    fn keep(&mut self, slot: SlotId, opened: Asked, flags: i32) -> Answer {
        match opened {
            Ok(fd) => {
                let fd = owned(fd);
                if self.slots[slot].is_some() {
                    let _ = self.close(slot);
                }
                self.slots[slot] = Some(Slot { fd, direct: flags & libc::O_DIRECT != 0 });
                Ok(0).into()
            }
            Err(errno) => Err(errno).into(),
        }
    }

    /// Closes a file that only one of the two file systems has opened.
    pub fn forget(&mut self, slot: SlotId) {
        self.slots[slot] = None;
    }

    /// close(2). Locks that the last close of an open file releases become free a moment later on a mount (posix.md,
    /// "Locks"), so they are released first.
    fn close(&mut self, slot: SlotId) -> Asked {
        let Some(open) = self.slots[slot].take() else { return sys(libc::SYS_close, &mut [Int(-1)]) };
        self.unlock(open.fd.as_raw_fd().into());
        use std::os::fd::IntoRawFd;
        sys(libc::SYS_close, &mut [Int(open.fd.into_raw_fd().into())])
    }

    fn dup(&mut self, slot: SlotId, to: SlotId) -> Answer {
        let direct = self.direct(slot);
        let doubled = sys(libc::SYS_fcntl, &mut [Int(self.fd(slot)), Int(libc::F_DUPFD_CLOEXEC.into()), Int(0)]);
        self.keep(to, doubled, if direct { libc::O_DIRECT } else { 0 })
    }

    /// Opens the same file once more, even if it has no name.
    pub fn reopened(&self, slot: SlotId, flags: i32) -> Asked {
        match self.fd(slot) {
            -1 => Err(libc::EBADF),
            fd => open_at(
                libc::AT_FDCWD.into(),
                &super::call::Path(format!("/proc/thread-self/fd/{fd}").into()),
                flags,
                0,
            ),
        }
    }

    /// The file position after a call, if both file systems define it.
    fn position(&self, slot: SlotId) -> Fact {
        let fd = self.fd(slot);
        if self.setup.mounts > 1 && self.appends(fd) {
            let _ = sys(libc::SYS_lseek, &mut [Int(fd), Int(0), Int(libc::SEEK_SET.into())]);
        }
        let at = match self.about[slot].directory() {
            // The positions of directory entries are the file system's choice.
            true => Ok(0),
            false => sys(libc::SYS_lseek, &mut [Int(fd), Int(0), Int(libc::SEEK_CUR.into())]),
        };
        Fact::Words("position", format!("{at:?}"))
    }

    fn same_file(&self, one: SlotId, other: SlotId) -> bool {
        one == other || self.about[one].inode == self.about[other].inode
    }

    fn appends(&self, fd: i64) -> bool {
        let flags = sys(libc::SYS_fcntl, &mut [Int(fd), Int(libc::F_GETFL.into())]);
        flags.is_ok_and(|flags| flags & i64::from(libc::O_APPEND) != 0)
    }

    fn read(&mut self, call: &Call) -> Answer {
        let slot = call.slot().expect("a read has a slot");
        let (counts, at, flags) = match call {
            Call::Read { count, .. } => (vec![*count], None, 0),
            Call::Pread { count, at, .. } => (vec![*count], Some(*at), 0),
            Call::Readv { counts, .. } => (counts.clone(), None, 0),
            Call::Preadv2 { counts, at, flags, .. } => (counts.clone(), Some(*at), *flags),
            _ => unreachable!("only reads come here"),
        };
        if self.direct(slot) {
            return self.read_direct(slot, counts[0], at.unwrap_or(0));
        }
        let fd = self.fd(slot);
        let mut room: Vec<Vec<u8>> = counts.iter().map(|count| vec![0; *count]).collect();
        let result = match (call, at) {
            (Call::Read { .. }, _) => sys(libc::SYS_read, &mut [Int(fd), Out(&mut room[0])]),
            (Call::Pread { .. }, Some(at)) => sys(libc::SYS_pread64, &mut [Int(fd), Out(&mut room[0]), Int(at)]),
            (_, Some(at)) => {
                let mut args = [Int(fd), Vectors(&mut room), Int(at), Int(0), Int(flags.into())];
                sys(libc::SYS_preadv2, &mut args)
            }
            (_, None) => sys(libc::SYS_readv, &mut [Int(fd), Vectors(&mut room)]),
        };
        let mut bytes = room.concat();
        bytes.truncate(result.unwrap_or(0).max(0) as usize);
        Answer::from(result).with(Fact::Bytes(bytes)).with(self.position(slot))
    }

    /// Rounds to whole pages: a local file system refuses anything else.
    fn read_direct(&mut self, slot: SlotId, count: usize, at: i64) -> Answer {
        let (count, at) = (count.next_multiple_of(PAGE as usize), at / PAGE * PAGE);
        let mut room = vec![0; count + PAGE as usize];
        let skip = room.as_ptr().align_offset(PAGE as usize);
        let result = sys(libc::SYS_pread64, &mut [Int(self.fd(slot)), Out(&mut room[skip..skip + count]), Int(at)]);
        let read = result.unwrap_or(0).max(0) as usize;
        Answer::from(result).with(Fact::Bytes(room[skip..skip + read].to_vec()))
    }

    fn write(&mut self, call: &Call) -> Answer {
        let slot = call.slot().expect("a write has a slot");
        let (data, at, flags) = match call {
            Call::Write { data, .. } => (vec![*data], None, 0),
            Call::Pwrite { data, at, .. } => (vec![*data], Some(*at), 0),
            Call::Writev { data, .. } => (data.clone(), None, 0),
            Call::Pwritev2 { data, at, flags, .. } => (data.clone(), Some(*at), *flags),
            _ => unreachable!("only writes come here"),
        };
        if self.direct(slot) {
            return self.write_direct(slot, data[0], at.unwrap_or(0));
        }
        let fd = self.fd(slot);
        let mut bytes: Vec<Vec<u8>> = data.iter().map(|data| data.bytes()).collect();
        let result = match (call, at) {
            (Call::Write { .. }, _) => sys(libc::SYS_write, &mut [Int(fd), In(&bytes[0])]),
            (Call::Pwrite { .. }, Some(at)) => sys(libc::SYS_pwrite64, &mut [Int(fd), In(&bytes[0]), Int(at)]),
            (_, Some(at)) => {
                let mut args = [Int(fd), Vectors(&mut bytes), Int(at), Int(0), Int(flags.into())];
                sys(libc::SYS_pwritev2, &mut args)
            }
            (_, None) => sys(libc::SYS_writev, &mut [Int(fd), Vectors(&mut bytes)]),
        };
        Answer::from(result).with(self.position(slot))
    }

    fn write_direct(&mut self, slot: SlotId, data: Data, at: i64) -> Answer {
        let (length, at) = (data.length.next_multiple_of(PAGE as usize), at / PAGE * PAGE);
        let bytes = Data { length, ..data }.bytes();
        let mut room = vec![0; length + PAGE as usize];
        let skip = room.as_ptr().align_offset(PAGE as usize);
        room[skip..skip + length].copy_from_slice(&bytes);
        sys(libc::SYS_pwrite64, &mut [Int(self.fd(slot)), In(&room[skip..skip + length]), Int(at)]).into()
    }

    /// SEEK_DATA and SEEK_HOLE: a file system may report a hole as data, and chooses the unit. So the check compares
    /// the errno, and that the offset is in the file and skips no byte that is not zero. The position is restored.
    fn seek_data(&mut self, slot: SlotId, offset: i64, whence: i32) -> Answer {
        let fd = self.fd(slot);
        let before = sys(libc::SYS_lseek, &mut [Int(fd), Int(0), Int(libc::SEEK_CUR.into())]);
        let found = sys(libc::SYS_lseek, &mut [Int(fd), Int(offset), Int(whence.into())]);
        if let Ok(before) = before {
            let _ = sys(libc::SYS_lseek, &mut [Int(fd), Int(before), Int(libc::SEEK_SET.into())]);
        }
        let Ok(stat) = self.stat_of(fd) else { return found.into() };
        let (size, data) = (stat.size as i64, whence == libc::SEEK_DATA);
        match found {
            // The rest is a hole, or the file system does not report holes.
            Err(libc::ENXIO) if data && offset >= 0 && offset < size => {
                Answer::from(Ok(0)).with(self.skipped(fd, offset, size))
            }
            Ok(found) if offset >= 0 && (found < offset || found > size || (data && found == size)) => {
                let said = format!("at {found} of {size} bytes, asked from {offset} on");
                Answer::from(Ok(0)).with(Fact::Words("place", said))
            }
            Ok(found) if data => Answer::from(Ok(0)).with(self.skipped(fd, offset, found)),
            Ok(_) => Answer::from(Ok(0)).with(Fact::Words("place", "right".into())),
            Err(errno) => Err(errno).into(),
        }
    }

    /// True if all bytes of a range are zeros; only the first and last mebibyte are read.
    fn skipped(&self, fd: i64, from: i64, until: i64) -> Fact {
        let some = 1 << 20;
        let zeros = |from: i64, until: i64| {
            let mut room = vec![0; (until - from) as usize];
            let _ = sys(libc::SYS_pread64, &mut [Int(fd), Out(&mut room), Int(from)]);
            room.iter().position(|byte| *byte != 0).map(|at| from + at as i64)
        };
        let data = zeros(from, until.min(from + some)).or_else(|| zeros(from.max(until - some), until));
        let said =
            data.map_or("right".to_owned(), |at| format!("called a hole from {from} to {until}, with data at {at}"));
        Fact::Words("place", said)
    }

    fn move_bytes(&mut self, call: &Call) -> Answer {
        match call {
            Call::CopyFileRange { from, from_at, to, to_at, count } => {
                if self.direct(*from) || self.direct(*to) {
                    return Ok(0).into();
                }
                let (source, _kept) = self.fresh(*from, libc::O_RDONLY);
                let (mut done, mut left) = (0, *count as i64);
                let (mut from_room, mut to_room) = (from_at.map(i64::to_le_bytes), to_at.map(i64::to_le_bytes));
                let result = loop {
                    let from_place = from_room.as_mut().map_or(Int(0), |room| Struct(room));
                    let to_place = to_room.as_mut().map_or(Int(0), |room| Struct(room));
                    let mut args = [Int(source), from_place, Int(self.fd(*to)), to_place, Int(left), Int(0)];
                    match sys(libc::SYS_copy_file_range, &mut args) {
                        Ok(0) => break Ok(done),
                        Ok(copied) => (done, left) = (done + copied, left - copied),
                        Err(errno) if done == 0 => break Err(errno),
                        Err(_) => break Ok(done),
                    }
                    if left <= 0 {
                        break Ok(done);
                    }
                };
                Answer::from(result).with(self.position(*from)).with(self.position(*to))
            }
            Call::Sendfile { from, at, to, count } => {
                // Within one file the copy reads pages that it overwrites meanwhile: the result is undefined.
                if self.direct(*from) || self.direct(*to) || self.same_file(*from, *to) {
                    return Ok(0).into();
                }
                let (source, _kept) = self.fresh(*from, libc::O_RDONLY);
                let mut room = at.map(i64::to_le_bytes);
                let place = room.as_mut().map_or(Int(0), |room| Struct(room));
                let result = sys(libc::SYS_sendfile, &mut [Int(self.fd(*to)), Int(source), place, Int(*count as i64)]);
                Answer::from(result).with(self.position(*from)).with(self.position(*to))
            }
            Call::SpliceIn { slot, at, data } => {
                if self.direct(*slot) {
                    return Ok(0).into();
                }
                let (read, write) = pipe();
                let bytes = Data { length: data.length.min(PIPE), ..*data }.bytes();
                let _ = sys(libc::SYS_write, &mut [Int(write.as_raw_fd().into()), In(&bytes)]);
                drop(write);
                let mut room = at.map(i64::to_le_bytes);
                let place = room.as_mut().map_or(Int(0), |room| Struct(room));
                let mut args =
                    [Int(read.as_raw_fd().into()), Int(0), Int(self.fd(*slot)), place, Int(bytes.len() as i64), Int(0)];
                Answer::from(sys(libc::SYS_splice, &mut args)).with(self.position(*slot))
            }
            Call::SpliceOut { slot, at, count } => {
                if self.direct(*slot) {
                    return Ok(0).into();
                }
                let (source, _kept) = self.fresh(*slot, libc::O_RDONLY);
                let mut room = at.map(i64::to_le_bytes);
                let (mut bytes, mut left) = (Vec::new(), *count);
                let result = loop {
                    let (read, write) = pipe();
                    let place = room.as_mut().map_or(Int(0), |room| Struct(room));
                    let some = left.min(PIPE) as i64;
                    let mut args = [Int(source), place, Int(write.as_raw_fd().into()), Int(0), Int(some), Int(0)];
                    match sys(libc::SYS_splice, &mut args) {
                        Err(errno) if bytes.is_empty() => break Err(errno),
                        Ok(0) | Err(_) => break Ok(bytes.len() as i64),
                        Ok(moved) => {
                            let mut some = vec![0; moved as usize];
                            let _ = sys(libc::SYS_read, &mut [Int(read.as_raw_fd().into()), Out(&mut some)]);
                            bytes.extend(some);
                            left -= moved as usize;
                        }
                    }
                    if left == 0 {
                        break Ok(bytes.len() as i64);
                    }
                };
                Answer::from(result).with(Fact::Bytes(bytes)).with(self.position(*slot))
            }
            _ => unreachable!("only calls that move bytes come here"),
        }
    }

    /// The descriptor for reads through the page cache. With several mounts a new one is opened, as an older one may
    /// show earlier contents again (posix.md, "Mappings").
    pub fn fresh(&self, slot: SlotId, flags: i32) -> (i64, Option<std::os::fd::OwnedFd>) {
        if self.setup.mounts == 1 || self.about[slot].path_only {
            return (self.fd(slot), None);
        }
        match self.reopened(slot, flags | libc::O_NONBLOCK) {
            Ok(fd) => (fd, Some(owned(fd))),
            // The file has no name any more, or may not be opened: use the existing descriptor.
            Err(_) => (self.fd(slot), None),
        }
    }
}

fn pipe() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    let mut ends = [0; 8];
    sys(libc::SYS_pipe2, &mut [Struct(&mut ends), Int((libc::O_CLOEXEC | libc::O_NONBLOCK).into())]).expect("a pipe");
    let end = |at: usize| owned(i32::from_le_bytes(ends[at..at + 4].try_into().expect("four bytes")).into());
    (end(0), end(4))
}

/// The contents of a file; for a long file its beginning and its end.
fn contents(fd: i64) -> Answer {
    let mut room = vec![0; WHOLE];
    let read = |room: &mut [u8], at: i64| sys(libc::SYS_pread64, &mut [Int(fd), Out(room), Int(at)]);
    let result = read(&mut room, 0);
    let Ok(length) = result else { return result.into() };
    room.truncate(length as usize);
    let end = sys(libc::SYS_lseek, &mut [Int(fd), Int(0), Int(libc::SEEK_END.into())]).unwrap_or(0);
    let mut last = vec![0; PIPE];
    let from = (end - PIPE as i64).max(0);
    let length = read(&mut last, from).unwrap_or(0).max(0) as usize;
    last.truncate(length);
    Answer::from(result).with(Fact::Bytes(room)).with(Fact::Words("end", end.to_string())).with(Fact::Bytes(last))
}
