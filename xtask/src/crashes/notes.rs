//! A worker's log of its steps in a file on this machine, written before and after each step, and its replay by the
//! worker's successor.
//!
//! One line per step: `w` a write begins, `c` `r` `u` a change of names begins, `a` the last step was acknowledged, `f`
//! a file was synced, `d` a directory was synced. The file begins with what was certain: `n` numbers, `h` each name.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use super::{
    file::{FileModel, Write},
    image::Image,
    model::{Change, Model},
};
use crate::figures::Outcome;

/// A step.
#[derive(Clone, Debug)]
pub enum Step {
    /// The file and the write.
    Write(u32, Write),
    /// The change. For a new file also the length of its records, and whether it is appended to.
    Change(Change, Option<(u64, bool)>),
    /// Time of the acknowledgement (ms). For a new file also its inode number.
    Acked(u64, Option<u64>),
    /// A file.
    Synced(u32),
    /// A directory.
    DirSynced(u32),
}

/// A model with its log.
pub struct Notes {
    path: PathBuf,
    file: Option<File>,
    /// The model according to the log.
    pub model: Model,
    /// What the next acknowledgement is for: a write to this file, or otherwise a change of names.
    writing: Option<u32>,
}

impl Notes {
    /// Reads a log. `None`: there is none.
    pub fn read(path: &Path) -> Outcome<Option<Self>> {
        let Ok(text) = fs::read_to_string(path) else { return Ok(None) };
        let mut notes = Self { path: path.to_owned(), file: None, model: Model::default(), writing: None };
        // A line without an end was being written when its writer was killed. Its step had not begun, or was not
        // reported.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            notes.read_line(line).ok_or_else(|| format!("{}: what does '{line}' mean?", path.display()))?;
        }
        Ok(Some(notes))
    }

    /// Starts a new log with a model in which everything is certain.
    pub fn begin(path: &Path, model: Model) -> Outcome<Self> {
        let mut text = format!("n {} {}\n", model.next_file, model.next_write);
        for (name, number) in &model.names {
            let file = &model.files[number];
            let ino = file.ino.ok_or("a file's number in the file system is not known")?;
            let runs: Vec<String> =
                file.now.runs().map(|(range, seq)| format!("{}:{}:{seq}", range.start, range.end)).collect();
            let append = u8::from(file.append);
            text += &format!("h {name} {number} {ino} {} {append} {} {}\n", file.record, file.now.size, runs.join(","));
        }
        let aside = path.with_extension("new");
        let made = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
        made.map_err(|error| format!("{}: {error}", path.display()))?;
        let file =
            OpenOptions::new().append(true).open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Some(file), model, writing: None })
    }

    /// Logs a step, then applies it to the model.
    pub fn note(&mut self, step: Step) -> Outcome {
        let line = match &step {
            Step::Write(file, write) => {
                let (range, synced) = (&write.range, u8::from(write.synced));
                format!("w {file} {} {} {} {synced}\n", write.seq, range.start, range.end)
            }
            Step::Change(Change::Create(name, file), made) => {
                let (record, append) = made.unwrap_or_default();
                format!("c {name} {file} {record} {}\n", u8::from(append))
            }
            Step::Change(Change::Rename(from, to), _) => format!("r {from} {to}\n"),
            Step::Change(Change::Unlink(name), _) => format!("u {name}\n"),
            Step::Acked(at, ino) => format!("a {at} {}\n", ino.unwrap_or(0)),
            Step::Synced(file) => format!("f {file}\n"),
            Step::DirSynced(dir) => format!("d {dir}\n"),
        };
        let mut file = self.file.as_ref().ok_or("notes that were read are not written to")?;
        file.write_all(line.as_bytes()).map_err(|error| format!("{}: {error}", self.path.display()))?;
        self.take(step);
        Ok(())
    }

    fn take(&mut self, step: Step) {
        let model = &mut self.model;
        match step {
            Step::Write(file, write) => {
                self.writing = Some(file);
                model.next_write = model.next_write.max(write.seq + 1);
                if let Some(file) = model.files.get_mut(&file) {
                    file.begin(write);
                }
            }
            Step::Change(change, made) => {
                self.writing = None;
                if let (Change::Create(_, number), Some((record, append))) = (change, made) {
                    model.files.insert(number, FileModel { record, append, ..FileModel::default() });
                    model.next_file = model.next_file.max(u64::from(number) % super::stamp::FILES + 1);
                }
                model.begin(change);
            }
            Step::Acked(at, ino) => match self.writing.and_then(|file| model.files.get_mut(&file)) {
                Some(file) => file.writes.last_mut().into_iter().for_each(|write| write.acked_ms = Some(at)),
                None => {
                    if let (Some(ino), Some((Change::Create(_, file), _))) = (ino, model.changes.last()) {
                        model.files.get_mut(file).expect("it was made").ino = Some(ino);
                    }
                    model.acked(at);
                }
            },
            Step::Synced(file) => model.file_synced(file),
            Step::DirSynced(dir) => model.dir_synced(dir),
        }
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let words: Vec<&str> = words.collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let small = |at: usize| number(at).map(|number| number as u32);
        let step = match kind {
            "n" => {
                (self.model.next_file, self.model.next_write) = (number(0)?, small(1)?);
                return Some(());
            }
            "h" => return self.read_name(&words),
            "w" => {
                let (seq, range, synced) = (small(1)?, number(2)?..number(3)?, number(4)? == 1);
                Step::Write(small(0)?, Write { seq, range, synced, certain: false, acked_ms: None })
            }
            "c" => Step::Change(Change::Create(small(0)?, small(1)?), Some((number(2)?, number(3)? == 1))),
            "r" => Step::Change(Change::Rename(small(0)?, small(1)?), None),
            "u" => Step::Change(Change::Unlink(small(0)?), None),
            "a" => Step::Acked(number(0)?, number(1).filter(|ino| *ino != 0)),
            "f" => Step::Synced(small(0)?),
            "d" => Step::DirSynced(small(0)?),
            _ => return None,
        };
        self.take(step);
        Some(())
    }

    fn read_name(&mut self, words: &[&str]) -> Option<()> {
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let mut now = Image::of(&[], number(5)?);
        for run in words.get(6)?.split(',').filter(|run| !run.is_empty()) {
            let parts: Vec<u64> = run.split(':').filter_map(|part| part.parse().ok()).collect();
            let [start, end, seq] = parts[..] else { return None };
            now.put(start..end, seq as u32);
        }
        let (record, append, ino) = (number(3)?, number(4)? == 1, Some(number(2)?));
        let file = FileModel { record, append, ino, base: now.clone(), now, writes: Vec::new() };
        let (name, number) = (number(0)? as u32, number(1)? as u32);
        self.model.files.insert(number, file);
        self.model.base.insert(name, number);
        self.model.names = self.model.base.clone();
        Some(())
    }
}

/// A model in which everything that was found is certain.
pub fn certain(names: BTreeMap<u32, u32>, files: BTreeMap<u32, FileModel>, before: &Model) -> Model {
    let (next_file, next_write) = (before.next_file, before.next_write);
    Model { base: names.clone(), names, files, next_file, next_write, ..Model::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_read_back_give_the_model_of_their_writer() {
        let path = std::env::temp_dir().join(format!("forebay-crash-notes-{}", std::process::id()));
        let mut first = Model { next_file: 1, next_write: 1, ..Model::default() };
        first.files.insert(16385, FileModel { record: 4096, ino: Some(9), ..FileModel::default() });
        first.files.get_mut(&16385).expect("made").begin(write(1, 0..4096));
        first.files.get_mut(&16385).expect("made").settle();
        first.begin(Change::Create(0, 16385));
        first.dir_synced(0);
        let mut notes = Notes::begin(&path, first).expect("begun");
        let steps = [
            Step::Change(Change::Create(3, 16386), Some((8, true))),
            Step::Acked(5, Some(10)),
            Step::Write(16386, write(2, 0..8)),
            Step::Acked(6, None),
            Step::Synced(16386),
            Step::Write(16385, Write { synced: true, ..write(3, 8..16) }),
            Step::Acked(7, None),
            Step::Change(Change::Rename(0, 2), None),
            Step::Acked(8, None),
            Step::Change(Change::Unlink(3), None),
        ];
        steps.into_iter().for_each(|step| notes.note(step).expect("noted"));
        let read = Notes::read(&path).expect("read").expect("there");
        assert_eq!(read.model, notes.model);
        assert_eq!((read.model.certain, read.model.changes.len(), read.model.files[&16385].writes.len()), (0, 2, 1));
        fs::write(&path, "n 1 1\nw 1 2").expect("written");
        assert_eq!(Notes::read(&path).expect("read").expect("there").model.next_write, 1, "a step that was not noted");
        fs::write(&path, "n 1 1\nz\n").expect("written");
        assert!(Notes::read(&path).err().expect("refused").contains("'z'"));
        fs::remove_file(&path).expect("removed");
    }

    fn write(seq: u32, range: std::ops::Range<u64>) -> Write {
        Write { seq, range, synced: false, certain: false, acked_ms: None }
    }
}
