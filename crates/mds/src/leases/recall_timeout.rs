//! Recall timeouts: how long the holder of a recalled lease may take before it is evicted.
//!
//! A silent holder has [`limits::RECALL_TIMEOUT_SILENT`]. A holder that sends requests may itself wait for a server, with bytes
//! that it acknowledged: it has [`limits::RECALL_TIMEOUT`], which begins anew while any server is in trouble, and each time
//! the holder releases a lease.

use forebay_env::Time;

use crate::limits;

/// Why a holder is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It sent nothing.
    Silent,
    /// It sent requests, and did not release the lease.
    Keeps,
}

impl Overdue {
    /// The reason, for the log.
    pub fn words(self) -> String {
        match self {
            Self::Silent => {
                format!("it held what others wait for, and was silent for {:?}", limits::RECALL_TIMEOUT_SILENT)
            }
            Self::Keeps => format!(
                "it held what others wait for, and did not give it back in {:?}, while all servers were well",
                limits::RECALL_TIMEOUT
            ),
        }
    }
}

/// The time since which all servers are well. See the module.
#[derive(Default)]
pub struct RecallTimeouts {
    troubled: Time,
    stopped: Time,
}

impl RecallTimeouts {
    /// A server was away at `now`, or its device stuck.
    pub fn trouble(&mut self, now: Time) {
        self.troubled = self.troubled.max(now);
    }

    /// This server was stopped itself until `now`, and received no requests.
    pub fn stopped(&mut self, now: Time) {
        self.stopped = now;
        self.trouble(now);
    }

    /// Until when a holder that sends requests may keep the lease. It was recalled at `asked`, and last released a lease
    /// at `progressed`. Released leases extend the time only up to a bound.
    pub fn while_in_contact(&self, asked: Time, progressed: Time) -> Time {
        let progressed = progressed.min(asked + limits::RECALL_TIMEOUT * limits::RECALL_EXTENSIONS);
        asked.max(progressed).max(self.troubled) + limits::RECALL_TIMEOUT
    }

    /// Until when a holder has time, and why it is overdue after that. It was recalled at `asked`, last sent a request at
    /// `seen`, and last released a lease at `progressed`.
    pub fn until(&self, asked: Time, seen: Time, progressed: Time) -> (Time, Overdue) {
        let silent = asked.max(seen).max(self.stopped) + limits::RECALL_TIMEOUT_SILENT;
        let keeps = self.while_in_contact(asked, progressed);
        if keeps < silent { (keeps, Overdue::Keeps) } else { (silent, Overdue::Silent) }
    }
}
