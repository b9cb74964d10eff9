//! Leases on the names of directories: changes of them may be answered before they are asked for (see [`crate::delayed::names`]).
//!
//! Invariant: what is told here of such a change is what the MDT will tell of it: it has to come to pass, and nobody else
//! can have changed what it builds on.

use forebay_env::{Bug, planted};
use forebay_proto::{
    Fid, Transno,
    message::{Attr, CommitLevel, lease_flags},
};

use super::{Leases, Name, Node, State, Ticket, entry_of};
#[cfg(test)]
use crate::limits;
use crate::mode;

/// A directory whose names the MDT may count as leased to us for changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Directory {
    /// Changes may be answered.
    pub may: bool,
    /// Changes that were answered and have not come to pass.
    pub under_way: usize,
}

/// What is known of an inode that was made here, under its one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    mode: u32,
    uid: u32,
    /// Number of that change.
    since: u64,
}

/// A change of a name, as the program is told of it.
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

impl Leases {
    /// A reply to what was `asked` brought `flags`: maybe the names of `parent` for changes, maybe those of `fid`, and maybe that
    /// nobody else has a lease on `fid`.
    pub fn learn_changes(&self, asked: Ticket, flags: u32, parent: Fid, fid: Option<Fid>) {
        let mut state = self.state.borrow_mut();
        if flags & lease_flags::PARENT_ENTRIES_WRITE != 0 {
            state.may_change(asked, parent);
        }
        let Some(fid) = fid else { return };
        if flags & lease_flags::NAMES != 0 {
            state.may_change(asked, fid);
        }
        if flags & lease_flags::ALONE != 0
            && let Some(node) = state.nodes.get_mut(&fid).filter(|node| node.leased && node.recalled <= asked.0)
        {
            node.alone = Some((parent, asked));
        }
    }

    /// Changes of the directory may be answered before they are asked for: as it is now.
    pub fn answers_for(&self, fid: Fid) -> Option<Attr> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        if !state.answers(fid) {
            return None;
        }
        state.used = self.env.now();
        state.nodes.get(&fid)?.entry().map(|entry| entry.attr).filter(|attr| attr.nlink > 0)
    }

    /// What `name` leads to, if nobody else has a lease on that.
    pub fn alone(&self, parent: Fid, name: &[u8]) -> Option<SoleLease> {
        self.alive()?;
        let state = self.state.borrow();
        let dir = state.nodes.get(&parent).filter(|node| node.leased)?;
        let fid = dir.names.get(name)?.known??;
        let node = state.nodes.get(&fid).filter(|node| node.leased)?;
        let (above, asked) = node.alone?;
        if above != parent || state.ended(parent) > asked.0 {
            return None;
        }
        let known = node.entry.as_ref().map(|entry| {
            let Attr { mode, nlink, uid, .. } = entry.attr;
            SoleLease { fid, mode, nlink, uid, commits: commits(&entry.attr) }
        });
        // Nobody else can have given it another name since, nor we a level; and where it was made there is none of `commit`.
        let single = node.single.filter(|single| state.ended(parent) <= single.since);
        known.or(single.map(|Single { mode, uid, .. }| SoleLease { fid, mode, nlink: 1, uid, commits: false }))
    }

    /// The directory certainly has no names, and only we can make some.
    pub fn is_empty(&self, fid: Fid) -> bool {
        if self.alive().is_none() {
            return false;
        }
        let state = self.state.borrow();
        let (Some(directory), Some(node)) = (state.directories.get(&fid), state.nodes.get(&fid)) else { return false };
        let absent = |name: &Name| matches!(name.known, Some(None));
        let known = node.leased && node.complete && node.names.values().all(absent);
        state.answers(fid) && directory.under_way == 0 && known
    }

    /// No change of the directory's names is answered before it is asked for, until the MDT allows it anew.
    pub fn stop_answering(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        let Some(directory) = state.directories.get_mut(&fid) else { return };
        directory.may = false;
        state.end_changes(fid);
        drop(state);
        self.bound();
    }

    /// The same until [`Leases::resume_answering`]: the directory's attributes are changed, but its names stay ours.
    pub fn pause_answering(&self, fid: Fid) {
        *self.state.borrow_mut().paused.entry(fid).or_default() += 1;
    }

    /// As they are now, they may be answered from again.
    pub fn resume_answering(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        if let Some(times) = state.paused.get_mut(&fid) {
            *times -= 1;
            if *times == 0 {
                state.paused.remove(&fid);
            }
        }
    }

    /// No change of names is answered before it is asked for, in any directory, until the answer says that it is over: a change
    /// is made of which it is not known what directory it concerns. All names stay ours.
    pub fn pause_answering_all(&self) -> AllPaused<'_> {
        self.state.borrow_mut().all_paused += 1;
        AllPaused { leases: self, is_over: false }
    }

    fn stop_answering_all(&self) {
        let all: Vec<Fid> = self.state.borrow().directories.keys().copied().collect();
        all.into_iter().for_each(|fid| self.stop_answering(fid));
    }

    /// Whether the MDT may count the directory as ours to change.
    pub fn may_hold_names(&self, fid: Fid) -> bool {
        self.state.borrow().directories.contains_key(&fid)
    }

    /// The MDT is told, or knows, that the directory is not ours any more.
    pub fn gave_names_back(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        let is_settled = |directory: &Directory| directory.under_way == 0 || planted(Bug::EntriesLeaseReturnedEarly);
        if state.directories.get(&fid).is_some_and(is_settled) {
            state.directories.remove(&fid);
            state.end_changes(fid);
        }
        drop(state);
        self.bound();
    }

    /// Directories with changes that were answered and have not come to pass, ordered.
    pub fn changing(&self) -> Vec<Fid> {
        let state = self.state.borrow();
        state.directories.iter().filter(|(_, directory)| directory.under_way > 0).map(|(fid, _)| *fid).collect()
    }

    /// A change is answered, and asked for afterwards. The number is for [`Leases::entry_applied`].
    pub fn answer(&self, told: &EntryChange) -> Ticket {
        let mut state = self.state.borrow_mut();
        let parent = told.dir.fid;
        state.sequence += 1;
        let since = state.sequence;
        state.links_change(told.fid);
        if let Some(attr) = told.made {
            // Nobody else hears of it before the directory is given back, and by then the MDT has said whether it is leased.
            let is_dir = mode::is_dir(attr.mode);
            state.begin_lease(told.fid);
            let node = state.node(told.fid);
            node.complete = is_dir;
            node.single = (!is_dir).then_some(Single { mode: attr.mode, uid: attr.uid, since });
            node.entry = is_dir.then(|| Box::new(entry_of(attr)));
        }
        state.touch(parent);
        state.node(parent).entry = Some(Box::new(entry_of(told.dir)));
        let leads = told.made.map(|_| told.fid);
        state.set_name(parent, told.name, |_| true, Some(leads), since);
        state.directories.entry(parent).or_default().under_way += 1;
        drop(state);
        self.bound();
        Ticket(since)
    }

    /// The change that `begun` numbers came to pass, under `transno`; `dir`: its directory as the MDT showed it then.
    pub fn entry_applied(&self, begun: Ticket, (parent, name): (Fid, &[u8]), dir: Option<&Attr>, transno: Transno) {
        let mut state = self.state.borrow_mut();
        let under_way = state.directories.get(&parent).map_or(0, |directory| directory.under_way);
        if let Some(node) = state.nodes.get_mut(&parent).filter(|node| node.leased && node.recalled <= begun.0) {
            // As it is when nothing else is under way: replies may come in another order than answers went.
            let is_last = under_way == 1 && node.transno < transno && node.entry.is_some();
            if let Some(dir) = dir.filter(|_| is_last) {
                node.entry = Some(Box::new(entry_of(dir)));
            }
            node.transno = node.transno.max(transno);
            // All its names are known: one that is absent need not be.
            let is_absent = |name: &Name| name.since == begun.0 && name.known == Some(None);
            if node.complete && node.names.get(name).is_some_and(is_absent) {
                node.names.remove(name);
                state.names -= 1;
            }
        }
        state.is_over(parent);
        drop(state);
        self.bound();
    }

    /// It did not, or not as told. What others believe of it is to be dropped.
    pub fn failed(&self, parent: Fid, fid: Fid) -> Vec<super::Dropped> {
        let undelivered = self.drop_recalled(&[parent, fid]);
        let mut state = self.state.borrow_mut();
        if let Some(directory) = state.directories.get_mut(&parent) {
            directory.may = false;
        }
        state.end_changes(parent);
        state.is_over(parent);
        undelivered
    }

    /// What was made of `fid` came without a lease, or with one that was recalled: what others believe of it is to be dropped.
    pub fn unless_leased(&self, fid: Fid, flags: u32) -> Vec<super::Dropped> {
        if flags & lease_flags::INODE != 0 { Vec::new() } else { self.drop_recalled(&[fid]) }
    }
}

/// Changes of the inode, and of a directory's names, are durable when they are answered.
pub(crate) fn commits(attr: &Attr) -> bool {
    attr.level() == Some(CommitLevel::Commit)
}

/// See [`Leases::pause_answering_all`].
pub(crate) struct AllPaused<'a> {
    leases: &'a Leases,
    is_over: bool,
}

impl AllPaused<'_> {
    /// The change was made, or was not.
    pub fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for AllPaused<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Nobody waits for it any more, and it may be made yet.
            self.leases.stop_answering_all();
        }
        self.leases.state.borrow_mut().all_paused -= 1;
    }
}

impl State {
    fn may_change(&mut self, asked: Ticket, fid: Fid) {
        let counts = self.ended(fid) <= asked.0;
        // Even if it does not count here: the MDT may ask it back, and has to be heard.
        let directory = self.directories.entry(fid).or_default();
        directory.may |= counts;
    }

    /// Changes of its names may be answered now.
    fn answers(&self, fid: Fid) -> bool {
        let may = self.directories.get(&fid).is_some_and(|directory| directory.may);
        may && self.all_paused == 0 && !self.paused.contains_key(&fid)
    }

    /// Number of the last end of a lease on its names.
    fn ended(&self, fid: Fid) -> u64 {
        let ended = |node: &Node| node.recalled.max(node.data_ended);
        self.nodes.get(&fid).map_or(self.forgotten, ended)
    }

    /// What is known of the directory is what programs were told, more than the MDT tells yet.
    pub(super) fn is_told(&self, fid: Fid) -> bool {
        self.directories.get(&fid).is_some_and(|directory| directory.under_way > 0)
    }

    fn end_changes(&mut self, fid: Fid) {
        self.sequence += 1;
        let number = self.sequence;
        self.node(fid).data_ended = number;
    }

    /// One of the changes under way is not any more.
    fn is_over(&mut self, parent: Fid) {
        let Some(directory) = self.directories.get_mut(&parent) else { return };
        directory.under_way -= 1;
        if directory.under_way == 0 && !directory.may {
            self.directories.remove(&parent);
            self.returned.insert(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_env::{Time, sim::Sim};
    use forebay_proto::limits::LEASE_CLIENT_TERM;

    use super::*;

    const DIR: Fid = Fid { high: 0, low: 7 };
    const FLAGS: u32 = lease_flags::INODE | lease_flags::NAMES | lease_flags::ALONE;

    fn attr(fid: Fid, mode: u32, nlink: u32) -> Attr {
        let (truncate_epoch, attr_epoch, flags, rdev, size) = (0, 0, 0, 0, 0);
        let (uid, gid, atime_ns, mtime_ns, ctime_ns, btime_ns) = (0, 0, 0, 0, 0, 0);
        Attr {
            fid,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            atime_ns,
            mtime_ns,
            ctime_ns,
            btime_ns,
            truncate_epoch,
            attr_epoch,
            flags,
        }
    }

    fn file(number: u64) -> Attr {
        attr(Fid { high: 1, low: number }, mode::S_IFREG | 0o644, 1)
    }

    /// A directory that is ours to change.
    fn with(test: impl FnOnce(&Sim, &Leases)) {
        let sim = Sim::new(1);
        let leases = Leases::new(&sim.env(sim.add_node("client")));
        leases.heard(Time(0));
        let asked = leases.ticket();
        leases.learn_empty(asked, &entry_of(&attr(DIR, mode::S_IFDIR | 0o755, 2)));
        leases.learn_changes(asked, FLAGS, Fid::ROOT, Some(DIR));
        test(&sim, &leases);
    }

    fn make(leases: &Leases, number: u64, nlink: u32) -> Ticket {
        let dir = attr(DIR, mode::S_IFDIR | 0o755, nlink);
        leases.answer(&EntryChange { dir: &dir, name: &name(number), fid: file(number).fid, made: Some(&file(number)) })
    }

    fn name(number: u64) -> Vec<u8> {
        format!("f{number}").into_bytes()
    }

    #[test]
    fn a_directory_with_more_names_than_are_kept_is_given_up_when_its_changes_have_come_to_pass() {
        with(|_, leases| {
            let mut last = None;
            for number in 0..=limits::CACHED_NAMES as u64 {
                let begun = make(leases, number, 2);
                if let Some((before, begun)) = last.replace((number, begun)) {
                    leases.entry_applied(begun, (DIR, &name(before)), None, Transno(before + 1));
                }
            }
            assert_eq!(leases.answers_for(DIR), None, "no more are answered");
            let (number, begun) = last.expect("some were made");
            leases.entry_applied(begun, (DIR, &name(number)), None, Transno(number + 1));
            assert_eq!(leases.kept().1, 0);
            assert!(leases.question().is_some_and(|question| question.returned.contains(&DIR)));
        });
    }

    #[test]
    fn names_that_were_made_and_taken_away_are_not_kept() {
        with(|_, leases| {
            for number in 0..100 {
                let begun = make(leases, number, 2);
                leases.entry_applied(begun, (DIR, &name(number)), None, Transno(2 * number + 1));
                let dir = attr(DIR, mode::S_IFDIR | 0o755, 2);
                let told = EntryChange { dir: &dir, name: &name(number), fid: file(number).fid, made: None };
                let begun = leases.answer(&told);
                assert_eq!(leases.name(DIR, &name(number)), Some(None));
                leases.entry_applied(begun, (DIR, &name(number)), None, Transno(2 * number + 2));
                assert_eq!(leases.name(DIR, &name(number)), Some(None), "all names are known");
            }
            assert_eq!(leases.kept().1, 0);
        });
    }

    #[test]
    fn the_directory_is_as_it_was_told_until_nothing_is_under_way() {
        with(|_, leases| {
            let (one, two) = (make(leases, 1, 3), make(leases, 2, 4));
            let before = leases.ticket();
            // The second came first: the directory without the first.
            let seen = attr(DIR, mode::S_IFDIR | 0o755, 3);
            leases.entry_applied(two, (DIR, &name(2)), Some(&seen), Transno(5));
            leases.learn(before, &entry_of(&seen));
            assert_eq!(leases.entry(DIR).expect("it is kept").attr.nlink, 4);
            let seen = attr(DIR, mode::S_IFDIR | 0o755, 4);
            leases.entry_applied(one, (DIR, &name(1)), Some(&seen), Transno(6));
            assert_eq!(leases.entry(DIR).expect("it is kept").attr, seen);
        });
    }

    /// The MDT does not stop to count it by itself: who forgets it says so.
    #[test]
    fn what_is_forgotten_is_given_back_also_where_the_mdt_did_not_hear_it_at_first() {
        with(|sim, leases| {
            sim.run_for(LEASE_CLIENT_TERM + Duration::from_secs(1));
            let question = leases.question().expect("it is to be given back");
            assert_eq!(question.returned, [DIR]);
            leases.not_returned(question.returned);
            leases.heard(leases.env.now());
            assert_eq!(leases.question().map(|question| question.returned), Some(vec![DIR]));
            assert_eq!(leases.question(), None);
        });
    }

    #[test]
    fn while_its_attributes_change_nothing_is_answered_and_then_as_before() {
        with(|_, leases| {
            let asked = leases.ticket();
            let begun = make(leases, 1, 2);
            leases.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
            leases.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
            leases.pause_answering(DIR);
            leases.learn_changes(leases.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
            assert_eq!(leases.answers_for(DIR), None, "nor if a reply to something else allows it");
            leases.touch(DIR);
            leases.resume_answering(DIR);
            assert_eq!(leases.answers_for(DIR), None, "what it is like is not known");
            leases.learn(leases.ticket(), &entry_of(&attr(DIR, mode::S_IFDIR | 0o700, 2)));
            assert_eq!(leases.answers_for(DIR).map(|dir| dir.mode), Some(mode::S_IFDIR | 0o700));
            assert!(leases.alone(DIR, &name(1)).is_some(), "nobody else has seen its names");
        });
    }

    #[test]
    fn a_change_of_who_knows_what_pauses_all_and_one_that_is_abandoned_ends_it() {
        with(|_, leases| {
            let asked = leases.ticket();
            let begun = make(leases, 1, 2);
            leases.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
            leases.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
            leases.learn_changes(leases.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
            let before = leases.answers_for(DIR);
            assert!(before.is_some());
            let (one, other) = (leases.pause_answering_all(), leases.pause_answering_all());
            one.over();
            assert_eq!(leases.answers_for(DIR), None, "the other is under way");
            other.over();
            assert_eq!(leases.answers_for(DIR), before);
            drop(leases.pause_answering_all());
            assert_eq!(leases.answers_for(DIR), None, "it may be made yet");
            leases.learn_changes(leases.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
            assert_eq!(leases.answers_for(DIR).is_some(), before.is_some(), "the MDT allows it anew");
        });
    }

    #[test]
    fn another_link_by_somebody_else_is_not_overlooked() {
        with(|_, leases| {
            let asked = leases.ticket();
            let begun = make(leases, 1, 2);
            leases.learn_changes(asked, lease_flags::ALONE, DIR, Some(file(1).fid));
            leases.entry_applied(begun, (DIR, &name(1)), None, Transno(1));
            let lone = SoleLease { fid: file(1).fid, mode: file(1).mode, nlink: 1, uid: 0, commits: false };
            assert_eq!(leases.alone(DIR, &name(1)), Some(lone));
            leases.stop_answering(DIR);
            leases.learn_changes(leases.ticket(), lease_flags::PARENT_ENTRIES_WRITE, DIR, None);
            assert_eq!(leases.alone(DIR, &name(1)), None, "somebody may have seen it since");
        });
    }
}
