//! The queue of delayed operations. Pure: it knows neither `Client` nor the network.
//!
//! A delayed operation was acknowledged by the client, and the MDT has not replied to it yet. The queue knows which ones there are,
//! and what each concerns. A request that depends on some of them is sent after these were executed ([`super::flush`]); a [`Scope`] says
//! which.
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
    /// Closes of files. No other scope has them: a close may have to wait for the very request that asks. A file without a name has its
    /// space until then.
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
mod tests {
    use super::*;

    fn fid(low: u64) -> Fid {
        Fid { high: 0, low }
    }

    fn entry(directory: u64, name: &'static str, of: u64) -> EntryOp {
        EntryOp { directory: fid(directory), name: Bytes::from_static(name.as_bytes()), fid: fid(of) }
    }

    /// Directory 1 has the entries `a` (directory 2) and `b` (file 3); directory 2 the entry `c` (file 4). Files 3 and 4 have SETATTRs.
    fn filled() -> (DelayedQueue, [OpNumber; 3]) {
        let mut queue = DelayedQueue::default();
        let numbers = [entry(1, "a", 2), entry(1, "b", 3), entry(2, "c", 4)].map(|op| queue.add_entry(op));
        [3, 4].map(fid).into_iter().for_each(|fid| queue.add_set_attr(fid));
        (queue, numbers)
    }

    /// Each scope, with the entries (by number of the fixture) and the files with SETATTRs that it covers.
    const COVERED: &[(Scope<'static>, &[usize], &[u64])] = &[
        (Scope::All, &[0, 1, 2], &[3, 4]),
        (Scope::AllEntries, &[0, 1, 2], &[]),
        (Scope::Inode(Fid { high: 0, low: 1 }), &[0, 1], &[3, 4]),
        (Scope::Inode(Fid { high: 0, low: 2 }), &[0, 2], &[3, 4]),
        (Scope::Inode(Fid { high: 0, low: 9 }), &[], &[3, 4]),
        (Scope::Entries(Fid { high: 0, low: 1 }), &[0, 1], &[]),
        (Scope::Entries(Fid { high: 0, low: 3 }), &[1], &[]),
        (Scope::Entries(Fid { high: 0, low: 4 }), &[2], &[]),
        (Scope::Entry(Fid { high: 0, low: 1 }, b"a"), &[0], &[]),
        (Scope::Entry(Fid { high: 0, low: 1 }, b"x"), &[], &[]),
        (Scope::Entry(Fid { high: 0, low: 1 }, b".."), &[0, 1], &[]),
        (Scope::Entry(Fid { high: 0, low: 2 }, b"x"), &[0], &[]),
        (Scope::Entry(Fid { high: 0, low: 2 }, b"c"), &[0, 2], &[]),
        (Scope::SetAttrs, &[], &[3, 4]),
        (Scope::SetAttr(Fid { high: 0, low: 3 }), &[], &[3]),
        (Scope::SetAttr(Fid { high: 0, low: 2 }), &[], &[]),
    ];

    #[test]
    fn a_scope_is_clear_when_exactly_the_operations_that_it_covers_have_ended() {
        for (scope, entries, set_attrs) in COVERED {
            let (mut queue, numbers) = filled();
            let mark = queue.mark();
            let mut left = entries.len() + set_attrs.len();
            // What it does not cover ends first, and changes nothing.
            let others = (0..numbers.len()).filter(|at| !entries.contains(at));
            others.for_each(|at| queue.end_entry(numbers[at]));
            [3, 4].iter().filter(|of| !set_attrs.contains(of)).for_each(|of| queue.end_set_attr(fid(*of)));
            for at in *entries {
                assert!(queue.has(*scope) && queue.has_until(*scope, mark), "{scope:?}, {left} left");
                queue.end_entry(numbers[*at]);
                left -= 1;
            }
            for of in *set_attrs {
                assert!(queue.has(*scope) && queue.set_attrs_until(*scope, mark).contains(&fid(*of)), "{scope:?}");
                queue.end_set_attr(fid(*of));
                left -= 1;
            }
            assert!(left == 0 && !queue.has(*scope) && !queue.has_until(*scope, mark), "{scope:?}");
        }
    }

    #[test]
    fn a_flush_does_not_wait_for_operations_that_come_after_its_mark() {
        for (scope, ..) in COVERED {
            let mut queue = DelayedQueue::default();
            let mark = queue.mark();
            queue.add_entry(entry(1, "a", 2));
            queue.add_set_attr(fid(3));
            assert!(!queue.has_until(*scope, mark), "{scope:?}");
        }
        let (mut queue, _) = filled();
        let mark = queue.mark();
        queue.end_set_attr(fid(3));
        queue.add_set_attr(fid(3));
        assert!(!queue.has_until(Scope::SetAttr(fid(3)), mark), "that is another SETATTR of the file");
        assert_eq!(queue.set_attrs_until(Scope::SetAttrs, mark), [fid(4)]);
    }

    #[test]
    fn the_parts_of_a_scope_cover_what_it_covers_with_set_attrs_last() {
        for (scope, entries, set_attrs) in COVERED {
            let parts: Vec<Scope<'_>> = scope.parts().into_iter().flatten().collect();
            let (queue, numbers) = filled();
            let covered = |at: &usize| parts.iter().any(|part| part.covers_entry(&queue.entries[&numbers[*at]]));
            assert_eq!((0..3).filter(covered).collect::<Vec<_>>(), *entries, "{scope:?}");
            let files = |of: &u64| parts.iter().any(|part| part.covers_set_attr(fid(*of)));
            assert_eq!([3, 4].into_iter().filter(files).collect::<Vec<_>>(), *set_attrs, "{scope:?}");
            if let [first, _] = parts[..] {
                assert!(first.has_entries() && !first.covers_set_attr(fid(3)), "{scope:?}");
            }
        }
    }

    #[test]
    fn only_the_scope_of_closes_waits_for_a_close_and_for_nothing_else() {
        let mut queue = DelayedQueue::default();
        let number = queue.add_close();
        let mark = queue.mark();
        let later = queue.add_close();
        assert!(COVERED.iter().all(|(scope, ..)| !queue.has(*scope)));
        assert!(queue.has_until(Scope::Closes, mark));
        queue.end_close(number);
        assert!(!queue.has_until(Scope::Closes, mark) && queue.has(Scope::Closes));
        queue.end_close(later);
        assert!(!queue.has(Scope::Closes) && !filled().0.has(Scope::Closes));
    }

    #[test]
    fn entries_are_listed_in_their_order_with_the_inodes_that_they_concern() {
        let (queue, _) = filled();
        let names: Vec<_> = queue.entries().map(|op| op.name.clone()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(queue.inodes(), [1, 2, 3, 4].map(fid).into());
        assert!(queue.has_entry(fid(1), b"b") && !queue.has_entry(fid(2), b"b"));
    }

    #[test]
    #[should_panic = "has a SETATTR in the queue"]
    fn a_file_has_one_set_attr_in_the_queue() {
        let mut queue = DelayedQueue::default();
        queue.add_set_attr(fid(1));
        queue.add_set_attr(fid(1));
    }
}
