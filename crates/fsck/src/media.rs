//! A target's files and devices, opened for reading.

use bytes::Bytes;
use forebay_env::{Disk, Env, EnvErrorKind, FileLock, OpenDisk};
use forebay_proto::Uuid;

use crate::{
    FsckError, FsckErrorKind, FsckResult,
    finding::Device,
    format::slots::{self, Slots},
    limits::SECTOR,
};

/// The open devices of a target.
pub(crate) struct Media {
    data: Disk,
    journal: Disk,
    /// All current copies of the journal: repair writes to each of them.
    journals: Vec<Disk>,
    locks: Vec<FileLock>,
}

/// The bytes, or why they cannot be read. The rest of the device may be readable.
pub(crate) type Read = Result<Bytes, String>;

/// Joins a directory and a file name.
pub(crate) fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// The identity file's bytes.
pub(crate) fn read_identity(env: &Env, dir: &str) -> FsckResult<Vec<u8>> {
    env.read_file(&join(dir, "identity")).map_err(|error| match error.kind {
        EnvErrorKind::NotFound => {
            let words = format!("{dir} holds no Forebay target: it has no identity file");
            FsckError::new(FsckErrorKind::NoTarget, words)
        }
        _ => error.into(),
    })
}

/// The path of a part of the target: in the directory, or as the file `PART.path` says.
pub(crate) fn part_path(env: &Env, dir: &str, part: &str) -> String {
    match env.read_file(&join(dir, &format!("{part}.path"))) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(_) => join(dir, part),
    }
}

/// Takes the target's lock. `None` if nobody can serve the target anyway.
pub(crate) fn take_lock(env: &Env, dir: &str, writable: bool) -> FsckResult<Option<FileLock>> {
    match env.lock_file(&join(dir, "lock")) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind == EnvErrorKind::InUse => {
            let words = format!("{dir} is being served: {}", error.message);
            Err(FsckError::new(FsckErrorKind::InUse, words))
        }
        // On a read-only file system nobody else can serve it either.
        Err(error) if !writable && error.kind == EnvErrorKind::Permission => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How to open the journal of `target` at `path`: only its slot, if targets share that device.
pub(crate) async fn resolve_journal(env: &Env, path: &str, target: Uuid, options: OpenDisk) -> FsckResult<OpenDisk> {
    let read_only = OpenDisk { read_only: true, ..OpenDisk::default() };
    // The caller opens the device again and reports the error.
    let Ok(disk) = env.open_disk(path, read_only).await else { return Ok(options) };
    let mut sectors = Vec::new();
    for at in [0, SECTOR] {
        let sector = disk.read(at, SECTOR as usize).await;
        sectors.extend(sector.map_or(vec![0; SECTOR as usize], |sector| sector.to_vec()));
    }
    let words = match slots::decode(&sectors) {
        Slots::None => return Ok(options),
        Slots::Newer(version) => {
            let words =
                format!("{path}: its directory of slots is of version {version}, by a newer forebay; use that one");
            return Err(FsckError::new(FsckErrorKind::Unsupported, words));
        }
        Slots::Damaged => "both copies of its directory of slots are damaged",
        Slots::Intact(slots) => match slots.iter().find(|(owner, _)| *owner == target) {
            Some((_, part)) => return Ok(OpenDisk { part: Some(*part), create_bytes: None, ..options }),
            None => "it holds journals of other targets, and none of this one: the wrong device?",
        },
    };
    let words = format!(
        "{path}: {words} Bring back the right one; if the journal is lost, say where the new one is to be: `forebay fsck \
         --repair --journal PATH DIR`"
    );
    Err(FsckError::new(FsckErrorKind::Io, words))
}

impl Media {
    /// Opens the devices and takes the target's lock, so that nobody serves it meanwhile.
    pub(crate) async fn open(env: &Env, dir: &str, target: Uuid, writable: bool) -> FsckResult<Self> {
        let locks = Vec::from_iter(take_lock(env, dir, writable)?);
        let open = async |part: &str| {
            let path = part_path(env, dir, part);
            let mut options = OpenDisk { read_only: !writable, ..OpenDisk::default() };
            if part == "journal" {
                options = resolve_journal(env, &path, target, options).await?;
            }
            env.open_disk(&path, options).await.map_err(|error| {
                FsckError::new(FsckErrorKind::Io, format!("{part} of {dir} ({path}): {}", error.message))
            })
        };
        let (data, journal) = (open("data").await?, open("journal").await?);
        Ok(Self { data, journals: vec![journal.clone()], journal, locks })
    }

    /// The media of open devices. All of `journals` are current.
    pub(crate) fn of_disks(data: Disk, journal: Disk, journals: Vec<Disk>) -> Self {
        Self { data, journal, journals, locks: Vec::new() }
    }

    /// Holds these locks as long as the devices.
    pub(crate) fn keep(&mut self, locks: Vec<FileLock>) {
        self.locks.extend(locks);
    }

    /// The journals that a repair writes to.
    pub(crate) fn journals(&self) -> &[Disk] {
        &self.journals
    }

    /// The device.
    pub(crate) fn disk(&self, device: Device) -> &Disk {
        match device {
            Device::Data => &self.data,
            Device::Journal => &self.journal,
        }
    }

    /// Size of a device.
    pub(crate) fn bytes(&self, device: Device) -> u64 {
        self.disk(device).info().bytes
    }

    /// Reads bytes at any alignment.
    pub(crate) async fn read(&self, device: Device, offset: u64, length: u64) -> FsckResult<Read> {
        let end = offset.checked_add(length).filter(|end| *end <= self.bytes(device));
        let Some(end) = end else { return Ok(Err("it lies beyond the device's end".into())) };
        let (from, to) = (offset / SECTOR * SECTOR, end.next_multiple_of(SECTOR));
        if to > self.bytes(device) {
            return Ok(Err("it lies beyond the device's last whole sector".into()));
        }
        if length == 0 {
            return Ok(Ok(Bytes::new()));
        }
        match self.disk(device).read(from, (to - from) as usize).await {
            Ok(bytes) => Ok(Ok(bytes.freeze().slice((offset - from) as usize..(end - from) as usize))),
            Err(error) if error.kind == EnvErrorKind::Medium => Ok(Err(error.message)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads whole sectors. Unreadable sectors are returned as zeros, with a list of their offsets.
    pub(crate) async fn read_around(&self, device: Device, offset: u64, length: u64) -> FsckResult<(Bytes, Vec<u64>)> {
        if let Ok(bytes) = self.read(device, offset, length).await? {
            return Ok((bytes, Vec::new()));
        }
        let (mut out, mut bad) = (Vec::with_capacity(length as usize), Vec::new());
        for at in (offset..offset + length).step_by(SECTOR as usize) {
            match self.read(device, at, SECTOR).await? {
                Ok(sector) => out.extend_from_slice(&sector),
                Err(_) => {
                    out.resize(out.len() + SECTOR as usize, 0);
                    bad.push(at);
                }
            }
        }
        Ok((out.into(), bad))
    }
}
