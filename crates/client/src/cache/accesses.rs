//! Access times of what is read.
//!
//! A read sends no request for it. The client notes the time where the mount's rule wants it to move, and shows it to all who look
//! through this client. The time goes to the MDT with the close, which goes there anyway. Of a file that stays open, or a directory
//! that was listed, the client sends it in a request of its own after [`limits::ACCESS_TERM`].
//!
//! Invariant: it moves no other time, and no lease of anybody is recalled for it: other clients may see the time of before for as long
//! as they keep what they know.
//! Invariant: a time that somebody gives (utimensat) counts, whatever was noted before.
//! Not here: which calls count as reads (the mount's kernel, `fuse`).

use std::{rc::Rc, time::Duration};

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, SetAttr, features, set_attr},
};
use forebay_rpc::Call;

use crate::{Caller, Client, OpenFile, SetAttributes, file::FileState, limits};

impl FileState {
    /// When it was accessed, and changed, last, beside what is noted.
    fn last_times(&self) -> (i64, i64) {
        let like = self.attributes.like.borrow();
        let Some((_, attr)) = like.as_ref().filter(|_| self.buffered.borrow().is_clean()) else {
            // It has changed since anybody received it.
            return (i64::MIN, i64::MAX);
        };
        let written_ns = self.told().map_or(i64::MIN, |(_, written_ns)| written_ns);
        (attr.atime_ns, attr.mtime_ns.max(attr.ctime_ns).max(written_ns))
    }

    /// Times as a change of attributes left them.
    pub fn times_told(&self, told: &Attr) {
        if let Some((_, attr)) = self.attributes.like.borrow_mut().as_mut() {
            (attr.atime_ns, attr.mtime_ns, attr.ctime_ns) = (told.atime_ns, told.mtime_ns, told.ctime_ns);
        }
    }
}

/// `set`, which goes with a close, with the access time of what was read through it. A time that was given counts.
pub(crate) fn with_access(set: Option<SetAttr>, fid: Fid, accessed_ns: Option<i64>) -> Option<SetAttr> {
    let Some(at_ns) = accessed_ns else { return set };
    match set {
        Some(set) if set.mask & (set_attr::ATIME | set_attr::ATIME_NOW) != 0 => Some(set),
        Some(set) => Some(SetAttr { mask: set.mask | set_attr::ACCESSED, atime_ns: at_ns, ..set }),
        None => Some(request(fid, at_ns)),
    }
}

fn request(fid: Fid, at_ns: i64) -> SetAttr {
    let nobody = SetAttributes::default().request(&Caller { uid: 0, gid: 0, groups: Vec::new() }, fid, 0);
    SetAttr { mask: set_attr::ACCESSED, atime_ns: at_ns, ..nobody }
}

impl Client {
    /// A program has read of the file. True if that moves its access time.
    pub fn accessed(&self, file: &OpenFile) -> bool {
        let (accessed_ns, changed_ns) = file.state().last_times();
        self.note_access(file.fid(), (accessed_ns, changed_ns), limits::ACCESSES)
    }

    /// A program has listed a directory with these attributes.
    pub fn listed(&self, fid: Fid, accessed_ns: i64, changed_ns: i64) {
        if !self.inner.options.no_directory_access_times {
            self.note_access(fid, (accessed_ns, changed_ns), limits::ACCESSES_WITH_DIRECTORIES);
        }
    }

    fn note_access(&self, fid: Fid, (accessed_ns, changed_ns): (i64, i64), most: usize) -> bool {
        let (accesses, now_ns) = (&self.inner.cache.accesses, self.env().unix_time().0);
        let accessed_ns = accesses.at_ns(fid).map_or(accessed_ns, |noted_ns| noted_ns.max(accessed_ns));
        let moves = self.inner.options.access_times.moves(now_ns, accessed_ns, changed_ns);
        // Only an MDT that understands it is notified.
        let is_told = moves && self.inner.peers.mdt().session.has_feature(features::ACCESS_TIMES);
        if !is_told || !accesses.note(fid, now_ns, self.env().now(), most) {
            return false;
        }
        self.inner.mdt.leases.accessed(fid, now_ns);
        self.look_after_accesses();
        true
    }

    /// `attr` with the access time that the MDT may not know yet.
    pub(crate) fn with_accessed(&self, mut attr: Attr) -> Attr {
        if let Some(at_ns) = self.inner.cache.accesses.at_ns(attr.fid) {
            attr.atime_ns = attr.atime_ns.max(at_ns);
        }
        attr
    }

    /// The access time that the MDT receives with the file's close: in flight from now on.
    pub(crate) fn take_access(&self, fid: Fid) -> Option<i64> {
        if planted(Bug::AccessTimeNotSent) { None } else { self.inner.cache.accesses.take(fid) }
    }

    /// The MDT knows it, or never will.
    pub(crate) fn access_told(&self, fid: Fid, at_ns: i64) {
        self.inner.cache.accesses.told(fid, at_ns);
        if let Some(file) = self.inner.file(fid)
            && let Some((_, attr)) = file.attributes.like.borrow_mut().as_mut()
        {
            attr.atime_ns = attr.atime_ns.max(at_ns);
        }
    }

    /// Sees to it that access times of files that stay open, or whose close sends none, are sent some day.
    fn look_after_accesses(&self) {
        if self.inner.cache.accesses.ageing.replace(true) {
            return;
        }
        let (inner, env) = (Rc::downgrade(&self.inner), self.env().clone());
        drop(self.env().spawn(async move {
            loop {
                env.sleep(limits::ACCESS_TERM / 2).await;
                let Some(inner) = inner.upgrade() else { return };
                let client = Client { inner };
                client.tell_accesses(limits::ACCESS_TERM / 2).await;
                if client.inner.cache.accesses.is_empty() {
                    client.inner.cache.accesses.ageing.set(false);
                    return;
                }
            }
        }));
    }

    /// Tells the MDT, one after another, what has been noted for `age`.
    pub(crate) async fn tell_accesses(&self, age: Duration) {
        for fid in self.inner.cache.accesses.due(self.env().now(), age) {
            if let Some(at_ns) = self.take_access(fid) {
                // It may be gone by now, and what is lost of it is no loss.
                let _ = self.inner.peers.mdt().session.call(&request(fid, at_ns), Call::default()).await;
                self.access_told(fid, at_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_given_counts_more_than_what_was_read() {
        let given = SetAttr { mask: set_attr::ATIME | set_attr::MODE, atime_ns: 3, ..request(Fid::ROOT, 0) };
        assert_eq!(with_access(Some(given.clone()), Fid::ROOT, Some(9)), Some(given.clone()));
        let mode = SetAttr { mask: set_attr::MODE, ..given };
        let both = with_access(Some(mode.clone()), Fid::ROOT, Some(9)).expect("some");
        assert_eq!((both.mask, both.atime_ns), (set_attr::MODE | set_attr::ACCESSED, 9));
        assert_eq!(with_access(None, Fid::ROOT, Some(9)), Some(request(Fid::ROOT, 9)));
        assert_eq!(with_access(Some(mode.clone()), Fid::ROOT, None), Some(mode));
    }
}
