//! One worker: a process that runs what its player draws by system calls, and records each operation with its call and
//! return times.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

use forebay_history::{Ask, Event, Kind, Player, file, lock, log, names, stamp};

use super::place::Place;
use crate::figures::Outcome;

/// Longest pause between two operations.
const PAUSE_US: u64 = 120_000;
/// Bytes that one read of a whole file requests.
const WHOLE_BYTES: usize = 1 << 20;
/// Offset of the counter under flock. The counter of a range is at eight times the range's number.
const FLOCK_COUNTER: u64 = 4096;

/// `histories-worker MOUNT NOTES NUMBER WORKERS SEED ROUND OPERATIONS`: started by `histories`.
pub fn run(args: &[String]) -> Outcome {
    let [mount, notes, numbers @ ..] = args else { return Err("histories starts its workers itself".into()) };
    let numbers: Vec<u64> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
    let [number, all, seed, round, operations] = numbers[..] else { return Err("five numbers are missing".into()) };
    let (number, all) = (number as u32, all as u32);
    let kinds = Kind::usual(all);
    let mut player = Player::new(seed, number, &kinds, false);
    let mut worker = Worker::new(Place::new(Path::new(mount), round, &kinds), number);
    let played = (0..operations).try_for_each(|_| {
        std::thread::sleep(Duration::from_micros(player.pause_us(PAUSE_US)));
        let (object, ask) = player.draw();
        worker.run(object, ask, &mut player)
    });
    worker.write_notes(Path::new(notes))?;
    played
}

/// Reads everything, and takes every lock: each must become free.
pub fn audit(place: Place, number: u32) -> Outcome<Vec<Event>> {
    let mut player = Player::new(0, number, &place.kinds, false);
    let mut worker = Worker::new(place, number);
    for (object, kind) in worker.place.kinds.clone().into_iter().enumerate() {
        for ask in Ask::all(kind) {
            worker.run(object as u32, ask, &mut player)?;
        }
    }
    Ok(worker.events)
}

/// Reads the events that a worker has recorded.
pub fn read_notes(path: &Path) -> Outcome<Vec<Event>> {
    let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let lines = BufReader::new(File::open(path).map_err(|e| error(&e))?).lines();
    lines.map(|line| serde_json::from_str(&line.map_err(|e| error(&e))?).map_err(|e| error(&e))).collect()
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Worker {
    place: Place,
    number: u32,
    events: Vec<Event>,
    /// Files kept open: for writes at an offset, and for appends.
    open: BTreeMap<(u32, bool), File>,
}

impl Worker {
    fn new(place: Place, number: u32) -> Self {
        Self { place, number, events: Vec::new(), open: BTreeMap::new() }
    }

    fn write_notes(&self, path: &Path) -> Outcome {
        let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut out = BufWriter::new(File::create(path).map_err(|e| error(&e))?);
        for event in &self.events {
            serde_json::to_writer(&mut out, event).map_err(|e| error(&e))?;
            out.write_all(b"\n").map_err(|e| error(&e))?;
        }
        out.flush().map_err(|e| error(&e))
    }

    fn note(&mut self, object: u32, begun: u64, ended: u64, ask: Ask) {
        self.events.push(Event { object, worker: self.number, begun, ended, ask });
    }

    /// Runs one operation. Errors: a failure that no server's death excuses.
    fn run(&mut self, object: u32, ask: Ask, player: &mut Player) -> Outcome {
        let kind = self.place.kinds[object as usize];
        let done = match ask.clone() {
            Ask::Name(names::Ask::Links(name), _) => self.links(object, name as u32),
            Ask::Name(ask, _) => self.name(object, ask),
            Ask::Bytes(ask, _) => self.bytes(object, kind, ask, player),
            Ask::Log(ask, _) => self.log(object, kind, ask),
            Ask::Lock(ask, _) => self.lock(object, ask),
        };
        if player.one_in(4) && kind != Kind::Locks {
            self.open.retain(|(of, _), _| *of != object);
        }
        done.map_err(|error| format!("worker {}: {ask:?} of {}: {error}", self.number, self.place.of(object).display()))
    }

    fn path(&self, object: u32, name: u32) -> PathBuf {
        self.place.of(object).join(format!("n{name}"))
    }

    fn name(&mut self, object: u32, ask: names::Ask) -> io::Result<()> {
        use names::{Answer, Ask as Names};
        let path = |name: u32| self.path(object, name);
        let begun = now();
        let mut made = None;
        let result = match ask {
            Names::Create(name) => {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(path(name));
                file.map(|file| made = Some(file)).map(|()| Answer::Done)
            }
            Names::Link(from, to) => fs::hard_link(path(from), path(to)).map(|()| Answer::Done),
            Names::Rename(from, to) => fs::rename(path(from), path(to)).map(|()| Answer::Done),
            Names::Move(from, to) => rename(&path(from), &path(to), libc::RENAME_NOREPLACE).map(|()| Answer::Done),
            Names::Exchange(from, to) => rename(&path(from), &path(to), libc::RENAME_EXCHANGE).map(|()| Answer::Done),
            Names::Unlink(name) => fs::remove_file(path(name)).map(|()| Answer::Done),
            Names::Look(name) => fs::symlink_metadata(path(name)).map(|meta| Answer::File(meta.ino())),
            Names::Links(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let ended = now();
        let answer = match (result, made) {
            (Ok(_), Some(file)) => Answer::File(file.metadata()?.ino()),
            (Ok(answer), None) => answer,
            (Err(error), _) => match error.raw_os_error() {
                Some(libc::ENOENT) => Answer::Absent,
                Some(libc::EEXIST) => Answer::Exists,
                _ => return Err(error),
            },
        };
        self.note(object, begun, ended, Ask::Name(ask, Some(answer)));
        Ok(())
    }

    /// Looks up a name, then reads the link count of its file.
    fn links(&mut self, object: u32, name: u32) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        let path = self.path(object, name);
        let begun = now();
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                let look = Ask::Name(names::Ask::Look(name), Some(names::Answer::Absent));
                self.note(object, begun, now(), look);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let begun = now();
        match file.metadata() {
            Ok(meta) => {
                let (number, count) = (meta.ino(), meta.nlink() as u32);
                let links = Ask::Name(names::Ask::Links(number), Some(names::Answer::Count(count)));
                self.note(object, begun, now(), links);
                Ok(())
            }
            // The file was removed before it was opened, so its inode number is not known.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn opened(&mut self, object: u32, append: bool) -> io::Result<File> {
        if let Some(file) = self.open.get(&(object, append)) {
            return file.try_clone();
        }
        let file = OpenOptions::new().read(true).write(!append).append(append).open(self.place.of(object))?;
        self.open.insert((object, append), file.try_clone()?);
        Ok(file)
    }

    fn bytes(&mut self, object: u32, kind: Kind, ask: file::Ask, player: &mut Player) -> io::Result<()> {
        use file::{Answer, Ask as Bytes};
        let (bytes, path, by_path) = (kind.cell_bytes(), self.place.of(object), player.one_in(3));
        let file = self.opened(object, matches!(ask, Bytes::Append { .. }))?;
        let begun = now();
        let (answer, ended) = match ask {
            Bytes::Write { at, cells, tag } => {
                let data = stamp::bytes(tag, cells, bytes);
                whole(file.write_at(&data, u64::from(at) * bytes as u64)?, data.len())?;
                (Answer::Done, now())
            }
            Bytes::Append { cells, tag } => {
                let data = stamp::bytes(tag, cells, bytes);
                whole((&file).write(&data)?, data.len())?;
                (Answer::Done, now())
            }
            Bytes::Truncate(cells) => {
                cut(&file, &path, u64::from(cells) * bytes as u64, by_path)?;
                (Answer::Done, now())
            }
            Bytes::Read => {
                let mut seen = vec![0; WHOLE_BYTES];
                let length = file.read_at(&mut seen, 0)?;
                let ended = now();
                (Answer::Cells(stamp::cells(&seen[..length], bytes).map_err(io::Error::other)?), ended)
            }
            Bytes::Size => {
                let meta = if by_path { fs::metadata(&path)? } else { file.metadata()? };
                let ended = now();
                (Answer::Size(in_cells(meta.len(), bytes)? as u32), ended)
            }
        };
        self.note(object, begun, ended, Ask::Bytes(ask, Some(answer)));
        Ok(())
    }

    fn log(&mut self, object: u32, kind: Kind, ask: log::Ask) -> io::Result<()> {
        let bytes = kind.cell_bytes();
        let file = self.opened(object, matches!(ask, log::Ask::Append { .. }))?;
        let begun = now();
        let (answer, ended) = match ask {
            log::Ask::Append { cells, tag } => {
                let data = stamp::bytes(tag, cells, bytes);
                whole((&file).write(&data)?, data.len())?;
                (log::Answer::At(None), now())
            }
            log::Ask::Read { from, cells } => {
                let mut seen = vec![0; cells as usize * bytes];
                let length = file.read_at(&mut seen, from * bytes as u64)?;
                let ended = now();
                (log::Answer::Cells(stamp::cells(&seen[..length], bytes).map_err(io::Error::other)?), ended)
            }
            log::Ask::Size => {
                let size = file.metadata()?.len();
                let ended = now();
                (log::Answer::Size(in_cells(size, bytes)?), ended)
            }
        };
        self.note(object, begun, ended, Ask::Log(ask, Some(answer)));
        Ok(())
    }

    /// Takes a lock and holds it. If the lock has a counter, increments that. Then releases the lock.
    fn lock(&mut self, object: u32, ask: lock::Ask) -> io::Result<()> {
        let file = &self.opened(object, false)?;
        let begun = now();
        if !set(file, &ask, true)? {
            self.note(object, begun, now(), Ask::Lock(ask, Some(lock::Answer::Denied)));
            return Ok(());
        }
        let from = now();
        std::thread::sleep(Duration::from_micros(ask.hold_us.into()));
        let mut counted = None;
        if let Some(counter) = ask.counter() {
            let place = counter.map_or(FLOCK_COUNTER, |range| u64::from(range) * 8);
            let mut number = [0; 8];
            file.read_at(&mut number, place)?;
            let next = u64::from_le_bytes(number) + 1;
            whole(file.write_at(&next.to_le_bytes(), place)?, 8)?;
            counted = Some(next);
        }
        let until = now();
        set(file, &ask, false)?;
        self.note(object, begun, now(), Ask::Lock(ask, Some(lock::Answer::Held { from, until, counted })));
        Ok(())
    }
}

fn whole(written: usize, given: usize) -> io::Result<()> {
    if written == given { Ok(()) } else { Err(io::Error::other(format!("{written} of {given} bytes were written"))) }
}

fn in_cells(size: u64, cell_bytes: usize) -> io::Result<u64> {
    if size.is_multiple_of(cell_bytes as u64) {
        return Ok(size / cell_bytes as u64);
    }
    Err(io::Error::other(format!("it has {size} bytes; everything is written in cells of {cell_bytes}")))
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no path of ours has a zero")
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (text(from), text(to));
    // SAFETY: two strings that outlive the call.
    done(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

/// ftruncate(2); or by the path truncate(2), or open(2) with O_TRUNC for size 0.
fn cut(file: &File, path: &Path, size: u64, by_path: bool) -> io::Result<()> {
    match (by_path, size) {
        (false, _) => file.set_len(size),
        (true, 0) => OpenOptions::new().write(true).truncate(true).open(path).map(drop),
        // SAFETY: a string that outlives the call.
        (true, _) => done(unsafe { libc::truncate(text(path).as_ptr(), size as i64) }),
    }
}

/// Takes or releases a lock. False: another worker has a conflicting lock.
fn set(file: &File, ask: &lock::Ask, on: bool) -> io::Result<bool> {
    let result = if ask.flock {
        let how = match (on, ask.exclusive) {
            (false, _) => libc::LOCK_UN,
            (true, true) => libc::LOCK_EX,
            (true, false) => libc::LOCK_SH,
        };
        // SAFETY: a descriptor that is open.
        done(unsafe { libc::flock(file.as_raw_fd(), how | if ask.wait { 0 } else { libc::LOCK_NB }) })
    } else {
        // SAFETY: all zeros are a lock.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        let kind = match (on, ask.exclusive) {
            (false, _) => libc::F_UNLCK,
            (true, true) => libc::F_WRLCK,
            (true, false) => libc::F_RDLCK,
        };
        (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
        lock.l_start = i64::from(ask.ranges.0) * 10;
        lock.l_len = i64::from(ask.ranges.1 - ask.ranges.0 + 1) * 10;
        let how = if ask.wait { libc::F_SETLKW } else { libc::F_SETLK };
        // SAFETY: a descriptor that is open, and a lock that outlives the call.
        done(unsafe { libc::fcntl(file.as_raw_fd(), how, &lock) })
    };
    match result {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        other => other.map(|()| true),
    }
}
