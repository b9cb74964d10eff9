//! How long a restarted target waits for its earlier clients: the value that a cluster of `up` remembers.

use std::time::Duration;

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult},
    processes::PidFile,
    units::write_duration,
};
use forebay_target::TargetOptions;

use crate::server_processes;

/// Sets the value of `up --recovery-window` in the description, which is not saved here. Errors: servers run with
/// another value; the change needs a restart.
pub fn set(asked: Duration, cluster: &mut Cluster) -> CliResult {
    let was = cluster.recovery_window().unwrap_or(TargetOptions::default().recovery_window);
    let mut processes = server_processes::of(cluster).into_iter();
    if asked != was && processes.any(|(name, _)| PidFile::of(&cluster.run_dir(), &name).running().is_some()) {
        let (was, dir) = (write_duration(was), cluster.dir.display());
        return Err(CliError::failed(format!(
            "--recovery-window: the servers run with {was}, and only a start changes it: `forebay down {dir}` first"
        )));
    }
    cluster.description.recovery_window = Some(write_duration(asked));
    Ok(())
}
