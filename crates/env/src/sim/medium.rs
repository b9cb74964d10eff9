//! What a modelled storage device is: its medium, its controller, how requests wait. Pure arithmetic.
//!
//! Shape: a tier is what a host sees as one LUN: one drive, a group of drives whose heads move together, or solid state.
//! Source: [Spider] 2.2, 3.2, 6; seek curve as in Ruemmler and Wilkes: a square root, then a line.

use std::time::Duration;

use super::{chance::Chance, executor::nanos};

/// A modelled storage device.
#[derive(Clone, Debug)]
pub struct TierModel {
    /// Bytes it holds.
    pub bytes: u64,
    /// What bytes lie on.
    pub medium: Medium,
    /// Requests that are under way beyond the queue: on the way to the medium, or at it.
    pub depth: usize,
    /// Requests that follow each other are made one while they wait, up to this many bytes; 0: never.
    pub command_bytes: u64,
    /// Which of the waiting is next.
    pub order: QueueOrder,
    /// A cache that survives a loss of power: writes complete when they are in it.
    pub cache: Option<ControllerCache>,
    /// A flush takes this long: of a device with nothing volatile on the way, its command.
    pub flush: Duration,
}

/// What bytes lie on.
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
    /// Rate at which bytes of the host pass, without parity.
    pub bytes_per_s: u64,
    /// From a track to the next.
    pub seek_track: Duration,
    /// Over a third of the stroke.
    pub seek_average: Duration,
    /// Over all of it.
    pub seek_full: Duration,
    /// Of the platters.
    pub revolution: Duration,
    /// From the end of a write to the beginning of one that follows it on the medium.
    pub write_turnaround: Duration,
    /// Between the arrival of the heads and a write that follows nothing.
    pub write_settle: Duration,
    /// Bytes over which parity is computed: a write of a part of them reads the rest, and waits a revolution. 0: none.
    pub stripe_bytes: u64,
}

/// A solid-state device.
#[derive(Clone, Debug)]
pub struct Solid {
    /// Rate of reads, shared by all requests.
    pub read_bytes_per_s: u64,
    /// The same of writes.
    pub write_bytes_per_s: u64,
    /// The shortest time between two requests (one over the IOPS).
    pub request: Duration,
    /// On top of that, overlapping.
    pub latency_read: Duration,
    /// The same of a write.
    pub latency_write: Duration,
}

/// Which of the waiting requests is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The one that came first.
    Arrival,
    /// The next one ahead of the heads, then from the beginning again (C-LOOK).
    Elevator,
}

/// A controller's cache of writes.
#[derive(Clone, Copy, Debug)]
pub struct ControllerCache {
    /// Bytes of it for writes.
    pub bytes: u64,
    /// From a write's arrival to its completion.
    pub latency: Duration,
}

/// What the time of a tier's medium went into, and what requests it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TierStats {
    /// Commands, after merging.
    pub commands: u64,
    /// Of them, shorter than 128 KiB.
    pub small_commands: u64,
    /// Of them, partial stripes.
    pub partial_commands: u64,
    /// Bytes.
    pub bytes: u64,
    /// Moving heads.
    pub seek: Duration,
    /// Waiting for the platter.
    pub rotation: Duration,
    /// Between writes that follow each other, and settling.
    pub turnaround: Duration,
    /// Reading back partial stripes.
    pub read_modify_write: Duration,
    /// Bytes passing.
    pub transfer: Duration,
}

impl TierStats {
    /// Time the medium was at work.
    pub fn busy(&self) -> Duration {
        self.seek + self.rotation + self.turnaround + self.read_modify_write + self.transfer
    }

    /// What came since `before`.
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

    /// Both together.
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

/// Where the heads stand, and what they did last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    pub(crate) at: u64,
    wrote: bool,
    /// When the last command ended.
    idle_since: u64,
}

impl Heads {
    /// Time from one byte of the tier to another, for the heads alone.
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

    /// True if parity of some stripe has to be computed from bytes that are not in the command.
    pub(crate) fn is_partial(&self, command: &Command) -> bool {
        let stripe = self.stripe_bytes;
        command.write && stripe > 0 && !(command.start.is_multiple_of(stripe) && command.end.is_multiple_of(stripe))
    }

    /// How long the command keeps the heads; they stand at its end then.
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
            // The controller reads ahead of a sequential reader while nobody asks.
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
    /// How long the command keeps the device from the next one, and how much later it completes.
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
