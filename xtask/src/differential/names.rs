//! Calls that make, remove, move and list names.

use std::{collections::BTreeSet, os::fd::AsRawFd};

use super::{
    answer::{Answer, Fact},
    call::{Call, Path},
    place::{Asked2, Place, open_at, owned, text},
    sys::{Arg::*, Asked, sys},
};

const HERE: i64 = libc::AT_FDCWD as i64;
/// Buffer for a few entries, so that a directory takes several calls.
const ROOM: usize = 512;

impl Place {
    /// Makes the call; it takes all calls that the other modules do not.
    pub fn name_call(&mut self, call: &Call) -> Answer {
        match call {
            Call::Mkdir { path, mode } => {
                sys(libc::SYS_mkdirat, &mut [Int(HERE), Text(&text(path)), Int((*mode).into())]).into()
            }
            Call::Rmdir { path } => unlink_at(HERE, path, libc::AT_REMOVEDIR).into(),
            Call::Unlink { path } => unlink_at(HERE, path, 0).into(),
            Call::Unlinkat { dir, path, flags } => unlink_at(self.fd(*dir), path, *flags).into(),
            Call::Rename { from, to } => {
                sys(libc::SYS_renameat2, &mut [Int(HERE), Text(&text(from)), Int(HERE), Text(&text(to)), Int(0)]).into()
            }
            Call::Renameat2 { from, to, flags } => {
                let mut args = [Int(HERE), Text(&text(from)), Int(HERE), Text(&text(to)), Int((*flags).into())];
                sys(libc::SYS_renameat2, &mut args).into()
            }
            Call::Link { from, to } => {
                sys(libc::SYS_linkat, &mut [Int(HERE), Text(&text(from)), Int(HERE), Text(&text(to)), Int(0)]).into()
            }
            Call::LinkSlot { slot, to, by_proc } => {
                let fd = self.fd(*slot);
                let by_path = Path(format!("/proc/thread-self/fd/{fd}").into());
                let (dir, from, flags) = match by_proc {
                    true => (HERE, text(&by_path), libc::AT_SYMLINK_FOLLOW),
                    false => (fd, c"".to_owned(), libc::AT_EMPTY_PATH),
                };
                let mut args = [Int(dir), Text(&from), Int(HERE), Text(&text(to)), Int(flags.into())];
                sys(libc::SYS_linkat, &mut args).into()
            }
            Call::Symlink { target, path } => {
                sys(libc::SYS_symlinkat, &mut [Text(&text(target)), Int(HERE), Text(&text(path))]).into()
            }
            Call::Readlink { path } => {
                let mut room = vec![0; 5000];
                let result = sys(libc::SYS_readlinkat, &mut [Int(HERE), Text(&text(path)), Out(&mut room)]);
                room.truncate(result.unwrap_or(0).max(0) as usize);
                Answer::from(result).with(Fact::Bytes(room))
            }
            Call::Mkfifo { path, mode } => {
                let mode = Int((libc::S_IFIFO | mode).into());
                sys(libc::SYS_mknodat, &mut [Int(HERE), Text(&text(path)), mode, Int(0)]).into()
            }
            Call::List { path, flags } => match open_at(HERE, path, libc::O_NONBLOCK | flags, 0) {
                Ok(fd) => listed(owned(fd).as_raw_fd().into()),
                Err(errno) => Err(errno).into(),
            },
            Call::ListSlot { slot } => {
                let fd = self.fd(*slot);
                let rewind = || sys(libc::SYS_lseek, &mut [Int(fd), Int(0), Int(libc::SEEK_SET.into())]);
                let _ = rewind();
                let answer = listed(fd);
                // The position behind the last entry is the file system's choice, and some are too large for read(2).
                let _ = rewind();
                answer
            }
            Call::ListChanging { path, first, remove, make } => list_changing(path, *first, remove, make),
            Call::Pause { ms } => {
                std::thread::sleep(std::time::Duration::from_millis(*ms));
                Ok(0).into()
            }
            other => unreachable!("nobody makes {other:?}"),
        }
    }
}

fn unlink_at(dir: i64, path: &Path, flags: i32) -> Asked {
    sys(libc::SYS_unlinkat, &mut [Int(dir), Text(&text(path)), Int(flags.into())])
}

/// An entry of a directory.
#[derive(Clone)]
struct Entry {
    name: Vec<u8>,
    kind: u8,
    /// The position behind it, for lseek(2), as from telldir(3).
    after: i64,
}

/// The next entries; empty at the end.
fn next_entries(fd: i64) -> Asked2<Vec<Entry>> {
    let mut room = vec![0; ROOM];
    let length = sys(libc::SYS_getdents64, &mut [Int(fd), Out(&mut room)])?;
    let (mut rest, mut entries) = (&room[..length as usize], Vec::new());
    while rest.len() > 19 {
        let after = i64::from_le_bytes(rest[8..16].try_into().expect("eight bytes"));
        let size: usize = u16::from_le_bytes(rest[16..18].try_into().expect("two bytes")).into();
        let name = rest[19..size].split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        entries.push(Entry { name, kind: rest[18], after });
        rest = &rest[size..];
    }
    Ok(entries)
}

fn all_entries(fd: i64) -> Asked2<Vec<Entry>> {
    let mut entries = Vec::new();
    loop {
        let next = next_entries(fd)?;
        if next.is_empty() {
            return Ok(entries);
        }
        entries.extend(next);
    }
}

/// All entries from the descriptor's position on, sorted, as their order is the file system's choice.
fn listed(fd: i64) -> Answer {
    match all_entries(fd) {
        Ok(entries) => Answer::from(Ok(0)).with(sorted(&entries)),
        Err(errno) => Err(errno).into(),
    }
}

fn sorted(entries: &[Entry]) -> Fact {
    let mut entries: Vec<_> = entries.iter().map(|entry| (entry.name.clone(), entry.kind)).collect();
    entries.sort();
    Fact::Entries(entries)
}

/// Lists a directory while one name is removed and another one made. Names that stay are listed once, the two others at
/// most once. Going back to a position (telldir, seekdir) lists the entries behind it again.
fn list_changing(path: &Path, first: usize, remove: &Path, make: &Path) -> Answer {
    let fd = match open_at(HERE, path, libc::O_NONBLOCK | libc::O_DIRECTORY, 0) {
        Ok(fd) => owned(fd),
        Err(errno) => return Err(errno).into(),
    };
    let fd: i64 = fd.as_raw_fd().into();
    let listed = || -> Asked2<(Vec<Entry>, Vec<Entry>, Vec<Entry>)> {
        let before = match first {
            0 => Vec::new(),
            _ => next_entries(fd)?,
        };
        let place = before.last().map_or(0, |entry| entry.after);
        let rest = all_entries(fd)?;
        let _ = unlink_at(fd, remove, 0);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
        let _ = open_at(fd, make, flags, 0o644).map(owned);
        sys(libc::SYS_lseek, &mut [Int(fd), Int(place), Int(libc::SEEK_SET.into())])?;
        Ok((before, rest, all_entries(fd)?))
    };
    let (before, rest, again) = match listed() {
        Ok(listed) => listed,
        Err(errno) => return Err(errno).into(),
    };
    let touched = |entry: &&Entry| entry.name == remove.0 || entry.name == make.0;
    let stays: Vec<Entry> = before.iter().chain(&again).filter(|entry| !touched(entry)).cloned().collect();
    let names = |entries: &[Entry]| -> BTreeSet<Vec<u8>> {
        entries.iter().filter(|entry| !touched(entry)).map(|entry| entry.name.clone()).collect()
    };
    let same = names(&rest) == names(&again);
    let twice = again.iter().filter(touched).count() > 2;
    let how = if same && !twice { "right" } else { "other names behind the same place" };
    Answer::from(Ok(0)).with(sorted(&stays)).with(Fact::Words("seekdir", how.into()))
}
