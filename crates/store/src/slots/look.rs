//! What lies on a device that is to hold a journal.

use forebay_env::{Env, EnvErrorKind, OpenDisk};

use super::{DIRECTORY_BYTES, directory::Directory};
use crate::{StoreError, StoreErrorKind, StoreResult, journal, limits::SLOTS_START};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is no such file or device.
    Missing,
    /// Zeros in the part where users of a device leave their marks.
    Blank {
        /// Bytes of the device.
        bytes: u64,
    },
    /// A directory of slots.
    Slots,
    /// Something else: words that follow the path in a message, and what to do if it may be overwritten.
    Other(String, &'static str),
}

/// Looks at the device's first MiB, where journals, file systems, partition tables, swap and volume managers all begin.
pub(crate) async fn look(env: &Env, path: &str) -> StoreResult<Found> {
    let options = OpenDisk { read_only: true, ..OpenDisk::default() };
    let disk = match env.open_disk(path, options).await {
        Ok(disk) => disk,
        Err(error) if error.kind == EnvErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error.into()),
    };
    let bytes = disk.info().bytes;
    let first = disk.read(0, bytes.min(SLOTS_START) as usize).await?;
    let sectors = &first[..first.len().min(DIRECTORY_BYTES)];
    if Directory::newest(sectors, path)?.is_some() {
        return Ok(Found::Slots);
    }
    if let Some(target) = journal::owner(sectors) {
        let advice = "give another device. (If that target is gone, add --overwrite-journal. To let targets share a device, \
                      give --journal-size each time, from the first on)";
        return Ok(Found::Other(format!("holds the journal of target {target}, which has all of it"), advice));
    }
    if first.iter().any(|byte| *byte != 0) {
        let advice = "give another device, or add --overwrite-journal if that is of no worth";
        return Ok(Found::Other("holds something already".into(), advice));
    }
    Ok(Found::Blank { bytes })
}

/// For anything but a shared journal: refuses a device or file that holds something, unless it may be overwritten
/// (`of_no_worth`, set by the option `flag`). Journals of several targets are always refused.
pub(crate) async fn refuse_taken(env: &Env, path: &str, flag: &str, of_no_worth: bool) -> StoreResult<()> {
    let words = match look(env, path).await? {
        Found::Slots => "holds journals of targets: give another device".to_owned(),
        Found::Other(..) if !of_no_worth => {
            format!("holds something already: give another device, or add {flag} if that is of no worth")
        }
        Found::Missing | Found::Blank { .. } | Found::Other(..) => return Ok(()),
    };
    Err(StoreError::new(StoreErrorKind::Busy, format!("{path} {words}")))
}
