//! The timing of a simulated disk, and its faults.

use std::{fmt, ops::Range, rc::Rc, time::Duration};

use super::{chance::Chance, executor::nanos, link::transfer_ns};

/// Timing of a simulated disk. Transfers go one after another; latencies overlap.
#[derive(Clone, Copy, Debug)]
pub struct DiskModel {
    /// Time from the end of a write's transfer to its completion.
    pub latency_write: Duration,
    /// The same for a read.
    pub latency_read: Duration,
    /// Time of a flush; a durable write takes it on top of `latency_write`.
    pub latency_flush: Duration,
    /// Transfer rate, shared by all requests; `None`: infinite.
    pub bytes_per_s: Option<u64>,
    /// Each latency grows by up to this fraction, by chance, so that requests in flight together complete in any order.
    pub jitter: f64,
}

impl Default for DiskModel {
    /// An SSD.
    fn default() -> Self {
        Self {
            latency_write: Duration::from_micros(20),
            latency_read: Duration::from_micros(80),
            latency_flush: Duration::from_micros(100),
            bytes_per_s: Some(2 << 30),
            jitter: 0.25,
        }
    }
}

/// A fault of a disk.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Reads that touch these bytes fail.
    ReadEio {
        /// Bytes of the disk.
        range: Range<u64>,
    },
    /// Writes that touch these bytes fail.
    WriteEio {
        /// Bytes of the disk.
        range: Range<u64>,
    },
    /// The disk is thin, and the storage under it full: writes to a sector that holds nothing yet fail.
    NoRoom,
    /// The next flush (or durable write) fails; each write that it covered may never become durable.
    FlushFails,
    /// The next write is acknowledged and stored nowhere.
    LoseNextWrite,
    /// The next write is acknowledged and stored at `to`.
    MisdirectNextWrite {
        /// Offset, a multiple of the sector.
        to: u64,
    },
    /// The next write that `wanted` chooses is acknowledged and stored nowhere.
    LoseWrite {
        /// Chooses the write.
        wanted: Wanted,
    },
    /// The next write that `wanted` chooses is acknowledged and stored at `to`.
    MisdirectWrite {
        /// Chooses the write.
        wanted: Wanted,
        /// Offset, a multiple of the sector.
        to: u64,
    },
    /// The stored byte at `offset` is now XORed with `bits`.
    Rot {
        /// Offset of the byte.
        offset: u64,
        /// Bits to flip.
        bits: u8,
    },
    /// Nothing completes for this long.
    Stuck(Duration),
    /// Everything takes this many times as long, until that is changed.
    Slow(f64),
}

type IsWanted = dyn Fn(&[u8]) -> bool;

/// Chooses a write by its bytes; it is asked about one write after another until it accepts one.
#[derive(Clone)]
pub struct Wanted(Rc<IsWanted>);

impl Wanted {
    /// Accepts the next write.
    pub fn any() -> Self {
        Self::when(|_| true)
    }

    /// Accepts the first write for which this is true.
    pub fn when(is_wanted: impl Fn(&[u8]) -> bool + 'static) -> Self {
        Self(Rc::new(is_wanted))
    }

    pub(crate) fn wants(&self, bytes: &[u8]) -> bool {
        (self.0)(bytes)
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wanted")
    }
}

/// Which latency a request has.
#[derive(Clone, Copy)]
pub(crate) enum Latency {
    Read,
    Write,
    DurableWrite,
    Flush,
}

/// When the device is free, and by how much it is slowed down.
pub(crate) struct Timing {
    pub(crate) model: DiskModel,
    pub(crate) slow: f64,
    pub(crate) stuck_until: u64,
    busy_until: u64,
}

impl Timing {
    pub(crate) fn new(model: DiskModel) -> Self {
        Self { model, slow: 1.0, stuck_until: 0, busy_until: 0 }
    }

    /// When a request of `len` bytes submitted at `now` completes; takes its share of the device.
    pub(crate) fn completion(&mut self, now: u64, latency: Latency, len: usize, chance: &Chance) -> u64 {
        let transfer = self.model.bytes_per_s.map_or(0, |rate| transfer_ns(len, rate));
        self.busy_until = self.busy_until.max(now).saturating_add((transfer as f64 * self.slow) as u64);
        let model = &self.model;
        let latency = match latency {
            Latency::Read => model.latency_read,
            Latency::Write => model.latency_write,
            Latency::DurableWrite => model.latency_write + model.latency_flush,
            Latency::Flush => model.latency_flush,
        };
        let jitter = 1.0 + model.jitter * if model.jitter > 0.0 { chance.unit() } else { 0.0 };
        self.busy_until.saturating_add((nanos(latency) as f64 * self.slow * jitter) as u64)
    }

    pub(crate) fn forget_queue(&mut self) {
        self.busy_until = 0;
    }
}
