//! The queue of delayed operations. Pure: it knows neither `Client` nor the network.
//!
//! A delayed operation was acknowledged by the client, and the MDT has not replied to it yet. The queue knows which
//! ones there are, and what each concerns. A request that depends on some of them is sent after these were executed
//! ([`super::flush`]); a [`Scope`] names them.
//!
//! Invariant: operations have rising numbers, in the order in which they were acknowledged. A flush waits for those that were there
//! when it began ([`DelayedQueue::mark`]), so it ends however many follow.
//! Invariant: at most one SETATTR of a file is in the queue: later ones join it, or wait for it.
//! Not here: what an operation changes (`names`, `set_attr`), and delayed writes (`write_back`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_proto::Fid;

/// Number of a delayed operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpNumber(u64);

/// A delayed change of a directory entry: create, mkdir, symlink, unlink or rmdir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryOp {
    /// The directory.
    pub directory: Fid,
    /// The entry.
    pub name: Bytes,
    /// The inode that the entry leads to, or led to.
    pub fid: Fid,
}

/// Delayed operations that a request depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// All of them.
    All,
    /// Changes of entries of an inode, and of the entry that leads to it; then all SETATTRs. What a request about the inode depends on:
    /// the MDT's reply may show any attributes that this client has cached.
    Inode(Fid),
    /// All changes of entries.
    AllEntries,
    /// Changes of entries of an inode, and of the entry that leads to it.
    Entries(Fid),
    /// Changes of one entry of a directory, and of the entry that leads to the directory; `.` and `..` depend on all entries of it.
    Entry(Fid, &'a [u8]),
    /// All SETATTRs.
    SetAttrs,
    /// The SETATTR of one file.
    SetAttr(Fid),
    /// Closes of files. No other scope has them: a close may have to wait for the request itself. A file without a name
    /// has its space until then.
    Closes,
}

impl Scope<'_> {
    /// The parts that are flushed one after another. SETATTRs come last: until the create of a file has ended, its attributes can be set
    /// and acknowledged.
    pub fn parts(self) -> [Option<Self>; 2] {
        match self {
            Self::All => [Some(Self::AllEntries), Some(Self::SetAttrs)],
            Self::Inode(fid) => [Some(Self::Entries(fid)), Some(Self::SetAttrs)],
            one => [Some(one), None],
        }
    }

    /// It may cover changes of entries.
    pub fn has_entries(self) -> bool {
        !matches!(self, Self::SetAttrs | Self::SetAttr(_) | Self::Closes)
    }

    fn covers_entry(self, op: &EntryOp) -> bool {
        match self {
            Self::All | Self::AllEntries => true,
            Self::Inode(fid) | Self::Entries(fid) => op.concerns(fid),
            Self::Entry(directory, name) => {
                let is_dots = matches!(name, b"." | b"..");
                op.fid == directory || op.directory == directory && (is_dots || op.name == name)
            }
            Self::SetAttrs | Self::SetAttr(_) | Self::Closes => false,
        }
    }

    fn covers_set_attr(self, fid: Fid) -> bool {
        match self {
            Self::All | Self::Inode(_) | Self::SetAttrs => true,
            Self::SetAttr(of) => of == fid,
            Self::AllEntries | Self::Entries(_) | Self::Entry(..) | Self::Closes => false,
        }
    }
}

impl EntryOp {
    /// It changes entries of `fid`, or the entry that leads to it.
    fn concerns(&self, fid: Fid) -> bool {
        self.directory == fid || self.fid == fid
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct DelayedQueue {
    last: OpNumber,
    entries: BTreeMap<OpNumber, EntryOp>,
    /// Files with a SETATTR.
    set_attrs: BTreeMap<Fid, OpNumber>,
    closes: BTreeSet<OpNumber>,
}

impl DelayedQueue {
    fn next(&mut self) -> OpNumber {
        self.last = OpNumber(self.last.0 + 1);
        self.last
    }

    /// A change of an entry was acknowledged. The number is for [`DelayedQueue::end_entry`].
    pub fn add_entry(&mut self, op: EntryOp) -> OpNumber {
        let number = self.next();
        self.entries.insert(number, op);
        number
    }

    /// The MDT has replied to it, or it is lost.
    pub fn end_entry(&mut self, number: OpNumber) {
        self.entries.remove(&number);
    }

    /// A SETATTR of `fid` was acknowledged: the first since the last one ended.
    pub fn add_set_attr(&mut self, fid: Fid) {
        let number = self.next();
        let before = self.set_attrs.insert(fid, number);
        assert_eq!(before, None, "{fid} has a SETATTR in the queue: a later one joins it or waits");
    }

    /// The MDT has replied to it, or it is lost.
    pub fn end_set_attr(&mut self, fid: Fid) {
        self.set_attrs.remove(&fid);
    }

    /// The close of a file has begun: the program does not wait for it. The number is for [`DelayedQueue::end_close`].
    pub fn add_close(&mut self) -> OpNumber {
        let number = self.next();
        self.closes.insert(number);
        number
    }

    /// The MDT has replied to it, or it is lost.
    pub fn end_close(&mut self, number: OpNumber) {
        self.closes.remove(&number);
    }

    /// The last operation by now.
    pub fn mark(&self) -> OpNumber {
        self.last
    }

    /// Some operation up to `mark` is in `scope`.
    pub fn has_until(&self, scope: Scope<'_>, mark: OpNumber) -> bool {
        let is_old = |number: &OpNumber| *number <= mark;
        match scope {
            Scope::Closes => self.closes.first().is_some_and(is_old),
            Scope::SetAttr(fid) => self.set_attrs.get(&fid).is_some_and(is_old),
            _ => {
                self.entries.range(..=mark).any(|(_, op)| scope.covers_entry(op))
                    || self.set_attrs.iter().any(|(fid, number)| is_old(number) && scope.covers_set_attr(*fid))
            }
        }
    }

    /// Some operation is in `scope`.
    pub fn has(&self, scope: Scope<'_>) -> bool {
        self.has_until(scope, self.last)
    }

    /// Files with a SETATTR up to `mark` that is in `scope`.
    pub fn set_attrs_until(&self, scope: Scope<'_>, mark: OpNumber) -> Vec<Fid> {
        let covered = self.set_attrs.iter().filter(|(fid, number)| **number <= mark && scope.covers_set_attr(**fid));
        covered.map(|(fid, _)| *fid).collect()
    }

    /// Files with a SETATTR.
    pub fn set_attrs(&self) -> Vec<Fid> {
        self.set_attrs.keys().copied().collect()
    }

    /// Changes of entries, in their order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &EntryOp> {
        self.entries.values()
    }

    /// Inodes that changes of entries concern.
    pub fn inodes(&self) -> BTreeSet<Fid> {
        self.entries.values().flat_map(|op| [op.directory, op.fid]).collect()
    }

    /// A change of this entry is delayed.
    pub fn has_entry(&self, directory: Fid, name: &[u8]) -> bool {
        self.entries.values().any(|op| op.directory == directory && op.name == name)
    }
}

#[cfg(test)]
mod tests;
