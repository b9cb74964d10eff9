//! Making a store, and finding its parts again.
//!
//! The identity file is written last: a format that was interrupted leaves no store.

use std::rc::Rc;

use forebay_env::{Disk, Env, EnvErrorKind, OpenDisk};
use forebay_proto::Uuid;

use crate::{
    FormatOptions, Identity, MirrorPlace, StoreError, StoreErrorKind, StoreResult,
    identity::{self, Features},
    journal::Journal,
    limits,
    mirror::{self, Device, Dirs, Part},
    slab::header::{self, Geometry},
};

/// Files that name a device elsewhere.
const DATA_PATH_FILE: &str = "data.path";
const JOURNAL_PATH_FILE: &str = "journal.path";
const DATA_FILE: &str = "data";
const JOURNAL_FILE: &str = "journal";
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
    let (data, journal) = match &options.mirror {
        None => make_parts(env, dir, options, &mut identity).await?,
        Some(place) => make_mirrored_parts(env, dir, place, options, &mut identity).await?,
    };
    data.write(0, vec![header::encode_device(&identity).freeze()]).await?;
    data.flush().await?;
    Journal::format(env, &journal, identity.uuid, identity.generation).await?;
    if let Some(place) = &options.mirror {
        env.write_file(&join(&place.dir, identity::FILE), &identity.encode())?;
    }
    env.write_file(&join(dir, identity::FILE), &identity.encode())?;
    Ok(identity)
}

async fn make_parts(
    env: &Env,
    dir: &str,
    options: &FormatOptions,
    identity: &mut Identity,
) -> StoreResult<(Device, Device)> {
    let data = make_part(env, dir, Part::Data, options.data_bytes).await?;
    let journal = make_part(env, dir, Part::Journal, options.journal_bytes).await?;
    set_sizes(identity, data.info().bytes, journal.info().bytes)?;
    Ok((data.into(), journal.into()))
}

async fn make_mirrored_parts(
    env: &Env,
    dir: &str,
    place: &MirrorPlace,
    options: &FormatOptions,
    identity: &mut Identity,
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
    let make = async |part, bytes| {
        let one = make_part(env, dir, part, bytes + labels).await?;
        let two = make_part(env, &place.dir, part, bytes + labels).await?;
        let bytes = one.info().bytes.min(two.info().bytes).saturating_sub(labels);
        StoreResult::Ok(([one, two], bytes))
    };
    let (data, data_bytes) = make(Part::Data, options.data_bytes).await?;
    let (journal, journal_bytes) = make(Part::Journal, options.journal_bytes).await?;
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
            let words = format!("{dir} holds no Forebay target (no identity file); make one with `forebay format`");
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

/// Opens the data device and the journal's, and refuses others'.
pub(crate) async fn open_devices(env: &Env, dir: &str, identity: &Identity) -> StoreResult<Devices> {
    let devices = match identity.is_mirrored() {
        false => {
            let data = open_part(env, dir, Part::Data, OpenDisk::default()).await?;
            let journal = open_part(env, dir, Part::Journal, OpenDisk::default()).await?;
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

/// Writes down where the parts lie, if not in `dir` itself.
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
