//! Which pages the kernel may have, and which requests in flight change the same bytes. Pure.
//!
//! A *change* is a request that changes bytes without the kernel's pages: a write, a truncate, a hole. A *copy* of a
//! page begins with the request that reads it, and ends when the kernel drops the page or reads it anew.
//!
//! Invariant: a change is applied while no read and no write-back of a page that it touches is in flight; all run in
//! order of arrival. So each copy of a page is entirely from before the change or entirely from after it.
//! Invariant: the bytes that a change changed are not written back from a copy from before it.

use std::{collections::BTreeMap, ops::Range};

use forebay_env::{Bug, planted};

use super::ranges::Ranges;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The kernel reads pages.
    PageRead,
    /// The kernel writes changed pages back.
    PageWrite,
    /// Bytes change without the kernel's pages.
    Change,
}

/// A request: its inode, and its number. Numbers grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub ino: u64,
    pub number: u64,
}

#[derive(Debug)]
struct Running {
    kind: Kind,
    pages: Range<u64>,
}

/// An applied change of whose pages the kernel may have earlier copies.
#[derive(Debug)]
struct Stale {
    /// The range that it changed.
    bytes: Range<u64>,
    /// The pages that the change may have touched.
    pages: Range<u64>,
    /// Pages that the kernel has begun to read again since.
    read_since: Ranges,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    page_bytes: u64,
    next: u64,
    running: BTreeMap<Turn, Running>,
    stale: BTreeMap<Turn, Stale>,
    /// Pages that the kernel may have, by inode.
    given: BTreeMap<u64, Ranges>,
}

impl Table {
    pub fn new(page_bytes: u64) -> Self {
        let (running, stale, given) = Default::default();
        Self { page_bytes, next: 0, running, stale, given }
    }

    fn pages(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = bytes.end.checked_next_multiple_of(self.page_bytes).unwrap_or(u64::MAX);
        bytes.start - bytes.start % self.page_bytes..end
    }

    /// The number for a request that arrives now.
    pub fn turn(&mut self, ino: u64) -> Turn {
        self.next += 1;
        Turn { ino, number: self.next }
    }

    /// Registers a request that has arrived.
    pub fn begin(&mut self, ino: u64, kind: Kind, bytes: &Range<u64>) -> Turn {
        let (turn, pages) = (self.turn(ino), self.pages(bytes));
        self.running.insert(turn, Running { kind, pages });
        turn
    }

    /// Whether the request has to wait for an earlier one.
    pub fn is_blocked(&self, turn: Turn) -> bool {
        let Some(own) = self.running.get(&turn) else { return false };
        let before = self.running.range(Turn { number: 0, ..turn }..turn);
        let is_change = |kind| kind == Kind::Change;
        before
            .map(|(_, other)| other)
            .any(|other| is_change(own.kind) != is_change(other.kind) && meet(&own.pages, &other.pages))
    }

    /// The request has ended, and changed nothing past the pages.
    pub fn end(&mut self, turn: Turn) {
        self.running.remove(&turn);
    }

    /// The read of pages of `turn` begins: it gives the kernel new copies.
    pub fn read(&mut self, turn: Turn) {
        let Some(pages) = self.running.get(&turn).map(|own| own.pages.clone()) else { return };
        let number = self.turn(turn.ino).number;
        for stale in of_inode_mut(&mut self.stale, turn.ino) {
            stale.read_since.add(pages.clone(), number);
        }
        self.given.entry(turn.ino).or_default().add(pages, number);
    }

    /// A change is applied. It changed `changed`, and may have changed all of `touched`. True: the kernel may have
    /// earlier copies, and has to drop them; [`Table::dropped`] ends that.
    pub fn applied(&mut self, turn: Turn, changed: Range<u64>, touched: &Range<u64>) -> bool {
        self.running.remove(&turn);
        let pages = self.pages(touched);
        let may_be_there = self.given.get(&turn.ino).is_some_and(|given| given.overlap(&pages));
        let may_be_there = may_be_there && !planted(Bug::StalePagesKept);
        if may_be_there {
            self.stale.insert(turn, Stale { bytes: changed, pages, read_since: Ranges::default() });
        }
        may_be_there
    }

    /// The kernel has dropped all copies from before a change, and what requests before `number` gave it of the same
    /// pages.
    pub fn dropped(&mut self, turn: Turn, number: u64) {
        if let Some(stale) = self.stale.remove(&turn)
            && let Some(given) = self.given.get_mut(&turn.ino)
        {
            given.remove(&stale.pages, number);
            if given.is_empty() {
                self.given.remove(&turn.ino);
            }
        }
    }

    /// The parts of dirty pages that are to be written back. Excluded is what a change changed after the kernel had
    /// read the page.
    pub fn own_parts(&self, ino: u64, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let mut parts = vec![bytes.clone()];
        if planted(Bug::StalePageWritten) {
            return parts;
        }
        for stale in of_inode(&self.stale, ino) {
            for lost in stale.read_since.gaps(&cut(&stale.bytes, bytes)) {
                parts = parts.iter().flat_map(|part| without(part, &lost)).collect();
            }
        }
        parts
    }

    /// Whether a read past the kernel's pages that arrived at `turn` has to wait. It might see an earlier change that a
    /// mapping does not show yet.
    pub fn is_unsettled(&self, turn: Turn, bytes: &Range<u64>) -> bool {
        let (pages, first) = (self.pages(bytes), Turn { number: 0, ..turn });
        if self.stale.range(first..turn).any(|(_, stale)| meet(&stale.pages, &pages)) {
            return true;
        }
        let Some(given) = self.given.get(&turn.ino) else { return false };
        let mut changes = self.running.range(first..turn).filter(|(_, other)| other.kind == Kind::Change);
        changes.any(|(_, other)| meet(&other.pages, &pages) && given.overlap(&other.pages))
    }

    /// Whether the kernel may have pages of the file.
    pub fn has_pages(&self, ino: u64) -> bool {
        self.given.contains_key(&ino)
    }

    /// Files of which the kernel may have pages.
    pub fn files(&self) -> impl Iterator<Item = u64> {
        self.given.keys().copied()
    }

    /// The last handle of the file is closed, and no mapping is left.
    pub fn closed(&mut self, ino: u64) {
        self.given.remove(&ino);
    }
}

fn of_inode(all: &BTreeMap<Turn, Stale>, ino: u64) -> impl Iterator<Item = &Stale> {
    all.range(Turn { ino, number: 0 }..=Turn { ino, number: u64::MAX }).map(|(_, stale)| stale)
}

fn of_inode_mut(all: &mut BTreeMap<Turn, Stale>, ino: u64) -> impl Iterator<Item = &mut Stale> {
    all.range_mut(Turn { ino, number: 0 }..=Turn { ino, number: u64::MAX }).map(|(_, stale)| stale)
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

fn cut(range: &Range<u64>, to: &Range<u64>) -> Range<u64> {
    let start = range.start.max(to.start);
    start..range.end.min(to.end).max(start)
}

fn without(range: &Range<u64>, lost: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (before, after) = (range.start..range.end.min(lost.start), range.start.max(lost.end)..range.end);
    [before, after].into_iter().filter(|part| !part.is_empty())
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // parts are ranges
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const INO: u64 = 7;

    fn table() -> Table {
        Table::new(PAGE)
    }

    /// The kernel reads page `page`.
    fn read(table: &mut Table, page: u64) {
        let turn = table.begin(INO, Kind::PageRead, &(page * PAGE..(page + 1) * PAGE));
        assert!(!table.is_blocked(turn));
        table.read(turn);
        table.end(turn);
    }

    #[test]
    fn a_change_of_a_file_without_pages_leaves_nothing_behind() {
        let mut table = table();
        let turn = table.begin(INO, Kind::Change, &(0..10));
        assert!(!table.is_blocked(turn) && !table.applied(turn, 0..10, &(0..10)));
        assert!(table.running.is_empty() && table.stale.is_empty() && table.given.is_empty());
    }

    #[test]
    fn a_change_and_what_the_kernel_does_with_its_pages_take_turns() {
        let mut table = table();
        let first = table.begin(INO, Kind::PageRead, &(0..PAGE));
        let change = table.begin(INO, Kind::Change, &(100..200));
        let second = table.begin(INO, Kind::PageRead, &(0..PAGE));
        let back = table.begin(INO, Kind::PageWrite, &(0..PAGE));
        let other_change = table.begin(INO, Kind::Change, &(PAGE..2 * PAGE));
        let elsewhere = table.begin(INO + 1, Kind::Change, &(0..PAGE));
        let blocked =
            |table: &Table| [first, change, second, back, other_change, elsewhere].map(|turn| table.is_blocked(turn));
        assert_eq!(blocked(&table), [false, true, true, true, false, false]);
        table.end(first);
        assert_eq!(blocked(&table), [false, false, true, true, false, false]);
        table.applied(change, 100..200, &(100..200));
        assert_eq!(blocked(&table), [false; 6]);
    }

    #[test]
    fn pages_read_before_a_change_do_not_overwrite_the_bytes_of_the_change() {
        let mut table = table();
        read(&mut table, 0);
        let change = table.begin(INO, Kind::Change, &(100..200));
        assert!(table.applied(change, 100..200, &(100..200)));
        assert_eq!(table.own_parts(INO, &(0..2 * PAGE)), [0..100, 200..2 * PAGE]);
        assert_eq!(table.own_parts(INO, &(PAGE..2 * PAGE)), [PAGE..2 * PAGE]);
        // A new copy has the change.
        read(&mut table, 0);
        assert_eq!(table.own_parts(INO, &(0..PAGE)), [0..PAGE]);
    }

    #[test]
    fn a_copy_from_between_two_changes_lacks_only_the_second() {
        let mut table = table();
        read(&mut table, 0);
        let first = table.begin(INO, Kind::Change, &(0..10));
        assert!(table.applied(first, 0..10, &(0..10)));
        read(&mut table, 0);
        let second = table.begin(INO, Kind::Change, &(20..30));
        assert!(table.applied(second, 20..30, &(20..30)));
        assert_eq!(table.own_parts(INO, &(0..PAGE)), [0..20, 30..PAGE]);
    }

    #[test]
    fn a_change_over_a_border_counts_for_each_page_by_itself() {
        let mut table = table();
        read(&mut table, 0);
        read(&mut table, 1);
        let change = table.begin(INO, Kind::Change, &(PAGE - 10..PAGE + 10));
        assert!(table.applied(change, PAGE - 10..PAGE + 10, &(PAGE - 10..PAGE + 10)));
        read(&mut table, 1);
        assert_eq!(table.own_parts(INO, &(0..2 * PAGE)), [0..PAGE - 10, PAGE..2 * PAGE]);
    }

    #[test]
    fn pages_that_were_dropped_cost_the_next_change_nothing() {
        let mut table = table();
        read(&mut table, 0);
        let change = table.begin(INO, Kind::Change, &(0..10));
        assert!(table.applied(change, 0..10, &(0..10)));
        let number = table.turn(INO).number;
        table.dropped(change, number);
        assert!(!table.has_pages(INO));
        let change = table.begin(INO, Kind::Change, &(0..10));
        assert!(!table.applied(change, 0..10, &(0..10)));
    }

    #[test]
    fn a_page_that_was_read_while_older_copies_were_dropped_may_be_there() {
        let mut table = table();
        read(&mut table, 0);
        let change = table.begin(INO, Kind::Change, &(0..10));
        assert!(table.applied(change, 0..10, &(0..10)));
        let number = table.turn(INO).number;
        read(&mut table, 0);
        table.dropped(change, number);
        assert!(table.has_pages(INO));
    }

    #[test]
    fn a_failed_change_hides_nothing_of_what_is_written_back() {
        let mut table = table();
        read(&mut table, 0);
        let change = table.begin(INO, Kind::Change, &(0..10));
        assert!(table.applied(change, 0..0, &(0..10)), "some of it may have been written");
        assert_eq!(table.own_parts(INO, &(0..PAGE)), [0..PAGE]);
    }

    #[test]
    fn read_waits_for_earlier_changes_not_visible_in_mappings() {
        let mut table = table();
        let change = table.begin(INO, Kind::Change, &(0..10));
        let turn = table.turn(INO);
        assert!(!table.is_unsettled(turn, &(0..10)), "nobody maps it");
        table.applied(change, 0..10, &(0..10));
        read(&mut table, 0);
        let before = table.turn(INO);
        let change = table.begin(INO, Kind::Change, &(0..10));
        let turn = table.turn(INO);
        assert!(table.is_unsettled(turn, &(500..600)) && !table.is_unsettled(turn, &(PAGE..PAGE + 1)));
        assert!(!table.is_unsettled(before, &(0..10)));
        assert!(table.applied(change, 0..10, &(0..10)) && table.is_unsettled(turn, &(500..600)));
        table.dropped(change, turn.number);
        assert!(!table.is_unsettled(turn, &(500..600)));
    }
}
