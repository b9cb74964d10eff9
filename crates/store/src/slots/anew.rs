//! A location for the new journal of a target that has lost its own.

use forebay_env::{Env, EnvErrorKind, OpenDisk};

use super::relocate::{Moving, own_slot};
use super::{Found, look, release, resolve};
use crate::{
    Identity, StoreError, StoreResult,
    format::{self, JOURNAL_PATH_FILE, LOCK_FILE, join, part_path},
    journal,
    mirror::Part,
};

/// An empty location that the target's directory names now, and what it named before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJournal {
    before: Option<Vec<u8>>,
    to: String,
    /// True if the target had no slot there.
    slot_is_new: bool,
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
        // A missing file may be made again where it was, if the caller says so. A file in place of a device would pass
        // for the device.
        if look(env, to).await? != Found::Missing {
            return Err(StoreError::invalid(format!("{to} is where the journal lies already: leave out --journal")));
        }
        if to.starts_with("/dev/") {
            return Err(StoreError::invalid(format!("{to} is not there: bring the device back, or give another")));
        }
    }
    let path_file = join(dir, JOURNAL_PATH_FILE);
    let before = match env.read_file(&path_file) {
        Err(error) if error.kind == EnvErrorKind::NotFound => None,
        read => Some(read?),
    };
    let moving = Moving { env, dir, identity };
    let place = moving.place(to, false).await?;
    let slot_is_new = moving.refuse_own_journal(to, &place).await?;
    let (disk, claim) = moving.make(to, &place).await?;
    journal::blank(&disk).await?;
    if let Some(claim) = claim {
        claim.settle(env).await?;
    }
    env.write_file(&path_file, format!("{to}\n").as_bytes())?;
    Ok(NewJournal { before, to: to.to_owned(), slot_is_new })
}

impl NewJournal {
    /// Nothing was made at the new location: the directory names again what it named before.
    pub(crate) async fn undo(&self, env: &Env, dir: &str) -> StoreResult<()> {
        let identity = format::read_identity(env, dir)?;
        let path_file = join(dir, JOURNAL_PATH_FILE);
        match &self.before {
            Some(text) => env.write_file(&path_file, text)?,
            None => env.remove_file(&path_file)?,
        }
        match own_slot(env, &self.to, identity.uuid).await? {
            Some(_) if self.slot_is_new => release(env, &self.to, identity.uuid).await,
            _ => Ok(()),
        }
    }
}

impl Moving<'_> {
    /// Refuses a slot that holds this target's journal: it is not lost, the target only looks for it elsewhere. True if
    /// the target has no slot there.
    async fn refuse_own_journal(&self, to: &str, place: &Found) -> StoreResult<bool> {
        let Identity { uuid, target, .. } = self.identity;
        if *place != Found::Slots || own_slot(self.env, to, uuid).await?.is_none() {
            return Ok(true);
        }
        let options = resolve(self.env, to, uuid, OpenDisk::default()).await?;
        let disk = self.env.open_disk(to, options).await?;
        let anchors = disk.read(0, journal::ANCHORS_BYTES as usize).await?;
        match journal::owner(&anchors) == Some(uuid) {
            false => Ok(false),
            true => Err(StoreError::invalid(format!(
                "the slot of {target} on {to} has its journal, which is not lost: `echo {to} > {}` makes the target use it",
                join(self.dir, JOURNAL_PATH_FILE)
            ))),
        }
    }
}
