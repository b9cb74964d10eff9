//! Which reads move access times, and what the MDT does not know yet of when something was read. Pure; the rest: `accesses`.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use forebay_env::Time;
use forebay_proto::Fid;

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Which reads move an access time, as mount(8) names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// The first one after a change, and the first one of a day (`relatime`).
    #[default]
    Relative,
    /// Each (`strictatime`).
    Always,
    /// None (`noatime`).
    Never,
}

impl AccessTimes {
    /// Whether a read at `now_ns` moves the access time of what was accessed, and changed, last at these times. Pure.
    pub fn moves(self, now_ns: i64, accessed_ns: i64, changed_ns: i64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => now_ns > accessed_ns,
            Self::Relative => changed_ns >= accessed_ns || now_ns.saturating_sub(accessed_ns) >= DAY_NS,
        }
    }
}

/// When something was read, as far as the MDT does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Accessed {
    at_ns: i64,
    since: Time,
    is_sent: bool,
}

/// Access times of files and directories that the MDT does not know yet.
#[derive(Default)]
pub(crate) struct Accesses {
    noted: RefCell<BTreeMap<Fid, Accessed>>,
    /// A task looks after those that grow old.
    pub ageing: Cell<bool>,
}

impl Accesses {
    /// It was read at `at_ns`. False if there are `most` already: the MDT is not notified of it.
    pub fn note(&self, fid: Fid, at_ns: i64, now: Time, most: usize) -> bool {
        let mut noted = self.noted.borrow_mut();
        let before = noted.get(&fid).copied();
        if before.is_none() && noted.len() >= most {
            return false;
        }
        let since = before.filter(|before| !before.is_sent).map_or(now, |before| before.since);
        noted.insert(fid, Accessed { at_ns, since, is_sent: false });
        true
    }

    /// When it was read last.
    pub fn at_ns(&self, fid: Fid) -> Option<i64> {
        self.noted.borrow().get(&fid).map(|accessed| accessed.at_ns)
    }

    /// The access time to send to the MDT: it is in flight from now on.
    pub fn take(&self, fid: Fid) -> Option<i64> {
        let mut noted = self.noted.borrow_mut();
        let accessed = noted.get_mut(&fid).filter(|accessed| !accessed.is_sent)?;
        accessed.is_sent = true;
        Some(accessed.at_ns)
    }

    /// The MDT knows it, or never will.
    pub fn told(&self, fid: Fid, at_ns: i64) {
        let mut noted = self.noted.borrow_mut();
        if noted.get(&fid).is_some_and(|accessed| accessed.is_sent && accessed.at_ns == at_ns) {
            noted.remove(&fid);
        }
    }

    /// Somebody gives it an access time: what was read before does not count.
    pub fn forget(&self, fid: Fid) {
        self.noted.borrow_mut().remove(&fid);
    }

    /// Those that are not on their way, and have been here for `age`.
    pub fn due(&self, now: Time, age: Duration) -> Vec<Fid> {
        let noted = self.noted.borrow();
        let due = noted.iter().filter(|(_, accessed)| !accessed.is_sent && accessed.since + age <= now);
        due.map(|(fid, _)| *fid).collect()
    }

    /// Nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.noted.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::testing::Dice;

    #[test]
    fn relative_access_times_move_after_a_change_and_once_a_day() {
        let moves = |now_ns, accessed_ns, changed_ns| AccessTimes::Relative.moves(now_ns, accessed_ns, changed_ns);
        assert!(moves(10, 5, 5) && moves(10, 5, 7) && !moves(10, 5, 4));
        assert!(moves(5 + DAY_NS, 5, 4) && !moves(4 + DAY_NS, 5, 4));
        assert!(!moves(3, 5, 4), "a clock that was set back moves none");
    }

    #[test]
    fn all_or_no_reads_move_access_times_where_that_was_asked_for() {
        assert!(AccessTimes::Always.moves(10, 9, 0) && !AccessTimes::Always.moves(9, 9, 0));
        assert!(!AccessTimes::Never.moves(10, 5, 7));
    }

    const FILE: Fid = Fid { high: 0, low: 9 };

    #[test]
    fn a_read_while_an_earlier_access_time_is_on_its_way_is_told_later() {
        let accesses = Accesses::default();
        assert!(
            accesses.note(FILE, 10, Time(1), limits::ACCESSES) && accesses.note(FILE, 20, Time(2), limits::ACCESSES)
        );
        assert_eq!(accesses.take(FILE), Some(20));
        assert_eq!((accesses.take(FILE), accesses.at_ns(FILE)), (None, Some(20)), "it is on its way, and shown");
        assert!(accesses.note(FILE, 30, Time(3), limits::ACCESSES));
        accesses.told(FILE, 20);
        assert_eq!(accesses.take(FILE), Some(30));
        accesses.told(FILE, 30);
        assert!(accesses.is_empty());
    }

    #[test]
    fn an_access_time_is_due_when_it_has_been_here_for_long_enough_whatever_was_read_since() {
        let (accesses, age) = (Accesses::default(), Duration::from_nanos(5));
        accesses.note(FILE, 10, Time(100), limits::ACCESSES);
        accesses.note(FILE, 20, Time(104), limits::ACCESSES);
        assert_eq!(accesses.due(Time(104), age), []);
        assert_eq!(accesses.due(Time(105), age), [FILE]);
        accesses.take(FILE);
        assert_eq!(accesses.due(Time(1000), age), [], "it is on its way");
        accesses.forget(FILE);
        assert_eq!((accesses.at_ns(FILE), accesses.is_empty()), (None, true));
    }

    #[test]
    fn no_more_access_times_are_noted_than_the_bound_allows() {
        let accesses = Accesses::default();
        let noted = (0..limits::ACCESSES as u64 + 5)
            .filter(|low| accesses.note(Fid { high: 1, low: *low }, 1, Time(0), limits::ACCESSES));
        assert_eq!(noted.count(), limits::ACCESSES);
        assert!(accesses.note(Fid { high: 1, low: 0 }, 2, Time(0), limits::ACCESSES), "one that is there may move");
    }

    #[test]
    fn a_relative_access_time_never_stays_behind_a_change_nor_a_day_behind_the_last_read() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (mut now, mut accessed, mut changed) = (DAY_NS, 0, 0);
            for _ in 0..100 {
                now += 1 + dice.below(DAY_NS as u64 / 3) as i64;
                if dice.one_in(3) {
                    changed = now;
                    continue;
                }
                if AccessTimes::Relative.moves(now, accessed, changed) {
                    assert!(accessed <= changed || now - accessed >= DAY_NS, "seed {seed}: it moves for nothing");
                    accessed = now;
                }
                assert!(accessed > changed && now - accessed < DAY_NS, "seed {seed}: {accessed} of {now}");
            }
        }
        assert!(
            !AccessTimes::Relative.moves(i64::MIN, i64::MAX, 0)
                && AccessTimes::Relative.moves(i64::MAX, i64::MIN, i64::MIN)
        );
    }
}
