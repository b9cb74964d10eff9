//! Leases of the MDT on inodes and entries, and the attributes and entries that are cached under them.
//!
//! An inode lease is the right to use cached attributes and, of a directory, cached entries, present and absent. It ends when it is
//! recalled, when the MDT restarts, and when the MDT has replied to no request that was sent within the last
//! [`LEASE_CLIENT_TERM`]: so the MDT knows when it is over without a message from the client.
//!
//! A reply is cached only if nothing happened to its inode since the request was sent: every recall and every change by this client has
//! a number, and so has every request ([`Ticket`]).
//!
//! Invariant: an answer from here is what the MDT would have replied at some time during the call.
//! Invariant: a recall is acknowledged to the MDT after the kernel was notified of what it may no longer cache
//! ([`Leases::attributes_for`], [`Leases::name_for`]), or after the kernel's timeout.
//! Invariant: bounded ([`limits::CACHED_INODES`], [`limits::CACHED_NAMES`]).

mod data;
mod ends;
mod entries;
pub(crate) mod recalls;
pub(crate) mod size_watches;
pub(crate) mod watches;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use forebay_env::{Env, Time};
use forebay_proto::{
    Fid, Transno,
    limits::{LEASE_CLIENT_TERM, NAME_BYTES},
    message::{Attr, DataRecall, EntryReply, OpenReply, attr_flags, lease_flags},
};

use self::entries::{Directory, Single};
pub(crate) use self::{
    data::Holds,
    entries::{AllPaused, EntryChange, SoleLease, commits},
};
use crate::limits;

/// What has to be dropped by whoever was told that it may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Attributes of an inode.
    Attributes(Fid),
    /// Names, of whichever directory.
    Names,
}

/// Hears what has to be dropped, at once. False: it may not have been heard yet, say it again.
pub(crate) type Hook = Rc<dyn Fn(Dropped) -> bool>;

/// When something was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[cfg(test)]
impl Ticket {
    /// For tests of what is ordered by them.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// Everything that is kept. See the module.
pub(crate) struct Leases {
    env: Env,
    state: RefCell<State>,
    hook: RefCell<Option<Hook>>,
    /// The task that asks for recalls runs.
    pub asking: Cell<bool>,
    /// Open handles that write: the MDT may count the data of their files as leased, whatever we know of it.
    pub writers: Cell<usize>,
}

#[derive(Default)]
struct State {
    /// When the last request that the MDT has answered was sent.
    contact: Option<Time>,
    /// When something of it was last wanted.
    used: Time,
    /// Number of the last recall or change.
    sequence: u64,
    /// Number of the last lease.
    leases: u64,
    /// What inodes that are not in the table went through before this is not known any more.
    forgotten: u64,
    nodes: BTreeMap<Fid, Node>,
    /// The order in which they came.
    order: VecDeque<Fid>,
    names: usize,
    /// What all of it may take, about, where the machine is short of memory.
    most_bytes: Option<u64>,
    /// Number of the last recall that was heard of, and of the last that the MDT knows to be.
    acknowledged: u64,
    known_acknowledged: u64,
    /// Leases that were given up and are to be returned.
    returned: BTreeSet<Fid>,
    /// Files whose data the MDT may count as leased to us, and what we count.
    data: BTreeMap<Fid, Holds>,
    /// Recalls of data after which nothing is kept back any more, to be said.
    flushed: Vec<DataRecall>,
    undelivered: Vec<Dropped>,
    /// Directories whose names the MDT may count as leased to us for changes, and what we make of it.
    directories: BTreeMap<Fid, Directory>,
    /// Directories whose own attributes are being changed, and how many such changes are under way.
    paused: BTreeMap<Fid, usize>,
    /// Changes under way that may concern any directory.
    all_paused: usize,
}

/// What is known of an inode.
#[derive(Default)]
struct Node {
    leased: bool,
    /// Number of the lease, if it is leased.
    lease: u64,
    entry: Option<Box<EntryReply>>,
    /// The same of a file that only we write, without what we have done to it: while its data is leased to us, too.
    written: Option<Box<EntryReply>>,
    names: BTreeMap<Bytes, Name>,
    /// Names that are not in the table are not in the directory.
    complete: bool,
    /// Number of the last recall.
    recalled: u64,
    /// Number of the last end of a lease on its data.
    data_ended: u64,
    /// Number of the last change of our own.
    changed: u64,
    /// The last change of our own of which the attributes are known.
    transno: Transno,
    /// Nobody else has a lease on it while the changes of this directory are ours: which lease that was, by what was asked.
    alone: Option<(Fid, Ticket)>,
    /// It was made here, is no directory, and has one name.
    single: Option<Single>,
    /// Until when somebody else may believe the attributes, and names in it.
    attributes_until: Time,
    names_until: Time,
}

#[derive(Clone, Copy)]
struct Name {
    /// `None`: we have changed it, or are about to.
    known: Option<Option<Fid>>,
    /// Number of what happened to it last.
    since: u64,
}

impl Leases {
    pub fn new(env: &Env) -> Self {
        Self {
            env: env.clone(),
            state: RefCell::default(),
            hook: RefCell::default(),
            asking: Cell::new(false),
            writers: Cell::new(0),
        }
    }

    pub fn set_hook(&self, hook: Hook) {
        *self.hook.borrow_mut() = Some(hook);
    }

    /// Before a request is sent: its reply counts for what has not happened since.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.state.borrow().sequence)
    }

    /// The MDT has answered a request that was sent at `begun`.
    pub fn heard(&self, begun: Time) {
        self.alive();
        let mut state = self.state.borrow_mut();
        state.contact = Some(state.contact.map_or(begun, |contact| contact.max(begun)));
    }

    /// How long what is leased may be believed from now on. If the time is over nothing is kept.
    fn alive(&self) -> Option<Duration> {
        let now = self.env.now();
        let mut state = self.state.borrow_mut();
        let contact = state.contact?;
        let left = (contact + LEASE_CLIENT_TERM).since(now);
        if left.is_zero() {
            state.forget_all();
            return None;
        }
        Some(left)
    }

    // ---- what is kept

    /// The inode's attributes.
    pub fn entry(&self, fid: Fid) -> Option<EntryReply> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        state.used = self.env.now();
        state.nodes.get(&fid)?.entry()
    }

    /// There is a lease on the inode: nobody else writes to the file before that is recalled.
    pub fn is_leased(&self, fid: Fid) -> bool {
        self.alive().is_some() && self.state.borrow().nodes.get(&fid).is_some_and(|node| node.leased)
    }

    /// The attributes of a file that only we write, as they were before what we did to it since.
    pub fn written(&self, fid: Fid) -> Option<EntryReply> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        state.used = self.env.now();
        if state.data.get(&fid) != Some(&Holds::All) {
            return None;
        }
        state.nodes.get(&fid)?.written.as_deref().cloned()
    }

    /// What a name leads to; `Some(None)`: to nothing.
    pub fn name(&self, parent: Fid, name: &[u8]) -> Option<Option<EntryReply>> {
        self.alive()?;
        let mut state = self.state.borrow_mut();
        state.used = self.env.now();
        let node = state.nodes.get(&parent).filter(|node| node.leased)?;
        match node.names.get(name) {
            // Not there, as all its names are known; unless it is too long to be one, which the MDT says.
            None if node.complete && name.len() <= NAME_BYTES => Some(None),
            None => None,
            Some(name) => match name.known? {
                None => Some(None),
                Some(fid) => state.nodes.get(&fid)?.entry().map(Some),
            },
        }
    }

    /// How long `attr` may be believed by somebody else, who will hear when not ([`Leases::set_hook`]).
    pub fn attributes_for(&self, attr: &Attr) -> Duration {
        let Some(left) = self.alive() else { return Duration::ZERO };
        let mut state = self.state.borrow_mut();
        let node = state.nodes.get_mut(&attr.fid);
        let current = |node: &&mut Node| node.leased && node.entry.as_ref().is_some_and(|entry| entry.attr == *attr);
        let Some(node) = node.filter(current) else { return Duration::ZERO };
        node.attributes_until = self.env.now() + left + limits::KERNEL_DELAY;
        left
    }

    /// How long the attributes of a file that we have just made, and have open, may be believed by somebody else who knows
    /// what it does to them itself.
    pub fn new_file_for(&self, fid: Fid) -> Duration {
        let Some(left) = self.alive() else { return Duration::ZERO };
        let mut state = self.state.borrow_mut();
        let Some(node) = state.nodes.get_mut(&fid).filter(|node| node.leased) else { return Duration::ZERO };
        node.attributes_until = self.env.now() + left + limits::KERNEL_DELAY;
        left
    }

    /// How long `name` may be believed to lead to `fid` by somebody else, if that is what is kept.
    pub fn name_for(&self, parent: Fid, name: &[u8], fid: Option<Fid>) -> Duration {
        let Some(left) = self.alive() else { return Duration::ZERO };
        let mut state = self.state.borrow_mut();
        let Some(node) = state.nodes.get_mut(&parent).filter(|node| node.leased) else { return Duration::ZERO };
        let kept = match node.names.get(name) {
            Some(name) => name.known,
            None => node.complete.then_some(None),
        };
        if kept != Some(fid) {
            return Duration::ZERO;
        }
        node.names_until = self.env.now() + left + limits::KERNEL_DELAY;
        left
    }

    /// Until when somebody may believe names of a directory.
    pub fn names_until(&self, dir: Fid) -> Time {
        self.state.borrow().nodes.get(&dir).map_or(Time(0), |node| node.names_until)
    }

    /// A name that may be believed `until` then was moved to another directory, and is believed there as long. True if that has to
    /// be heard, as the names of this directory are not leased.
    pub fn name_moved(&self, until: Time, to: Fid) -> bool {
        match self.state.borrow_mut().nodes.get_mut(&to) {
            _ if until <= self.env.now() => false,
            Some(node) if node.leased => {
                node.names_until = node.names_until.max(until);
                false
            }
            _ => true,
        }
    }

    /// Nothing has happened to the inode since something was `asked`: we have not changed it, and nobody else may have.
    pub fn is_unchanged(&self, fid: Fid, asked: Ticket) -> bool {
        let state = self.state.borrow();
        let last = |node: &Node| node.changed.max(node.recalled).max(node.data_ended);
        state.nodes.get(&fid).map_or(state.forgotten, last) <= asked.0
    }

    // ---- what replies bring

    /// What a reply said of an inode.
    pub fn learn(&self, asked: Ticket, entry: &EntryReply) {
        let mut state = self.state.borrow_mut();
        let fid = entry.attr.fid;
        if entry.leases & lease_flags::INODE == 0 || !state.lease(asked, fid) {
            return;
        }
        // Of a file that somebody has open for writing the OSTs know more, or we do.
        let written = entry.attr.flags & attr_flags::SIZE_ON_OST != 0;
        let ours = entry.attr.flags & attr_flags::SOLE_WRITER != 0 && state.data.get(&fid) == Some(&Holds::All);
        let is_told = state.is_told(fid);
        if let Some(node) = state.nodes.get_mut(&fid).filter(|node| node.changed <= asked.0 && !is_told) {
            if !written {
                node.entry = Some(Box::new(entry.clone()));
            } else if ours && node.data_ended <= asked.0 {
                node.written = Some(Box::new(entry.clone()));
            }
        }
        drop(state);
        self.bound();
    }

    /// What a reply said of a name: `leases` of the reply.
    pub fn learn_name(&self, asked: Ticket, parent: Fid, name: &[u8], leases: u32, fid: Option<Fid>) {
        let mut state = self.state.borrow_mut();
        if leases & lease_flags::PARENT == 0 || !state.lease(asked, parent) {
            return;
        }
        let since = state.sequence;
        // Where all names are known one that is not there is known to be absent, since whenever.
        let all_known = state.node(parent).complete;
        let counts = |known: Option<&Name>| known.map_or(!all_known, |known| known.since <= asked.0);
        state.set_name(parent, name, counts, Some(fid), since);
        drop(state);
        self.bound();
    }

    /// A file that was just made, by this client. Its attributes are for who follows what we do to it.
    pub fn learn_file(&self, asked: Ticket, file: &OpenReply) {
        if file.leases & lease_flags::INODE != 0 {
            self.state.borrow_mut().lease(asked, file.attr.fid);
            self.bound();
        }
    }

    /// What a file is like that this client opened to read, or of which it closed the last handle that could write.
    pub fn learn_attributes(&self, asked: Ticket, file: &Attr) {
        self.learn(asked, &entry_of(file));
    }

    /// It was read at `at_ns`: the MDT will be told.
    pub fn accessed(&self, fid: Fid, at_ns: i64) {
        if let Some(node) = self.state.borrow_mut().nodes.get_mut(&fid) {
            let entries = [node.entry.as_mut(), node.written.as_mut()];
            entries.into_iter().flatten().for_each(|entry| entry.attr.atime_ns = entry.attr.atime_ns.max(at_ns));
        }
    }

    /// A directory that was just made, by this client: it has no names.
    pub fn learn_empty(&self, asked: Ticket, entry: &EntryReply) {
        self.learn(asked, entry);
        let mut state = self.state.borrow_mut();
        if let Some(node) = state.nodes.get_mut(&entry.attr.fid).filter(|node| node.leased && node.names.is_empty()) {
            node.complete = node.changed <= asked.0;
        }
    }

    // ---- our own changes

    /// A change of the inode begins, or has ended.
    pub fn touch(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        state.sequence += 1;
        state.touch(fid);
        drop(state);
        self.bound();
    }

    /// The same of a change of its links, owner or permissions.
    pub fn links_change(&self, fid: Fid) {
        let mut state = self.state.borrow_mut();
        state.sequence += 1;
        state.links_change(fid);
        drop(state);
        self.bound();
    }

    /// A change of the inode has ended, under `transno`: what earlier ones left it as does not count any more.
    pub fn touch_at(&self, fid: Fid, transno: Transno) {
        self.touch(fid);
        if let Some(node) = self.state.borrow_mut().nodes.get_mut(&fid) {
            node.single = None;
            node.transno = node.transno.max(transno);
        }
    }

    /// A change of `name` begins. The number is for [`Leases::name_changed`].
    pub fn name_changes(&self, parent: Fid, name: &[u8]) -> Ticket {
        let mut state = self.state.borrow_mut();
        state.sequence += 1;
        let since = state.sequence;
        state.touch(parent);
        let known = state.nodes.get(&parent).and_then(|node| node.names.get(name)).and_then(|name| name.known);
        if let Some(Some(fid)) = known {
            state.links_change(fid);
        }
        state.set_name(parent, name, |_| true, None, since);
        drop(state);
        self.bound();
        Ticket(since)
    }

    /// The change that `begun` numbers has ended, under `transno`, and left the directory as `dir`.
    pub fn directory_changed(&self, begun: Ticket, dir: &Attr, transno: Transno) {
        let mut state = self.state.borrow_mut();
        let is_told = state.is_told(dir.fid);
        let counts = |node: &&mut Node| node.leased && node.recalled <= begun.0 && !is_told;
        let Some(node) = state.nodes.get_mut(&dir.fid).filter(counts) else {
            return;
        };
        // Replies come in the order of the changes; their readers may run in another.
        if node.transno < transno {
            node.transno = transno;
            node.entry = Some(Box::new(entry_of(dir)));
        }
    }

    /// The change that `begun` numbers has ended: `name` leads to `fid`; `None`: nobody knows where.
    pub fn name_changed(&self, begun: Ticket, parent: Fid, name: &[u8], fid: Option<Option<Fid>>) {
        let mut state = self.state.borrow_mut();
        state.sequence += 1;
        let since = state.sequence;
        state.touch(parent);
        let node = state.node(parent);
        let recalled = node.recalled > begun.0;
        if !node.leased {
            // Nothing is known of it; whoever asked before now does not know either.
            node.recalled = since;
            let removed = node.names.remove(name).is_some();
            state.names -= usize::from(removed);
            return;
        }
        let own = |known: Option<&Name>| known.is_some_and(|known| known.since == begun.0);
        let alone = own(state.nodes.get(&parent).and_then(|node| node.names.get(name)));
        // Another change of the same name was under way: which came first is not known.
        let known = if alone && !recalled { fid } else { None };
        state.set_name(parent, name, |_| true, known, since);
    }

    /// Leases and names kept now.
    pub fn kept(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.nodes.values().filter(|node| node.leased).count() as u64, state.names as u64)
    }
}

impl State {
    fn node(&mut self, fid: Fid) -> &mut Node {
        let order = &mut self.order;
        let forgotten = self.forgotten;
        self.nodes.entry(fid).or_insert_with(|| {
            order.push_back(fid);
            Node { recalled: forgotten, data_ended: forgotten, changed: forgotten, ..Node::default() }
        })
    }

    /// A reply to what was `asked` brought a lease. False if it was recalled since.
    fn lease(&mut self, asked: Ticket, fid: Fid) -> bool {
        let holds = self.node(fid).recalled <= asked.0;
        if holds {
            self.begin_lease(fid);
        }
        holds
    }

    fn begin_lease(&mut self, fid: Fid) {
        let number = self.leases + 1;
        let node = self.node(fid);
        if !node.leased {
            (node.leased, node.lease) = (true, number);
            self.leases = number;
        }
    }

    /// As [`State::touch`]; also who owns it, and how many names it has, may change.
    fn links_change(&mut self, fid: Fid) {
        self.touch(fid);
        self.node(fid).single = None;
    }

    fn touch(&mut self, fid: Fid) {
        let number = self.sequence;
        let node = self.node(fid);
        node.changed = number;
        (node.entry, node.written) = (None, None);
    }

    fn set_name(
        &mut self,
        parent: Fid,
        name: &[u8],
        unless: impl FnOnce(Option<&Name>) -> bool,
        known: Option<Option<Fid>>,
        since: u64,
    ) {
        let node = self.node(parent);
        if !unless(node.names.get(name)) {
            return;
        }
        let is_new = match node.names.get_mut(name) {
            Some(there) => {
                *there = Name { known, since };
                false
            }
            None => node.names.insert(Bytes::copy_from_slice(name), Name { known, since }).is_none(),
        };
        self.names += usize::from(is_new);
    }

    fn drop_names(&mut self, fid: Fid) {
        let dropped = self.nodes.get_mut(&fid).map(|node| std::mem::take(&mut node.names).len());
        self.names -= dropped.unwrap_or(0);
    }

    fn forget_all(&mut self) {
        self.sequence += 1;
        self.forgotten = self.sequence;
        self.nodes.clear();
        self.order.clear();
        // The MDT counts the names of directories on, whatever the time.
        let idle = self.directories.iter().filter(|(_, directory)| directory.under_way == 0).map(|(fid, _)| *fid);
        self.returned.extend(idle);
        self.directories.retain(|_, directory| directory.under_way > 0);
        self.directories.values_mut().for_each(|directory| directory.may = false);
        self.names = 0;
    }
}

impl Node {
    fn entry(&self) -> Option<EntryReply> {
        self.entry.as_deref().filter(|_| self.leased).cloned()
    }

    /// Nothing is believed any more; what others may still believe is told.
    fn give_up(&mut self, fid: Fid, now: Time) -> Vec<Dropped> {
        (self.leased, self.entry, self.written, self.complete) = (false, None, None, false);
        (self.alone, self.single) = (None, None);
        let attributes = (self.attributes_until > now).then_some(Dropped::Attributes(fid));
        let names = (self.names_until > now).then_some(Dropped::Names);
        (self.attributes_until, self.names_until) = (Time(0), Time(0));
        attributes.into_iter().chain(names).collect()
    }
}

/// Attributes under a lease.
fn entry_of(attr: &Attr) -> EntryReply {
    EntryReply { attr: attr.clone(), layout: None, default_layout: None, leases: lease_flags::INODE, parent: None }
}

#[cfg(test)]
mod tests;
