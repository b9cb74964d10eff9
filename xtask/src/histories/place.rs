//! The paths of a round's objects under a mount.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use forebay_history::Kind;

use crate::figures::Outcome;

/// The objects of one round on one mount.
#[derive(Clone)]
pub struct Place {
    mount: PathBuf,
    round: u64,
    /// The kind of each object.
    pub kinds: Vec<Kind>,
}

impl Place {
    /// The objects under `mount`.
    pub fn new(mount: &Path, round: u64, kinds: &[Kind]) -> Self {
        Self { mount: mount.to_owned(), round, kinds: kinds.to_vec() }
    }

    /// The directory of the names, or the file.
    pub fn of(&self, object: u32) -> PathBuf {
        let base = match self.kinds[object as usize] {
            Kind::Names { .. } => "names",
            Kind::Striped | Kind::Shared | Kind::Log => "two",
            Kind::Small | Kind::Locks => "one",
        };
        self.mount.join(base).join(format!("{}-{object}", self.round))
    }

    /// Makes all objects.
    pub fn make(&self) -> Outcome {
        for (object, kind) in self.kinds.iter().enumerate() {
            let path = self.of(object as u32);
            let made = match kind {
                Kind::Names { .. } => fs::create_dir(&path),
                _ => File::create_new(&path).map(drop),
            };
            made.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}
