//! A place for a journal that is to be made anew, as the target has lost its own.

use forebay_env::{Env, EnvErrorKind};

use super::release;
use super::relocate::{Moving, own_slot};
use crate::{
    StoreError, StoreResult,
    format::{self, JOURNAL_PATH_FILE, LOCK_FILE, join, part_path},
    journal,
    mirror::Part,
};

/// An empty place that the target's directory names now, and what it named before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJournal {
    before: Option<Vec<u8>>,
    to: String,
}

/// See [`crate::Store::new_journal`].
pub(crate) async fn anew(env: &Env, dir: &str, to: &str) -> StoreResult<NewJournal> {
    let identity = format::read_identity(env, dir)?;
    let _lock = env.lock_file(&join(dir, LOCK_FILE))?;
    if identity.is_mirrored() {
        let words = format!("{} is kept twice: `forebay mirror replace` makes a lost copy anew", identity.target);
        return Err(StoreError::invalid(words));
    }
    if part_path(env, dir, Part::Journal) == to {
        return Err(StoreError::invalid(format!("{to} is where the journal lies already: leave out --journal")));
    }
    let path_file = join(dir, JOURNAL_PATH_FILE);
    let before = match env.read_file(&path_file) {
        Err(error) if error.kind == EnvErrorKind::NotFound => None,
        read => Some(read?),
    };
    let moving = Moving { env, dir, identity };
    let place = moving.place(to, false).await?;
    let (disk, claim) = moving.make(to, &place).await?;
    journal::blank(&disk).await?;
    if let Some(claim) = claim {
        claim.settle(env).await?;
    }
    env.write_file(&path_file, format!("{to}\n").as_bytes())?;
    Ok(NewJournal { before, to: to.to_owned() })
}

impl NewJournal {
    /// Nothing was made in it: the directory names again what it named before.
    pub(crate) async fn undo(&self, env: &Env, dir: &str) -> StoreResult<()> {
        let identity = format::read_identity(env, dir)?;
        let path_file = join(dir, JOURNAL_PATH_FILE);
        match &self.before {
            Some(text) => env.write_file(&path_file, text)?,
            None => env.remove_file(&path_file)?,
        }
        match own_slot(env, &self.to, identity.uuid).await? {
            Some(_) => release(env, &self.to, identity.uuid).await,
            None => Ok(()),
        }
    }
}
