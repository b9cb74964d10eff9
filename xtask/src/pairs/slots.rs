//! Threads that change one file. Each has its own slots in the same pages and changes them in all ways: by mappings, by
//! writes past the mappings, by punches, copies and truncates.
//!
//! Each thread knows what its slots hold, and reads them through the mapping and through read(2). Some slots only count
//! up: the other threads check that these never go back, whichever way they read. One thread also owns the bytes behind
//! all slots: it truncates them, appends to them, and leaves gaps. At the end the whole file is read once more, also
//! through another mount.
//!
//! Any two ways may meet in a page; the number of meetings of each pair is counted.

use std::{
    ffi::CString,
    fs::File,
    io::{Error, Read},
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr::NonNull,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const PAGE: usize = 4096;
/// Pages that all threads share. The tail begins in the last one.
const PAGES: usize = 6;
/// Distance between two slots in bytes.
const STEP: usize = 64;
/// Offset of the tail.
const TAIL: usize = PAGES * PAGE - 1000;
/// Bytes that are mapped.
const MAPPED: usize = (PAGES + 4) * PAGE;
/// Operations per thread before all threads start over with another file.
const OPERATIONS: usize = 400;

macro_rules! ways {
    ($($way:ident = $name:literal,)*) => {
        /// How a thread changes a slot, or what it does to a page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Way { $($way,)* }

        /// All ways with their names.
        pub const WAYS: &[(Way, &str)] = &[$((Way::$way, $name),)*];
    };
}

ways! {
    Store = "store",
    Write = "write",
    WriteDurably = "write (RWF_DSYNC)",
    Copy = "copy_file_range",
    Punch = "punch",
    Zero = "zero range",
    Reserve = "fallocate",
    Sync = "msync",
    Fdatasync = "fdatasync",
    Forget = "madvise (DONTNEED)",
    Drop = "fadvise (DONTNEED)",
    Reopen = "open and close",
    Look = "load and read",
    Cut = "truncate",
    Append = "append",
    Gap = "write behind the end",
    Grow = "truncate to more",
}

const CUTS: &[Way] = &[Way::Cut, Way::Append, Way::Gap, Way::Grow];

/// How often two ways met in a page: the first by one thread, then the second by another.
pub struct Met(Vec<AtomicU64>);

impl Met {
    fn new() -> Self {
        Self((0..WAYS.len() * WAYS.len()).map(|_| AtomicU64::new(0)).collect())
    }

    /// The possible pairs that never met.
    pub fn missing(&self) -> Vec<String> {
        let name = |way: usize| WAYS[way].1;
        let tails = |way: usize| CUTS.contains(&WAYS[way].0);
        let all = (0..WAYS.len()).flat_map(|one| (0..WAYS.len()).map(move |other| (one, other)));
        // A way that only one thread uses cannot meet itself.
        let possible = all.filter(|(one, other)| !(tails(*one) && tails(*other)));
        let never = possible.filter(|(one, other)| self.0[one * WAYS.len() + other].load(Relaxed) == 0);
        never.map(|(one, other)| format!("{} then {}", name(one), name(other))).collect()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(|met| met.load(Relaxed)).sum()
    }
}

/// What a run did.
pub struct Done {
    pub rounds: u64,
    pub operations: u64,
    pub met: Met,
}

/// Runs `threads` threads in `dir` for `time`, at least one round. `other`: the same directory on another mount.
/// Errors: the first wrong bytes or size.
pub fn run(dir: &Path, other: Option<&Path>, threads: usize, time: Duration, seed: u64) -> Result<Done, String> {
    let (begun, mut done) = (Instant::now(), Done { rounds: 0, operations: 0, met: Met::new() });
    while done.rounds == 0 || begun.elapsed() < time {
        let seed = seed.wrapping_add(done.rounds);
        let failed = |what| format!("{threads} threads, round {} of seed {seed}: {what}", done.rounds);
        round(dir, other, threads, seed, &done.met).map_err(failed)?;
        done.rounds += 1;
        done.operations += (threads * OPERATIONS) as u64;
    }
    Ok(done)
}

/// What the threads of a round share.
struct Shared<'a> {
    path: &'a Path,
    threads: usize,
    /// By page: which thread did what last.
    last: Vec<AtomicUsize>,
    met: &'a Met,
    wrong: Mutex<Option<String>>,
}

fn round(dir: &Path, other: Option<&Path>, threads: usize, seed: u64, met: &Met) -> Result<(), String> {
    let name = format!("pairs.{threads}");
    let path = dir.join(&name);
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, vec![0; TAIL]).map_err(|error| format!("{}: {error}", path.display()))?;
    let last = (0..MAPPED / PAGE).map(|_| AtomicUsize::new(usize::MAX)).collect();
    let shared = Shared { path: &path, threads, last, met, wrong: Mutex::default() };
    let ended: Vec<Vec<Place>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn({
                    let shared = &shared;
                    move || {
                        let mut worker = Worker::new(shared, number, seed)?;
                        let done = worker.work();
                        if let Err(what) = done {
                            shared
                                .wrong
                                .lock()
                                .expect("nobody panics with it")
                                .get_or_insert(format!("thread {number}: {what}"));
                        }
                        Ok::<_, String>(worker.end())
                    }
                })
            })
            .collect();
        all.into_iter()
            .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
            .collect::<Result<_, _>>()
    })?;
    if let Some(wrong) = shared.wrong.into_inner().expect("nobody panicked with it") {
        return Err(wrong);
    }
    let size = ended.iter().flatten().map(|place| place.at + 8).max().unwrap_or(0);
    for path in [Some(path.clone()), other.map(|other| other.join(&name))].into_iter().flatten() {
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|error| format!("{}: {error}", path.display()))?;
        bytes.resize(bytes.len().max(size), 0);
        for place in ended.iter().flatten() {
            place.check("afterwards, read", word(&bytes, place.at))?;
        }
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A slot: eight bytes that one thread changes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    holds: u64,
    /// Its value only grows.
    counts: bool,
}

impl Place {
    fn check(&self, how: &str, is: u64) -> Result<(), String> {
        let Self { at, holds, .. } = self;
        if is == *holds {
            Ok(())
        } else {
            Err(format!("{how}: at {at} (page {}) is {is:#x}, want {holds:#x}", at / PAGE))
        }
    }
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: usize,
    dice: u64,
    file: File,
    appends: File,
    source: File,
    map: NonNull<u8>,
    places: Vec<Place>,
    /// Slots of other threads that only grow, with the last value seen there.
    seen: Vec<(usize, u64)>,
    next: u64,
    /// The bytes behind all slots. Only the first thread has them.
    tail: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, number: usize, seed: u64) -> Result<Self, String> {
        let open = |flags| open(shared.path, libc::O_RDWR | flags);
        let (file, appends) = (open(0)?, open(libc::O_APPEND)?);
        let source = self::open(&shared.path.with_extension(format!("source.{number}")), libc::O_RDWR | libc::O_CREAT)?;
        // SAFETY: a new mapping, somewhere.
        let map = unsafe {
            let both = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), MAPPED, both, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let map =
            NonNull::new(map.cast::<u8>()).filter(|_| map != libc::MAP_FAILED).ok_or_else(|| last_error("mmap"))?;
        // Slots are assigned to threads in turn. At each page boundary one thread has a slot of eight bytes on either
        // side.
        let owner = |place: usize| (place / STEP + place / PAGE) % shared.threads;
        let all = (0..TAIL / STEP).map(|n| n * STEP).filter(|at| at % PAGE != 0);
        let mut places = Vec::new();
        let mut seen = Vec::new();
        for at in all {
            let counts = (at / STEP).is_multiple_of(2);
            match owner(at) == number {
                true => places.push(Place { at, holds: 0, counts }),
                false if counts => seen.push((at, 0)),
                false => {}
            }
        }
        for page in (1..PAGES).filter(|page| page % shared.threads == number) {
            places.extend([page * PAGE - 8, page * PAGE].map(|at| Place { at, holds: 0, counts: false }));
        }
        let dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1) << 32 | 1;
        Ok(Self { shared, number, dice, file, appends, source, map, places, seen, next: 1, tail: Vec::new() })
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % bound as u64) as usize
    }

    fn work(&mut self) -> Result<(), String> {
        for step in 0..OPERATIONS {
            if self.shared.wrong.lock().expect("nobody panics with it").is_some() {
                return Ok(());
            }
            let (way, name) = WAYS[self.below(WAYS.len())];
            let done = match CUTS.contains(&way) {
                true if self.number == 0 => self.cut(way),
                true => self.place(Way::Store),
                false => self.place(way),
            };
            done.map_err(|what| format!("step {step}, {name}: {what}"))?;
            self.look_at_another()?;
        }
        for place in self.places.clone() {
            self.look(&place)?;
        }
        if self.number == 0 { self.look_at_tail() } else { Ok(()) }
    }

    fn met(&self, page: usize, way: Way) {
        let before = self.shared.last[page].swap(self.number * WAYS.len() + way as usize, Relaxed);
        if before != usize::MAX && before / WAYS.len() != self.number {
            self.shared.met.0[before % WAYS.len() * WAYS.len() + way as usize].fetch_add(1, Relaxed);
        }
    }

    /// Changes one of its slots, or does something to the slot's page, and reads the slot.
    fn place(&mut self, way: Way) -> Result<(), String> {
        let chosen = self.below(self.places.len());
        let mut place = self.places[chosen];
        let value = (self.number as u64) << 56 | self.next;
        self.next += 1;
        // A punch would not be a larger number.
        let way = if place.counts && matches!(way, Way::Punch | Way::Zero) { Way::Write } else { way };
        self.met(place.at / PAGE, way);
        let (at, descriptor) = (place.at as i64, self.file.as_raw_fd());
        let begin = place.at / PAGE * PAGE;
        let page = self.pointer(begin).cast::<libc::c_void>();
        match way {
            Way::Store => {
                self.atomic(place.at).store(value, Relaxed);
                place.holds = value;
            }
            Way::Write | Way::WriteDurably => {
                let flags = if way == Way::Write { 0 } else { libc::RWF_DSYNC };
                write(&self.file, &value.to_ne_bytes(), at, flags)?;
                place.holds = value;
            }
            Way::Copy => {
                write(&self.source, &value.to_ne_bytes(), at % 512, 0)?;
                let (mut from, mut to) = (at % 512, at);
                let source = self.source.as_raw_fd();
                // SAFETY: open descriptors, and places that outlive the call.
                let copied = unsafe { libc::copy_file_range(source, &mut from, descriptor, &mut to, 8, 0) };
                succeeded("copy_file_range", copied == 8)?;
                place.holds = value;
            }
            Way::Punch | Way::Zero | Way::Reserve => {
                let mode = match way {
                    Way::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    Way::Zero => libc::FALLOC_FL_ZERO_RANGE,
                    _ => 0,
                };
                // SAFETY: an open descriptor.
                succeeded("fallocate", unsafe { libc::fallocate(descriptor, mode, at, 8) } == 0)?;
                place.holds = if way == Way::Reserve { place.holds } else { 0 };
            }
            // SAFETY: a page of the mapping.
            Way::Sync => succeeded("msync", unsafe { libc::msync(page, PAGE, libc::MS_SYNC) } == 0)?,
            // SAFETY: an open descriptor.
            Way::Fdatasync => succeeded("fdatasync", unsafe { libc::fdatasync(descriptor) } == 0)?,
            // SAFETY: a page of the mapping, of a file: what was stored stays in the kernel's page.
            Way::Forget => succeeded("madvise", unsafe { libc::madvise(page, PAGE, libc::MADV_DONTNEED) } == 0)?,
            // SAFETY: an open descriptor.
            Way::Drop => succeeded(
                "fadvise",
                unsafe { libc::posix_fadvise(descriptor, begin as i64, PAGE as i64, libc::POSIX_FADV_DONTNEED) } == 0,
            )?,
            Way::Reopen => drop(open(self.shared.path, libc::O_RDWR)?),
            Way::Look | Way::Cut | Way::Append | Way::Gap | Way::Grow => {}
        }
        self.places[chosen] = place;
        self.look(&place)
    }

    /// Reads one of its slots both ways, in either order.
    fn look(&mut self, place: &Place) -> Result<(), String> {
        for loads in if self.below(2) == 0 { [true, false] } else { [false, true] } {
            let (how, is) = if loads { ("loaded", self.load(place.at)) } else { ("read", self.read(place.at)?) };
            place.check(how, is)?;
        }
        Ok(())
    }

    /// Reads a slot that another thread counts up, in either way: it never goes back.
    fn look_at_another(&mut self) -> Result<(), String> {
        if self.seen.is_empty() {
            return Ok(());
        }
        let chosen = self.below(self.seen.len());
        let (at, mut before) = self.seen[chosen];
        for _ in 0..2 {
            let loads = self.below(2) == 0;
            let is = if loads { self.load(at) } else { self.read(at)? };
            if is < before {
                let how = if loads { "loaded" } else { "read" };
                return Err(format!(
                    "another's place at {at} (page {}) went back from {before:#x} to {is:#x}, {how}",
                    at / PAGE
                ));
            }
            before = is;
        }
        self.seen[chosen].1 = before;
        Ok(())
    }

    /// Changes the tail, which begins in the last shared page.
    fn cut(&mut self, way: Way) -> Result<(), String> {
        self.met(PAGES - 1, way);
        let room = MAPPED - PAGE - TAIL;
        let byte = 1 + self.below(255) as u8;
        match way {
            Way::Cut => {
                let left = self.below(self.tail.len() + 1);
                self.truncate(left)?;
            }
            Way::Grow => {
                self.leave_something_behind();
                let more = self.tail.len() + self.below(room - self.tail.len() + 1);
                self.truncate(more)?;
            }
            Way::Append => {
                let bytes = vec![byte; 1 + self.below((room - self.tail.len()).clamp(1, 2000))];
                if self.tail.len() + bytes.len() > room {
                    return self.truncate(0);
                }
                write(&self.appends, &bytes, -1, 0)?;
                self.tail.extend(bytes);
            }
            _ => {
                self.leave_something_behind();
                let (at, bytes) = (self.tail.len() + self.below(1500), vec![byte; 1 + self.below(1500)]);
                if at + bytes.len() > room {
                    return self.truncate(0);
                }
                write(&self.file, &bytes, (TAIL + at) as i64, 0)?;
                self.tail.resize(at, 0);
                self.tail.extend(bytes);
            }
        }
        self.look_at_tail()
    }

    fn truncate(&mut self, left: usize) -> Result<(), String> {
        // SAFETY: an open descriptor.
        succeeded("ftruncate", unsafe { libc::ftruncate(self.file.as_raw_fd(), (TAIL + left) as i64) } == 0)?;
        self.tail.resize(left, 0);
        Ok(())
    }

    /// Stores behind the end of the file, in its last page. These bytes belong to nobody, and must never become
    /// visible.
    fn leave_something_behind(&mut self) {
        let end = TAIL + self.tail.len();
        if !end.is_multiple_of(PAGE) {
            // SAFETY: within the last page of the file, which is mapped.
            unsafe { self.pointer(end).write_volatile(0xee) };
        }
    }

    fn look_at_tail(&mut self) -> Result<(), String> {
        let mut read = vec![0; self.tail.len() + 10];
        // SAFETY: an open descriptor, and memory that outlives the call.
        let got = unsafe { libc::pread(self.file.as_raw_fd(), read.as_mut_ptr().cast(), read.len(), TAIL as i64) };
        read.truncate(usize::try_from(got).map_err(|_| last_error("pread"))?);
        if read.len() != self.tail.len() {
            return Err(format!("the tail has {} bytes, want {}", read.len(), self.tail.len()));
        }
        // SAFETY: within the file, which only this thread cuts.
        let load = |at: usize| unsafe { self.pointer(TAIL + at).read_volatile() };
        for (at, want) in self.tail.iter().enumerate() {
            let (read, loaded) = (read[at], load(at));
            if read != *want || loaded != *want {
                return Err(format!(
                    "the tail at {at} of {}: read {read:#x}, loaded {loaded:#x}, want {want:#x}",
                    self.tail.len()
                ));
            }
        }
        Ok(())
    }

    fn pointer(&self, at: usize) -> *mut u8 {
        assert!(at < MAPPED);
        // SAFETY: within the mapping.
        unsafe { self.map.as_ptr().add(at) }
    }

    fn atomic(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= MAPPED && at.is_multiple_of(8));
        // SAFETY: within the mapping, aligned, and all threads go there so, as the kernel does.
        unsafe { AtomicU64::from_ptr(self.pointer(at).cast()) }
    }

    fn load(&self, at: usize) -> u64 {
        self.atomic(at).load(Relaxed)
    }

    fn read(&self, at: usize) -> Result<u64, String> {
        let mut bytes = [0; 8];
        // SAFETY: an open descriptor, and memory that outlives the call.
        let got = unsafe { libc::pread(self.file.as_raw_fd(), bytes.as_mut_ptr().cast(), 8, at as i64) };
        succeeded("pread", got == 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn end(self) -> Vec<Place> {
        // SAFETY: the whole mapping, which nobody uses any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), MAPPED) };
        self.places
    }
}

fn open(path: &Path, flags: i32) -> Result<File, String> {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero byte");
    // SAFETY: a string that outlives the call.
    let descriptor = unsafe { libc::open(name.as_ptr(), flags | libc::O_CLOEXEC, 0o644) };
    succeeded("open", descriptor >= 0)?;
    // SAFETY: it was just opened, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Writes all of `bytes` at `at`; -1 means the descriptor's position.
fn write(file: &File, bytes: &[u8], at: i64, flags: i32) -> Result<(), String> {
    let part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: an open descriptor, and bytes that outlive the call.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &part, 1, at, flags) };
    succeeded("write", written == bytes.len() as isize)
}

fn succeeded(call: &str, has: bool) -> Result<(), String> {
    if has { Ok(()) } else { Err(last_error(call)) }
}

fn last_error(call: &str) -> String {
    format!("{call}: {}", Error::last_os_error())
}
