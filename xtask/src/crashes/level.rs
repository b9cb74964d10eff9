//! Commit levels of the mounts: which acknowledged changes are certain (docs/promises.md).

use forebay_proto::message::CommitLevel;

/// The level of the mount with this number. Of four mounts two have level data, one each of the other levels.
pub fn of_mount(mount: usize) -> CommitLevel {
    [CommitLevel::Data, CommitLevel::Data, CommitLevel::Commit, CommitLevel::Memory][mount % 4]
}
