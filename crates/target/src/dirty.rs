//! Commit on share: which session changed which key since the last commit.
//!
//! Bounded by what may be uncommitted at all: a part of the store's journal.

use std::collections::{BTreeMap, VecDeque};

use forebay_proto::{SessionId, Transno};

/// Uncommitted changes by key.
#[derive(Default)]
pub struct Dirty {
    keys: BTreeMap<Box<[u8]>, (SessionId, Transno)>,
    log: VecDeque<(Transno, Box<[u8]>)>,
}

impl Dirty {
    /// `session` changed `key` under `transno`.
    pub fn touch(&mut self, key: Box<[u8]>, session: SessionId, transno: Transno) {
        self.log.push_back((transno, key.clone()));
        self.keys.insert(key, (session, transno));
    }

    /// Highest transno under which a session other than `session` changed one of `keys`.
    pub fn by_others<K: AsRef<[u8]>>(&self, session: SessionId, keys: &[K]) -> Option<Transno> {
        self.last(keys, |by| by != session)
    }

    /// Highest transno under which `session` itself changed one of `keys`.
    pub fn by_itself<K: AsRef<[u8]>>(&self, session: SessionId, keys: &[K]) -> Option<Transno> {
        self.last(keys, |by| by == session)
    }

    fn last<K: AsRef<[u8]>>(&self, keys: &[K], whose: impl Fn(SessionId) -> bool) -> Option<Transno> {
        if self.keys.is_empty() {
            return None;
        }
        keys.iter().filter_map(|k| self.keys.get(k.as_ref())).filter(|(by, _)| whose(*by)).map(|(_, t)| *t).max()
    }

    /// Forgets what is committed.
    pub fn committed(&mut self, last_committed: Transno) {
        while self.log.front().is_some_and(|(transno, _)| *transno <= last_committed) {
            let (_, key) = self.log.pop_front().expect("there is a front");
            if self.keys.get(&key).is_some_and(|(_, transno)| *transno <= last_committed) {
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
    fn others_wait_for_the_last_uncommitted_change_of_a_key() {
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
}
