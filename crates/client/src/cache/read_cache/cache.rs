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

use crate::payload::slice_into;

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
    files: BTreeMap<Fid, CachedFile>,
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
struct CachedFile {
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
        let kept = inner.files.entry(fid).or_insert_with(|| CachedFile { lease, stretches: BTreeMap::new() });
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

    /// Whoever streams through the file has read a range: what ended in it is not wanted any more.
    pub fn forget_read(&self, fid: Fid, range: &Range<u64>) {
        let mut inner = self.0.borrow_mut();
        let Some(kept) = inner.files.get(&fid) else { return };
        let is_read = |stretch: &Stretch| stretch.end <= range.end && matches!(stretch.body, Body::Here { .. });
        let touched = kept.stretches.range(..range.end).rev().take_while(|(_, stretch)| stretch.end > range.start);
        let starts: Vec<u64> = touched.filter(|(_, stretch)| is_read(stretch)).map(|(start, _)| *start).collect();
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

impl CachedFile {
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
                    slice_into(parts, (at - start) as usize, (to - at) as usize, &mut found);
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
    /// It has arrived: cached, unless it was dropped meanwhile. `parts` are as many bytes as were requested; `shares`:
    /// in a buffer that holds others too.
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

#[cfg(test)]
mod tests;
