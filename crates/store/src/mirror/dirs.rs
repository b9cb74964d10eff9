//! The two directories of a mirrored target: where the parts lie, the locks, and the witness.

use std::{cell::RefCell, collections::BTreeMap};

use forebay_env::{Env, EnvErrorKind, EnvResult, FileLock};

use super::label::Part;
use crate::{
    StoreError, StoreErrorKind, StoreResult,
    format::{LOCK_FILE, join, part_path},
};

/// Names the other directory, in one line.
pub(crate) const MIRROR_PATH_FILE: &str = "mirror.path";
/// Names the witness, in one line.
pub(crate) const WITNESS_PATH_FILE: &str = "witness.path";

/// The directories of the two copies; the served one first.
pub(crate) struct Dirs {
    env: Env,
    /// The served directory, which its server has locked.
    served: String,
    dirs: RefCell<[String; 2]>,
    locks: RefCell<BTreeMap<String, FileLock>>,
    witness: Option<String>,
    known: RefCell<BTreeMap<&'static str, u64>>,
}

impl Dirs {
    /// The directories of the target in `dir`, which the caller has locked.
    pub(crate) fn of(env: &Env, dir: &str) -> StoreResult<Self> {
        let other = pointer(env, dir)?;
        let witness = match env.read_file(&join(dir, WITNESS_PATH_FILE)) {
            Ok(bytes) => Some(line(&bytes)),
            Err(error) if error.kind == EnvErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let dirs = RefCell::new([dir.to_owned(), other]);
        let (env, served) = (env.clone(), dir.to_owned());
        Ok(Self { env, served, dirs, locks: RefCell::default(), witness, known: RefCell::default() })
    }

    pub(super) fn dir(&self, copy: usize) -> String {
        self.dirs.borrow()[copy].clone()
    }

    /// Where a copy of a part lies.
    pub(super) fn path(&self, copy: usize, part: Part) -> String {
        part_path(&self.env, &self.dir(copy), part)
    }

    /// The directory that the directory of `copy` names as the other one.
    pub(super) fn named_beside(&self, copy: usize) -> Option<String> {
        pointer(&self.env, &self.dir(copy)).ok()
    }

    pub(super) fn set_dir(&self, copy: usize, dir: &str) {
        let before = std::mem::replace(&mut self.dirs.borrow_mut()[copy], dir.to_owned());
        if before != dir {
            self.locks.borrow_mut().remove(&before);
        }
    }

    /// Takes the lock of the directory at `copy`. Errors: `Busy`; those of a missing directory.
    pub(super) fn lock(&self, copy: usize) -> StoreResult<()> {
        let dir = self.dir(copy);
        if dir == self.served || self.locks.borrow().contains_key(&dir) {
            return Ok(());
        }
        let lock = self.env.lock_file(&join(&dir, LOCK_FILE))?;
        self.locks.borrow_mut().insert(dir, lock);
        Ok(())
    }

    /// Releases the locks.
    pub(crate) fn unlock(&self) {
        self.locks.borrow_mut().clear();
    }

    /// The last epoch of a part that the witness knows. None: there is no witness, or it cannot be read.
    pub(super) fn ask_witness(&self, part: Part) -> Option<u64> {
        let bytes = self.env.read_file(self.witness.as_ref()?).ok()?;
        String::from_utf8_lossy(&bytes).lines().find_map(|line| line.strip_prefix(part.name())?.trim().parse().ok())
    }

    /// Writes a part's epoch to the witness, durably. Does nothing without a witness.
    pub(super) fn tell_witness(&self, part: Part, epoch: u64) -> EnvResult<()> {
        let Some(path) = &self.witness else { return Ok(()) };
        for part in [Part::Data, Part::Journal] {
            let known = self.ask_witness(part);
            let mut known_now = self.known.borrow_mut();
            let last = known_now.get(part.name()).copied().max(known);
            known_now.extend(last.map(|epoch| (part.name(), epoch)));
        }
        let mut known = self.known.borrow_mut();
        known.insert(part.name(), epoch);
        let lines: String = known.iter().map(|(part, epoch)| format!("{part} {epoch}\n")).collect();
        self.env.write_file(path, lines.as_bytes())
    }
}

/// Records in each of two directories which the other one is.
pub(crate) fn remember(env: &Env, dirs: [&str; 2], witness: Option<&str>) -> StoreResult<()> {
    for (dir, other) in [(dirs[0], dirs[1]), (dirs[1], dirs[0])] {
        env.write_file(&join(dir, MIRROR_PATH_FILE), format!("{other}\n").as_bytes())?;
        if let Some(witness) = witness {
            env.write_file(&join(dir, WITNESS_PATH_FILE), format!("{witness}\n").as_bytes())?;
        }
    }
    Ok(())
}

/// The directory that `dir` names as the other one.
pub(super) fn pointer(env: &Env, dir: &str) -> StoreResult<String> {
    let bytes = env.read_file(&join(dir, MIRROR_PATH_FILE)).map_err(|error| {
        let words = format!(
            "{dir} holds one copy of a mirrored target, but does not say where the other is: {}",
            error.message
        );
        StoreError::new(StoreErrorKind::Foreign, words)
    })?;
    Ok(line(&bytes))
}

fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}
