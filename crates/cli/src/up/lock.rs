//! One command at a time works on a cluster.

use std::fs::TryLockError;

use forebay_command::{
    cluster::Cluster,
    error::{CliError, CliResult, Doing},
};

/// Held while `up` or `down` works on a cluster.
pub struct Lock {
    _file: std::fs::File,
}

impl Lock {
    /// Refuses while another command holds it.
    pub fn take(cluster: &Cluster) -> CliResult<Self> {
        let run_dir = cluster.run_dir();
        std::fs::create_dir_all(&run_dir).doing(|| format!("cannot make {}", run_dir.display()))?;
        let path = run_dir.join("lock");
        let file = std::fs::File::create(&path).doing(|| format!("cannot make {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(CliError::failed(format!(
                "another `forebay up` or `down` works on {}; wait for it",
                cluster.dir.display()
            ))),
            Err(TryLockError::Error(error)) => {
                Err(CliError::failed(format!("cannot lock {}: {error}", path.display())))
            }
        }
    }
}
