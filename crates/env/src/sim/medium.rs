//! The model of a storage device: its medium, its controller, how requests wait. Pure arithmetic.
//!
//! Shape: a tier is what a host sees as one LUN: one drive, a group of drives whose heads move together, or solid
//! state.
//! Source: [Spider] 2.2, 3.2, 6; seek curve as in Ruemmler and Wilkes: a square root, then a line.

use std::time::Duration;

use super::{chance::Chance, executor::nanos};

/// A modelled storage device.
#[derive(Clone, Debug)]
pub struct TierModel {
    /// Capacity in bytes.
    pub bytes: u64,
    /// The medium.
    pub medium: Medium,
    /// Requests in progress beyond the queue: on the way to the medium, or at it.
    pub depth: usize,
    /// Adjacent requests are merged while they wait, up to this many bytes; 0: never.
    pub command_bytes: u64,
    /// Order in which waiting requests are served.
    pub order: QueueOrder,
    /// A cache that survives a loss of power: writes complete when they are in it.
    pub cache: Option<ControllerCache>,
    /// Duration of a flush. For a device without volatile data on the way, this is the time of its command.
    pub flush: Duration,
}

/// The medium of a device.
#[derive(Clone, Debug)]
pub enum Medium {
    /// Disks whose heads move together: one disk, or all of a RAID tier.
    Heads(Heads),
    /// No heads.
    Solid(Solid),
}

/// Disks whose heads move together.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Transfer rate of the host's bytes, without parity.
    pub bytes_per_s: u64,
    /// Seek time from a track to the next.
    pub seek_track: Duration,
    /// Seek time over a third of the stroke.
    pub seek_average: Duration,
    /// Seek time over the full stroke.
    pub seek_full: Duration,
    /// Time of one revolution of the platters.
    pub revolution: Duration,
    /// Time from the end of a write to the beginning of one that follows it on the medium.
    pub write_turnaround: Duration,
    /// Time between the arrival of the heads and a write that follows no other.
    pub write_settle: Duration,
    /// Bytes over which parity is computed. A write of a part of them reads the rest, and waits a revolution. 0: no
    /// parity.
    pub stripe_bytes: u64,
}

/// A solid-state device.
#[derive(Clone, Debug)]
pub struct Solid {
    /// Rate of reads, shared by all requests.
    pub read_bytes_per_s: u64,
    /// The same for writes.
    pub write_bytes_per_s: u64,
    /// The shortest time between two requests (one over the IOPS).
    pub request: Duration,
    /// Latency of a read on top of that; latencies overlap.
    pub latency_read: Duration,
    /// The same for a write.
    pub latency_write: Duration,
}

/// Order in which waiting requests are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The one that arrived first.
    Arrival,
    /// The next one ahead of the heads, then from the beginning again (C-LOOK).
    Elevator,
}

/// A controller's write cache.
#[derive(Clone, Copy, Debug)]
pub struct ControllerCache {
    /// Its bytes for writes.
    pub bytes: u64,
    /// Time from a write's arrival to its completion.
    pub latency: Duration,
}

/// How the medium of a tier spent its time, and the requests that it served.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierStats {
    /// Commands, after merging.
    pub commands: u64,
    /// Commands shorter than 128 KiB.
    pub small_commands: u64,
    /// Commands that write partial stripes.
    pub partial_commands: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Time spent moving heads.
    pub seek: Duration,
    /// Time spent waiting for the platter.
    pub rotation: Duration,
    /// Time between writes that follow each other, and of settling.
    pub turnaround: Duration,
    /// Time spent reading back partial stripes.
    pub read_modify_write: Duration,
    /// Time spent transferring bytes.
    pub transfer: Duration,
}

impl TierStats {
    /// Time that the medium was busy.
    pub fn busy(&self) -> Duration {
        self.seek + self.rotation + self.turnaround + self.read_modify_write + self.transfer
    }

    /// The difference to `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            commands: self.commands - before.commands,
            small_commands: self.small_commands - before.small_commands,
            partial_commands: self.partial_commands - before.partial_commands,
            bytes: self.bytes - before.bytes,
            seek: self.seek - before.seek,
            rotation: self.rotation - before.rotation,
            turnaround: self.turnaround - before.turnaround,
            read_modify_write: self.read_modify_write - before.read_modify_write,
            transfer: self.transfer - before.transfer,
        }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            commands: self.commands + other.commands,
            small_commands: self.small_commands + other.small_commands,
            partial_commands: self.partial_commands + other.partial_commands,
            bytes: self.bytes + other.bytes,
            seek: self.seek + other.seek,
            rotation: self.rotation + other.rotation,
            turnaround: self.turnaround + other.turnaround,
            read_modify_write: self.read_modify_write + other.read_modify_write,
            transfer: self.transfer + other.transfer,
        }
    }
}

/// Requests shorter than this are small, as in [Spider] figure 11.
pub(crate) const SMALL_BYTES: u64 = 128 << 10;

/// One command to a medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) write: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Position of the heads, and their last action.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) at: u64,
    wrote: bool,
    /// When the last command ended.
    idle_since: u64,
}

impl Heads {
    /// Time of the heads alone from one byte of the tier to another.
    pub(crate) fn seek(&self, from: u64, to: u64, bytes: u64) -> Duration {
        let distance = from.abs_diff(to) as f64 / bytes.max(1) as f64;
        if from == to {
            return Duration::ZERO;
        }
        let part = |low: Duration, high: Duration, x: f64| low + high.saturating_sub(low).mul_f64(x.clamp(0.0, 1.0));
        if distance < 1.0 / 3.0 {
            part(self.seek_track, self.seek_average, (3.0 * distance).sqrt())
        } else {
            part(self.seek_average, self.seek_full, (distance - 1.0 / 3.0) * 1.5)
        }
    }

    /// True if the parity of a stripe has to be computed from bytes that are not in the command.
    pub(crate) fn is_partial(&self, command: &Command) -> bool {
        let stripe = self.stripe_bytes;
        command.write && stripe > 0 && !(command.start.is_multiple_of(stripe) && command.end.is_multiple_of(stripe))
    }

    /// How long the command keeps the heads busy; afterwards they are at its end.
    pub(crate) fn serve(
        &self,
        now: u64,
        command: &Command,
        position: &mut Position,
        tier: &TierModel,
        chance: &Chance,
        stats: &mut TierStats,
    ) -> Duration {
        let follows = position.at == command.start && position.wrote == command.write;
        let len = command.end - command.start;
        let (mut seek, mut rotation, mut turnaround, mut read_back) = Default::default();
        if !follows {
            seek = self.seek(position.at, command.start, tier.bytes);
            rotation = self.revolution.mul_f64(chance.unit());
        }
        if command.write {
            turnaround = if follows { self.write_turnaround } else { self.write_settle };
            // A long request goes to the medium in commands that follow each other.
            let more = len.div_ceil(tier.command_bytes.max(1 << 20)).saturating_sub(1);
            turnaround += self.write_turnaround * more as u32;
        }
        if self.is_partial(command) {
            read_back = self.revolution;
            stats.partial_commands += 1;
        }
        let mut transfer = Duration::from_nanos(super::link::transfer_ns(len as usize, self.bytes_per_s));
        if follows && !command.write {
            // The controller reads ahead of a sequential reader between its requests.
            transfer = transfer.saturating_sub(Duration::from_nanos(now.saturating_sub(position.idle_since)));
        }
        stats.seek += seek;
        stats.rotation += rotation;
        stats.turnaround += turnaround;
        stats.read_modify_write += read_back;
        stats.transfer += transfer;
        let busy = seek + rotation + turnaround + read_back + transfer;
        *position = Position { at: command.end, wrote: command.write, idle_since: now + nanos(busy) };
        busy
    }
}

impl Solid {
    /// How long the command delays the next one, and how much later it completes.
    pub(crate) fn serve(&self, command: &Command, stats: &mut TierStats) -> (Duration, Duration) {
        let len = (command.end - command.start) as usize;
        let (bytes_per_s, latency) = match command.write {
            true => (self.write_bytes_per_s, self.latency_write),
            false => (self.read_bytes_per_s, self.latency_read),
        };
        let transfer = Duration::from_nanos(super::link::transfer_ns(len, bytes_per_s)).max(self.request);
        stats.transfer += transfer;
        (transfer, latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: f64) -> Duration {
        Duration::from_secs_f64(value / 1e3)
    }

    fn heads() -> Heads {
        Heads {
            bytes_per_s: 100 << 20,
            seek_track: ms(1.0),
            seek_average: ms(9.0),
            seek_full: ms(18.0),
            revolution: ms(8.0),
            write_turnaround: ms(2.0),
            write_settle: ms(0.5),
            stripe_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_seek_grows_from_track_over_average_to_full() {
        let heads = heads();
        assert_eq!(heads.seek(5, 5, 3000), Duration::ZERO);
        assert!(heads.seek(0, 1, 3_000_000) < ms(1.1));
        assert_eq!(heads.seek(1000, 2000, 3000).as_micros() / 10, 900);
        assert_eq!(heads.seek(3000, 0, 3000), ms(18.0));
        assert!((1..3000).all(|to| heads.seek(0, to, 3000) <= heads.seek(0, to + 1, 3000)));
    }

    #[test]
    fn a_write_that_follows_pays_the_turnaround_and_a_partial_stripe_a_revolution() {
        let (heads, chance, mut stats) = (heads(), Chance::new(1, 1), TierStats::default());
        let tier = TierModel {
            bytes: 1 << 40,
            medium: Medium::Heads(heads.clone()),
            depth: 1,
            command_bytes: 1 << 20,
            order: QueueOrder::Arrival,
            cache: None,
            flush: Duration::ZERO,
        };
        let mut position = Position { at: 0, wrote: true, idle_since: 0 };
        let mut serve = |start, end| {
            let command = Command { write: true, start, end };
            heads.serve(0, &command, &mut position, &tier, &chance, &mut stats)
        };
        assert_eq!(serve(0, 1 << 20), ms(12.0), "turnaround and 1 MiB");
        assert_eq!(serve(1 << 20, 5 << 20), ms(48.0), "four commands that follow each other");
        let partial = serve(5 << 20, (5 << 20) + 4096);
        assert!(partial > ms(10.0) && partial < ms(10.1), "{partial:?}");
        assert!(serve(1 << 39, (1 << 39) + (1 << 20)) > ms(19.5), "a seek, and the bytes");
        assert_eq!((stats.partial_commands, stats.read_modify_write), (1, ms(8.0)));
    }
}
