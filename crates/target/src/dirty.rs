//! Commit-on-share: which session changed which key since the last commit.
//!
//! Bound: what may be uncommitted at all, which is a part of the store's journal.

use std::collections::{BTreeMap, VecDeque};

use forebay_proto::{SessionId, Transno};

/// Uncommitted changes by key.
#[derive(Default)]
pub struct Dirty {
    keys: BTreeMap<Box<[u8]>, Change>,
    log: VecDeque<(Transno, Box<[u8]>)>,
}

/// The uncommitted changes of a key.
#[derive(Clone, Copy)]
struct Change {
    /// The session of the last change.
    by: SessionId,
    /// Its transno.
    at: Transno,
    /// Highest transno of any other session: changes of a directory's entries by several sessions do not wait for each
    /// other.
    others_at: Option<Transno>,
}

impl Change {
    fn after(self, session: SessionId, transno: Transno) -> Self {
        if self.by == session {
            Self { at: self.at.max(transno), ..self }
        } else if transno > self.at {
            Self { by: session, at: transno, others_at: Some(self.at) }
        } else {
            Self { others_at: self.others_at.max(Some(transno)), ..self }
        }
    }
}

impl Dirty {
    /// `session` changed `key` under `transno`.
    pub fn touch(&mut self, key: Box<[u8]>, session: SessionId, transno: Transno) {
        self.log.push_back((transno, key.clone()));
        let only = Change { by: session, at: transno, others_at: None };
        self.keys.entry(key).and_modify(|change| *change = change.after(session, transno)).or_insert(only);
    }

    /// Highest transno under which a session other than `session` changed one of `keys`.
    pub fn by_others<K: AsRef<[u8]>>(&self, session: SessionId, keys: &[K]) -> Option<Transno> {
        self.last(keys, |change| if change.by == session { change.others_at } else { Some(change.at) })
    }

    /// Highest transno under which `session` itself was the last to change one of `keys`.
    pub fn by_itself<K: AsRef<[u8]>>(&self, session: SessionId, keys: &[K]) -> Option<Transno> {
        self.last(keys, |change| (change.by == session).then_some(change.at))
    }

    fn last<K: AsRef<[u8]>>(&self, keys: &[K], of: impl Fn(&Change) -> Option<Transno>) -> Option<Transno> {
        if self.keys.is_empty() {
            return None;
        }
        keys.iter().filter_map(|key| self.keys.get(key.as_ref())).filter_map(of).max()
    }

    /// Forgets what is committed.
    pub fn committed(&mut self, last_committed: Transno) {
        while self.log.front().is_some_and(|(transno, _)| *transno <= last_committed) {
            let (_, key) = self.log.pop_front().expect("there is a front");
            let Some(change) = self.keys.get_mut(&key) else { continue };
            change.others_at = change.others_at.filter(|at| *at > last_committed);
            if change.at <= last_committed {
                self.keys.remove(&key);
            }
        }
    }

    /// Keys with uncommitted changes.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_session_waits_for_the_last_uncommitted_change_of_a_key() {
        let mut dirty = Dirty::default();
        let (a, b) = (SessionId(1), SessionId(2));
        dirty.touch(b"k".to_vec().into(), a, Transno(5));
        dirty.touch(b"k".to_vec().into(), a, Transno(7));
        dirty.touch(b"l".to_vec().into(), b, Transno(8));
        assert_eq!(dirty.by_others(b, &[b"k"]), Some(Transno(7)));
        assert_eq!(dirty.by_others(a, &[b"k"]), None);
        assert_eq!(dirty.by_itself(a, &[b"k", b"l"]), Some(Transno(7)));
        dirty.committed(Transno(6));
        assert_eq!(dirty.by_others(b, &[b"k"]), Some(Transno(7)), "the later change is not committed yet");
        dirty.committed(Transno(8));
        assert_eq!(dirty.len(), 0);
    }
    #[test]
    fn a_change_is_not_forgotten_over_anothers() {
        let mut dirty = Dirty::default();
        let (a, b, c) = (SessionId(1), SessionId(2), SessionId(3));
        dirty.touch(b"k".to_vec().into(), a, Transno(5));
        dirty.touch(b"k".to_vec().into(), b, Transno(6));
        assert_eq!(dirty.by_others(b, &[b"k"]), Some(Transno(5)));
        assert_eq!(dirty.by_others(c, &[b"k"]), Some(Transno(6)));
        dirty.touch(b"k".to_vec().into(), b, Transno(9));
        dirty.touch(b"k".to_vec().into(), c, Transno(7));
        assert_eq!((dirty.by_others(b, &[b"k"]), dirty.by_itself(b, &[b"k"])), (Some(Transno(7)), Some(Transno(9))));
        dirty.committed(Transno(7));
        assert_eq!((dirty.by_others(b, &[b"k"]), dirty.by_others(a, &[b"k"])), (None, Some(Transno(9))));
        dirty.committed(Transno(9));
        assert_eq!(dirty.len(), 0);
    }
}
