//! What the MDT does not know yet of when something was read. Pure; the rest: `accesses`.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

use forebay_env::Time;
use forebay_proto::Fid;

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
}
