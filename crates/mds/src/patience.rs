//! How long who holds what others wait for may take to give it back.
//!
//! Who is silent has [`limits::DATA_TERM`]. Who is heard may be waiting for a server itself, with bytes that it was acknowledged for: it
//! has [`limits::HEARD_TERM`] from when all servers were well, and it has last given something back, and is taken for one that will not
//! give it back then.

use forebay_env::Time;

use crate::limits;

/// What a holder did that keeps others waiting for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It was not heard.
    Silent,
    /// It was heard, and kept it.
    Keeps,
}

impl Overdue {
    /// For who reads of the eviction.
    pub fn words(self) -> String {
        match self {
            Self::Silent => format!("it held what others wait for, and was silent for {:?}", limits::DATA_TERM),
            Self::Keeps => format!(
                "it held what others wait for, and did not give it back in {:?}, while all servers were well",
                limits::HEARD_TERM
            ),
        }
    }
}

/// Since when holders have no reason to wait for servers. See the module.
#[derive(Default)]
pub struct Patience {
    troubled: Time,
    stopped: Time,
}

impl Patience {
    /// Some server was away at `now`, or its device stuck.
    pub fn trouble(&mut self, now: Time) {
        self.troubled = self.troubled.max(now);
    }

    /// This server was stopped itself until `now`: it has heard nobody.
    pub fn stopped(&mut self, now: Time) {
        self.stopped = now;
        self.trouble(now);
    }

    /// Until when one that was asked at `asked`, and has last given something back at `progressed`, may be heard and keep it. What else it
    /// gives back does not count for ever.
    pub fn while_heard(&self, asked: Time, progressed: Time) -> Time {
        let progressed = progressed.min(asked + limits::HEARD_TERM * limits::HEARD_TERMS);
        asked.max(progressed).max(self.troubled) + limits::HEARD_TERM
    }

    /// Until when one that was asked at `asked`, last heard at `seen`, and has last given something back at `progressed` has time, and
    /// what it is when that is over.
    pub fn until(&self, asked: Time, seen: Time, progressed: Time) -> (Time, Overdue) {
        let silent = asked.max(seen).max(self.stopped) + limits::DATA_TERM;
        let keeps = self.while_heard(asked, progressed);
        if keeps < silent { (keeps, Overdue::Keeps) } else { (silent, Overdue::Silent) }
    }
}
