//! Stretches of files that are here, or on their way: what of a range is, and what has to be fetched.
//!
//! Invariant: the stretches of one file do not overlap, and all came under one lease.
//! Invariant: a change of bytes takes away every stretch that holds one of them, those on their way too: what arrives for
//! a stretch that is gone is not kept.
//! Invariant: bounded by the bytes that are here; what was not wanted since it was looked at last goes first.
//! Not here: whether there is a lease, and who fetches (see the module above).

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::Range,
    rc::Rc,
};

use bytes::Bytes;
use forebay_env::sync::Notify;
use forebay_proto::Fid;

/// Places of stretches that are gone are forgotten when there are so many more than of those that are here.
const SPARE_PLACES: usize = 64;
/// Buffers are whole pages.
const PAGE_BYTES: u64 = 4096;
/// About what a stretch takes beside its bytes: its entries here, its list of parts, the header of its buffer.
const ACCOUNT_BYTES: u64 = 1024;

/// Which lease something came under.
pub(crate) type LeaseNumber = u64;

/// What is kept of all files. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct ReadCache(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    files: BTreeMap<Fid, BufferedWrites>,
    /// Stretches that are here, in the order in which they are looked at.
    order: VecDeque<Place>,
    /// Stretches that are here, and their bytes.
    here: usize,
    bytes: u64,
    /// Bytes on their way.
    coming: u64,
    /// Changes under way, by number.
    changing: BTreeMap<Fid, Vec<(u64, Range<u64>)>>,
    next: u64,
}

/// Bytes are being changed: until this is dropped nothing of them is kept.
pub(crate) struct Changing {
    cache: ReadCache,
    fid: Fid,
    range: Range<u64>,
    number: u64,
}

/// Where a stretch was put.
struct Place {
    fid: Fid,
    start: u64,
    number: u64,
}

/// What is kept of one file.
struct BufferedWrites {
    lease: LeaseNumber,
    stretches: BTreeMap<u64, Stretch>,
}

struct Stretch {
    end: u64,
    number: u64,
    body: Body,
}

enum Body {
    /// Somebody fetches it.
    Coming(Rc<Notify>),
    Here {
        parts: Vec<Bytes>,
        wanted: bool,
        /// Its buffer is that of others too, which came with it: it goes with them, or one would hold the memory of all.
        shares: bool,
    },
}

/// What of a range there is.
pub(crate) enum Found {
    /// All of it.
    Here(Vec<Bytes>),
    /// What comes first of what is not here is on its way.
    Coming(Rc<Notify>),
    /// What comes first of what is not here, up to what is, or is on its way.
    Missing(Range<u64>),
}

/// A stretch on its way. Dropped, nobody waits for it any more.
pub(crate) struct Arrival {
    cache: ReadCache,
    fid: Fid,
    /// Which bytes.
    pub range: Range<u64>,
    number: u64,
}

/// Bytes of memory that a stretch takes: whole pages of a buffer, and what keeps account of it.
fn cost(length: u64) -> u64 {
    length.next_multiple_of(PAGE_BYTES) + ACCOUNT_BYTES
}

impl ReadCache {
    /// Looks for a range of a file, of which everything that came under another lease is forgotten.
    pub fn find(&self, fid: Fid, lease: LeaseNumber, range: &Range<u64>) -> Found {
        let mut inner = self.0.borrow_mut();
        inner.forget_unless(fid, lease);
        let Some(kept) = inner.files.get_mut(&fid) else { return Found::Missing(range.clone()) };
        kept.find(range)
    }

    /// Somebody fetches what is missing of the beginning of a range. `None`: nothing is, or it is being changed.
    pub fn begin(&self, fid: Fid, lease: LeaseNumber, range: &Range<u64>) -> Option<Arrival> {
        let mut inner = self.0.borrow_mut();
        inner.forget_unless(fid, lease);
        let number = inner.next;
        let kept = inner.files.entry(fid).or_insert_with(|| BufferedWrites { lease, stretches: BTreeMap::new() });
        let Some(range) = kept.first_gap(range).filter(|range| !inner.is_changing(fid, range)) else {
            inner.forget_empty(fid);
            return None;
        };
        let kept = inner.files.get_mut(&fid)?;
        let stretch = Stretch { end: range.end, number, body: Body::Coming(Rc::default()) };
        kept.stretches.insert(range.start, stretch);
        inner.next += 1;
        inner.coming += range.end - range.start;
        drop(inner);
        Some(Arrival { cache: self.clone(), fid, range, number })
    }

    /// What of a range is neither here nor on its way, the first of it.
    pub fn first_gap(&self, fid: Fid, lease: LeaseNumber, range: &Range<u64>) -> Option<Range<u64>> {
        match self.0.borrow().files.get(&fid).filter(|kept| kept.lease == lease) {
            Some(kept) => kept.first_gap(range),
            None => (!range.is_empty()).then(|| range.clone()),
        }
    }

    /// A change of bytes begins. It ends when the answer is dropped.
    pub fn changing(&self, fid: Fid, range: Range<u64>) -> Changing {
        let mut inner = self.0.borrow_mut();
        let number = inner.next;
        inner.next += 1;
        inner.changing.entry(fid).or_default().push((number, range.clone()));
        drop(inner);
        self.changed(fid, range.clone());
        Changing { cache: self.clone(), fid, range, number }
    }

    /// Bytes in a range have changed, or are not sure any more.
    pub fn changed(&self, fid: Fid, range: Range<u64>) {
        let mut inner = self.0.borrow_mut();
        let Some(kept) = inner.files.get_mut(&fid) else { return };
        let touched = kept.stretches.range(..range.end).rev().take_while(|(_, stretch)| stretch.end > range.start);
        let starts: Vec<u64> = touched.map(|(start, _)| *start).collect();
        starts.into_iter().for_each(|start| inner.take_away(fid, start));
    }

    /// Bytes of memory that are here, and bytes on their way.
    pub fn bytes(&self) -> (u64, u64) {
        let inner = self.0.borrow();
        (inner.bytes, inner.coming)
    }

    /// Lets go of what was not wanted lately until no more than `bytes` are here.
    pub fn bound(&self, bytes: u64) {
        let mut inner = self.0.borrow_mut();
        while inner.bytes > bytes {
            let Some(place) = inner.order.pop_front() else { return };
            match inner.stretch(&place).map(|stretch| &mut stretch.body) {
                Some(Body::Here { wanted, shares: false, .. }) if *wanted => {
                    *wanted = false;
                    inner.order.push_back(place);
                }
                Some(_) => inner.take_away(place.fid, place.start),
                None => {}
            }
        }
    }
}

impl Inner {
    /// The stretch that was put there, if it was not taken away since.
    fn stretch(&mut self, place: &Place) -> Option<&mut Stretch> {
        let kept = self.files.get_mut(&place.fid)?;
        kept.stretches.get_mut(&place.start).filter(|stretch| stretch.number == place.number)
    }

    fn is_changing(&self, fid: Fid, range: &Range<u64>) -> bool {
        let meets = |changing: &Range<u64>| changing.start < range.end && range.start < changing.end;
        self.changing.get(&fid).is_some_and(|all| all.iter().any(|(_, changing)| meets(changing)))
    }

    fn forget_empty(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(|kept| kept.stretches.is_empty()) {
            self.files.remove(&fid);
        }
    }

    fn forget_unless(&mut self, fid: Fid, lease: LeaseNumber) {
        let Some(kept) = self.files.get(&fid).filter(|kept| kept.lease != lease) else { return };
        let starts: Vec<u64> = kept.stretches.keys().copied().collect();
        starts.into_iter().for_each(|start| self.take_away(fid, start));
        self.files.remove(&fid);
    }

    fn take_away(&mut self, fid: Fid, start: u64) {
        let Some(kept) = self.files.get_mut(&fid) else { return };
        let Some(stretch) = kept.stretches.remove(&start) else { return };
        self.forget_empty(fid);
        match stretch.body {
            Body::Coming(arrived) => {
                self.coming -= stretch.end - start;
                arrived.notify_waiters();
            }
            Body::Here { .. } => {
                self.here -= 1;
                self.bytes -= cost(stretch.end - start);
            }
        }
    }
}

impl BufferedWrites {
    /// The stretch that holds a byte.
    fn at(&mut self, offset: u64) -> Option<(u64, &mut Stretch)> {
        let (start, stretch) = self.stretches.range_mut(..=offset).next_back()?;
        (stretch.end > offset).then_some((*start, stretch))
    }

    fn find(&mut self, range: &Range<u64>) -> Found {
        let (mut at, mut found) = (range.start, Vec::new());
        while at < range.end {
            match self.at(at) {
                Some((start, Stretch { end, body: Body::Here { parts, wanted, .. }, .. })) => {
                    *wanted = true;
                    let to = range.end.min(*end);
                    cut(parts, (at - start) as usize..(to - start) as usize, &mut found);
                    at = to;
                }
                Some((_, Stretch { body: Body::Coming(arrived), .. })) => return Found::Coming(arrived.clone()),
                None => return Found::Missing(at..self.next_after(at).min(range.end)),
            }
        }
        Found::Here(found)
    }

    fn first_gap(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut at = range.start;
        while at < range.end {
            match self.stretches.range(..=at).next_back().filter(|(_, stretch)| stretch.end > at) {
                Some((_, stretch)) => at = stretch.end,
                None => return Some(at..self.next_after(at).min(range.end)),
            }
        }
        None
    }

    fn next_after(&self, at: u64) -> u64 {
        self.stretches.range(at..).next().map_or(u64::MAX, |(start, _)| *start)
    }
}

impl Arrival {
    /// It is here: kept, unless it was taken away meanwhile. `parts` are as many bytes as were asked for; `shares`: in a buffer in
    /// which others are too.
    pub fn keep(self, parts: Vec<Bytes>, shares: bool) {
        let place = self.place();
        let mut inner = self.cache.0.borrow_mut();
        let Some(stretch) = inner.stretch(&place) else { return };
        let arrived = std::mem::replace(&mut stretch.body, Body::Here { parts, wanted: false, shares });
        let length = self.range.end - self.range.start;
        inner.here += 1;
        inner.bytes += cost(length);
        inner.coming -= length;
        inner.order.push_back(place);
        if inner.order.len() > 2 * inner.here + SPARE_PLACES {
            let places = std::mem::take(&mut inner.order);
            let there = places.into_iter().filter(|place| inner.stretch(place).is_some()).collect();
            inner.order = there;
        }
        if let Body::Coming(arrived) = arrived {
            arrived.notify_waiters();
        }
    }

    /// It was not taken away.
    #[cfg(test)]
    pub fn is_wanted(&self) -> bool {
        self.cache.0.borrow_mut().stretch(&self.place()).is_some()
    }

    fn place(&self) -> Place {
        Place { fid: self.fid, start: self.range.start, number: self.number }
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let place = self.place();
        let mut inner = self.cache.0.borrow_mut();
        if inner.stretch(&place).is_some_and(|stretch| matches!(stretch.body, Body::Coming(_))) {
            inner.take_away(place.fid, place.start);
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut inner = self.cache.0.borrow_mut();
        if let Some(all) = inner.changing.get_mut(&self.fid) {
            all.retain(|(number, _)| *number != self.number);
            if all.is_empty() {
                inner.changing.remove(&self.fid);
            }
        }
        drop(inner);
        self.cache.changed(self.fid, self.range.clone());
    }
}

/// The bytes `range` of `parts`, which lie one after another.
pub(crate) fn cut(parts: &[Bytes], range: Range<usize>, out: &mut Vec<Bytes>) {
    let mut at = 0;
    for part in parts {
        let (from, to) = (range.start.max(at), range.end.min(at + part.len()));
        if from < to {
            out.push(part.slice(from - at..to - at));
        }
        at += part.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    const FILE: Fid = Fid { high: 0, low: 5 };

    fn bytes_of(contents: &[u8], range: &Range<u64>) -> Vec<Bytes> {
        let bytes = &contents[range.start as usize..range.end as usize];
        bytes.chunks(3).map(Bytes::copy_from_slice).collect()
    }

    /// The whole range, everything missing fetched from `contents`.
    fn read(cache: &ReadCache, lease: LeaseNumber, contents: &[u8], range: &Range<u64>) -> Vec<u8> {
        loop {
            match cache.find(FILE, lease, range) {
                Found::Here(parts) => return parts.concat(),
                Found::Coming(_) => panic!("nobody else fetches"),
                Found::Missing(gap) => {
                    let arrival = cache.begin(FILE, lease, &gap).expect("it is missing");
                    let parts = bytes_of(contents, &arrival.range);
                    arrival.keep(parts, false);
                }
            }
        }
    }

    #[test]
    fn what_is_read_is_what_the_file_holds_whatever_was_kept_and_changed_before() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (cache, mut contents, mut lease) = (ReadCache::default(), dice.bytes(400), 1);
            for _ in 0..200 {
                let start = dice.below(399);
                let range = start..start + 1 + dice.below(400 - start - 1).min(60);
                match dice.below(10) {
                    0 => {
                        contents[range.start as usize..range.end as usize].fill(dice.below(256) as u8);
                        cache.changed(FILE, range);
                    }
                    1 => {
                        lease += 1;
                        contents = dice.bytes(400);
                    }
                    2 => cache.bound(dice.below(60_000)),
                    _ => {
                        let expected = &contents[range.start as usize..range.end as usize];
                        assert_eq!(read(&cache, lease, &contents, &range), expected, "seed {seed}");
                    }
                }
                let inner = cache.0.borrow();
                let kept = inner.files.values().flat_map(|kept| &kept.stretches);
                assert_eq!(inner.bytes, kept.map(|(start, stretch)| cost(stretch.end - start)).sum::<u64>());
                assert_eq!(inner.coming, 0);
                assert!(inner.order.len() <= 2 * inner.here + SPARE_PLACES + 1, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_shares_a_buffer_has_no_second_chance() {
        let cache = ReadCache::default();
        for (start, shares) in [(0, false), (100, true), (200, true), (300, false)] {
            let arrival = cache.begin(FILE, 1, &(start..start + 100)).expect("it is missing");
            arrival.keep(vec![Bytes::from(vec![1; 100])], shares);
        }
        // The second half of what is read here would hold the buffer of both.
        assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Here(_)));
        assert!(matches!(cache.find(FILE, 1, &(200..210)), Found::Here(_)));
        cache.bound(2 * cost(100));
        let is_here = |start: u64| matches!(cache.find(FILE, 1, &(start..start + 10)), Found::Here(_));
        assert_eq!([0, 100, 200, 300].map(is_here), [true, false, false, true]);
    }

    #[test]
    fn what_changes_on_its_way_is_not_kept() {
        let cache = ReadCache::default();
        let arrival = cache.begin(FILE, 1, &(0..100)).expect("it is missing");
        assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Coming(_)));
        cache.changed(FILE, 99..100);
        assert!(!arrival.is_wanted());
        arrival.keep(vec![Bytes::from(vec![1; 100])], false);
        assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(gap) if gap == (10..20)));
        assert_eq!(cache.bytes(), (0, 0));
    }

    #[test]
    fn while_bytes_are_changed_nothing_of_them_is_fetched_to_be_kept() {
        let cache = ReadCache::default();
        let first = cache.changing(FILE, 50..60);
        let second = cache.changing(FILE, 55..70);
        assert!(cache.begin(FILE, 1, &(0..100)).is_none());
        assert_eq!(read(&cache, 1, &[7; 100], &(0..50)), [7; 50]);
        drop(first);
        assert!(cache.begin(FILE, 1, &(50..100)).is_none());
        drop(second);
        assert_eq!(read(&cache, 1, &[8; 100], &(50..100)), [8; 50]);
        let inner = cache.0.borrow();
        assert!(inner.changing.is_empty());
    }

    #[test]
    fn a_fetch_that_is_given_up_leaves_nothing_to_wait_for() {
        let cache = ReadCache::default();
        drop(cache.begin(FILE, 1, &(0..100)));
        assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(_)));
        assert_eq!(cache.bytes(), (0, 0));
    }

    #[test]
    fn what_came_under_another_lease_is_forgotten_also_on_its_way() {
        let cache = ReadCache::default();
        read(&cache, 1, &[7; 100], &(0..50));
        let arrival = cache.begin(FILE, 1, &(50..100)).expect("it is missing");
        assert!(matches!(cache.find(FILE, 2, &(0..10)), Found::Missing(_)));
        arrival.keep(vec![Bytes::from(vec![1; 50])], false);
        assert!(matches!(cache.find(FILE, 2, &(60..70)), Found::Missing(_)));
        assert_eq!(cache.bytes(), (0, 0));
    }

    #[test]
    fn what_is_wanted_again_and_again_stays() {
        let cache = ReadCache::default();
        for start in 0..10 {
            read(&cache, 1, &[7; 100], &(10 * start..10 * start + 10));
            read(&cache, 1, &[7; 100], &(0..10));
            cache.bound(5 * cost(10));
        }
        assert!(matches!(cache.find(FILE, 1, &(0..10)), Found::Here(_)));
        assert!(matches!(cache.find(FILE, 1, &(10..20)), Found::Missing(_)));
    }

    #[test]
    fn only_what_is_missing_is_fetched() {
        let cache = ReadCache::default();
        read(&cache, 1, &[7; 100], &(20..40));
        assert_eq!(cache.first_gap(FILE, 1, &(0..100)), Some(0..20));
        assert_eq!(cache.first_gap(FILE, 1, &(25..100)), Some(40..100));
        assert_eq!(cache.first_gap(FILE, 1, &(25..40)), None);
        assert_eq!(cache.begin(FILE, 1, &(25..60)).map(|arrival| arrival.range.clone()), Some(40..60));
    }
}
