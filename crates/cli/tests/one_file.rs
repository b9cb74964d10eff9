//! One file that several processes write through one mount: which end of file other processes see. Needs root and
//! /dev/fuse; without them the tests say so and skip.
//!
//! The kernel admits one write at a time past the end that it knows. No optimization of that may show a program an end
//! that the file does not have (docs/decisions/0022).
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // plays the user

mod common;

use std::{
    fs::{self, File, OpenOptions},
    io::Error,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
};

use common::{Scratch, mounts::Mounts};

const PAGE: i64 = 4096;
const RECORD: i64 = 47_008;
const WRITERS: i64 = 4;

/// The result of a system call, or its errno.
fn done(returned: i64) -> Result<i64, i32> {
    let errno = || Error::last_os_error().raw_os_error().expect("an errno");
    if returned >= 0 { Ok(returned) } else { Err(errno()) }
}

fn open(path: &Path, flags: i32) -> File {
    let write = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let read = flags & libc::O_ACCMODE != libc::O_WRONLY;
    let opened =
        OpenOptions::new().read(read).write(write).create(write).truncate(false).custom_flags(flags).open(path);
    opened.expect("it opens")
}

fn seek(file: &File, whence: i32) -> i64 {
    // SAFETY: a descriptor that is open.
    done(unsafe { libc::lseek(file.as_raw_fd(), 0, whence) }).expect("a place")
}

fn size_as_kept(file: &File) -> i64 {
    // SAFETY: all zeros are an answer, which the call fills in.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an open descriptor, a string, and an answer that outlive the call.
    let told_it = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_SIZE, &mut told) };
    assert_eq!(told_it, 0);
    told.stx_size as i64
}

/// pwritev2(2) at the end, by its flag alone. `offset` -1 moves the descriptor's offset.
fn append(file: &File, bytes: &[u8], offset: i64) -> Result<i64, i32> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an open descriptor, and bytes that outlive the call.
    done(unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, offset, libc::RWF_APPEND) } as i64)
}

fn set_append(file: &File, on: bool) {
    // SAFETY: a descriptor that is open.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, if on { libc::O_APPEND } else { 0 }) };
    assert_eq!(set, 0);
}

/// A pipe with enough capacity for one call of these tests.
struct Pipe(File, File);

impl Pipe {
    fn new() -> Self {
        let mut ends = [0; 2];
        // SAFETY: two numbers that the call fills in.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
        // SAFETY: descriptors that were just opened, and are nobody else's.
        let [read, write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
        // SAFETY: a descriptor that is open.
        assert!(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) } >= 1 << 20);
        Self(read, write)
    }

    /// How many bytes sendfile(2) moves from `offset` on. The pipe is empty again afterwards.
    fn moved(&self, from: &File, offset: i64) -> i64 {
        let mut at = offset;
        // SAFETY: open descriptors, and a place that outlives the call.
        let moved = unsafe { libc::sendfile(self.1.as_raw_fd(), from.as_raw_fd(), &mut at, 300_000) };
        let moved = done(moved as i64).expect("sent");
        let mut left = moved;
        let mut bytes = [0u8; 4096];
        while left > 0 {
            // SAFETY: an open descriptor, and memory that outlives the call.
            left -= done(unsafe { libc::read(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) } as i64)
                .expect("what was sent is there");
        }
        moved
    }
}

/// A mapping of the first bytes of a file.
struct Mapping(*mut libc::c_void, usize);

impl Mapping {
    fn new(file: &File, kind: i32, bytes: usize) -> Self {
        // SAFETY: a new mapping, somewhere.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, kind, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", Error::last_os_error());
        Self(at, bytes)
    }

    /// Touches a byte by a system call. That fails with EFAULT where a program would get SIGBUS.
    fn touch(&self, offset: i64, pipe: &Pipe) -> Result<i64, i32> {
        assert!((offset as usize) < self.1);
        // SAFETY: within the mapping; the kernel looks whether anything is there.
        let touched = unsafe { libc::write(pipe.1.as_raw_fd(), self.0.byte_add(offset as usize), 1) };
        let touched = done(touched as i64)?;
        let mut byte = 0u8;
        // SAFETY: an open descriptor, and a byte that outlives the call.
        assert_eq!(unsafe { libc::read(pipe.0.as_raw_fd(), (&raw mut byte).cast(), 1) }, 1);
        Ok(touched)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and used no more.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// The end of file as all kinds of calls report it, while two descriptors extend the file in turns. Every step begins
/// with such an extension, after which no call has asked for the size.
fn ends(dir: &Path) -> Vec<(&'static str, Result<i64, i32>)> {
    let path = dir.join("f");
    let (one, two, reader) = (open(&path, libc::O_RDWR), open(&path, libc::O_RDWR), open(&path, libc::O_RDONLY));
    let (pipe, mut end, mut told) = (Pipe::new(), 0i64, Vec::new());
    let mut grow = |told: &mut Vec<_>, what, look: &dyn Fn(i64) -> Result<i64, i32>| {
        for (number, file) in [&one, &two].into_iter().cycle().take(8).enumerate() {
            file.write_all_at(&[number as u8 + 1; 40_001], end as u64).expect("written");
            end += 40_001;
        }
        told.push((what, look(end)));
        end = fs::metadata(&path).expect("there").len() as i64;
        told.push((what, Ok(end)));
    };
    grow(&mut told, "sendfile of the last bytes", &|end| Ok(pipe.moved(&reader, end - 10)));
    grow(&mut told, "sendfile at the end", &|end| Ok(pipe.moved(&reader, end)));
    grow(&mut told, "sendfile beyond the end", &|end| Ok(pipe.moved(&reader, end + 3 * PAGE)));
    grow(&mut told, "read of the last bytes", &|end| {
        Ok(reader.read_at(&mut [0; 100], end as u64 - 10).expect("read") as i64)
    });
    grow(&mut told, "read beyond the end", &|end| {
        Ok(reader.read_at(&mut [0; 100], end as u64 + 10).expect("read") as i64)
    });
    grow(&mut told, "SEEK_END", &|_| Ok(seek(&reader, libc::SEEK_END)));
    grow(&mut told, "the size, not asked for anew", &|_| Ok(size_as_kept(&reader)));
    grow(&mut told, "RWF_APPEND with a place", &|_| append(&one, &[9; 7], 0));
    grow(&mut told, "RWF_APPEND", &|_| append(&one, &[9; 7], -1));
    grow(&mut told, "the place after RWF_APPEND", &|_| append(&two, &[9; 7], -1).map(|_| seek(&two, libc::SEEK_CUR)));
    grow(&mut told, "the place after an append", &|_| {
        set_append(&one, true);
        // SAFETY: an open descriptor, and bytes that outlive the call.
        let written = done(unsafe { libc::write(one.as_raw_fd(), b"123".as_ptr().cast(), 3) } as i64);
        set_append(&one, false);
        written.map(|_| seek(&one, libc::SEEK_CUR))
    });
    grow(&mut told, "append by another", &|_| {
        let third = OpenOptions::new().append(true).open(&path).expect("it opens");
        // SAFETY: an open descriptor, and bytes that outlive the call.
        let written = done(unsafe { libc::write(third.as_raw_fd(), b"12345".as_ptr().cast(), 5) } as i64);
        written.map(|_| seek(&third, libc::SEEK_CUR))
    });
    let room = |end: i64| (end + 64 * PAGE) as usize;
    grow(&mut told, "a page beyond the end", &|end| {
        Mapping::new(&reader, libc::MAP_PRIVATE, room(end)).touch(end + 2 * PAGE, &pipe)
    });
    grow(&mut told, "the last page", &|end| Mapping::new(&reader, libc::MAP_PRIVATE, room(end)).touch(end, &pipe));
    grow(&mut told, "truncate and SEEK_END", &|end| {
        // SAFETY: a descriptor that is open.
        done(unsafe { libc::ftruncate(two.as_raw_fd(), end - 50_000) }.into()).map(|_| seek(&two, libc::SEEK_END))
    });
    grow(&mut told, "fallocate", &|end| {
        // SAFETY: a descriptor that is open.
        done(unsafe { libc::fallocate(two.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, end, 100_000) }.into())
            .map(|_| seek(&reader, libc::SEEK_END))
    });
    grow(&mut told, "SEEK_DATA at the end", &|end| {
        // SAFETY: a descriptor that is open.
        done(unsafe { libc::lseek(reader.as_raw_fd(), end, libc::SEEK_DATA) })
    });
    grow(&mut told, "a shared page beyond the end", &|end| {
        Mapping::new(&reader, libc::MAP_SHARED, room(end)).touch(end + 2 * PAGE, &pipe)
    });
    told
}

/// The results must be those of the local file system.
#[test]
fn the_end_of_a_file_that_two_make_longer_is_told_as_by_the_local_file_system() {
    let Some(mounts) = Mounts::new("one-end") else { return };
    let local = Scratch::new("one-end-local");
    let (here, there) = (ends(&mounts.first), ends(Path::new(local.path())));
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(here, there, "here, and on the local file system");
    }
}

/// What the processes know about each other's progress.
#[derive(Default)]
struct Shared {
    /// No byte lies at or behind this offset: no write there has begun.
    begun: AtomicI64,
    /// The file has at least this length: a write that ended there has returned.
    done: AtomicI64,
    /// Bytes that appenders may have added.
    appended: AtomicI64,
    stop: AtomicBool,
}

/// Memory that child processes share with this one.
fn shared() -> &'static Shared {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, somewhere, of zeros, which are what `Shared` begins with.
    unsafe {
        let memory = libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast::<Shared>()
    }
}

/// Processes that run `work`, which makes only system calls.
struct Children(Vec<libc::pid_t>);

impl Children {
    fn new(count: i64, work: impl Fn(i64) -> bool) -> Self {
        let child = |number| {
            // SAFETY: the child makes system calls only, and ends without running anything of this process.
            match unsafe { libc::fork() } {
                0 => {
                    let well = work(number);
                    // SAFETY: it ends.
                    unsafe { libc::_exit(if well { 0 } else { 1 }) }
                }
                child => child,
            }
        };
        Self((0..count).map(child).collect())
    }

    fn wait(self) {
        for child in self.0 {
            let mut status = 0;
            // SAFETY: a child of ours, and a number that outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "a process failed");
        }
    }
}

/// The writers: each writes every fourth record, with its own bytes, through its own descriptor.
fn writers(path: &Path, records: i64, shared: &'static Shared) -> Children {
    let files: Vec<File> = (0..WRITERS).map(|_| open(path, libc::O_WRONLY)).collect();
    let bytes: Vec<Vec<u8>> = (0..WRITERS).map(|number| vec![number as u8 + 1; RECORD as usize]).collect();
    Children::new(WRITERS, |number| {
        let (file, bytes) = (files[number as usize].as_raw_fd(), &bytes[number as usize]);
        (0..records).all(|record| {
            let at = (record * WRITERS + number) * RECORD;
            shared.begun.fetch_max(at + RECORD, SeqCst);
            // SAFETY: an open descriptor, and bytes that outlive the call.
            let written = unsafe { libc::pwrite(file, bytes.as_ptr().cast(), bytes.len(), at) };
            shared.done.fetch_max(at + RECORD, SeqCst);
            written as i64 == RECORD
        })
    })
}

/// Checks the end of file until told to stop. Each check must see at least what was written before it, and at most what
/// was begun.
fn watch(path: &Path, shared: &Shared, cuts: bool) -> [u64; 2] {
    let (file, pipe) = (open(path, libc::O_RDONLY), Pipe::new());
    let mapping = Mapping::new(&file, libc::MAP_PRIVATE, 4 << 30);
    let mut looks = [0; 2];
    while !shared.stop.load(SeqCst) {
        for (way, what) in ["fstat", "stat", "SEEK_END", "sendfile", "read", "a mapping"].into_iter().enumerate() {
            let least = if cuts { 0 } else { shared.done.load(SeqCst) };
            let end = match way {
                0 => file.metadata().expect("there").size() as i64,
                1 => fs::metadata(path).expect("there").size() as i64,
                2 => seek(&file, libc::SEEK_END),
                3 => least + pipe.moved(&file, least),
                4 => least + file.read_at(&mut [0; 20_000], least as u64).expect("read") as i64,
                _ => {
                    let beyond = shared.begun.load(SeqCst) + (64 << 20);
                    let touched = mapping.touch(beyond, &pipe);
                    assert_eq!(touched, Err(libc::EFAULT), "a mapping shows what is not there");
                    least
                }
            };
            let most = shared.begun.load(SeqCst) + shared.appended.load(SeqCst);
            assert!(least <= end && end <= most, "{what}: {least} <= {end} <= {most}");
            looks[0] += 1;
            looks[1] += u64::from(end < most);
        }
    }
    looks
}

/// Whether the bytes are the four writers' records in order. With `zeros`, bytes may also be zero because they were
/// truncated.
fn whole(bytes: &[u8], zeros: bool) -> bool {
    let is = |(number, record): (usize, &[u8])| {
        let own = (number as i64 % WRITERS) as u8 + 1;
        record.iter().all(|byte| *byte == own || zeros && *byte == 0)
    };
    bytes.chunks(RECORD as usize).enumerate().all(is)
}

#[test]
fn a_file_that_four_processes_write_is_seen_as_it_grows_and_is_whole_at_the_end() {
    let Some(mounts) = Mounts::new("one-file") else { return };
    let (path, records) = (mounts.first.join("f"), 600);
    File::create_new(&path).expect("made");
    let seen = shared();
    let writing = writers(&path, records, seen);
    let watching = std::thread::spawn({
        let path = path.clone();
        move || watch(&path, seen, false)
    });
    writing.wait();
    seen.stop.store(true, SeqCst);
    let looks = watching.join().expect("no lie");
    eprintln!("{} looks, {} of them while writes were on their way", looks[0], looks[1]);
    let bytes = fs::read(mounts.second.join("f")).expect("the other mount reads it");
    assert_eq!(bytes.len() as i64, records * WRITERS * RECORD);
    assert!(whole(&bytes, false));
}

#[test]
fn appends_and_truncates_beside_four_writers_see_correct_size() {
    let Some(mounts) = Mounts::new("one-cut") else { return };
    let (path, records) = (mounts.first.join("f"), 400);
    File::create_new(&path).expect("made");
    let seen = shared();
    let writing = writers(&path, records, seen);
    let changing = std::thread::spawn({
        let path = path.clone();
        move || {
            let file = open(&path, libc::O_RDWR);
            let mut changes = 0;
            while !seen.stop.load(SeqCst) {
                seen.appended.fetch_add(10, SeqCst);
                let place = match changes % 3 {
                    0 => append(&file, &[0; 10], -1).map(|_| seek(&file, libc::SEEK_CUR)),
                    1 => {
                        set_append(&file, true);
                        // SAFETY: an open descriptor, and bytes that outlive the call.
                        let written =
                            done(unsafe { libc::write(file.as_raw_fd(), [0u8; 10].as_ptr().cast(), 10) } as i64);
                        set_append(&file, false);
                        written.map(|_| seek(&file, libc::SEEK_CUR))
                    }
                    _ => {
                        let half = seek(&file, libc::SEEK_END) / 2;
                        // SAFETY: a descriptor that is open.
                        done(unsafe { libc::ftruncate(file.as_raw_fd(), half) }.into()).map(|_| half)
                    }
                };
                let (place, most) = (place.expect("done"), seen.begun.load(SeqCst) + seen.appended.load(SeqCst));
                assert!(place <= most, "change {changes}: {place} <= {most}");
                changes += 1;
            }
            changes
        }
    });
    let watching = std::thread::spawn({
        let path = path.clone();
        move || watch(&path, seen, true)
    });
    writing.wait();
    seen.stop.store(true, SeqCst);
    let (changes, looks) = (changing.join().expect("no lie"), watching.join().expect("no lie"));
    eprintln!("{changes} changes, {} looks", looks[0]);
    let bytes = fs::read(mounts.second.join("f")).expect("the other mount reads it");
    assert!(whole(&bytes, true), "every byte is its writer's, or zero");
}
