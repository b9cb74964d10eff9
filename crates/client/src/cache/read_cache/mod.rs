//! What was read is cached under a lease, and what will be read next is prefetched. Large reads leave nothing behind.
//!
//! While the MDT leases a file's inode to this client, no other session has the file open for writing, nor cuts it:
//! nobody else changes the file's bytes. The lease is recalled before anybody may. Ranges that this client changes
//! itself are dropped from the cache, before and after.
//!
//! Invariant: a read from the cache returns what the OSTs would have returned at some time during the call.
//! Invariant: only committed bytes are cached: what a crash may take back is fetched again and again.
//! Invariant: bounded by [`MountOptions::read_cache_bytes`](crate::MountOptions), and by as much that is in flight.
//! Not here: large reads that are not sequential, which are worth requests of their own; leases (see `leases`).

mod cache;
mod pattern;
mod reader_group;
mod steps;

use std::{ops::Range, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{Bug, Time, planted};
use forebay_proto::{Fid, limits::BLOCK_BYTES};

use crate::{Client, OpenFile, file::FileState, io::assemble::Read, leases::Holds, limits, payload::slice_into};
pub(crate) use cache::ReadCache;
use cache::{Arrival, Changing, Found, LeaseNumber};
use pattern::Ahead;
pub(crate) use pattern::Pattern;
pub(crate) use reader_group::ReaderGroup;

impl Client {
    /// Reads `range`, cut at the end of the file, from the cache, or so that it is cached. `None`: that cannot be, read
    /// from the OSTs.
    pub(crate) async fn read_kept(&self, file: &OpenFile, range: &Range<u64>) -> Option<Vec<Bytes>> {
        let (state, fid) = (file.state(), file.fid());
        if range.end - range.start > limits::STREAMED_READ_BYTES || self.read_cache_bytes() == 0 {
            return None;
        }
        let shared = state.reading.readers.has_others(file.handle(), self.env().now());
        let ahead = file.inner.pattern.borrow_mut().note(range, shared);
        let streams = is_long(range);
        let is_streamed = ahead.follows(range) && range.end - range.start <= self.prefetch_share();
        if streams && !is_streamed {
            return None;
        }
        let leads = self.leads_others(file, range, &ahead);
        let (mut missed, mut is_first) = (0, true);
        while missed < limits::CACHED_READ_ATTEMPTS {
            let Some(lease) = self.inner.mdt.leases.data_is_ours(fid) else {
                self.ask_for_lease(state);
                return None;
            };
            let size = self.size_under_lease(state, range.end)?;
            let wanted = range.start..range.end.min(size);
            if wanted.is_empty() {
                return Some(Vec::new());
            }
            let cache = &self.inner.cache.read;
            let gap = match cache.find(fid, lease, &wanted) {
                Found::Here(parts) => {
                    self.inner.counters.read_kept(parts.iter().map(Bytes::len).sum());
                    if !leads {
                        self.read_ahead(state, lease, &ahead, range, size);
                    }
                    if streams && !shared {
                        cache.forget_read(fid, &wanted);
                    }
                    return Some(parts);
                }
                Found::Coming(arrived) => {
                    if std::mem::take(&mut is_first) && ahead.follows(range) {
                        file.inner.pattern.borrow_mut().waited(range.start, self.prefetch_most(state));
                    }
                    if streams && !leads {
                        // Meanwhile, too.
                        self.read_ahead(state, lease, &ahead, range, size);
                    }
                    arrived.notified().await;
                    continue;
                }
                Found::Missing(gap) => gap,
            };
            // What could not be had a moment ago is read without the cache.
            if self.env().now() < state.reading.uncommitted_until.get() || streams && missed > 0 {
                return None;
            }
            (missed, is_first) = (missed + 1, false);
            if streams {
                // All of it at once, whatever else is in flight.
                let what = Fetch { ahead: &ahead, across: true, size };
                self.fetch_gaps(state, lease, &wanted, &what, limits::FETCH_TERM);
                if cache.first_gap(fid, lease, &wanted).is_some() {
                    return None;
                }
                continue;
            }
            let gap = gap.start..widened(&gap, &ahead).end;
            let arrival = self.begin_fetch(state, lease, &gap, &Fetch { ahead: &ahead, across: false, size })?;
            if !leads {
                // Meanwhile, too.
                self.read_ahead(state, lease, &ahead, range, size);
            }
            let fetched = arrival.range.clone();
            let parts = self.fetch(state, lease, arrival).await?;
            if fetched.start <= wanted.start && wanted.end <= fetched.end {
                let mut found = Vec::new();
                let (start, length) = (wanted.start - fetched.start, wanted.end - wanted.start);
                slice_into(&parts, start as usize, length as usize, &mut found);
                return Some(found);
            }
        }
        None
    }

    /// What it may hold at most.
    fn read_cache_bytes(&self) -> u64 {
        self.inner.options.read_cache_bytes.min(self.inner.cache.bound.get())
    }

    /// What was read takes no more than so many bytes from now on, though it may have been given more: the machine has no more memory to
    /// spare. Names and attributes take a quarter as much beside.
    pub fn bound_caches(&self, bytes: u64) {
        self.inner.cache.bound.set(bytes);
        self.inner.cache.read.bound(self.read_cache_bytes());
        self.inner.mdt.leases.keep_within(bytes / 4);
    }

    /// The part of the cache that one reader may have.
    fn prefetch_share(&self) -> u64 {
        self.read_cache_bytes() / limits::PREFETCH_SHARE
    }

    /// What may be prefetched for one reader of a file at most: what its OSTs may have in flight, and no more than they bring soon.
    fn prefetch_most(&self, file: &FileState) -> u64 {
        let of_ost = |ost: u32| {
            let (requests, bytes_per_s) = self.inner.peers.window_of(ost)?;
            let in_flight = requests as u64 * u64::from(self.inner.options.max_rpc_bytes);
            let soon = (bytes_per_s * limits::PREFETCH_SOON.as_secs_f64()) as u64;
            Some(in_flight.min(soon.max(limits::PREFETCH_BYTES)))
        };
        let of_all: u64 = file.layout().osts().into_iter().filter_map(of_ost).sum();
        of_all.max(limits::PREFETCH_BYTES).min(self.prefetch_share())
    }

    /// A reader that goes on is so far ahead of others that it had better wait for what it reads.
    fn leads_others(&self, file: &OpenFile, read: &Range<u64>, ahead: &Ahead) -> bool {
        let (reader_group, kept) = (&file.state().reading.readers, self.read_cache_bytes());
        reader_group.leads(file.handle(), ahead.follows(read).then_some(read.end), kept, self.env().now())
    }

    /// Bytes of a file are changed by this client until the answer is dropped.
    pub(crate) fn bytes_change(&self, fid: Fid, range: Range<u64>) -> Option<Changing> {
        (!planted(Bug::OwnWriteNotForgotten)).then(|| self.inner.cache.read.changing(fid, range))
    }

    /// The same of all of them.
    pub(crate) fn all_bytes_change(&self, fid: Fid) -> Option<Changing> {
        self.bytes_change(fid, 0..u64::MAX)
    }

    /// How long the file is, if that is known or none of what is read lies behind what is known.
    fn size_under_lease(&self, file: &FileState, end: u64) -> Option<u64> {
        let known = *file.size.borrow();
        if file.losses() > 0 {
            return None;
        }
        let size = match self.inner.mdt.leases.size_of(file.fid) {
            Some((epoch, _)) if epoch != known.epoch() => return None,
            Some((_, size)) => return Some(size.max(known.seen())),
            None => known.seen(),
        };
        (end <= size || self.inner.mdt.leases.may_keep(file.fid) == Holds::All).then_some(size)
    }

    /// A file that is read may be leased, and is not: requests a lease, now and then.
    fn ask_for_lease(&self, file: &Rc<FileState>) {
        if self.env().now() < file.asks.inode_at.get() {
            return;
        }
        // One at a time: the MDT may be away.
        file.asks.inode_at.set(Time(u64::MAX));
        let (client, file) = (self.clone(), file.clone());
        drop(self.env().spawn(async move {
            let _ = client.ask_attributes(file.fid).await;
            file.asks.inode_at.set(client.env().now() + limits::ASK_FOR_LEASE_PAUSE);
        }));
    }

    /// Somebody fetches the beginning of `gap`, in one piece of one OST: nobody waits for an OST that he wants nothing of. Or across
    /// short stripes: else there would be many small requests.
    fn begin_fetch(&self, file: &FileState, lease: LeaseNumber, gap: &Range<u64>, what: &Fetch<'_>) -> Option<Arrival> {
        let (cache, fid, size) = (&self.inner.cache.read, file.fid, what.size);
        let whole = match what.ahead {
            // What lies between the steps is somebody else's.
            Ahead::Steps(_) => gap.clone(),
            // For scattered reads in a file that would not be cached as a whole anyway, only the requested range is
            // fetched.
            Ahead::Nothing if size > self.read_cache_bytes() / 2 => pattern::units(gap, limits::READ_UNIT_BYTES, size),
            _ => pattern::units(gap, BLOCK_BYTES, size),
        };
        // What lies before the gap in its first block may be here, or on its way.
        let mut from = whole.start;
        while let Some(first) = cache.first_gap(fid, lease, &(from..gap.start + 1)) {
            if first.end > gap.start {
                from = first.start;
                break;
            }
            from = first.end;
        }
        // Requests of one reader are as long as each other.
        let unit = self.unit_at(file, from, what.across);
        let end = whole.end.min((from / unit.bytes + 1) * unit.bytes);
        let end = match file.layout().pieces(from, end - from).into_iter().next() {
            Some(_) if unit.is_across => end,
            Some(piece) if piece.file_offset <= from => end.min(piece.file_offset + piece.length),
            Some(piece) => piece.file_offset,
            None => end,
        };
        cache.begin(fid, lease, &(from..end))
    }

    /// The bytes of a stretch, which are kept if they may be. `None`: they could not be had, or are not for this lease.
    async fn fetch(&self, file: &Rc<FileState>, lease: LeaseNumber, arrival: Arrival) -> Option<Vec<Bytes>> {
        let (start, end) = (arrival.range.start, arrival.range.end);
        let read = self.fresh(file, async || self.read_once(file, start, end).await).await.ok()?;
        self.take_in(file, lease, arrival, read, false)
    }

    /// Bytes of a stretch have come; `together`: with others.
    fn take_in(
        &self,
        file: &FileState,
        lease: LeaseNumber,
        arrival: Arrival,
        read: Read,
        together: bool,
    ) -> Option<Vec<Bytes>> {
        let whole = read.parts.iter().map(Bytes::len).sum::<usize>() as u64 == arrival.range.end - arrival.range.start;
        if !whole || !self.is_ours_still(file.fid, lease) {
            return None;
        }
        if read.settled || planted(Bug::UncommittedKept) {
            arrival.keep(read.parts.clone(), together);
            self.inner.cache.read.bound(self.read_cache_bytes());
        } else {
            file.reading.uncommitted_until.set(self.env().now() + limits::UNCOMMITTED_PAUSE);
        }
        Some(read.parts)
    }

    fn is_ours_still(&self, fid: Fid, lease: LeaseNumber) -> bool {
        self.inner.mdt.leases.data_is_ours(fid) == Some(lease)
    }

    /// Fetches what is expected after a read, if there is little left of it; for large reads, and over a long path, as soon as any of it
    /// is missing.
    fn read_ahead(&self, file: &Rc<FileState>, lease: LeaseNumber, ahead: &Ahead, read: &Range<u64>, size: u64) {
        match ahead {
            Ahead::Nothing => {}
            Ahead::Window(window) => {
                let (streams, window) = (is_long(read), &self.soon(file, window, read));
                let near = match window.start >= read.end {
                    _ if streams || window.end - window.start > limits::PREFETCH_BYTES => window.clone(),
                    true => window.start..window.start + (window.end - window.start) / 2,
                    false => window.end - (window.end - window.start) / 2..window.end,
                };
                let near = near.start.min(size)..near.end.min(size);
                if self.inner.cache.read.first_gap(file.fid, lease, &near).is_some() {
                    let across = streams && self.env().now() >= file.reading.no_steps_until.get();
                    let window = self.whole_units(file, window, across);
                    let what = Fetch { ahead, across, size };
                    self.fetch_gaps(file, lease, &window, &what, limits::PREFETCH_TERM);
                }
            }
            Ahead::Steps(steps) => self.fetch_steps(file, lease, ahead, steps, size),
        }
    }

    fn may_fetch_ahead(&self, file: &FileState) -> bool {
        let soon = self.bytes_soon(file).unwrap_or(u64::MAX);
        let room = self.read_cache_bytes().min(limits::PREFETCH_IN_FLIGHT_BYTES).min(soon);
        self.inner.cache.read.bytes().1 < room && self.env().now() >= file.reading.uncommitted_until.get()
    }

    /// What is fetched at a time around `at`.
    fn unit_at(&self, file: &FileState, at: u64, across: bool) -> Unit {
        let (request, layout) = (u64::from(self.inner.options.max_rpc_bytes), file.layout());
        let short = layout.components.iter().find(|component| {
            let is_here = component.start <= at && at < component.end;
            is_here && across && component.stripe_bytes < limits::STRIPE_ALONE_BYTES
        });
        // As much of each object as one request has.
        let objects = short.map_or(1, |component| component.osts.len().clamp(1, limits::ACROSS_OSTS) as u64);
        Unit { bytes: request * objects, is_across: objects > 1 }
    }

    /// A window of a request and more ends where a request does.
    fn whole_units(&self, file: &FileState, window: &Range<u64>, across: bool) -> Range<u64> {
        let unit = self.unit_at(file, window.start, across).bytes;
        match window.end - window.start >= unit {
            true => window.start..window.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX),
            false => window.clone(),
        }
    }

    /// What of a window behind a read its OSTs bring soon, and has its place in the cache: over a slow path the rest would come too late.
    fn soon(&self, file: &FileState, window: &Range<u64>, read: &Range<u64>) -> Range<u64> {
        if window.start < read.end {
            return window.clone();
        }
        let most =
            self.bytes_soon(file).unwrap_or(u64::MAX).min(self.prefetch_share().max(limits::PREFETCH_BYTES_LEAST));
        window.start..window.end.min(window.start.saturating_add(most))
    }

    /// Bytes that the OSTs of a file bring soon; `None`: their rate is not known.
    fn bytes_soon(&self, file: &FileState) -> Option<u64> {
        let bytes_per_s = self.inner.peers.bytes_per_s(file.layout().osts());
        let soon = (bytes_per_s * limits::PREFETCH_SOON.as_secs_f64()) as u64;
        (bytes_per_s > 0.0).then(|| soon.max(limits::PREFETCH_BYTES_LEAST))
    }

    /// Fetches what is missing of a range, in the background, within a `term`. Ahead of its reader no more than may be.
    fn fetch_gaps(
        &self,
        file: &Rc<FileState>,
        lease: LeaseNumber,
        range: &Range<u64>,
        what: &Fetch<'_>,
        term: Duration,
    ) {
        let (cache, across) = (&self.inner.cache.read, what.across);
        let range = range.start.min(what.size)..range.end.min(what.size);
        while let Some(gap) = cache.first_gap(file.fid, lease, &range) {
            if term == limits::PREFETCH_TERM && !self.may_fetch_ahead(file) {
                return;
            }
            let Some(arrival) = self.begin_fetch(file, lease, &gap, what) else { return };
            let (client, file) = (self.clone(), file.clone());
            drop(self.env().spawn(async move {
                let fetch = client.fetch(&file, lease, arrival);
                // An OST that is away does not take the room of all others.
                let fetched = client.env().timeout(term, fetch).await;
                if across && fetched.is_err() {
                    // One that is slow takes its neighbours along.
                    file.reading.no_steps_until.set(client.env().now() + limits::NO_STEPS_PAUSE);
                }
            }));
        }
    }
}

/// How something is fetched.
struct Fetch<'a> {
    /// For a reader of whom this is expected.
    ahead: &'a Ahead,
    /// Short stripes together with their neighbours.
    across: bool,
    /// Size of the file.
    size: u64,
}

/// What is fetched at a time.
struct Unit {
    bytes: u64,
    /// Of several OSTs.
    is_across: bool,
}

/// A read that is streamed.
fn is_long(read: &Range<u64>) -> bool {
    read.end - read.start > limits::CACHED_READ_BYTES
}

/// A gap in what is read, with what is expected right behind it.
fn widened(gap: &Range<u64>, ahead: &Ahead) -> Range<u64> {
    match ahead {
        Ahead::Window(window) if window.start <= gap.end && gap.end < window.end => gap.start..window.end,
        _ => gap.clone(),
    }
}
