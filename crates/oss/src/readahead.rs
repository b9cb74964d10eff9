//! Reading ahead of sequential readers, on the server.
//!
//! Clients cache small reads only, so a reader through a mount asks for one stretch after another. The server detects
//! the pattern and reads the next stretches into memory before they are requested.
//!
//! Invariant: what is returned was read after the object's last change. Each change of an object drops what was read
//! ahead of it, and the result of a read that was under way during the change.
//! Not here: verification (the store did it; the client does it again).

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    ops::Range,
    rc::Rc,
};

use forebay_env::{Env, Time, sync::watch};
use forebay_proto::Fid;
use forebay_store::{Segment, Store, StoreResult};

use crate::limits;

/// The data read ahead, and each object's access pattern. Clones share it.
#[derive(Clone)]
pub struct ReadAhead {
    env: Env,
    store: Store,
    inner: Rc<RefCell<Inner>>,
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Fid, Reader>,
    /// Objects in the order in which they were first read: the oldest is forgotten first.
    order: VecDeque<Fid>,
    bytes: usize,
    hits: u64,
    /// Counts changes and new objects: each has a number of its own.
    change: u64,
}

/// Access pattern of one object.
struct Reader {
    /// Where the last read ended.
    next: u64,
    /// Consecutive sequential reads of equal length: only such a reader requests exactly what was read ahead.
    streak: u32,
    /// Bytes of the last read.
    bytes: u64,
    /// Stretches read or being read ahead, by offset.
    steps: BTreeMap<u64, Step>,
    /// Number of the object's last change, or of its first read.
    change: u64,
    /// When it was read last.
    read: Time,
}

/// One stretch; its result is `None` while it is being read.
struct Step {
    length: u64,
    result: watch::Receiver<Option<StoreResult<Vec<Segment>>>>,
}

impl ReadAhead {
    /// Nothing read ahead yet.
    pub fn new(env: &Env, store: &Store) -> Self {
        Self { env: env.clone(), store: store.clone(), inner: Rc::default() }
    }

    /// `range` of an object whose bytes end at `object_bytes`, if it was read ahead: its current bytes.
    pub async fn read(&self, fid: Fid, range: &Range<u64>, object_bytes: u64) -> Option<Vec<Segment>> {
        let ready = self.inner.borrow_mut().take(fid, range);
        self.observe(fid, range, object_bytes);
        let mut step = ready?;
        let result = match step.result.wait_for(Option::is_some).await {
            Ok(value) => (*value).clone(),
            Err(_) => None,
        };
        let segments = result?.ok()?;
        self.inner.borrow_mut().hits += 1;
        Some(segments)
    }

    /// Drops what was read ahead of an object, which changes.
    pub fn changed(&self, fid: Fid) {
        let mut inner = self.inner.borrow_mut();
        inner.change += 1;
        let change = inner.change;
        let Some(reader) = inner.objects.get_mut(&fid) else { return };
        reader.change = change;
        reader.streak = 0;
        let freed: u64 = std::mem::take(&mut reader.steps).values().map(|s| s.length).sum();
        inner.bytes -= freed as usize;
    }

    /// Reads that were answered from memory.
    pub fn hits(&self) -> u64 {
        self.inner.borrow().hits
    }

    /// Records a read, and starts to read the next stretches if it continues the previous read.
    fn observe(&self, fid: Fid, range: &Range<u64>, object_bytes: u64) {
        let starts = self.inner.borrow_mut().plan(fid, range, object_bytes, self.env.now());
        for (offset, length) in starts {
            let (sender, result) = watch::channel(None);
            let change = {
                let mut inner = self.inner.borrow_mut();
                inner.bytes += length as usize;
                let Some(reader) = inner.objects.get_mut(&fid) else { return };
                reader.steps.insert(offset, Step { length, result });
                reader.change
            };
            let this = self.clone();
            self.env.spawn(async move {
                let result = this.store.read(fid, offset..offset + length).await;
                let unchanged = this.inner.borrow().objects.get(&fid).is_some_and(|r| r.change == change);
                if unchanged {
                    sender.send_replace(Some(result));
                }
            });
        }
    }
}

impl Reader {
    /// Records a read; returns the bytes of steps that are of no use any more.
    fn follow(&mut self, range: &Range<u64>) -> u64 {
        let near = range.start.abs_diff(self.next) <= limits::READ_AHEAD_WINDOW_BYTES;
        let bytes = range.end - range.start;
        if std::mem::replace(&mut self.bytes, bytes) != bytes {
            self.streak = 0;
        }
        if near {
            self.streak = self.streak.saturating_add(u32::from(range.start == self.next));
            self.next = self.next.max(range.end);
        } else {
            (self.streak, self.next) = (0, range.end);
        }
        let keep_from = if near { range.start.saturating_sub(limits::READ_AHEAD_WINDOW_BYTES) } else { u64::MAX };
        let kept = self.steps.split_off(&keep_from);
        std::mem::replace(&mut self.steps, kept).values().map(|s| s.length).sum()
    }

    /// Stretches to start now: steps of the reader's own request size, ahead of its position.
    fn ahead(&self, range: &Range<u64>, object_bytes: u64, room: u64) -> Vec<(u64, u64)> {
        let step = range.end - range.start;
        if self.streak < 2 || step < limits::READ_AHEAD_REQUEST_BYTES_MIN {
            return Vec::new();
        }
        let window = (step << self.streak.min(4)).min(limits::READ_AHEAD_WINDOW_BYTES).min(room);
        let limit = range.end.saturating_add(window).min(object_bytes);
        let mut starts = Vec::new();
        let mut at = range.end;
        while at < limit {
            let length = step.min(object_bytes - at);
            if !self.steps.contains_key(&at) && at + length <= range.end.saturating_add(window) {
                starts.push((at, length));
            }
            at += length;
        }
        starts
    }
}

impl Inner {
    /// Removes and returns the step that is exactly `range`, if any.
    fn take(&mut self, fid: Fid, range: &Range<u64>) -> Option<Step> {
        let reader = self.objects.get_mut(&fid)?;
        if reader.steps.get(&range.start)?.length != range.end - range.start {
            return None;
        }
        let step = reader.steps.remove(&range.start)?;
        self.bytes -= step.length as usize;
        Some(step)
    }

    /// Records a read and returns the stretches to start now.
    fn plan(&mut self, fid: Fid, range: &Range<u64>, object_bytes: u64, now: Time) -> Vec<(u64, u64)> {
        if !self.objects.contains_key(&fid) {
            self.remember(fid, now);
        }
        let Some(reader) = self.objects.get_mut(&fid) else { return Vec::new() };
        reader.read = now;
        let dropped = reader.follow(range);
        self.bytes -= dropped as usize;
        if limits::READ_AHEAD_BYTES.saturating_sub(self.bytes) < limits::READ_AHEAD_WINDOW_BYTES as usize {
            self.drop_abandoned(now);
        }
        let room = limits::READ_AHEAD_BYTES.saturating_sub(self.bytes) as u64;
        self.objects.get(&fid).map_or(Vec::new(), |reader| reader.ahead(range, object_bytes, room))
    }

    /// Drops what was read ahead for readers that stopped half way.
    fn drop_abandoned(&mut self, now: Time) {
        for reader in self.objects.values_mut().filter(|r| now.since(r.read) >= limits::READ_AHEAD_ABANDONED) {
            self.bytes -= std::mem::take(&mut reader.steps).values().map(|s| s.length as usize).sum::<usize>();
        }
    }

    /// Begins to track an object; drops the oldest if there are too many.
    fn remember(&mut self, fid: Fid, now: Time) {
        while self.order.len() >= limits::READ_AHEAD_OBJECTS {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(reader) = self.objects.remove(&oldest) {
                self.bytes -= reader.steps.values().map(|s| s.length as usize).sum::<usize>();
            }
        }
        self.order.push_back(fid);
        self.change += 1;
        let (steps, change) = (BTreeMap::new(), self.change);
        self.objects.insert(fid, Reader { next: 0, streak: 0, bytes: 0, steps, change, read: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Reads the next MiB of an object; returns how many stretches it started ahead.
    fn read(inner: &mut Inner, object: u64, number: u64, now: Time) -> usize {
        let (fid, range) = (Fid { high: 0, low: object }, number * MIB..(number + 1) * MIB);
        inner.take(fid, &range);
        let starts = inner.plan(fid, &range, 1 << 30, now);
        for (offset, length) in &starts {
            inner.bytes += *length as usize;
            let step = Step { length: *length, result: watch::channel(None).1 };
            inner.objects.get_mut(&fid).expect("it is watched").steps.insert(*offset, step);
        }
        starts.len()
    }

    /// A program whose buffer begins within a page reads a MiB in two requests, as the kernel cuts it: all but two
    /// pages, then those two.
    #[test]
    fn only_equal_sized_sequential_reads_start_readahead() {
        let (fid, mut inner, mut begun) = (Fid { high: 0, low: 3 }, Inner::default(), 0);
        let mut at = 0;
        for length in [MIB - 8192, 8192].into_iter().cycle().take(40) {
            begun += inner.plan(fid, &(at..at + length), 1 << 30, Time(0)).len();
            at += length;
        }
        assert_eq!(begun, 0);
        (0..3).for_each(|number| {
            inner.plan(fid, &(at + number * MIB..at + (number + 1) * MIB), 1 << 30, Time(0));
        });
        assert!(!inner.plan(fid, &(at + 3 * MIB..at + 4 * MIB), 1 << 30, Time(0)).is_empty());
    }

    #[test]
    fn prefetched_bytes_of_stopped_readers_are_dropped_after_a_while() {
        let (mut inner, second) = (Inner::default(), 1_000_000_000);
        for object in 10..22 {
            for number in 0..6 {
                read(&mut inner, object, number, Time(object));
            }
        }
        assert_eq!(inner.bytes, limits::READ_AHEAD_BYTES, "all is taken");
        (0..6).for_each(|number| assert_eq!(read(&mut inner, 8, number, Time(second)), 0, "others may go on"));
        assert!(read(&mut inner, 8, 6, Time(3 * second)) > 0);
        let kept: usize = inner.objects.values().flat_map(|r| r.steps.values()).map(|s| s.length as usize).sum();
        assert_eq!(inner.bytes, kept);
    }
}
