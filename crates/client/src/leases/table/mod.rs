//! What the MDT has leased, and what is cached under it: a state machine without clock and without messages.
//!
//! Each call is part of a step ([`LeaseTable::step`]), at a time that its caller names. What the kernel has to drop comes out of the
//! step as [`Effects`].
//!
//! A reply is cached only if nothing happened to its inode since the request was sent: every recall and every change by this client has
//! a number, and so has every request ([`Ticket`]).
//!
//! Leases whose term is over end with the first step that would believe them. A recall that comes before that still notifies the
//! kernel.
//!
//! Invariant: no reply is cached whose request was sent before a recall or a loss of the lease, or before a change by
//! this client.
//! Invariant: bounded at the end of each step ([`limits::CACHED_INODES`], [`limits::CACHED_NAMES`]), unless the oldest inode is a
//! directory with changes under way.
//! Not here: the clock and the hook that notifies the kernel (see `leases`), the requests to the MDT (see `recalls`).

mod believed;
mod changes;
mod data;
mod ends;
mod entries;
mod replies;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use forebay_env::Time;
use forebay_proto::{
    Fid, Transno,
    limits::LEASE_CLIENT_TERM,
    message::{Attr, DataRecall, EntryReply, lease_flags},
};

use self::changes::OwnChange;
pub(crate) use self::entries::{EntryChange, SoleLease, commits};
use crate::limits;

/// What has to be dropped by a kernel that was allowed to cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Attributes of an inode.
    Attributes(Fid),
    /// Names, of whichever directory.
    Names,
}

/// What the kernel has to drop after a step, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Leases on it were recalled or lost: what the kernel may not have received goes to the caller of the step.
    pub ended: Vec<Dropped>,
    /// It was given up: what the kernel may not have received comes back ([`LeaseTable::not_heard`]).
    pub given_up: Vec<Dropped>,
}

/// When a request was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[cfg(test)]
impl Ticket {
    /// For tests of what is ordered by them.
    pub fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// What may be buffered of what is written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holds {
    /// Nothing.
    #[default]
    Nothing,
    /// What is written in the claimed pieces (see `byte_ranges`).
    Ranges,
    /// All of it.
    All,
}

/// Everything that is kept. See the module.
#[derive(Default)]
pub(crate) struct LeaseTable {
    /// The time of this step.
    now: Time,
    effects: Effects,
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
    to_tell: ToTell,
    /// Files whose data the MDT may count as leased to us, and what we count.
    data: BTreeMap<Fid, Holds>,
    /// Directories whose names the MDT may count as leased to us for changes, and what we make of it.
    directories: BTreeMap<Fid, Directory>,
    own: OwnChanges,
}

/// What the MDT and the kernel are to be notified of.
#[derive(Default)]
struct ToTell {
    /// Number of the last recall that was executed, and of the last that the MDT knows to be.
    acknowledged: u64,
    known_acknowledged: u64,
    /// Leases that were given up and are to be returned.
    returned: BTreeSet<Fid>,
    /// Recalls of data after which nothing is buffered any more.
    flushed: Vec<DataRecall>,
    /// What the kernel was not ready to receive.
    undelivered: Vec<Dropped>,
}

/// Changes by this client that it waits for.
#[derive(Default)]
struct OwnChanges {
    /// By their numbers.
    under_way: BTreeMap<u64, OwnChange>,
    /// Directories whose attributes are being changed, and how many such changes are under way: no change of their entries is delayed.
    pausing: BTreeMap<Fid, usize>,
    /// Changes that may concern any directory: no change of entries is delayed.
    pausing_all: usize,
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
    /// Number of the last end of a lease on its data, or its names.
    data_ended: u64,
    /// Number of the last change of our own.
    changed: u64,
    /// The last change of our own of which the attributes are known.
    transno: Transno,
    /// Nobody else has a lease on it while the changes of this directory are ours: that directory, and when the lease
    /// was requested.
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

/// A directory whose names the MDT may count as leased to us for changes.
#[derive(Clone, Copy, Debug, Default)]
struct Directory {
    /// Changes may be answered.
    may: bool,
    /// Changes that were answered and have not come to pass.
    under_way: usize,
}

/// What is known of an inode that was made here, under its one name.
#[derive(Clone, Copy, Debug)]
struct Single {
    mode: u32,
    uid: u32,
    /// Number of that change.
    since: u64,
}

impl LeaseTable {
    /// One step at the time `now`: its result, and what the kernel has to drop.
    pub fn step<T>(&mut self, now: Time, run: impl FnOnce(&mut Self) -> T) -> (T, Effects) {
        self.now = now;
        let result = run(self);
        self.bound();
        (result, std::mem::take(&mut self.effects))
    }

    /// Before a request is sent: its reply counts for what has not happened since.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.sequence)
    }

    /// The MDT has answered a request that was sent at `begun`.
    pub fn heard(&mut self, begun: Time) {
        self.alive();
        self.contact = self.contact.max(Some(begun));
    }

    /// Leases and names kept now.
    pub fn kept(&self) -> (u64, u64) {
        (self.nodes.values().filter(|node| node.leased).count() as u64, self.names as u64)
    }

    /// How long what is leased may be believed from now on. If the time is over nothing is kept.
    fn alive(&mut self) -> Option<Duration> {
        let left = (self.contact? + LEASE_CLIENT_TERM).since(self.now);
        if left.is_zero() {
            self.forget_all();
        }
        Some(left).filter(|left| !left.is_zero())
    }

    /// The number of what happens now.
    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn node(&mut self, fid: Fid) -> &mut Node {
        let (order, forgotten) = (&mut self.order, self.forgotten);
        self.nodes.entry(fid).or_insert_with(|| {
            order.push_back(fid);
            Node { recalled: forgotten, data_ended: forgotten, changed: forgotten, ..Node::default() }
        })
    }

    fn leased(&self, fid: Fid) -> Option<&Node> {
        self.nodes.get(&fid).filter(|node| node.leased)
    }

    fn leased_mut(&mut self, fid: Fid) -> Option<&mut Node> {
        self.nodes.get_mut(&fid).filter(|node| node.leased)
    }

    /// Number of the last end of a lease on its data, or names.
    fn ended(&self, fid: Fid) -> u64 {
        self.nodes.get(&fid).map_or(self.forgotten, Node::ended)
    }

    /// The cached state of the directory is what programs were shown, newer than what the MDT shows yet.
    fn is_told(&self, fid: Fid) -> bool {
        self.directories.get(&fid).is_some_and(|directory| directory.under_way > 0)
    }

    fn begin_lease(&mut self, fid: Fid) {
        let number = self.leases + 1;
        let node = self.node(fid);
        if !node.leased {
            (node.leased, node.lease) = (true, number);
            self.leases = number;
        }
    }

    /// The inode changed, under the last number.
    fn change(&mut self, fid: Fid) {
        let number = self.sequence;
        let node = self.node(fid);
        (node.changed, node.entry, node.written) = (number, None, None);
    }

    /// The same; also who owns it, and how many names it has, may change.
    fn change_links(&mut self, fid: Fid) {
        self.change(fid);
        self.node(fid).single = None;
    }

    fn set_name(&mut self, parent: Fid, name: &[u8], known: Option<Option<Fid>>, since: u64) {
        let node = self.node(parent);
        if let Some(there) = node.names.get_mut(name) {
            *there = Name { known, since };
        } else {
            node.names.insert(Bytes::copy_from_slice(name), Name { known, since });
            self.names += 1;
        }
    }

    fn drop_name(&mut self, parent: Fid, name: &[u8]) {
        let dropped = self.nodes.get_mut(&parent).and_then(|node| node.names.remove(name));
        self.names -= usize::from(dropped.is_some());
    }

    fn drop_names(&mut self, fid: Fid) {
        let dropped = self.nodes.get_mut(&fid).map(|node| std::mem::take(&mut node.names).len());
        self.names -= dropped.unwrap_or(0);
    }

    fn forget_all(&mut self) {
        self.forgotten = self.next();
        self.nodes.clear();
        self.order.clear();
        self.names = 0;
        // The MDT counts the names of directories on, whatever the time.
        self.directories.values_mut().for_each(|directory| directory.may = false);
        let idle = self.directories.extract_if(.., |_, directory| directory.under_way == 0);
        self.to_tell.returned.extend(idle.map(|(fid, _)| fid));
    }

    fn bound(&mut self) {
        let most_bytes = self.most_bytes.unwrap_or(u64::MAX);
        let inodes = limits::CACHED_INODES.min((most_bytes / limits::CACHED_INODE_BYTES) as usize);
        let names = limits::CACHED_NAMES.min((most_bytes / limits::CACHED_NAME_BYTES) as usize);
        let is_full = |table: &Self| table.nodes.len() > inodes || table.names > names;
        while is_full(self) && self.order.pop_front().is_some_and(|oldest| self.give_up(oldest)) {}
    }

    /// False: changes of it are under way, so that it has to be kept until they have come to pass; no more are answered.
    fn give_up(&mut self, fid: Fid) -> bool {
        if let Some(directory) = self.directories.get_mut(&fid).filter(|directory| directory.under_way > 0) {
            directory.may = false;
            self.order.push_front(fid);
            return false;
        }
        let counted = self.directories.remove(&fid).is_some();
        if counted || self.leased(fid).is_some() {
            self.to_tell.returned.insert(fid);
        }
        self.drop_names(fid);
        if let Some(mut node) = self.nodes.remove(&fid) {
            self.forgotten = self.forgotten.max(node.last());
            self.effects.given_up.extend(node.give_up(fid, self.now));
        }
        true
    }
}

impl Node {
    fn entry(&self) -> Option<EntryReply> {
        self.entry.as_deref().filter(|_| self.leased).cloned()
    }

    /// What a name leads to; `Some(None)`: to nothing.
    fn known(&self, name: &[u8]) -> Option<Option<Fid>> {
        self.names.get(name).map_or(self.complete.then_some(None), |name| name.known)
    }

    /// Number of the last end of a lease on it.
    fn ended(&self) -> u64 {
        self.recalled.max(self.data_ended)
    }

    /// Number of what happened to it last.
    fn last(&self) -> u64 {
        self.ended().max(self.changed)
    }

    /// Nothing is cached any more; returns what others may still cache, for their notification.
    fn give_up(&mut self, fid: Fid, now: Time) -> impl Iterator<Item = Dropped> + use<> {
        (self.leased, self.entry, self.written, self.complete) = (false, None, None, false);
        (self.alone, self.single) = (None, None);
        let attributes = (self.attributes_until > now).then_some(Dropped::Attributes(fid));
        let names = (self.names_until > now).then_some(Dropped::Names);
        (self.attributes_until, self.names_until) = (Time(0), Time(0));
        attributes.into_iter().chain(names)
    }
}

/// Attributes under a lease.
fn entry_of(attr: &Attr) -> EntryReply {
    EntryReply { attr: attr.clone(), layout: None, default_layout: None, leases: lease_flags::INODE, parent: None }
}

#[cfg(test)]
mod tests;
