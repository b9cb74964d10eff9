//! A disk that forgets unflushed writes: they are in this process's memory alone. So SIGKILL does to it what a power
//! cut does to a disk with a cache. For crash tests; the caches of the simulator's disks mean the same.
//!
//! Invariant: reads see every write. The file holds all writes covered by an acknowledged flush, and every acknowledged
//! durable write.
//! Invariant: a flush covers the writes that were acknowledged before it was requested, and no others.
//! A kill in the middle of a flush or a durable write leaves a part of it: it goes to the file in pieces of whole
//! 512-byte sectors, in a random order. Every second disk (by chance, anew at each opening) also writes pieces before
//! any flush is requested, as idle drives do. Memory: `FORGETFUL_DISK_BYTES`; beyond, the oldest writes go to the file,
//! as in a real drive. A disk that is closed without a flush forgets too.
//! Not here: two versions of a sector in the cache, of which a power cut keeps the older. Other processes see the
//! file's content.

use std::{
    collections::VecDeque,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    time::Duration,
};

use bytes::Bytes;

use super::{
    device_queue::DeviceQueue,
    open::OpenedDisk,
    plain,
    transfer::{Call, Request},
    volatile::{Extent, Volatile},
};
use crate::{AlignedBuf, EnvResult, limits::FORGETFUL_DISK_BYTES, sim::Chance};

/// The unit that a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Most pieces into which one extent is cut.
const PIECES: u64 = 5;
/// One flush in this many pauses once on its way: most kills come during a wait.
const RESTS: u64 = 4;
/// Longest such pause.
const REST_US: u64 = 3000;
/// One batch of requests in this many is followed by a piece that no flush requested.
const TRICKLE: u64 = 3;

/// When bytes reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// Only for a flush or a durable write, or when memory is full.
    Waits,
    /// Some bytes also before.
    Trickles,
}

pub(super) struct ForgetfulDisk<'a> {
    queue: &'a DeviceQueue,
    disk: &'a OpenedDisk,
    cache: Volatile,
    batch: u64,
    habit: Habit,
    chance: Chance,
}

/// Serves requests until the queue is closed and empty; `seed` decides all chances.
pub(super) fn serve(queue: &DeviceQueue, disk: &OpenedDisk, seed: u64) {
    let chance = Chance::new(seed, 0);
    let habit = if chance.below(2) == 0 { Habit::Waits } else { Habit::Trickles };
    serve_with(queue, disk, habit, chance);
}

pub(super) fn serve_with(queue: &DeviceQueue, disk: &OpenedDisk, habit: Habit, chance: Chance) {
    let mut disk = ForgetfulDisk { queue, disk, cache: Volatile::default(), batch: 0, habit, chance };
    let mut waiting = VecDeque::new();
    loop {
        let closed = queue.take(&mut waiting);
        if waiting.is_empty() && closed {
            return;
        }
        // Requests that arrive with a flush were not acknowledged when it was requested.
        disk.batch += 1;
        waiting.drain(..).for_each(|request| disk.answer(request));
        disk.trickle();
        if queue.fall_asleep(closed) {
            plain::sleep(queue);
        }
    }
}

impl ForgetfulDisk<'_> {
    fn answer(&mut self, request: Request) {
        match request {
            Request::Read { offset, len, reply } => {
                let read = self.read(offset, len);
                drop(reply.send(read.map_err(|e| self.queue.device.error(Call::Read, offset, len, &e))));
            }
            Request::Write { offset, parts, durable: false, reply } => {
                let written = self.write(offset, parts);
                drop(reply.send(written.map_err(|e| self.queue.device.error(Call::Write, offset, 0, &e))));
            }
            Request::Write { offset, parts, durable: true, reply } => {
                let written = self.write_durable(offset, parts);
                drop(reply.send(self.told(Call::DurableWrite, offset, written)));
            }
            Request::Flush { reply } => {
                let flushed = self.flush();
                drop(reply.send(self.told(Call::Flush, 0, flushed)));
            }
        }
    }

    /// The result of a flush or durable write: none succeeds once a flush has failed.
    fn told(&self, call: Call, offset: u64, result: io::Result<()>) -> EnvResult<()> {
        result
            .map_err(|e| self.queue.device.error(call, offset, 0, &e))
            .and_then(|()| self.queue.device.check_flushed())
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        let mut buf = AlignedBuf::to_be_filled(len);
        self.disk.file.read_exact_at(&mut buf, offset).map_err(short_is_eio)?;
        for extent in self.cache.within(offset..offset + len as u64) {
            buf[(extent.offset - offset) as usize..][..extent.bytes.len()].copy_from_slice(&extent.bytes);
        }
        Ok(buf)
    }

    fn write(&mut self, offset: u64, parts: Vec<Bytes>) -> io::Result<()> {
        let bytes = joined(parts);
        let mut early = self.cache.take(offset..offset + bytes.len() as u64);
        // The older bytes may be due to a flush that does not cover the newer ones.
        early.retain(|extent| extent.batch < self.batch);
        if !bytes.is_empty() {
            self.cache.put(Extent { offset, bytes, batch: self.batch });
        }
        if self.cache.bytes() > FORGETFUL_DISK_BYTES {
            early.extend(self.cache.take_oldest(FORGETFUL_DISK_BYTES / 4 * 3));
        }
        // These bytes are in no cache any more: if this fails, no flush may succeed.
        early.iter().try_for_each(|extent| self.store(extent)).inspect_err(|_| self.queue.device.fail_flushes())
    }

    fn write_durable(&mut self, offset: u64, parts: Vec<Bytes>) -> io::Result<()> {
        let bytes = joined(parts);
        self.cache.take(offset..offset + bytes.len() as u64);
        self.store_all(vec![Extent { offset, bytes, batch: self.batch }])
    }

    fn flush(&mut self) -> io::Result<()> {
        let covered = self.cache.take_before(self.batch);
        self.store_all(covered)
    }

    /// Writes them in pieces, one after another in a random order; durable when it returns.
    fn store_all(&self, extents: Vec<Extent>) -> io::Result<()> {
        let mut pieces: Vec<Extent> = extents.iter().flat_map(|extent| self.cut(extent)).collect();
        for last in (1..pieces.len()).rev() {
            pieces.swap(last, self.chance.below(last as u64 + 1) as usize);
        }
        let rests = self.chance.below(RESTS) == 0;
        let rest_before = self.chance.below(pieces.len() as u64) as usize;
        for (number, piece) in pieces.iter().enumerate() {
            if rests && number == rest_before {
                std::thread::sleep(Duration::from_micros(self.chance.below(REST_US)));
            }
            self.store(piece)?;
        }
        // SAFETY: `file` owns an open descriptor.
        let synced = unsafe { libc::fdatasync(self.disk.file.as_raw_fd()) };
        if synced == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Cuts an extent at sectors.
    fn cut(&self, extent: &Extent) -> Vec<Extent> {
        let sectors = extent.bytes.len().div_ceil(SECTOR_BYTES) as u64;
        let mut cuts: Vec<usize> =
            (1..PIECES).map(|_| self.chance.below(sectors.max(1)) as usize * SECTOR_BYTES).collect();
        cuts.extend([0, extent.bytes.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let piece = |ends: &[usize]| Extent {
            offset: extent.offset + ends[0] as u64,
            bytes: extent.bytes.slice(ends[0]..ends[1]),
            batch: extent.batch,
        };
        cuts.windows(2).map(piece).collect()
    }

    fn store(&self, extent: &Extent) -> io::Result<()> {
        self.disk.file.write_all_at(&extent.bytes, extent.offset)
    }

    /// Sometimes writes a piece that no flush requested. A failure here is reported by the next flush.
    fn trickle(&self) {
        if self.habit == Habit::Waits || self.chance.below(TRICKLE) != 0 {
            return;
        }
        let Some(extent) = self.cache.near(self.chance.below(self.disk.bytes)) else { return };
        let pieces = self.cut(extent);
        if let Some(piece) = pieces.get(self.chance.below(pieces.len() as u64) as usize) {
            let _ = self.store(piece);
        }
    }
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    parts.retain(|part| !part.is_empty());
    match parts.len() {
        0 => Bytes::new(),
        1 => parts.remove(0),
        _ => parts.concat().into(),
    }
}

/// A file that was truncated while in use is a bad medium.
fn short_is_eio(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof { io::Error::from_raw_os_error(libc::EIO) } else { error }
}
