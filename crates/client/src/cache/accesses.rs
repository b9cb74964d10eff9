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

use std::rc::Rc;

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, SetAttr, features, set_attr},
};
use forebay_rpc::Call;

use crate::{Caller, Client, OpenFile, SetAttributes, cache::access_times::Accessed, file::FileState, limits};

impl FileState {
    /// When it was accessed, and changed, last.
    fn last_times(&self) -> (i64, i64) {
        let noted_ns = self.attributes.accessed.get().map_or(i64::MIN, |accessed| accessed.at_ns);
        let like = self.attributes.like.borrow();
        let Some((_, attr)) = like.as_ref().filter(|_| self.buffered.borrow().is_clean()) else {
            // It has changed since anybody told.
            return (noted_ns, i64::MAX);
        };
        let written_ns = self.told().map_or(i64::MIN, |(_, written_ns)| written_ns);
        (noted_ns.max(attr.atime_ns), attr.mtime_ns.max(attr.ctime_ns).max(written_ns))
    }

    /// Times as a change of attributes left them.
    pub fn times_told(&self, told: &Attr) {
        if let Some((_, attr)) = self.attributes.like.borrow_mut().as_mut() {
            (attr.atime_ns, attr.mtime_ns, attr.ctime_ns) = (told.atime_ns, told.mtime_ns, told.ctime_ns);
        }
    }

    /// The access time that the MDT is to be told: it is on its way from now on.
    pub fn take_access(&self) -> Option<i64> {
        let accessed =
            self.attributes.accessed.get().filter(|accessed| !accessed.is_sent && !planted(Bug::AccessTimeNotSent))?;
        self.attributes.accessed.set(Some(Accessed { is_sent: true, ..accessed }));
        Some(accessed.at_ns)
    }

    /// The MDT knows it, or never will.
    pub fn access_told(&self, at_ns: i64) {
        if self.attributes.accessed.get().is_some_and(|accessed| accessed.is_sent && accessed.at_ns == at_ns) {
            self.attributes.accessed.set(None);
        }
        if let Some((_, attr)) = self.attributes.like.borrow_mut().as_mut() {
            attr.atime_ns = attr.atime_ns.max(at_ns);
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
        let (rule, state) = (self.inner.options.access_times, file.state());
        let now_ns = self.env().unix_time().0;
        let (accessed_ns, changed_ns) = state.last_times();
        if !rule.moves(now_ns, accessed_ns, changed_ns) || !self.tells_accesses() {
            return false;
        }
        let since = state
            .attributes
            .accessed
            .get()
            .filter(|before| !before.is_sent)
            .map_or(self.env().now(), |before| before.since);
        state.attributes.accessed.set(Some(Accessed { at_ns: now_ns, since, is_sent: false }));
        self.inner.mdt.leases.accessed(file.fid(), now_ns);
        self.look_after_accesses();
        true
    }

    /// A program has listed a directory with these attributes.
    pub fn listed(&self, fid: Fid, accessed_ns: i64, changed_ns: i64) {
        let (options, now_ns) = (&self.inner.options, self.env().unix_time().0);
        if options.no_directory_access_times || !self.tells_accesses() {
            return;
        }
        let mut directories = self.inner.cache.accesses.directories.borrow_mut();
        let noted = directories.get(&fid).copied();
        let accessed_ns = noted.map_or(accessed_ns, |noted| noted.at_ns.max(accessed_ns));
        let has_room = noted.is_some() || directories.len() < limits::LISTED_DIRECTORIES;
        if !has_room || !options.access_times.moves(now_ns, accessed_ns, changed_ns) {
            return;
        }
        let since = noted.map_or(self.env().now(), |noted| noted.since);
        directories.insert(fid, Accessed { at_ns: now_ns, since, is_sent: false });
        drop(directories);
        self.inner.mdt.leases.accessed(fid, now_ns);
        self.look_after_accesses();
    }

    /// The MDT understands what it would be told.
    fn tells_accesses(&self) -> bool {
        self.inner.peers.mdt().session.has_feature(features::ACCESS_TIMES)
    }

    /// `attr` with the access time that the MDT may not know yet.
    pub(crate) fn with_accessed(&self, mut attr: Attr) -> Attr {
        let of_file = || self.inner.file(attr.fid).and_then(|file| file.attributes.accessed.get());
        let of_directory = || self.inner.cache.accesses.directories.borrow().get(&attr.fid).copied();
        if let Some(accessed) = of_file().or_else(of_directory) {
            attr.atime_ns = attr.atime_ns.max(accessed.at_ns);
        }
        attr
    }

    /// Somebody gives `fid` an access time: what was read before does not count.
    pub(crate) fn forget_access(&self, fid: Fid) {
        if let Some(file) = self.inner.file(fid) {
            file.attributes.accessed.set(None);
        }
        self.inner.cache.accesses.directories.borrow_mut().remove(&fid);
    }

    /// Sees to it that what stays open, or is closed without a word, is told some day.
    fn look_after_accesses(&self) {
        if self.inner.cache.accesses.ageing.replace(true) {
            return;
        }
        let inner = Rc::downgrade(&self.inner);
        let env = self.env().clone();
        drop(self.env().spawn(async move {
            loop {
                env.sleep(limits::ACCESS_TERM / 2).await;
                let Some(inner) = inner.upgrade() else { return };
                let client = Client { inner };
                client.tell_accesses(Some(limits::ACCESS_TERM / 2)).await;
                if !client.has_accesses() {
                    client.inner.cache.accesses.ageing.set(false);
                    return;
                }
            }
        }));
    }

    fn has_accesses(&self) -> bool {
        let is_new = |file: &Rc<FileState>| file.attributes.accessed.get().is_some_and(|accessed| !accessed.is_sent);
        !self.inner.cache.accesses.directories.borrow().is_empty() || self.inner.open_files().iter().any(is_new)
    }

    /// Tells the MDT, one after another, what was noted, and has been for `age`.
    pub(crate) async fn tell_accesses(&self, age: Option<std::time::Duration>) {
        let now = self.env().now();
        let is_due = |accessed: &Accessed| !accessed.is_sent && age.is_none_or(|age| accessed.since + age <= now);
        for file in self.inner.open_files() {
            if file.attributes.accessed.get().as_ref().is_some_and(is_due)
                && let Some(at_ns) = file.take_access()
            {
                self.tell_access(file.fid, at_ns).await;
                file.access_told(at_ns);
            }
        }
        let directories: Vec<(Fid, i64)> = {
            let noted = self.inner.cache.accesses.directories.borrow();
            noted
                .iter()
                .filter(|(_, accessed)| is_due(accessed))
                .map(|(fid, accessed)| (*fid, accessed.at_ns))
                .collect()
        };
        for (fid, at_ns) in directories {
            self.tell_access(fid, at_ns).await;
            let mut noted = self.inner.cache.accesses.directories.borrow_mut();
            if noted.get(&fid).is_some_and(|accessed| accessed.at_ns == at_ns) {
                noted.remove(&fid);
            }
        }
    }

    async fn tell_access(&self, fid: Fid, at_ns: i64) {
        // It may be gone by now, and what is lost of it is no loss.
        let _ = self.inner.peers.mdt().session.call(&request(fid, at_ns), Call::default()).await;
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
