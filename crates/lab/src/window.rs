//! The time in which a run is measured.

use std::time::Duration;

/// The measurement window of a run.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Time until the load is steady.
    pub warm_up: Duration,
    /// Time of the measurement after that.
    pub length: Duration,
}
