//! Small writes to a file that other clients have open too: gathered, where each writes in places of its own.
//!
//! A client that writes in even steps claims all the ranges that it will write. If everybody who has the file open has
//! a claim, and none overlap, the MDT grants each a byte-range write lease: writes in its ranges may be buffered as
//! under a data-write lease (see `write_back`).
//!
//! Invariant: from before a claim is sent, until one without pieces was replied, nothing is done with the file but to
//! write in the claimed pieces. All else goes through [`Client::see_all`] first, which ends that: then everything that
//! other clients buffered has been sent.
//! Invariant: while something else is under way with the file, nothing is claimed; a write that is under way lies in the pieces
//! of any claim that is made meanwhile.

pub(crate) mod claims;
mod track;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use forebay_env::{Time, sync::Mutex};
use forebay_proto::{limits::CLAIM_PIECES, message::Pieces};

use crate::{limits, tasks::UnderWay};
use track::Track;

/// What is known of how a file is shared.
pub(crate) struct Sharing {
    /// By handle.
    tracks: RefCell<BTreeMap<u64, Track>>,
    /// What is claimed; if there is any, nothing else is written, or seen.
    pub claimed: RefCell<Vec<Pieces>>,
    /// One request about claims at a time.
    pub turn: Mutex<()>,
    /// One is on its way, or waits for its turn.
    pub asking: Cell<bool>,
    /// Calls that see, or change, more than what could be claimed.
    pub outside: UnderWay,
    /// Writes under way: from, to.
    writing: RefCell<BTreeMap<u64, (u64, u64)>>,
    next_write: Cell<u64>,
    /// The MDT was restarted since it granted the lease: the claim has to be sent again.
    pub forgotten: Cell<bool>,
    /// When it is worth claiming (again).
    pub next: Cell<Time>,
    /// How long after an answer that was no.
    pub poll: Cell<Duration>,
    /// How long after the sharing was ended.
    pause: Cell<Duration>,
    ended: Cell<Time>,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            tracks: RefCell::default(),
            claimed: RefCell::default(),
            turn: Mutex::new(()),
            asking: Cell::new(false),
            outside: UnderWay::default(),
            writing: RefCell::default(),
            next_write: Cell::new(0),
            forgotten: Cell::new(false),
            next: Cell::new(Time(0)),
            poll: Cell::new(limits::CLAIM_POLL),
            pause: Cell::new(limits::CLAIM_PAUSE),
            ended: Cell::new(Time(0)),
        }
    }
}

/// A write is under way.
pub(crate) struct Writing(Rc<Sharing>, u64);

impl Writing {
    pub fn new(sharing: &Rc<Sharing>, start: u64, end: u64) -> Self {
        let number = sharing.next_write.get();
        sharing.next_write.set(number + 1);
        sharing.writing.borrow_mut().insert(number, (start, end));
        Self(sharing.clone(), number)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.borrow_mut().remove(&self.1);
    }
}

impl Sharing {
    /// Nothing but what is claimed may be written or seen.
    pub fn is_bound(&self) -> bool {
        !self.claimed.borrow().is_empty()
    }

    /// All of it is claimed.
    pub fn covers(&self, offset: u64, length: u64) -> bool {
        covers(&self.claimed.borrow(), offset, length)
    }

    /// The MDT has forgotten what was claimed.
    pub fn forget(&self) {
        self.forgotten.set(true);
    }

    /// A handle has ended.
    pub fn leave(&self, handle: u64) {
        self.tracks.borrow_mut().remove(&handle);
    }

    /// The lease was recalled, or given up: it is not worth having again at once, and less so the more often that
    /// happens.
    pub fn end(&self, now: Time) {
        let calm = now.since(self.ended.get()) > self.pause.get() * limits::CLAIM_CALM;
        let pause = if calm { limits::CLAIM_PAUSE } else { (self.pause.get() * 2).min(limits::CLAIM_PAUSE_MOST) };
        self.pause.set(pause);
        self.ended.set(now);
        self.next.set(now + pause);
        self.poll.set(limits::CLAIM_POLL);
    }

    pub fn note(&self, handle: u64, offset: u64, length: u64, now: Time) {
        let mut tracks = self.tracks.borrow_mut();
        tracks
            .entry(handle)
            .and_modify(|track| track.note(offset, length, now))
            .or_insert_with(|| Track::new(offset, length, now));
    }

    /// What all handles that are in use are expected to write, if it is known of all. There are so many that `may` be: those
    /// through which nothing was written yet have a moment to begin.
    fn expected(&self, may: usize, now: Time) -> Option<Vec<Pieces>> {
        let tracks = self.tracks.borrow();
        let settled = |track: &Track| now.since(track.since) >= limits::TRACK_WAIT;
        if tracks.len() < may && !tracks.values().any(settled) {
            return None;
        }
        let active = tracks.values().filter(|track| now.since(track.at) < limits::TRACK_TERM);
        let expected = active.map(Track::expected).collect::<Option<Vec<Pieces>>>()?;
        (1..=CLAIM_PIECES).contains(&expected.len()).then_some(expected)
    }

    /// Binds this client to what it is expected to write, if that can be now. False if it is not bound.
    pub fn bind(&self, may: usize, now: Time) -> bool {
        if self.is_bound() {
            return true;
        }
        let Some(expected) = self.expected(may, now).filter(|_| !self.outside.any()) else { return false };
        if !self.writing.borrow().values().all(|(start, end)| covers(&expected, *start, end - start)) {
            return false;
        }
        *self.claimed.borrow_mut() = expected;
        true
    }
}

fn covers(claimed: &[Pieces], offset: u64, length: u64) -> bool {
    claimed.iter().any(|pieces| pieces.covers(offset, length))
}

#[cfg(test)]
mod tests;
