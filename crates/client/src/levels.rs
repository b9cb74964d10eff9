//! Which commit level counts for the bytes of a file, and what follows when it changes.
//!
//! What the call asks for comes before what the file says, and that before the mount. The MDT sees to names and attributes
//! itself. A client knows the level of a file that it has open from the attributes it was told last; whoever may keep
//! bytes back ([`crate::write_back`]) was told since the level was set, as that recalls every lease on the data.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid,
    message::{Attr, CommitLevel},
};

use crate::{Client, ClientResult, OpenFile, file::FileState, leases::Ticket, sharing::Outside};

/// What a file says of itself, and of when that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownLevel {
    level: Option<CommitLevel>,
    asked: Ticket,
}

impl KnownLevel {
    /// Changes of the inode are durable when they are answered.
    pub fn commits(&self) -> bool {
        self.level == Some(CommitLevel::Commit)
    }

    /// As a reply to what was `asked` says. Replies come in any order: what was asked for before counts less.
    pub fn see(&mut self, attr: &Attr, asked: Ticket) {
        if asked >= self.asked {
            *self = Self { level: attr.level(), asked };
        }
    }
}

impl FileState {
    /// See [`KnownLevel::see`].
    pub fn learn_level(&self, asked: Ticket, attr: &Attr) {
        let mut level = self.level.get();
        level.see(attr, asked);
        self.level.set(level);
    }
}

impl Client {
    /// The commit level of bytes that are written through `file`.
    pub(crate) fn level_of(&self, file: &OpenFile) -> CommitLevel {
        let own = file.state().level.get().level.filter(|_| !planted(Bug::LevelOfInodeIgnored));
        match file.mode().sync {
            true => CommitLevel::Commit,
            false => own.unwrap_or(self.inner.options.level),
        }
    }

    /// A reply to what was `asked` tells of a file that may be open here.
    pub(crate) fn learn_level(&self, asked: Ticket, attr: &Attr) {
        if let Some(file) = self.inner.file(attr.fid) {
            file.learn_level(asked, attr);
        }
    }

    /// Takes back what others may keep back of `fid`, each in places of its own, which they would go on with as long as this client
    /// claims its own. What this client keeps back stays: it is sent under the new level.
    pub(crate) async fn see_others(&self, fid: Fid) -> ClientResult<Option<Outside>> {
        match self.inner.file(fid) {
            Some(file) => Ok(Some(self.see_all(&file).await?)),
            None => Ok(None),
        }
    }

    /// This client has given the file another level, or none: it counts for the next write. What was kept back under the old one is
    /// sent under it.
    pub(crate) async fn level_changed(&self, fid: Fid, level: Option<CommitLevel>) {
        let Some(file) = self.inner.file(fid) else { return };
        file.level.set(KnownLevel { level, asked: self.inner.leases.ticket() });
        // What is lost of it, its handles report.
        let _ = self.send_kept(&file).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_proto::message::level_flags;

    fn attr(level: Option<CommitLevel>) -> Attr {
        let (nlink, uid, gid, rdev, size, flags) = (1, 0, 0, 0, 0, level_flags(level));
        let (atime_ns, mtime_ns, ctime_ns, btime_ns, truncate_epoch, attr_epoch) = (0, 0, 0, 0, 0, 0);
        #[rustfmt::skip]
        let attr = Attr {
            fid: Fid::ROOT, mode: 0o100_644, nlink, uid, gid, rdev, size, atime_ns, mtime_ns, ctime_ns, btime_ns,
            truncate_epoch, attr_epoch, flags,
        };
        attr
    }

    #[test]
    fn a_reply_to_an_earlier_question_does_not_bring_an_old_level_back() {
        let (data, commit) = (Some(CommitLevel::Data), Some(CommitLevel::Commit));
        let mut known = KnownLevel::default();
        known.see(&attr(commit), Ticket::numbered(5));
        known.see(&attr(None), Ticket::numbered(4));
        assert_eq!(known.level, commit);
        known.see(&attr(data), Ticket::numbered(5));
        assert_eq!(known.level, data);
        known.see(&attr(None), Ticket::numbered(6));
        assert_eq!(known.level, None);
    }
}
