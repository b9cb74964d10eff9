//! Moving the journal of a stopped target to another location.
//!
//! Order, each step durable before the next:
//! 1. `journal.move` records source and destination.
//! 2. A slot is taken, if the destination has slots.
//! 3. The journal is copied, anchors last.
//! 4. The slot becomes the target's.
//! 5. `journal.path` names the destination: this is the switch.
//! 6. The source is blanked, and its slot freed.
//! 7. `journal.move` is removed.
//!
//! Invariant: until the switch the old journal is the target's, untouched. After it the new one is, complete.
//! Invariant: after a crash, the same command finishes the move.

use forebay_env::{Disk, Env, EnvErrorKind, OpenDisk};
use forebay_proto::Uuid;

use super::{Claim, DIRECTORY_BYTES, Directory, Found, Who, first_sectors, look, make, release, resolve};
use crate::{
    Identity, StoreError, StoreErrorKind, StoreResult,
    format::{self, JOURNAL_FILE, JOURNAL_PATH_FILE, LOCK_FILE, join, part_path},
    journal::{self, Journal, Lsn},
    limits::{JOURNAL_COPY_BYTES, SLOTS_START},
    mirror::Part,
};

/// Two lines: source and destination of a move.
const MOVE_FILE: &str = "journal.move";

/// Where a journal lay before a move, and where it lies now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedJournal {
    /// Before.
    pub from: String,
    /// Now.
    pub to: String,
    /// Why the old location could not be blanked, if so.
    pub left_behind: Option<String>,
}

/// See [`crate::Store::move_journal`].
pub(crate) async fn relocate(env: &Env, dir: &str, to: &str) -> StoreResult<MovedJournal> {
    let identity = format::read_identity(env, dir)?;
    let _lock = env.lock_file(&join(dir, LOCK_FILE))?;
    if identity.is_mirrored() {
        let words = format!("{} is kept twice: `forebay mirror replace` puts a copy elsewhere", identity.target);
        return Err(StoreError::invalid(words));
    }
    let here = part_path(env, dir, Part::Journal);
    let moving = Moving { env, dir, identity };
    let begun = moving.begun()?;
    match &begun {
        // The switch was made: only the old location is left to be blanked.
        Some((from, switched)) if *switched == here => {
            let left_behind = moving.leave(from).await?;
            if here == to {
                return Ok(MovedJournal { from: from.clone(), to: here, left_behind });
            }
        }
        Some((from, switched)) if *from == here && switched != to => moving.give_up(switched).await?,
        _ => {}
    }
    if here == to {
        return Err(StoreError::invalid(format!("the journal of {} lies in {to} already", moving.identity.target)));
    }
    let again = begun.is_some_and(|begun| begun == (here.clone(), to.to_owned()));
    moving.bring(&here, to, again).await?;
    let left_behind = moving.leave(&here).await?;
    Ok(MovedJournal { from: here, to: to.to_owned(), left_behind })
}

pub(super) struct Moving<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a str,
    pub(super) identity: Identity,
}

impl Moving<'_> {
    /// Source and destination of a move that was begun and not finished.
    fn begun(&self) -> StoreResult<Option<(String, String)>> {
        let bytes = match self.env.read_file(&join(self.dir, MOVE_FILE)) {
            Err(error) if error.kind == EnvErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut lines = text.lines().map(str::to_owned);
        Ok(lines.next().zip(lines.next()))
    }

    /// Copies the journal and switches to the copy.
    async fn bring(&self, from: &str, to: &str, again: bool) -> StoreResult<()> {
        let Identity { uuid, generation, journal_bytes, target, .. } = self.identity;
        let old = format::open_journal(self.env, self.dir, &self.identity).await?;
        let found = Journal::recover(self.env, &old, uuid, generation, Lsn(0)).await?;
        if !found.clean {
            let words = format!("{target} was not stopped cleanly: start and stop it once, then move its journal");
            return Err(StoreError::new(StoreErrorKind::Busy, words));
        }
        drop(found);
        self.refuse_same_device(from, to).await?;
        let place = self.place(to, again).await?;
        self.env.write_file(&join(self.dir, MOVE_FILE), format!("{from}\n{to}\n").as_bytes())?;
        let (new, claim) = self.make(to, &place).await?;
        if new.info().bytes < journal_bytes {
            let words = format!("{to} has {} bytes, and the journal {journal_bytes}", new.info().bytes);
            return Err(StoreError::invalid(words));
        }
        copy(&old, &new, journal_bytes).await?;
        if let Some(claim) = claim {
            claim.settle(self.env).await?;
        }
        self.env.write_file(&join(self.dir, JOURNAL_PATH_FILE), format!("{to}\n").as_bytes())?;
        Ok(())
    }

    /// What lies at the new location, if it can be used. What an earlier attempt at this move left there may be
    /// overwritten.
    pub(super) async fn place(&self, to: &str, again: bool) -> StoreResult<Found> {
        let found = look(self.env, to).await?;
        let bytes = self.identity.journal_bytes;
        match found {
            Found::Other(..) if again && self.is_half_made(to).await => Ok(Found::Blank { bytes }),
            Found::Other(words, _) => {
                let advice = "give another place; if what is there is of no worth, remove the file first, or write zeros over a \
                              device's first MiB";
                Err(StoreError::new(StoreErrorKind::Busy, format!("{to} {words}: {advice}")))
            }
            Found::Blank { bytes: there } if there < bytes => Err(StoreError::invalid(format!(
                "{to} has {there} bytes, and the journal {bytes}: give a larger device"
            ))),
            found => Ok(found),
        }
    }

    /// True if there are no anchors yet, or only this target's, whole or torn.
    async fn is_half_made(&self, to: &str) -> bool {
        let Some(sectors) = first_sectors(self.env, to).await else { return false };
        journal::owner(&sectors) == Some(self.identity.uuid) || journal::is_begun(&sectors, self.identity.uuid)
    }

    pub(super) async fn make(&self, to: &str, place: &Found) -> StoreResult<(Disk, Option<Claim>)> {
        let Identity { uuid, cluster, target, journal_bytes, .. } = self.identity;
        let who = Who { target: uuid, cluster, name: target };
        // A device with space for more is shared, as the journal keeps its size.
        let share = matches!(place, Found::Blank { bytes } if *bytes >= SLOTS_START + journal_bytes);
        if *place == Found::Slots
            && let Some(own) = own_slot(self.env, to, uuid).await?
        {
            // Left by the same move, or by an abandoned one.
            if own != journal_bytes {
                release(self.env, to, uuid).await?;
            } else {
                let options = resolve(self.env, to, uuid, OpenDisk::default()).await?;
                return Ok((self.env.open_disk(to, options).await?, Some(Claim::of(to, uuid))));
            }
        }
        make(self.env, to, place, who, journal_bytes, share).await
    }

    /// Refuses a move between slots of one device.
    async fn refuse_same_device(&self, from: &str, to: &str) -> StoreResult<()> {
        let (Some(one), Some(two)) = (device_of(self.env, from).await?, device_of(self.env, to).await?) else {
            return Ok(());
        };
        match one == two {
            true => Err(StoreError::invalid(format!("{to} is the device on which the journal lies already"))),
            false => Ok(()),
        }
    }

    /// Frees what an abandoned move has left.
    async fn give_up(&self, to: &str) -> StoreResult<()> {
        if own_slot(self.env, to, self.identity.uuid).await.is_ok_and(|own| own.is_some()) {
            release(self.env, to, self.identity.uuid).await?;
        }
        Ok(self.env.remove_file(&join(self.dir, MOVE_FILE))?)
    }

    /// Blanks the old location, so that it never passes for the journal again. Returns why it could not be blanked.
    async fn leave(&self, from: &str) -> StoreResult<Option<String>> {
        let left = self.blank(from).await.err().map(|error| format!("{from}: {}", error.message));
        self.env.remove_file(&join(self.dir, MOVE_FILE))?;
        Ok(left)
    }

    async fn blank(&self, from: &str) -> StoreResult<()> {
        let uuid = self.identity.uuid;
        let options = match resolve(self.env, from, uuid, OpenDisk::default()).await {
            // The slot is freed already.
            Err(error) if error.kind == StoreErrorKind::Foreign => return Ok(()),
            resolved => resolved?,
        };
        let disk = match self.env.open_disk(from, options).await {
            Err(error) if error.kind == EnvErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let sectors = disk.read(0, DIRECTORY_BYTES).await?;
        // If another target has taken the location meanwhile, it keeps it.
        if journal::owner(&sectors) == Some(uuid) {
            journal::blank(&disk).await?;
        }
        drop(disk);
        if options.part.is_some() {
            return release(self.env, from, uuid).await;
        }
        // A file in the target's own directory belongs to no other target.
        if from == join(self.dir, JOURNAL_FILE) {
            self.env.remove_file(from)?;
        }
        Ok(())
    }
}

/// Id of the device at `path`, if it has slots.
async fn device_of(env: &Env, path: &str) -> StoreResult<Option<Uuid>> {
    let Some(sectors) = first_sectors(env, path).await else { return Ok(None) };
    Ok(Directory::newest(&sectors, path)?.map(|directory| directory.device))
}

/// Bytes of the slot of `target` at `path`.
pub(super) async fn own_slot(env: &Env, path: &str, target: Uuid) -> StoreResult<Option<u64>> {
    let Some(sectors) = first_sectors(env, path).await else { return Ok(None) };
    let directory = Directory::newest(&sectors, path)?;
    Ok(directory.and_then(|directory| directory.of(target).map(|slot| slot.part.bytes)))
}

/// Copies the ring first, then the anchors, which make it a journal.
async fn copy(from: &Disk, to: &Disk, bytes: u64) -> StoreResult<()> {
    journal::blank(to).await?;
    let ring = journal::ANCHORS_BYTES;
    let mut at = ring;
    while at < bytes {
        let length = JOURNAL_COPY_BYTES.min(bytes - at);
        let piece = from.read(at, length as usize).await?;
        to.write(at, vec![piece.freeze()]).await?;
        at += length;
    }
    to.flush().await?;
    let anchors = from.read(0, ring as usize).await?;
    to.write_durable(0, vec![anchors.freeze()]).await?;
    Ok(to.flush().await?)
}
