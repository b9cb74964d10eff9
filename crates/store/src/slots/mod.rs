//! One device for the journals of several targets. Each has a slot, and a directory at the device's beginning says
//! which slot is whose (`docs/format.md`, `docs/decisions/0016`).
//!
//! A slot is opened as a part of the device, and stays locked as long as it is open. So several servers may have the
//! device open at once, and none writes into another's slot. The directory is changed under a lock on its own bytes.
//!
//! Invariant: a slot is listed before its first byte is written. A new slot never overlaps a listed one, unless that
//! was being prepared and nobody has it open any more.
//! Invariant: a device that holds anything is not written to unless the operator said so.

mod anew;
mod directory;
mod look;
mod operate;
mod relocate;

use forebay_env::{Disk, DiskPart, Env, EnvErrorKind, EnvResult, OpenDisk};
use forebay_proto::{TargetId, Uuid};

use crate::{
    StoreError, StoreErrorKind, StoreResult,
    limits::{SECTOR, SLOT_WAIT, SLOTS_MAX, SLOTS_RETRY, SLOTS_START, SLOTS_WAIT},
};

pub use anew::NewJournal;
pub(crate) use anew::anew;
use directory::{Directory, Slot, SlotState};
pub(crate) use look::{Found, look, refuse_taken};
pub use operate::JournalSlot;
pub(crate) use operate::{free, list};
pub use relocate::MovedJournal;
pub(crate) use relocate::relocate;

/// Bytes of the two copies of the directory.
const DIRECTORY_BYTES: usize = 2 * SECTOR as usize;

/// The owner of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub target: Uuid,
    pub cluster: Uuid,
    pub name: TargetId,
}

/// A slot that is being prepared, to be settled or released.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    path: String,
    target: Uuid,
}

/// How to open the journal of `target` at `path`: as a part of the device if that has slots, else as a whole.
///
/// Errors: `Foreign` if the device has slots and none is the target's; those of a damaged directory. If the device
/// cannot be read, the caller's own open reports it.
pub(crate) async fn resolve(env: &Env, path: &str, target: Uuid, options: OpenDisk) -> StoreResult<OpenDisk> {
    let Some(sectors) = first_sectors(env, path).await else { return Ok(options) };
    let Some(directory) = Directory::newest(&sectors, path)? else { return Ok(options) };
    match directory.of(target) {
        Some(slot) => Ok(OpenDisk { part: Some(slot.part), create_bytes: None, ..options }),
        None => Err(StoreError::new(
            StoreErrorKind::Foreign,
            format!(
                "{path} holds journals of {} targets, and none of target {target}: the wrong device? `forebay journal \
                 list {path}` tells whose they are; bring the right one, or rebuild the journal if it is lost: `forebay \
                 fsck --repair DIR`",
                directory.slots.len()
            ),
        )),
    }
}

/// As [`Env::open_disk`]; waits a moment for a slot that is locked.
pub(crate) async fn open(env: &Env, path: &str, options: OpenDisk) -> EnvResult<Disk> {
    let began = env.now();
    loop {
        match env.open_disk(path, options).await {
            Err(error)
                if error.kind == EnvErrorKind::InUse
                    && options.part.is_some()
                    && env.now().since(began) < SLOT_WAIT =>
            {
                env.sleep(SLOTS_RETRY).await;
            }
            opened => return opened,
        }
    }
}

async fn first_sectors(env: &Env, path: &str) -> Option<Vec<u8>> {
    let options = OpenDisk { read_only: true, ..OpenDisk::default() };
    let disk = env.open_disk(path, options).await.ok()?;
    let mut sectors = Vec::new();
    for at in [0, SECTOR] {
        match disk.read(at, SECTOR as usize).await {
            Ok(sector) => sectors.extend_from_slice(&sector),
            // The other copy tells as much. If this is the journal of a single target, opening it reports the error.
            Err(_) => sectors.resize(sectors.len() + SECTOR as usize, 0),
        }
    }
    Some(sectors)
}

/// The directory of a device, locked against other changes.
struct Held {
    disk: Disk,
    directory: Directory,
}

impl Held {
    /// Waits while others change it. Errors: `Busy` if that takes long, `Foreign` if there is no directory.
    async fn open(env: &Env, path: &str) -> StoreResult<Self> {
        let disk = lock_directory(env, path).await?;
        let sectors = disk.read(0, DIRECTORY_BYTES).await?;
        let directory = Directory::newest(&sectors, path)?.ok_or_else(|| {
            let words = format!("{path} has no directory of slots: it is no journal device that targets share");
            StoreError::new(StoreErrorKind::Foreign, words)
        })?;
        Ok(Self { disk, directory })
    }

    /// Makes a blank device a device with slots.
    async fn make(env: &Env, path: &str) -> StoreResult<()> {
        let disk = lock_directory(env, path).await?;
        let sectors = disk.read(0, DIRECTORY_BYTES).await?;
        // Another process was faster.
        if Directory::newest(&sectors, path)?.is_some() {
            return Ok(());
        }
        let device = Uuid::from_random(env.random_u64(), env.random_u64());
        // Both copies, before anything relies on them.
        for seq in [1, 2] {
            let directory = Directory { device, seq, slots: Vec::new() };
            disk.write_durable(directory.device_offset(), vec![directory.encode().freeze()]).await?;
        }
        Ok(())
    }

    /// Writes the changed directory, durably.
    async fn write(&mut self, slots: Vec<Slot>) -> StoreResult<()> {
        let next = Directory { device: self.directory.device, seq: self.directory.seq + 1, slots };
        self.disk.write_durable(next.device_offset(), vec![next.encode().freeze()]).await?;
        self.directory = next;
        Ok(())
    }

    /// Slots in use or being prepared. A slot in preparation that is not open is free: its preparation has ended.
    async fn without_stale(&self, env: &Env, path: &str) -> StoreResult<Vec<Slot>> {
        let mut slots = Vec::new();
        for slot in &self.directory.slots {
            let options = OpenDisk { part: Some(slot.part), ..OpenDisk::default() };
            let is_stale = slot.state == SlotState::Preparing
                && match env.open_disk(path, options).await {
                    Ok(_) => true,
                    Err(error) if error.kind == EnvErrorKind::InUse => false,
                    Err(error) => return Err(error.into()),
                };
            slots.extend((!is_stale).then_some(*slot));
        }
        Ok(slots)
    }
}

async fn lock_directory(env: &Env, path: &str) -> StoreResult<Disk> {
    let part = DiskPart { offset: 0, bytes: SLOTS_START };
    let options = OpenDisk { part: Some(part), ..OpenDisk::default() };
    let began = env.now();
    loop {
        match env.open_disk(path, options).await {
            Err(error) if error.kind == EnvErrorKind::InUse && env.now().since(began) < SLOTS_WAIT => {
                env.sleep(SLOTS_RETRY).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Takes a slot of `bytes` for `who` and opens it. The caller may prepare it as long as the disk is open.
///
/// Errors: `Full` if none fits, `Busy` if the target has one there; both in words.
pub(crate) async fn take(env: &Env, path: &str, who: Who, bytes: u64) -> StoreResult<(Disk, Claim)> {
    let mut held = Held::open(env, path).await?;
    let mut slots = held.without_stale(env, path).await?;
    if let Some(slot) = slots.iter().find(|slot| slot.target == who.target) {
        let words = format!("{path} holds a journal of {} already, at {}", who.name, slot.part.offset);
        return Err(StoreError::new(StoreErrorKind::Busy, words));
    }
    // The size of the whole device, not of the part that is locked.
    let device_bytes = device_bytes(env, path).await?;
    let directory = Directory { slots: slots.clone(), ..held.directory.clone() };
    let gap = directory.gap(bytes, device_bytes).filter(|_| slots.len() < SLOTS_MAX);
    let Some(part) = gap else { return Err(no_room(path, bytes, device_bytes, &slots)) };
    let disk = env.open_disk(path, OpenDisk { part: Some(part), ..OpenDisk::default() }).await?;
    let Who { target, cluster, name } = who;
    slots.push(Slot { target, cluster, name, state: SlotState::Preparing, part });
    held.write(slots).await?;
    Ok((disk, Claim::of(path, target)))
}

async fn device_bytes(env: &Env, path: &str) -> StoreResult<u64> {
    Ok(env.open_disk(path, OpenDisk { read_only: true, ..OpenDisk::default() }).await?.info().bytes)
}

fn no_room(path: &str, bytes: u64, device_bytes: u64, slots: &[Slot]) -> StoreError {
    let taken: u64 = slots.iter().map(|slot| slot.part.bytes).sum();
    let words = match slots.len() {
        SLOTS_MAX => format!("{path} has {SLOTS_MAX} slots, which is as many as there can be: use another device"),
        count => format!(
            "{path} has no room for a journal of {bytes} bytes: of its {device_bytes} bytes {count} journals have {taken}, \
             and slots begin at multiples of 1 MiB; give a smaller --journal-size or another device, or free the slot of \
             a target that is gone (`forebay journal list {path}`)"
        ),
    };
    StoreError::full(words)
}

impl Claim {
    /// A claim on the slot that the target has on the device at `path`.
    fn of(path: &str, target: Uuid) -> Self {
        Self { path: path.to_owned(), target }
    }

    /// The journal in the slot is made: the slot is in use from now on.
    pub(crate) async fn settle(&self, env: &Env) -> StoreResult<()> {
        let mut held = Held::open(env, &self.path).await?;
        let mut slots = held.directory.slots.clone();
        slots.iter_mut().filter(|slot| slot.target == self.target).for_each(|slot| slot.state = SlotState::InUse);
        held.write(slots).await
    }

    /// Frees the slot: no journal was made in it.
    pub(crate) async fn release(&self, env: &Env) -> StoreResult<()> {
        release(env, &self.path, self.target).await
    }
}

/// Removes the target's slot from the directory.
async fn release(env: &Env, path: &str, target: Uuid) -> StoreResult<()> {
    let mut held = Held::open(env, path).await?;
    let slots = held.directory.slots.iter().filter(|slot| slot.target != target).copied().collect();
    held.write(slots).await
}

/// Makes space for a journal of `bytes` at `path`, where `found` lies: a slot, or a whole device or file.
///
/// `share`: a blank device becomes one with slots. Errors: in words, the obstacle and what to do.
pub(crate) async fn make(
    env: &Env,
    path: &str,
    found: &Found,
    who: Who,
    bytes: u64,
    share: bool,
) -> StoreResult<(Disk, Option<Claim>)> {
    match found {
        Found::Slots => {}
        Found::Blank { .. } if !share => return Ok((env.open_disk(path, OpenDisk::default()).await?, None)),
        Found::Blank { bytes: there } if SLOTS_START.saturating_add(bytes) > *there => {
            return Err(no_room(path, bytes, *there, &[]));
        }
        Found::Blank { .. } => Held::make(env, path).await?,
        Found::Missing => {
            let create = OpenDisk { create_bytes: Some(bytes), prewrite: true, ..OpenDisk::default() };
            return Ok((env.open_disk(path, create).await?, None));
        }
        Found::Other(words, advice) => {
            return Err(StoreError::new(StoreErrorKind::Busy, format!("{path} {words}: {advice}")));
        }
    }
    let (disk, claim) = take(env, path, who, bytes).await?;
    Ok((disk, Some(claim)))
}
