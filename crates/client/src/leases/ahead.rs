//! Leases on the names of directories: changes of them may be answered before they are asked for (see [`crate::ahead`]).
//!
//! Invariant: what is told here of such a change is what the MDT will tell of it: it has to come to pass, and nobody else
//! can have changed what it builds on.

use forebay_proto::{
    Fid, Transno,
    message::{Attr, EntryReply, lease_flags},
};

use super::{Leases, Name, Node, State, Ticket};
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
pub(crate) struct Told<'a> {
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
pub(crate) struct Lone {
    pub fid: Fid,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
}

impl Leases {
    /// A reply to what was `asked` brought `flags`: maybe the names of `parent` for changes, maybe those of `fid`, and maybe that
    /// nobody else has a lease on `fid`.
    pub fn learn_changes(&self, asked: Ticket, flags: u32, parent: Fid, fid: Option<Fid>) {
        let mut state = self.state.borrow_mut();
        if flags & lease_flags::PARENT_NAMES != 0 {
            state.may_change(asked, parent);
        }
        let Some(fid) = fid else { return };
        if flags & lease_flags::NAMES != 0 {
            state.may_change(asked, fid);
        }
        if flags & lease_flags::ALONE != 0
            && let Some(node) = state.nodes.get_mut(&fid).filter(|node| node.leased)
        {
            node.alone = Some((parent, asked));
        }
    }

    /// Changes of the directory may be answered before they are asked for: as it is now.
    pub fn answers_for(&self, fid: Fid) -> Option<Attr> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        if !state.directories.get(&fid).is_some_and(|directory| directory.may) {
            return None;
        }
        state.used = self.env.now();
        state.nodes.get(&fid)?.entry().map(|entry| entry.attr)
    }

    /// What `name` leads to, if nobody else has a lease on that.
    pub fn alone(&self, parent: Fid, name: &[u8]) -> Option<Lone> {
        self.alive()?;
        let state = self.state.borrow();
        let dir = state.nodes.get(&parent).filter(|node| node.leased)?;
        let fid = dir.names.get(name)?.known??;
        let node = state.nodes.get(&fid).filter(|node| node.leased)?;
        let (above, asked) = node.alone?;
        if above != parent || state.ended(parent) > asked.0 {
            return None;
        }
        let known = node.entry.as_ref().map(|entry| (entry.attr.mode, entry.attr.nlink, entry.attr.uid));
        // Nobody else can have given it another name since.
        let single = node.single.filter(|single| state.ended(parent) <= single.since);
        let (mode, nlink, uid) = known.or(single.map(|single| (single.mode, 1, single.uid)))?;
        Some(Lone { fid, mode, nlink, uid })
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
        directory.may && directory.under_way == 0 && known
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

    /// Whether the MDT may count the directory as ours to change.
    pub fn may_hold_names(&self, fid: Fid) -> bool {
        self.state.borrow().directories.contains_key(&fid)
    }

    /// The MDT is told, or knows, that the directory is not ours any more.
    pub fn gave_names_back(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        if state.directories.get(&fid).is_some_and(|directory| directory.under_way == 0) {
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

    /// A change is answered, and asked for afterwards. The number is for [`Leases::came_to_pass`].
    pub fn answer(&self, told: &Told) -> Ticket {
        let mut state = self.state.borrow_mut();
        let parent = told.dir.fid;
        state.sequence += 1;
        let since = state.sequence;
        state.links_change(told.fid);
        if let Some(attr) = told.made {
            // Nobody else hears of it before the directory is given back, and by then the MDT has said whether it is leased.
            let node = state.node(told.fid);
            let is_dir = mode::is_dir(attr.mode);
            (node.leased, node.complete) = (true, is_dir);
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
    pub fn came_to_pass(&self, begun: Ticket, parent: Fid, dir: Option<&Attr>, transno: Transno) {
        let mut state = self.state.borrow_mut();
        if let Some(node) = state.nodes.get_mut(&parent).filter(|node| node.leased && node.recalled <= begun.0) {
            node.transno = node.transno.max(transno);
            if let Some(dir) = dir.filter(|_| node.changed == begun.0) {
                node.entry = Some(Box::new(entry_of(dir)));
            }
        }
        state.is_over(parent);
    }

    /// It did not, or not as told. What others believe of it is to be dropped.
    pub fn failed(&self, parent: Fid, fid: Fid) -> Vec<super::Dropped> {
        let unheard = self.drop_recalled(&[parent, fid]);
        let mut state = self.state.borrow_mut();
        if let Some(directory) = state.directories.get_mut(&parent) {
            directory.may = false;
        }
        state.end_changes(parent);
        state.is_over(parent);
        unheard
    }

    /// What was made of `fid` came without a lease, or with one that was recalled: what others believe of it is to be dropped.
    pub fn unless_leased(&self, fid: Fid, flags: u32) -> Vec<super::Dropped> {
        if flags & lease_flags::INODE != 0 { Vec::new() } else { self.drop_recalled(&[fid]) }
    }
}

impl State {
    fn may_change(&mut self, asked: Ticket, fid: Fid) {
        let counts = self.ended(fid) <= asked.0;
        // Even if it does not count here: the MDT may ask it back, and has to be heard.
        let directory = self.directories.entry(fid).or_default();
        directory.may |= counts;
    }

    /// Number of the last end of a lease on its names.
    fn ended(&self, fid: Fid) -> u64 {
        let ended = |node: &Node| node.recalled.max(node.data_ended);
        self.nodes.get(&fid).map_or(self.forgotten, ended)
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
            self.returned.push(parent);
        }
    }
}

fn entry_of(attr: &Attr) -> EntryReply {
    EntryReply { attr: attr.clone(), layout: None, default_layout: None, leases: lease_flags::INODE, parent: None }
}
