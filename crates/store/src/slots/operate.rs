//! Operator commands for a shared journal device: list its slots, free the slot of a target that no longer exists.

use forebay_env::{Env, EnvErrorKind, OpenDisk};
use forebay_proto::{TargetId, Uuid};

use super::{Directory, Held, SlotState, first_sectors, release};
use crate::{StoreError, StoreErrorKind, StoreResult, journal};

/// A slot of a shared journal device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSlot {
    /// The target.
    pub target: Uuid,
    /// Its cluster.
    pub cluster: Uuid,
    /// Its kind and number.
    pub name: TargetId,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// True if a format or a move ended before the journal was made; the next one takes the slot.
    pub unfinished: bool,
}

/// The slots of the device at `path`, in the order of their offsets. Errors: `Foreign` if it has none.
pub(crate) async fn list(env: &Env, path: &str) -> StoreResult<Vec<JournalSlot>> {
    // If the device is missing, this open has the better error.
    drop(env.open_disk(path, OpenDisk { read_only: true, ..OpenDisk::default() }).await?);
    let sectors = first_sectors(env, path).await.unwrap_or_default();
    let directory = Directory::newest(&sectors, path)?.ok_or_else(|| {
        let words = match journal::owner(&sectors) {
            Some(target) => format!("{path} holds the journal of target {target}, which has all of it"),
            None => format!("{path} has no directory of slots: it is no journal device that targets share"),
        };
        StoreError::new(StoreErrorKind::Foreign, words)
    })?;
    let mut slots: Vec<_> = directory.slots.iter().collect();
    slots.sort_by_key(|slot| slot.part.offset);
    let told = slots.into_iter().map(|slot| JournalSlot {
        target: slot.target,
        cluster: slot.cluster,
        name: slot.name,
        offset: slot.part.offset,
        bytes: slot.part.bytes,
        unfinished: slot.state == SlotState::Preparing,
    });
    Ok(told.collect())
}

/// Frees the slot of a target that no longer exists: its journal is lost. Errors: `Invalid` if it has none, `Busy`
/// while it is open.
pub(crate) async fn free(env: &Env, path: &str, target: Uuid) -> StoreResult<()> {
    let directory = Held::open(env, path).await?.directory;
    let Some(slot) = directory.of(target) else {
        return Err(StoreError::invalid(format!("{path} holds no journal of target {target}")));
    };
    let disk = match env.open_disk(path, OpenDisk { part: Some(slot.part), ..OpenDisk::default() }).await {
        Err(error) if error.kind == EnvErrorKind::InUse => {
            let words = format!("the journal of {} on {path} is in use: {} is served", slot.name, slot.name);
            return Err(StoreError::new(StoreErrorKind::Busy, words));
        }
        opened => opened?,
    };
    journal::blank(&disk).await?;
    release(env, path, target).await
}
