//! Leases on the entries of directories: changes of them may be acknowledged before they are sent (see
//! [`crate::delayed::names`]).
//!
//! Invariant: what is shown here of such a change is what the MDT will show of it: the MDT is sure to apply it, and
//! nobody else can have changed what it builds on.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid, Transno,
    message::{Attr, CommitLevel, lease_flags},
};

use super::{Directory, LeaseTable, Name, Single, Ticket, entry_of};
use crate::mode;

/// A change of a name, as it was acknowledged to the program.
pub(crate) struct EntryChange<'a> {
    /// The directory as it will be.
    pub dir: &'a Attr,
    pub name: &'a [u8],
    /// Where the name leads, or led.
    pub fid: Fid,
    /// What is made; `None`: it is taken away.
    pub made: Option<&'a Attr>,
}

/// An inode on which nobody else has a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoleLease {
    pub fid: Fid,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    /// Its level is `commit`.
    pub commits: bool,
}

impl LeaseTable {
    /// The reply to the request `asked` granted `flags`: maybe the entries-write lease on `parent`, maybe that on
    /// `fid`, and maybe that nobody else has a lease on `fid`.
    pub fn learn_changes(&mut self, asked: Ticket, flags: u32, parent: Fid, fid: Option<Fid>) {
        if flags & lease_flags::PARENT_ENTRIES_WRITE != 0 {
            self.may_change(asked, parent);
        }
        let Some(fid) = fid else { return };
        if flags & lease_flags::NAMES != 0 {
            self.may_change(asked, fid);
        }
        if flags & lease_flags::ALONE != 0
            && let Some(node) = self.leased_mut(fid).filter(|node| node.recalled <= asked.0)
        {
            node.alone = Some((parent, asked));
        }
    }

    /// Changes of the directory may be acknowledged before they are sent: its current attributes.
    pub fn answers_for(&mut self, fid: Fid) -> Option<Attr> {
        self.alive()?;
        if !self.answers(fid) {
            return None;
        }
        self.used = self.now;
        self.nodes.get(&fid)?.entry().map(|entry| entry.attr).filter(|attr| attr.nlink > 0)
    }

    /// What `name` leads to, if nobody else has a lease on that.
    pub fn alone(&mut self, parent: Fid, name: &[u8]) -> Option<SoleLease> {
        self.alive()?;
        let fid = self.leased(parent)?.names.get(name)?.known??;
        let node = self.leased(fid)?;
        let (above, asked) = node.alone?;
        if above != parent || self.ended(parent) > asked.0 {
            return None;
        }
        if let Some(entry) = &node.entry {
            let Attr { mode, nlink, uid, .. } = entry.attr;
            return Some(SoleLease { fid, mode, nlink, uid, commits: commits(&entry.attr) });
        }
        // Nobody else can have given it another name since, nor we a level; and where it was made there is none of `commit`.
        let Single { mode, uid, .. } = node.single.filter(|single| self.ended(parent) <= single.since)?;
        Some(SoleLease { fid, mode, nlink: 1, uid, commits: false })
    }

    /// The directory certainly has no names, and only we can make some.
    pub fn is_empty(&mut self, fid: Fid) -> bool {
        let absent = |name: &Name| matches!(name.known, Some(None));
        self.alive().is_some()
            && self.answers(fid)
            && !self.is_told(fid)
            && self.leased(fid).is_some_and(|node| node.complete && node.names.values().all(absent))
    }

    /// No change of the directory's names is acknowledged before it is sent, until the MDT grants that again.
    pub fn stop_answering(&mut self, fid: Fid) {
        if let Some(directory) = self.directories.get_mut(&fid) {
            directory.may = false;
            self.end_changes(fid);
        }
    }

    /// The same until [`LeaseTable::resume_answering`]: the directory's attributes are changed, but its names stay ours.
    pub fn pause_answering(&mut self, fid: Fid) {
        *self.own.pausing.entry(fid).or_default() += 1;
    }

    /// As they are now, they may be answered from again.
    pub fn resume_answering(&mut self, fid: Fid) {
        self.own.pausing.entry(fid).and_modify(|times| *times -= 1);
        self.own.pausing.retain(|_, times| *times > 0);
    }

    /// The same of all directories: a change is made of which it is not known what directory it concerns. All names stay ours.
    pub fn pause_answering_all(&mut self) {
        self.own.pausing_all += 1;
    }

    /// That change is over, or nobody waits for it any more and it may be made yet.
    pub fn resume_answering_all(&mut self, is_over: bool) {
        self.own.pausing_all -= 1;
        if !is_over {
            let all = Vec::from_iter(self.directories.keys().copied());
            all.into_iter().for_each(|fid| self.stop_answering(fid));
        }
    }

    /// Whether the MDT may count the directory as ours to change.
    pub fn may_hold_names(&self, fid: Fid) -> bool {
        self.directories.contains_key(&fid)
    }

    /// The MDT is notified, or knows, that the directory is not ours any more.
    pub fn gave_names_back(&mut self, fid: Fid) {
        let is_settled = |directory: &Directory| directory.under_way == 0 || planted(Bug::EntriesLeaseReturnedEarly);
        if self.directories.get(&fid).is_some_and(is_settled) {
            self.directories.remove(&fid);
            self.end_changes(fid);
        }
    }

    /// Directories with changes that were answered and have not come to pass, ordered.
    pub fn changing(&self) -> Vec<Fid> {
        self.directories.iter().filter(|(_, directory)| directory.under_way > 0).map(|(fid, _)| *fid).collect()
    }

    /// A change is acknowledged, and sent afterwards. The number is for [`LeaseTable::entry_applied`].
    pub fn answer(&mut self, told: &EntryChange) -> Ticket {
        let (parent, since) = (told.dir.fid, self.next());
        self.change_links(told.fid);
        if let Some(attr) = told.made {
            // Nobody else sees it before the directory is given back, and by then the MDT has replied whether it is
            // leased.
            let is_dir = mode::is_dir(attr.mode);
            self.begin_lease(told.fid);
            let node = self.node(told.fid);
            node.complete = is_dir;
            node.single = (!is_dir).then_some(Single { mode: attr.mode, uid: attr.uid, since });
            node.entry = is_dir.then(|| Box::new(entry_of(attr)));
        }
        self.change(parent);
        self.node(parent).entry = Some(Box::new(entry_of(told.dir)));
        self.set_name(parent, told.name, Some(told.made.map(|_| told.fid)), since);
        self.directories.entry(parent).or_default().under_way += 1;
        Ticket(since)
    }

    /// The change that `begun` numbers came to pass, under `transno`; `dir`: its directory as the MDT showed it then.
    pub fn entry_applied(&mut self, begun: Ticket, of: (Fid, &[u8]), dir: Option<&Attr>, transno: Transno) {
        let (parent, name) = of;
        let under_way = self.directories.get(&parent).map_or(0, |directory| directory.under_way);
        if let Some(node) = self.leased_mut(parent).filter(|node| node.recalled <= begun.0) {
            // As it is when nothing else is under way: replies may come in another order than answers went.
            let is_last = under_way == 1 && node.transno < transno && node.entry.is_some();
            if let Some(dir) = dir.filter(|_| is_last) {
                node.entry = Some(Box::new(entry_of(dir)));
            }
            node.transno = node.transno.max(transno);
            // All its names are known: one that is absent need not be.
            let is_absent = |name: &Name| name.since == begun.0 && name.known == Some(None);
            if node.complete && node.names.get(name).is_some_and(is_absent) {
                self.drop_name(parent, name);
            }
        }
        self.is_over(parent);
    }

    /// It failed, or was applied in another way than acknowledged: its leases are given up, to be returned.
    pub fn failed(&mut self, parent: Fid, fid: Fid) {
        self.drop_recalled(&[parent, fid]);
        // The kernel is notified before they are returned, and before a recall of them is acknowledged.
        self.effects.given_up.append(&mut self.effects.ended);
        self.return_later(vec![parent, fid]);
        self.stop_answering(parent);
        self.is_over(parent);
    }

    /// What was made of `fid` came without a lease, or with one that was recalled: what others believe of it is to be dropped.
    pub fn unless_leased(&mut self, fid: Fid, flags: u32) {
        if flags & lease_flags::INODE == 0 {
            self.drop_recalled(&[fid]);
        }
    }

    fn may_change(&mut self, asked: Ticket, fid: Fid) {
        let counts = self.ended(fid) <= asked.0;
        // Even if it does not count here: the MDT may recall it, so its recalls have to be received.
        self.directories.entry(fid).or_default().may |= counts;
    }

    /// Changes of its names may be answered now.
    pub(super) fn answers(&self, fid: Fid) -> bool {
        let may = self.directories.get(&fid).is_some_and(|directory| directory.may);
        may && self.own.pausing_all == 0 && !self.own.pausing.contains_key(&fid)
    }

    fn end_changes(&mut self, fid: Fid) {
        let number = self.next();
        self.node(fid).data_ended = number;
    }

    /// One of the changes under way is not any more.
    fn is_over(&mut self, parent: Fid) {
        let Some(directory) = self.directories.get_mut(&parent) else { return };
        directory.under_way -= 1;
        if directory.under_way == 0 && !directory.may {
            self.directories.remove(&parent);
            self.to_tell.returned.insert(parent);
        }
    }
}

/// Changes of the inode, and of a directory's names, are durable when they are answered.
pub(crate) fn commits(attr: &Attr) -> bool {
    attr.level() == Some(CommitLevel::Commit)
}
