//! One worker: a process that writes stamped records to its own files through a mount, changes their names, syncs,
//! reads back and compares. It logs each step.
//!
//! It takes orders on stdin (`check`, `sync`). On stdout it reports `ready`, `ok ...`, `told ...` (a call returned EIO)
//! or `fail ...` (a promise was broken).

use std::{
    fs::File,
    io::{self, BufRead},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, TryRecvError, channel},
    time::{Duration, Instant},
};

use forebay_history::Dice;
use forebay_proto::message::CommitLevel;

use super::{
    hands::{self, Trouble},
    model::{Change, Death, Model},
    notes::{Notes, Step},
    settle, stamp,
};
use crate::figures::Outcome;

/// Names per worker.
const NAMES: u64 = 12;
/// Longest pause between two operations.
const PAUSE_US: u64 = 3000;
/// Files kept open without a name.
const ORPHANS: usize = 2;
/// Lengths of records, with the most records of that length in a file.
const RECORDS: [(u64, u64); 3] = [(4096, 128), (47_008, 24), (1 << 20, 4)];

/// What was done since the last report.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) longest: Duration,
    pub(super) calls: u64,
    pub(super) blocks: u64,
    pub(super) names: u64,
    /// Files whose size in stat was below what could be read.
    pub(super) sizes: u64,
    /// Unsynced writes and changes of names that had to survive the mount's death.
    pub(super) unsynced: u64,
}

/// The state of a worker.
pub(super) struct Worker {
    pub(super) number: u64,
    pub(super) dir: PathBuf,
    notes: Notes,
    pub(super) open: hands::Open,
    /// Open files without a name, with their models.
    orphans: Vec<(u32, super::file::FileModel, File)>,
    pub(super) tally: Tally,
    dice: Dice,
}

/// `crashes-worker NUMBER DIR NOTES LEVEL SEED ALONE SENT_BEFORE_MS`: started by `crashes`.
pub fn run(args: &[String]) -> Outcome {
    let [number, dir, notes, level, numbers @ ..] = args else {
        return Err("crashes starts its workers itself".into());
    };
    let numbers: Vec<u64> = [number].into_iter().chain(numbers).filter_map(|number| number.parse().ok()).collect();
    let [number, seed, alone, sent_before_ms] = numbers[..] else { return Err("four numbers are missing".into()) };
    let level = CommitLevel::named(level).ok_or_else(|| format!("there is no level {level}"))?;
    let death = Death { alone: alone == 1, sent_before_ms, level };
    let done = work(number, Path::new(dir), Path::new(notes), seed, death);
    // The parent process shows this to the user.
    match done {
        Ok(()) => {}
        Err(Trouble::Told(words)) => println!("told {words}"),
        Err(Trouble::Broken(words)) => println!("fail worker {number}: {words}"),
    }
    Ok(())
}

fn work(number: u64, dir: &Path, notes: &Path, seed: u64, death: Death) -> Result<(), Trouble> {
    let orders = hear();
    let mut tally = Tally::default();
    let notes = settle::settle(dir, notes, death, &mut tally)?;
    let open = hands::Open::default();
    let mut worker =
        Worker { number, dir: dir.to_owned(), notes, open, orphans: Vec::new(), tally, dice: Dice::new(seed) };
    println!("ready {}", worker.tally.take());
    loop {
        match orders.try_recv().as_deref() {
            Ok("check") => worker.check()?,
            Ok("sync") => worker.sync_all()?,
            Ok(other) => return Err(Trouble::Broken(format!("what does '{other}' mean?"))),
            Err(TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_micros(worker.dice.below(PAUSE_US)));
                worker.step()?;
                continue;
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        println!("ok {}", worker.tally.take());
    }
}

/// The lines of stdin.
fn hear() -> Receiver<String> {
    let (sender, orders) = channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    orders
}

impl Tally {
    /// The tally as text for the parent process; starts a new one.
    fn take(&mut self) -> String {
        let all = std::mem::take(self);
        let counts = [all.calls, all.blocks, all.names, all.sizes, all.unsynced].map(|count| count.to_string());
        format!("{} {}", all.longest.as_micros(), counts.join(" "))
    }

    /// Makes a call and counts it.
    pub(super) fn call<T>(&mut self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let begun = Instant::now();
        let result = call();
        self.longest = self.longest.max(begun.elapsed());
        self.calls += 1;
        result
    }
}

impl Worker {
    fn model(&self) -> &Model {
        &self.notes.model
    }

    fn note(&mut self, step: Step) -> Result<(), Trouble> {
        self.notes.note(step).map_err(Trouble::Broken)
    }

    fn acked(&mut self, ino: Option<u64>) -> Result<(), Trouble> {
        self.note(Step::Acked(hands::now_ms(), ino))
    }

    fn some_name(&mut self) -> Option<(u32, u32)> {
        let names: Vec<(u32, u32)> = self.model().names.iter().map(|(name, file)| (*name, *file)).collect();
        self.dice.pick(&names).copied()
    }

    /// Runs one random operation.
    fn step(&mut self) -> Result<(), Trouble> {
        let (draw, Some((name, file))) = (self.dice.below(100), self.some_name()) else { return self.create() };
        match draw {
            0..50 => self.write(name, file, false),
            50..60 => self.write(name, file, true),
            60..70 => self.sync(name, file),
            70..75 => self.sync_dir(draw as u32 % super::model::DIRS),
            75..83 => self.read(name, file),
            83..85 => self.look(name, file),
            85..92 => self.create(),
            92..97 => self.rename(name),
            _ => self.unlink(name, file),
        }
    }

    fn create(&mut self) -> Result<(), Trouble> {
        let name = self.dice.below(NAMES) as u32;
        if self.model().names.contains_key(&name) {
            return Ok(());
        }
        let (&(record, _), append) = (self.dice.pick(&RECORDS).expect("there are some"), self.dice.below(4) == 0);
        let file = stamp::file_of(self.number, self.model().next_file);
        self.note(Step::Change(Change::Create(name, file), Some((record, append))))?;
        let path = hands::path(&self.dir, name);
        let made = self.tally.call(|| hands::create(&path));
        let (handle, ino) = hands::expect(made, "create", &path)?;
        self.open.put(file, handle);
        self.acked(Some(ino))
    }

    fn write(&mut self, name: u32, file: u32, synced: bool) -> Result<(), Trouble> {
        let (model, seq) = (&self.notes.model.files[&file], self.notes.model.next_write);
        let (record, append, size) = (model.record, model.append, model.now.size);
        let most = RECORDS.iter().find(|(bytes, _)| *bytes == record).map_or(1, |(_, most)| *most);
        let start = match append {
            true if size >= record * most => return self.read(name, file),
            true => size,
            false => self.dice.below((size / record + 2).min(most)) * record,
        };
        let range = start..start + record;
        stamp::check(seq, range.end).map_err(Trouble::Broken)?;
        self.note(Step::Write(
            file,
            super::file::Write { seq, range: range.clone(), synced, certain: false, acked_ms: None },
        ))?;
        let path = hands::path(&self.dir, name);
        let handle = self.open.get(file, &path, append, synced)?;
        let written = self.tally.call(|| hands::write(&handle, file, seq, range, append));
        hands::expect(written, "write", &path)?;
        self.open.perhaps_close(file, self.dice.below(6) == 0);
        self.acked(None)
    }

    fn sync(&mut self, name: u32, file: u32) -> Result<(), Trouble> {
        let path = hands::path(&self.dir, name);
        let append = self.model().files[&file].append;
        let (handle, all) = (self.open.get(file, &path, append, false)?, self.dice.below(2) == 0);
        let synced = self.tally.call(|| if all { handle.sync_all() } else { handle.sync_data() });
        hands::expect(synced, "fsync", &path)?;
        self.note(Step::Synced(file))
    }

    fn sync_dir(&mut self, dir: u32) -> Result<(), Trouble> {
        let path = hands::dir(&self.dir, dir);
        let synced = self.tally.call(|| File::open(&path)?.sync_all());
        hands::expect(synced, "fsync", &path)?;
        self.note(Step::DirSynced(dir))
    }

    /// Reads a record, or the whole file.
    fn read(&mut self, name: u32, file: u32) -> Result<(), Trouble> {
        let path = hands::path(&self.dir, name);
        if self.dice.below(5) == 0 {
            return self.check_file(name, file);
        }
        let (record, append, size) = {
            let model = &self.model().files[&file];
            (model.record, model.append, model.now.size)
        };
        let start = self.dice.below(size / record + 1) * record;
        let handle = self.open.get(file, &path, append, false)?;
        let read = self.tally.call(|| hands::read(&handle, start, record));
        let bytes = hands::expect(read, "read", &path)?;
        let expected = size.saturating_sub(start).min(record);
        let checked = match bytes.len() as u64 == expected {
            true => self.model().files[&file].check_read(file, start, &bytes),
            false => Err(format!("{} of {expected} bytes were read at {start}; it has {size}", bytes.len())),
        };
        self.tally.blocks += 1;
        checked.map_err(|error| Trouble::Broken(format!("{}: {error}", path.display())))
    }

    fn look(&mut self, name: u32, file: u32) -> Result<(), Trouble> {
        let path = hands::path(&self.dir, name);
        let seen = hands::expect(self.tally.call(|| hands::stat(&path)), "stat", &path)?;
        let model = &self.model().files[&file];
        let expected = (model.ino.unwrap_or(0), model.now.size);
        self.tally.names += 1;
        if seen == expected {
            return Ok(());
        }
        Err(Trouble::Broken(format!("{}: inode and size are {seen:?}, expected {expected:?}", path.display())))
    }

    fn rename(&mut self, from: u32) -> Result<(), Trouble> {
        let to = self.dice.below(NAMES) as u32;
        if from == to {
            return Ok(());
        }
        self.note(Step::Change(Change::Rename(from, to), None))?;
        let (path, to) = (hands::path(&self.dir, from), hands::path(&self.dir, to));
        hands::expect(self.tally.call(|| std::fs::rename(&path, &to)), "rename", &path)?;
        self.acked(None)
    }

    /// Removes a name. The file may stay open, and then must still be readable.
    fn unlink(&mut self, name: u32, file: u32) -> Result<(), Trouble> {
        let (path, model) = (hands::path(&self.dir, name), self.model().files[&file].clone());
        let handle = self.open.get(file, &path, model.append, false)?;
        self.note(Step::Change(Change::Unlink(name), None))?;
        hands::expect(self.tally.call(|| std::fs::remove_file(&path)), "unlink", &path)?;
        self.open.perhaps_close(file, true);
        if self.dice.below(3) == 0 {
            self.orphans.push((file, model, handle));
        }
        while self.orphans.len() > ORPHANS {
            let (file, model, handle) = self.orphans.remove(0);
            self.check_orphan(file, &model, &handle)?;
        }
        self.acked(None)
    }

    fn check_orphan(&mut self, file: u32, model: &super::file::FileModel, handle: &File) -> Result<(), Trouble> {
        let path = self.dir.join(format!("(file {file}, which has no name)"));
        let read = self.tally.call(|| hands::read(handle, 0, model.now.size + 8));
        let bytes = hands::expect(read, "read", &path)?;
        self.tally.blocks += 1;
        self.compare(&path, file, model, &bytes)
    }

    fn compare(&self, path: &Path, file: u32, model: &super::file::FileModel, bytes: &[u8]) -> Result<(), Trouble> {
        let checked = match bytes.len() as u64 == model.now.size {
            true => model.check_read(file, 0, bytes),
            false => Err(format!("it has {} bytes, expected {}", bytes.len(), model.now.size)),
        };
        checked.map_err(|error| Trouble::Broken(format!("{} (file {file}): {error}", path.display())))
    }

    fn check_file(&mut self, name: u32, file: u32) -> Result<(), Trouble> {
        let path = hands::path(&self.dir, name);
        let model = self.model().files[&file].clone();
        let handle = self.open.get(file, &path, model.append, false)?;
        let read = self.tally.call(|| hands::read(&handle, 0, model.now.size + 8));
        let bytes = hands::expect(read, "read", &path)?;
        self.tally.blocks += model.now.size.div_ceil(model.record);
        self.compare(&path, file, &model, &bytes)
    }

    /// Checks all names and all bytes.
    fn check(&mut self) -> Result<(), Trouble> {
        let found = settle::list(&self.dir, &mut self.tally)?;
        if !self.model().are(&self.model().names, &found) {
            // If the MDT did not wait for this mount, uncommitted changes are lost: then fsync of the directory reports
            // it.
            (0..super::model::DIRS).try_for_each(|dir| self.sync_dir(dir))?;
            let words = format!("names are {found:?}, expected {:?}, and fsync tells of no loss", self.model().names);
            return Err(Trouble::Broken(words));
        }
        self.tally.names += found.len() as u64;
        for (name, file) in self.model().names.clone() {
            self.check_file(name, file)?;
        }
        for (file, model, handle) in std::mem::take(&mut self.orphans) {
            self.check_orphan(file, &model, &handle)?;
            self.orphans.push((file, model, handle));
        }
        Ok(())
    }

    /// Makes everything durable.
    fn sync_all(&mut self) -> Result<(), Trouble> {
        for (name, file) in self.model().names.clone() {
            self.sync(name, file)?;
        }
        (0..super::model::DIRS).try_for_each(|dir| self.sync_dir(dir))
    }
}
