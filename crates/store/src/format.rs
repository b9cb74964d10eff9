//! Making a store, and finding its parts again.
//!
//! The identity file is written last: a format that was interrupted leaves no store.

use forebay_env::{Disk, Env, EnvErrorKind, OpenDisk};
use forebay_proto::Uuid;

use crate::{
    FormatOptions, Identity, StoreError, StoreErrorKind, StoreResult,
    identity::{self, Features},
    journal::Journal,
    limits,
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
    remember_path(env, dir, DATA_PATH_FILE, options.data_path.as_deref())?;
    remember_path(env, dir, JOURNAL_PATH_FILE, options.journal_path.as_deref())?;
    let mut identity = Identity {
        cluster: options.cluster,
        uuid: Uuid::from_random(env.random_u64(), env.random_u64()),
        target: options.target,
        slab_bytes: options.slab_bytes,
        stripe_bytes: options.stripe_bytes,
        data_bytes: options.data_bytes,
        journal_bytes: options.journal_bytes,
        generation: 1,
        features: Features::default(),
    };
    identity.validate()?;
    let create = |bytes| OpenDisk { create_bytes: Some(bytes), ..OpenDisk::default() };
    let data = open_part(env, dir, DATA_PATH_FILE, DATA_FILE, create(options.data_bytes)).await?;
    let prewrite = OpenDisk { prewrite: true, ..create(options.journal_bytes) };
    let journal = open_part(env, dir, JOURNAL_PATH_FILE, JOURNAL_FILE, prewrite).await?;
    identity.data_bytes = data.info().bytes;
    identity.journal_bytes = journal.info().bytes;
    identity.validate()?;
    refuse_too_many_slabs(&identity)?;
    data.write(0, vec![header::encode_device(&identity).freeze()]).await?;
    data.flush().await?;
    Journal::format(env, &journal, identity.uuid, identity.generation).await?;
    env.write_file(&join(dir, identity::FILE), &identity.encode())?;
    Ok(identity)
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

/// Opens the data device and the journal's, and refuses others'.
pub(crate) async fn open_devices(env: &Env, dir: &str, identity: &Identity) -> StoreResult<(Disk, Disk)> {
    let data = open_part(env, dir, DATA_PATH_FILE, DATA_FILE, OpenDisk::default()).await?;
    let journal = open_part(env, dir, JOURNAL_PATH_FILE, JOURNAL_FILE, OpenDisk::default()).await?;
    if data.info().bytes < identity.data_bytes {
        let words = format!(
            "the data device of {} has {} bytes, not {}: the wrong device, or cut short?",
            identity.target,
            data.info().bytes,
            identity.data_bytes
        );
        return Err(StoreError::new(StoreErrorKind::Foreign, words));
    }
    let sector = data.read(0, limits::SECTOR as usize).await?;
    header::check_device(&sector, identity)?;
    Ok((data, journal))
}

/// Joins a directory and a file name.
pub(crate) fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

async fn open_part(env: &Env, dir: &str, path_file: &str, name: &str, options: OpenDisk) -> StoreResult<Disk> {
    let path = match env.read_file(&join(dir, path_file)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(_) => join(dir, name),
    };
    let named = |error: forebay_env::EnvError| {
        let error = StoreError::from(error);
        StoreError { message: format!("{path}: {}", error.message), ..error }
    };
    env.open_disk(&path, options).await.map_err(named)
}

fn remember_path(env: &Env, dir: &str, file: &str, path: Option<&str>) -> StoreResult<()> {
    match path {
        Some(path) => env.write_file(&join(dir, file), format!("{path}\n").as_bytes())?,
        None => env.remove_file(&join(dir, file))?,
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
