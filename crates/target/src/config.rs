//! How a target is run.

use std::{rc::Rc, time::Duration};

use forebay_proto::message::ClusterMap;

use crate::limits;

/// How a target is run.
#[derive(Clone)]
pub struct TargetOptions {
    /// How long a restarted target waits for the clients that it knows. Clients that are missing then are evicted.
    pub recovery_window: Duration,
    /// A session that sends nothing for this long is evicted.
    pub session_timeout: Duration,
    /// Maximum bytes of bulk in memory at once, over all connections.
    pub bulk_bytes: u64,
    /// The cluster's map, where this server is the MGS.
    pub map: Option<Rc<dyn Fn() -> ClusterMap>>,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            recovery_window: limits::RECOVERY_WINDOW,
            session_timeout: limits::SESSION_TIMEOUT,
            bulk_bytes: limits::BULK_BYTES,
            map: None,
        }
    }
}
