//! Size watches: sessions that act by the size of a file that others may make larger.
//!
//! A request that makes a watched file larger is replied to only after every other watcher has confirmed the new size.
//!
//! Invariant: no request waits longer than [`limits::WATCH_TERM`]. A watcher that is silent for that long loses its
//! watch.
//! Invariant: bounded ([`limits::WATCHES`]). At the bound a further watch is refused, and its session learns of a
//! larger size only when it asks.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use forebay_env::{Env, sync::Notify};
use forebay_proto::{Fid, SessionId};

use crate::limits;

/// A session that watches a file.
struct Watch {
    /// The size that the session knows.
    known: u64,
    /// Notified when the file may have grown.
    news: Rc<Notify>,
}

/// All watches. See the module.
#[derive(Default)]
pub struct Watches {
    of: RefCell<BTreeMap<Fid, BTreeMap<SessionId, Watch>>>,
    count: Cell<usize>,
    /// Notified when a session has confirmed a size, or its watch has ended.
    said: Notify,
}

impl Watches {
    /// `session` knows that `fid` is `known` bytes long. Returns what notifies it of a larger size; `None`: too many
    /// watches.
    pub fn knows(&self, session: SessionId, fid: Fid, known: u64) -> Option<Rc<Notify>> {
        let mut of = self.of.borrow_mut();
        let is_new = of.get(&fid).is_none_or(|all| !all.contains_key(&session));
        if is_new && self.count.get() >= limits::WATCHES {
            return None;
        }
        self.count.set(self.count.get() + usize::from(is_new));
        let watch =
            of.entry(fid).or_default().entry(session).or_insert_with(|| Watch { known, news: Rc::new(Notify::new()) });
        watch.known = known;
        self.said.notify_waiters();
        Some(watch.news.clone())
    }

    /// Ends the watch of `session` on `fid`.
    pub fn end(&self, session: SessionId, fid: Fid) {
        let mut of = self.of.borrow_mut();
        if let Some(all) = of.get_mut(&fid)
            && all.remove(&session).is_some()
        {
            self.count.set(self.count.get() - 1);
            if all.is_empty() {
                of.remove(&fid);
            }
        }
        drop(of);
        self.said.notify_waiters();
    }

    /// Ends all watches of `session`.
    pub fn end_session(&self, session: SessionId) {
        let of = self.of.borrow();
        let fids: Vec<Fid> = of.iter().filter(|(_, all)| all.contains_key(&session)).map(|(fid, _)| *fid).collect();
        drop(of);
        fids.into_iter().for_each(|fid| self.end(session, fid));
    }

    /// Whether any session watches `fid`.
    pub fn has(&self, fid: Fid) -> bool {
        self.count.get() > 0 && self.of.borrow().contains_key(&fid)
    }

    /// Watchers other than `by` that do not know yet that `fid` is `bytes` long.
    fn behind(&self, by: SessionId, fid: Fid, bytes: u64) -> Vec<(SessionId, Rc<Notify>)> {
        let of = self.of.borrow();
        let all = of.get(&fid).into_iter().flatten();
        let all = all.filter(|(session, watch)| **session != by && watch.known < bytes);
        all.map(|(session, watch)| (*session, watch.news.clone())).collect()
    }

    /// `by` made `fid` `bytes` long. Waits until every other watcher knows that size.
    pub async fn grew(&self, env: &Env, by: SessionId, fid: Fid, bytes: u64) {
        self.behind(by, fid, bytes).iter().for_each(|(_, news)| news.notify_waiters());
        let until = env.now() + limits::WATCH_TERM;
        loop {
            let behind = self.behind(by, fid, bytes);
            if behind.is_empty() {
                return;
            }
            let left = until.since(env.now());
            if left.is_zero() || env.timeout(left, self.said.notified()).await.is_err() {
                self.behind(by, fid, bytes).into_iter().for_each(|(session, _)| self.end(session, fid));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    #[test]
    fn growth_notifies_only_watchers_with_a_smaller_size() {
        let watches = Watches::default();
        assert!(!watches.has(fid(1)));
        watches.knows(SessionId(1), fid(1), 100);
        watches.knows(SessionId(2), fid(1), 200);
        watches.knows(SessionId(2), fid(2), 5);
        let behind = |bytes| {
            watches.behind(SessionId(9), fid(1), bytes).into_iter().map(|(session, _)| session.0).collect::<Vec<_>>()
        };
        assert_eq!((behind(100), behind(150), behind(201)), (vec![], vec![1], vec![1, 2]));
        assert!(watches.behind(SessionId(1), fid(1), 150).is_empty(), "it made it so long itself");
        watches.knows(SessionId(1), fid(1), 300);
        assert_eq!(behind(201), [2]);
        watches.end_session(SessionId(2));
        assert!(watches.has(fid(1)) && !watches.has(fid(2)) && behind(201).is_empty());
        watches.end(SessionId(1), fid(1));
        watches.end(SessionId(1), fid(1));
        assert_eq!((watches.count.get(), watches.has(fid(1))), (0, false));
    }

    #[test]
    fn there_are_no_more_than_may_be() {
        let watches = Watches::default();
        let all = (0..limits::WATCHES as u64 + 5).map(|n| watches.knows(SessionId(n % 7), fid(n), 0).is_some());
        assert_eq!(all.filter(|may| *may).count(), limits::WATCHES);
        assert!(watches.knows(SessionId(0), fid(0), 9).is_some(), "it watches already");
    }
}
