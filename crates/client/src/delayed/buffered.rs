//! Buffered writes: what was acknowledged and not sent, of one file and of all. Pure; the sending: `write_back`.
//!
//! Invariant: bytes for one place are sent one after another, in the order in which they were written.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use bytes::Bytes;
use forebay_env::sync::Notify;
use forebay_proto::Fid;

use crate::{
    delayed::{
        granted_space::{GrantedSpace, cost},
        write_back::parts::Parts,
    },
    payload::Run,
};

/// Buffered writes of a client, of all files.
#[derive(Default)]
pub(crate) struct WriteBack {
    /// Bytes kept, or on their way.
    pub bytes: Cell<u64>,
    /// In how many pieces.
    pub pieces: Cell<u64>,
    /// There are fewer.
    pub fewer: Notify,
    /// Files of which something is kept.
    pub files: RefCell<BTreeSet<Fid>>,
    /// The task that looks after their age runs.
    pub ageing: Cell<bool>,
    /// Grants are being requested from all OSTs.
    pub asking: Cell<bool>,
    /// Where there is room for what is kept.
    pub room: GrantedSpace,
}

/// What is kept of one file.
pub(crate) struct BufferedWrites<W> {
    pub parts: Parts,
    /// How it was written last.
    pub by: Option<W>,
    /// On their way, in the order of their numbers.
    pub sending: BTreeMap<u64, Sending>,
    pub next: u64,
}

/// What is on its way.
pub(crate) struct Sending {
    /// Where its runs begin and end.
    pub ranges: Vec<(u64, u64)>,
    /// In how many pieces it was kept.
    pub pieces: usize,
}

impl<W> BufferedWrites<W> {
    pub fn new(unit_bytes: u64) -> Self {
        Self { parts: Parts::new(unit_bytes), by: None, sending: BTreeMap::new(), next: 0 }
    }

    /// Nothing is kept, and nothing on its way.
    pub fn is_clean(&self) -> bool {
        self.parts.is_empty() && self.sending.is_empty()
    }

    /// Something between `start` and `end` is kept, or on its way.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        self.parts.touches(start, end) || self.sending.values().any(|sending| meets(&sending.ranges, start, end))
    }

    /// Something for the same place was sent before `number`, and is not there yet.
    pub fn has_to_wait(&self, number: u64) -> bool {
        let Some(Sending { ranges, .. }) = self.sending.get(&number) else { return false };
        let meets_any = |before: &Sending| ranges.iter().any(|(start, end)| meets(&before.ranges, *start, *end));
        self.sending.range(..number).any(|(_, before)| meets_any(before))
    }

    /// Everything that was on its way before `next` has arrived.
    pub fn has_sent(&self, next: u64) -> bool {
        self.sending.first_key_value().is_none_or(|(number, _)| *number >= next)
    }
}

/// All bytes of a file, on their way to the MDT with its last close.
pub(crate) struct Taken<W> {
    /// Under which they count as on their way.
    pub number: u64,
    pub bytes: Bytes,
    /// How they were written.
    pub by: W,
}

impl<W> Taken<W> {
    /// As bytes that are sent to OSTs, under the same number.
    pub fn into_run(self) -> (W, u64, Run) {
        (self.by, self.number, Run { offset: 0, parts: vec![self.bytes] })
    }
}

impl<W> BufferedWrites<W> {
    /// Where the last of them ends, or of those on their way.
    pub fn end(&self) -> u64 {
        let sending = self.sending.values().flat_map(|sending| &sending.ranges).map(|(_, end)| *end).max();
        self.parts.end().max(sending.unwrap_or(0))
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.parts.bytes()
    }

    /// What is kept is all of a file that has no bytes elsewhere, and no more than `most`.
    pub fn is_whole(&self, most: usize) -> bool {
        let length = self.parts.bytes();
        (1..=most).contains(&length) && self.sending.is_empty() && self.parts.end() == length as u64
    }

    /// Takes everything, if it is whole.
    pub fn take_whole(&mut self, most: usize) -> Option<Taken<W>> {
        if !self.is_whole(most) {
            return None;
        }
        let by = self.by.take()?;
        let (length, pieces) = (self.parts.bytes(), self.parts.pieces());
        let parts: Vec<Bytes> = self.parts.take_all().into_iter().flat_map(|run| run.parts).collect();
        let bytes = if parts.len() == 1 { parts[0].clone() } else { parts.concat().into() };
        let number = self.next;
        self.next += 1;
        self.sending.insert(number, Sending { ranges: vec![(0, length as u64)], pieces });
        Some(Taken { number, bytes, by })
    }
}

impl WriteBack {
    /// That many more bytes may be buffered, of `bound`.
    pub fn has_room_for(&self, length: u64, bound: u64) -> bool {
        self.bytes.get() + length <= bound
    }

    /// So much is kept elsewhere, and counts.
    pub fn add(&self, length: u64, pieces: usize) {
        self.bytes.set(self.bytes.get() + length);
        self.pieces.set(self.pieces.get() + pieces as u64);
    }

    /// It does not any more.
    pub fn subtract(&self, length: u64, pieces: usize) {
        self.bytes.set(self.bytes.get() - length);
        self.pieces.set(self.pieces.get() - pieces as u64);
        self.fewer.notify_waiters();
    }

    /// Takes some of `parts`: where they are cut there are more of them.
    pub fn take(&self, parts: &mut Parts, take: impl FnOnce(&mut Parts) -> Vec<Run>) -> Vec<Run> {
        let before = parts.pieces();
        let runs = take(parts);
        self.add(0, parts.pieces() + pieces(&runs) - before);
        runs
    }

    /// Nothing of the file is kept that could become too old.
    pub fn forget(&self, fid: Fid) {
        self.files.borrow_mut().remove(&fid);
    }

    /// What was on its way under `number` has arrived, or is lost.
    pub fn sent<W>(&self, buffered: &mut BufferedWrites<W>, number: u64, length: usize) {
        let sending = buffered.sending.remove(&number);
        self.subtract(length as u64, sending.map_or(0, |sending| sending.pieces));
    }
}

impl WriteBack {
    /// What is kept and on its way costs so much.
    pub fn held(&self) -> u64 {
        cost(self.bytes.get(), self.pieces.get())
    }

    /// What of that counts on the grant of an OST; no more is counted on from now on.
    pub fn counted_on(&self, ost: u32) -> u64 {
        self.room.claim(ost, self.held())
    }
}

/// Of all of them.
pub(crate) fn pieces(runs: &[Run]) -> usize {
    runs.iter().map(|run| run.parts.len()).sum()
}

/// One of `ranges`, which are in order, has a byte between `start` and `end`.
fn meets(ranges: &[(u64, u64)], start: u64, end: u64) -> bool {
    let next = ranges.partition_point(|(_, to)| *to <= start);
    ranges.get(next).is_some_and(|(from, _)| *from < end)
}

#[cfg(test)]
mod tests;
