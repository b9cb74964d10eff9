//! Makes empty targets.

use std::path::Path;

use forebay_env::Env;
use forebay_proto::Uuid;
use forebay_store::{FormatOptions, Identity, Store};

use crate::{
    error::{CliResult, Doing},
    fresh::Fresh,
    paths::utf8,
};

/// Makes the directory and the target in it, or nothing at all. Errors: the directory is not empty.
pub async fn format_target(env: &Env, dir: &Path, options: &FormatOptions) -> CliResult<Identity> {
    let mut fresh = Fresh::default();
    fresh.take(dir)?;
    let identity = make_target(env, dir, options).await?;
    fresh.keep()?;
    Ok(identity)
}

/// Makes the directory, if it is missing, and the target in it. If it fails, parts of it stay: see [`Fresh`].
pub async fn make_target(env: &Env, dir: &Path, options: &FormatOptions) -> CliResult<Identity> {
    let dir = utf8(dir)?;
    env.create_dir(&dir).doing(|| format!("cannot make {dir}"))?;
    Store::format(env, &dir, options).await.doing(|| format!("cannot format {} in {dir}", options.target))
}

/// The uuid of a new cluster.
pub fn new_uuid(env: &Env) -> Uuid {
    Uuid::from_random(env.random_u64(), env.random_u64())
}
