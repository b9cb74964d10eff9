//! Making a store, and opening its devices.
//!
//! The identity file is written last: an interrupted format leaves no store.

use std::rc::Rc;

use forebay_env::{AlignedBuf, Disk, Env, EnvErrorKind, OpenDisk};
use forebay_proto::Uuid;

use crate::{
    FormatOptions, Identity, MirrorPlace, StoreError, StoreErrorKind, StoreResult,
    identity::{self, Features},
    journal::Journal,
    limits,
    mirror::{self, Device, Dirs, Part},
    slab::header::{self, Geometry},
    slots::{self, Claim, Found, Who},
};

/// Files that name a device elsewhere.
const DATA_PATH_FILE: &str = "data.path";
pub(crate) const JOURNAL_PATH_FILE: &str = "journal.path";
const DATA_FILE: &str = "data";
pub(crate) const JOURNAL_FILE: &str = "journal";
/// Locked while the store is open.
pub(crate) const LOCK_FILE: &str = "lock";

/// See [`crate::Store::format`].
pub(crate) async fn format(env: &Env, dir: &str, options: &FormatOptions) -> StoreResult<Identity> {
    env.create_dir(dir)?;
    let _lock = env.lock_file(&join(dir, LOCK_FILE))?;
    if env.read_file(&join(dir, identity::FILE)).is_ok() {
        let words = format!("{dir} holds a target already; remove the directory first if it is to be made anew");
        return Err(StoreError::new(StoreErrorKind::Busy, words));
    }
    let places = [options.data_path.as_deref(), options.mirror.as_ref().and_then(|place| place.data_path.as_deref())];
    for path in places.into_iter().flatten() {
        slots::refuse_taken(env, path, "--overwrite-data", options.data_overwrite).await?;
    }
    remember_paths(env, dir, options.data_path.as_deref(), options.journal_path.as_deref())?;
    let mirrored = if options.mirror.is_some() { identity::MIRRORED } else { 0 };
    let mut identity = Identity {
        cluster: options.cluster,
        uuid: Uuid::from_random(env.random_u64(), env.random_u64()),
        target: options.target,
        slab_bytes: options.slab_bytes,
        stripe_bytes: options.stripe_bytes,
        data_bytes: options.data_bytes,
        journal_bytes: options.journal_bytes,
        generation: 1,
        features: Features { incompat: mirrored, ..Features::default() },
    };
    identity.validate()?;
    let mut claims = Vec::new();
    match make(env, dir, options, &mut identity, &mut claims).await {
        Ok(()) => Ok(identity),
        Err(error) => {
            for claim in claims {
                // Of two errors, the first is the cause.
                drop(claim.release(env).await);
            }
            Err(error)
        }
    }
}

/// Makes the parts, then the identity. `claims`: slots that this call took.
async fn make(
    env: &Env,
    dir: &str,
    options: &FormatOptions,
    identity: &mut Identity,
    claims: &mut Vec<Claim>,
) -> StoreResult<()> {
    let (data, journal) = match &options.mirror {
        None => make_parts(env, dir, options, identity, claims).await?,
        Some(place) => make_mirrored_parts(env, dir, place, options, identity, claims).await?,
    };
    data.write(0, vec![header::encode_device(identity).freeze()]).await?;
    data.flush().await?;
    Journal::format(env, &journal, identity.uuid, identity.generation).await?;
    // Before the identity is written: a slot that is neither locked nor settled counts as free.
    for claim in claims.iter() {
        claim.settle(env).await?;
    }
    if let Some(place) = &options.mirror {
        env.write_file(&join(&place.dir, identity::FILE), &identity.encode())?;
    }
    env.write_file(&join(dir, identity::FILE), &identity.encode())?;
    Ok(())
}

async fn make_parts(
    env: &Env,
    dir: &str,
    options: &FormatOptions,
    identity: &mut Identity,
    claims: &mut Vec<Claim>,
) -> StoreResult<(Device, Device)> {
    let journal = make_journal(env, dir, options, identity, options.journal_bytes, claims).await?;
    let data = make_part(env, dir, Part::Data, options.data_bytes).await?;
    set_sizes(identity, data.info().bytes, journal.info().bytes)?;
    Ok((data.into(), journal.into()))
}

async fn make_mirrored_parts(
    env: &Env,
    dir: &str,
    place: &MirrorPlace,
    options: &FormatOptions,
    identity: &mut Identity,
    claims: &mut Vec<Claim>,
) -> StoreResult<(Device, Device)> {
    let labels = limits::MIRROR_LABEL_BYTES;
    if place.dir == dir {
        return Err(StoreError::invalid(format!("{dir} cannot be both places of a mirrored target")));
    }
    env.create_dir(&place.dir)?;
    let _lock = env.lock_file(&join(&place.dir, LOCK_FILE))?;
    if env.read_file(&join(&place.dir, identity::FILE)).is_ok() {
        let words =
            format!("{} holds a target already; remove the directory first if it is to be made anew", place.dir);
        return Err(StoreError::new(StoreErrorKind::Busy, words));
    }
    remember_paths(env, &place.dir, place.data_path.as_deref(), place.journal_path.as_deref())?;
    mirror::remember(env, [dir, &place.dir], place.witness.as_deref())?;
    let bytes = options.journal_bytes + labels;
    let journal = [
        make_journal(env, dir, options, identity, bytes, claims).await?,
        make_journal(env, &place.dir, options, identity, bytes, claims).await?,
    ];
    let bytes = options.data_bytes + labels;
    let data = [make_part(env, dir, Part::Data, bytes).await?, make_part(env, &place.dir, Part::Data, bytes).await?];
    let of_both = |disks: &[Disk; 2]| disks[0].info().bytes.min(disks[1].info().bytes).saturating_sub(labels);
    let (data_bytes, journal_bytes) = (of_both(&data), of_both(&journal));
    set_sizes(identity, data_bytes, journal_bytes)?;
    let dirs = Rc::new(Dirs::of(env, dir)?);
    let data = mirror::make(env, identity, &dirs, Part::Data, data, data_bytes).await?;
    let journal = mirror::make(env, identity, &dirs, Part::Journal, journal, journal_bytes).await?;
    Ok((data, journal))
}

async fn make_part(env: &Env, dir: &str, part: Part, bytes: u64) -> StoreResult<Disk> {
    let options = OpenDisk { create_bytes: Some(bytes), prewrite: part == Part::Journal, ..OpenDisk::default() };
    open_part(env, dir, part, options).await
}

/// Makes the journal's device or file: in `dir`, or where `journal.path` says.
async fn make_journal(
    env: &Env,
    dir: &str,
    options: &FormatOptions,
    identity: &Identity,
    bytes: u64,
    claims: &mut Vec<Claim>,
) -> StoreResult<Disk> {
    let path = part_path(env, dir, Part::Journal);
    if path == join(dir, JOURNAL_FILE) {
        return make_part(env, dir, Part::Journal, bytes).await;
    }
    let mut found = slots::look(env, &path).await?;
    if options.journal_overwrite && matches!(found, Found::Other(..)) {
        clear(env, &path).await?;
        found = slots::look(env, &path).await?;
    }
    let who = Who { target: identity.uuid, cluster: identity.cluster, name: identity.target };
    let (disk, claim) = slots::make(env, &path, &found, who, bytes, options.journal_shared).await?;
    claims.extend(claim);
    Ok(disk)
}

/// Writes zeros over the part of a device that shows its use. Errors: `Busy` while it is open, where that can be
/// detected.
async fn clear(env: &Env, path: &str) -> StoreResult<()> {
    let disk = env.open_disk(path, OpenDisk::default()).await?;
    let bytes = disk.info().bytes.min(limits::SLOTS_START) as usize;
    disk.write_durable(0, vec![AlignedBuf::zeroed(bytes).freeze()]).await?;
    Ok(disk.flush().await?)
}

fn set_sizes(identity: &mut Identity, data_bytes: u64, journal_bytes: u64) -> StoreResult<()> {
    (identity.data_bytes, identity.journal_bytes) = (data_bytes, journal_bytes);
    identity.validate()?;
    refuse_too_many_slabs(identity)
}

/// Reads the identity in `dir`.
pub(crate) fn read_identity(env: &Env, dir: &str) -> StoreResult<Identity> {
    match env.read_file(&join(dir, identity::FILE)) {
        Ok(bytes) => Identity::decode(&bytes),
        Err(error) if error.kind == EnvErrorKind::NotFound => {
            let words = format!(
                "{dir} holds no Forebay target (no identity file). If there was one, bring back its directory or mount its disk; a \
                 new one is made with `forebay format`"
            );
            Err(StoreError::new(StoreErrorKind::Foreign, words))
        }
        Err(error) => Err(error.into()),
    }
}

/// The open devices of a store.
pub(crate) struct Devices {
    pub data: Device,
    pub journal: Device,
    /// The directories of a mirrored one, with their locks.
    pub dirs: Option<Rc<Dirs>>,
}

/// Opens the data and journal devices, and refuses those of other targets.
pub(crate) async fn open_devices(env: &Env, dir: &str, identity: &Identity) -> StoreResult<Devices> {
    let devices = match identity.is_mirrored() {
        false => {
            let data = open_part(env, dir, Part::Data, OpenDisk::default()).await?;
            let journal = open_journal(env, dir, identity).await?;
            Devices { data: data.into(), journal: journal.into(), dirs: None }
        }
        true => {
            let (data, journal, dirs) = mirror::open(env, dir, identity).await?;
            Devices { data, journal, dirs: Some(dirs) }
        }
    };
    let bytes = devices.data.bytes();
    if bytes < identity.data_bytes {
        let words = format!(
            "the data device of {} has {bytes} bytes, not {}: the wrong device, or cut short?",
            identity.target, identity.data_bytes
        );
        return Err(StoreError::new(StoreErrorKind::Foreign, words));
    }
    let good = |sector: &[u8]| header::check_device(sector, identity).is_ok();
    let sector = devices.data.read_checked(0, limits::SECTOR as usize, good).await?;
    header::check_device(&sector, identity)?;
    Ok(devices)
}

/// Opens the journal of a target that is not mirrored. Errors: if it is missing, the message says what to do.
pub(crate) async fn open_journal(env: &Env, dir: &str, identity: &Identity) -> StoreResult<Disk> {
    let path = part_path(env, dir, Part::Journal);
    let options = slots::resolve(env, &path, identity.uuid, OpenDisk::default()).await?;
    slots::open(env, &path, options).await.map_err(|error| match error.kind {
        EnvErrorKind::NotFound => {
            let place = if path == join(dir, "journal") { "" } else { "--journal PATH " };
            let words = format!(
                "the journal of {} is not at {path}. If its device is away, bring it back (or name its place in \
                 {dir}/journal.path). Only if it is lost for good: `forebay fsck --repair {place}{dir}` (with the MDT's \
                 directory, where that is not beside it) makes a new one from what the data holds, and lists what may be missing",
                identity.target
            );
            StoreError::new(StoreErrorKind::Foreign, words)
        }
        _ => {
            let error = StoreError::from(error);
            StoreError { message: format!("{path}: {}", error.message), ..error }
        }
    })
}

/// Joins a directory and a file name.
pub(crate) fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// Where a part of the target in `dir` lies.
pub(crate) fn part_path(env: &Env, dir: &str, part: Part) -> String {
    let (path_file, name) = match part {
        Part::Data => (DATA_PATH_FILE, DATA_FILE),
        Part::Journal => (JOURNAL_PATH_FILE, JOURNAL_FILE),
    };
    match env.read_file(&join(dir, path_file)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(_) => join(dir, name),
    }
}

async fn open_part(env: &Env, dir: &str, part: Part, options: OpenDisk) -> StoreResult<Disk> {
    let path = part_path(env, dir, part);
    let named = |error: forebay_env::EnvError| {
        let error = StoreError::from(error);
        StoreError { message: format!("{path}: {}", error.message), ..error }
    };
    env.open_disk(&path, options).await.map_err(named)
}

/// Records where the parts lie, if not in `dir` itself.
pub(crate) fn remember_paths(env: &Env, dir: &str, data: Option<&str>, journal: Option<&str>) -> StoreResult<()> {
    for (file, path) in [(DATA_PATH_FILE, data), (JOURNAL_PATH_FILE, journal)] {
        match path {
            Some(path) => env.write_file(&join(dir, file), format!("{path}\n").as_bytes())?,
            None => env.remove_file(&join(dir, file))?,
        }
    }
    Ok(())
}

fn refuse_too_many_slabs(identity: &Identity) -> StoreResult<()> {
    let count = Geometry::of(identity).slab_count;
    if u64::from(count) <= limits::slabs_max(identity.slab_bytes) {
        return Ok(());
    }
    Err(StoreError::invalid(format!("{count} slabs of {} bytes are too many: use larger slabs", identity.slab_bytes)))
}
