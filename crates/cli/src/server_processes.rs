//! The server processes of a cluster of `up`: which there are. `up` starts them, `down` stops them.

use std::time::Duration;

use forebay_command::cluster::{Cluster, Target};

/// How long a server process may take to stop cleanly.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Name of the process that serves all targets.
const SERVERS: &str = "servers";

/// Names of the server processes, with their targets.
pub fn of(cluster: &Cluster) -> Vec<(String, Vec<Target>)> {
    let targets = cluster.targets();
    if cluster.description.separate {
        targets.into_iter().map(|target| (target.id.to_string(), vec![target])).collect()
    } else if targets.is_empty() {
        Vec::new()
    } else {
        vec![(SERVERS.to_owned(), targets)]
    }
}
