//! Between the command line and the kernel's mount.

use forebay_env::{Address, Env, sync::watch};

use crate::{
    error::{CliError, CliResult},
    mount_options::Options,
};

/// Mounts, says so on stdout in one line, serves the kernel until the mount is taken away or `stop` is true.
pub async fn serve(
    _env: &Env,
    _mgs: Vec<Address>,
    _source: &str,
    _mnt: &str,
    _options: Options,
    _stop: watch::Receiver<bool>,
) -> CliResult {
    Err(CliError::failed("no fuse yet"))
}
