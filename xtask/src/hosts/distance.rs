//! Distance between hosts: what one sends reaches the other after half of a round trip, at the rate of a line.
//!
//! Each host has a TUN interface `far0`. A thread of this process reads packets from each and writes them to that of their
//! destination when they are due. It has a real-time priority, so that it is late by some microseconds only. The kernel hands over
//! segments of up to 64 KiB that it has not cut yet, and takes them as such; without that a core would be busy at 1 Gb/s.
//!
//! A line is a queue in front of a rate: a packet that would wait longer than [`Distance::queue`] is dropped, as by a router.
//! Not here: what is between hosts that are near ([`super::Hosts`] joins those).

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::{Hosts, Rate, address};
use crate::figures::Outcome;

/// Name of the interface.
pub const INTERFACE: &str = "far0";
/// Before each packet: struct virtio_net_hdr of linux/virtio_net.h.
const VIRTIO_BYTES: usize = 10;
/// The largest packet, with that header.
const PACKET_BYTES: usize = VIRTIO_BYTES + (64 << 10);
/// Headers that each segment of a packet has once it is cut: IPv4, TCP with timestamps.
const SEGMENT_HEADER_BYTES: usize = 52;
/// Packets read from one host before others have their turn.
const BURST: usize = 32;
/// Buffers that are kept for the next packets.
const SPARE_BUFFERS: usize = 1024;
/// How long the thread sleeps if there is nothing to do: it looks whether it is to end.
const IDLE: Duration = Duration::from_millis(50);
const REAL_TIME_PRIORITY: i32 = 10;

/// How far hosts are from each other.
#[derive(Clone, Copy, Debug)]
pub struct Distance {
    /// From one host to another and back.
    pub round_trip: Duration,
    /// What each host can send; `None` = as much as this machine can.
    pub rate: Option<Rate>,
    /// The part of packets that is lost.
    pub loss: f64,
}

impl Distance {
    /// How long a packet may wait for the line.
    fn queue(&self) -> Duration {
        self.round_trip.max(Duration::from_millis(5))
    }

    /// How long the line is busy with so many bytes.
    fn takes(&self, bytes: usize) -> Duration {
        let bits = |rate: Rate| {
            Duration::from_nanos((bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.bits_per_s())) as u64)
        };
        self.rate.map_or(Duration::ZERO, bits)
    }
}

/// The lines between hosts. Dropping this ends them; the interfaces go with their hosts.
pub struct Lines {
    ends: Arc<AtomicBool>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// What was done with packets.
#[derive(Default)]
struct Counts {
    dropped: AtomicU64,
    /// The latest that one was delivered after it was due.
    latest_ns: AtomicU64,
}

impl Lines {
    /// Joins the first `count` hosts, which have no other network.
    pub fn between(hosts: &Hosts, count: usize, distance: Distance) -> Outcome<Self> {
        let mut ports = Vec::new();
        for host in 1..=count {
            let file =
                hosts.on(host, open)?.map_err(|error| format!("no interface {INTERFACE} for host {host}: {error}"))?;
            for words in [
                format!("address add {}/24 dev {INTERFACE}", address(0, host)),
                format!("link set {INTERFACE} txqueuelen 10000 up"),
            ] {
                let mut ip = Command::new("ip");
                ip.args(words.split(' '));
                hosts.run_in(host, ip)?;
            }
            ports.push(Port { file, line: VecDeque::new(), free_at: Duration::ZERO });
        }
        let (ends, counts) = (Arc::new(AtomicBool::new(false)), Arc::new(Counts::default()));
        let (told, counted) = (ends.clone(), counts.clone());
        let relay = Relay {
            ports,
            distance,
            spare: Vec::new(),
            dice: 0x9e37_79b9_7f4a_7c15,
            begun: Instant::now(),
            counts: counted,
        };
        let thread = std::thread::spawn(move || relay.run(&told));
        Ok(Self { ends, counts, thread: Some(thread) })
    }

    /// Packets that were dropped, and the latest that one came after it was due.
    pub fn report(&self) -> (u64, Duration) {
        let latest = Duration::from_nanos(self.counts.latest_ns.load(Ordering::Relaxed));
        (self.counts.dropped.load(Ordering::Relaxed), latest)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Opens the interface in the network of this thread.
fn open() -> io::Result<File> {
    const IFF_VNET_HDR: i32 = 0x4000;
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
    /// TUN_F_CSUM and TUN_F_TSO4.
    const OFFLOADS: libc::c_ulong = 1 | 2;
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: all fields are numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | IFF_VNET_HDR) as libc::c_short;
    // SAFETY: `request` is what TUNSETIFF reads and writes; TUNSETOFFLOAD takes a number.
    let answers = unsafe {
        [
            libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request),
            libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, OFFLOADS),
        ]
    };
    if answers.contains(&-1) { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// A host's interface, and what is on the way to it.
struct Port {
    file: File,
    /// When each is due.
    line: VecDeque<(Duration, Vec<u8>)>,
    /// Until then the line from this host is busy.
    free_at: Duration,
}

/// Times count from its start.
struct Relay {
    ports: Vec<Port>,
    distance: Distance,
    spare: Vec<Vec<u8>>,
    dice: u64,
    begun: Instant,
    counts: Arc<Counts>,
}

impl Relay {
    fn run(mut self, ends: &AtomicBool) {
        let parameters = libc::sched_param { sched_priority: REAL_TIME_PRIORITY };
        // SAFETY: it reads `parameters` and changes this thread alone.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } != 0 {
            eprintln!("the lines between hosts have no real-time priority: {}", io::Error::last_os_error());
        }
        while !ends.load(Ordering::Relaxed) {
            self.deliver();
            let mut any = false;
            for from in 0..self.ports.len() {
                any |= self.receive(from);
            }
            if !any {
                self.sleep();
            }
        }
    }

    /// Writes what is due.
    fn deliver(&mut self) {
        let now = self.begun.elapsed();
        for port in &mut self.ports {
            while port.line.front().is_some_and(|(due, _)| *due <= now) {
                let Some((due, packet)) = port.line.pop_front() else { break };
                self.counts.latest_ns.fetch_max((now - due).as_nanos() as u64, Ordering::Relaxed);
                // A host that takes no more loses it, as it would from a wire.
                if port.file.write(&packet).is_err() {
                    self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                }
                if self.spare.len() < SPARE_BUFFERS {
                    self.spare.push(packet);
                }
            }
        }
    }

    /// Takes what a host sends. False: that was nothing.
    fn receive(&mut self, from: usize) -> bool {
        for number in 0..BURST {
            let mut packet = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(PACKET_BYTES));
            packet.resize(PACKET_BYTES, 0);
            match self.ports[from].file.read(&mut packet) {
                Ok(length) => packet.truncate(length),
                Err(error) => {
                    self.spare.push(packet);
                    return error.kind() == ErrorKind::Interrupted || number > 0;
                }
            }
            let now = self.begun.elapsed();
            let Some(to) = destination(&packet).filter(|to| (1..=self.ports.len()).contains(to)) else { continue };
            let (start, lost) = (self.ports[from].free_at.max(now), self.is_lost());
            if lost || start - now > self.distance.queue() {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let free_at = start + self.distance.takes(on_the_wire(&packet));
            self.ports[from].free_at = free_at;
            let (line, due) = (&mut self.ports[to - 1].line, free_at + self.distance.round_trip / 2);
            // Packets of other hosts may be due later.
            let at = line.iter().rposition(|(other, _)| *other <= due).map_or(0, |before| before + 1);
            line.insert(at, (due, packet));
        }
        true
    }

    fn is_lost(&mut self) -> bool {
        // xorshift64.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.distance.loss > 0.0 && (self.dice as f64 / u64::MAX as f64) < self.distance.loss
    }

    /// Until a packet is due, or a host sends one.
    fn sleep(&self) {
        let next = self.ports.iter().filter_map(|port| port.line.front()).map(|(due, _)| *due).min();
        let pause = next.map_or(IDLE, |due| due.saturating_sub(self.begun.elapsed()).min(IDLE));
        let time = libc::timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
        let mut fds: Vec<libc::pollfd> = self
            .ports
            .iter()
            .map(|port| libc::pollfd { fd: port.file.as_raw_fd(), events: libc::POLLIN, revents: 0 })
            .collect();
        // SAFETY: `fds` and `time` live across the call.
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &raw const time, std::ptr::null()) };
    }
}

/// The host that a packet goes to: the last number of its IPv4 address.
fn destination(packet: &[u8]) -> Option<usize> {
    let ip = packet.get(VIRTIO_BYTES..)?;
    (ip.first()? >> 4 == 4).then_some(())?;
    ip.get(19).map(|host| usize::from(*host))
}

/// Bytes of a packet after the kernel has cut it.
fn on_the_wire(packet: &[u8]) -> usize {
    let segment = packet.get(4..6).map_or(0, |bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let length = packet.len().saturating_sub(VIRTIO_BYTES);
    let segments = if segment == 0 { 1 } else { length.div_ceil(segment).max(1) };
    length + (segments - 1) * SEGMENT_HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize, segment: u16) -> Vec<u8> {
        let mut packet = vec![0; VIRTIO_BYTES + length];
        packet[4..6].copy_from_slice(&segment.to_le_bytes());
        packet[VIRTIO_BYTES] = 0x45;
        packet[VIRTIO_BYTES + 19] = 7;
        packet
    }

    #[test]
    fn a_packet_that_is_cut_has_headers_for_each_segment() {
        assert_eq!(on_the_wire(&packet(1000, 0)), 1000);
        assert_eq!(on_the_wire(&packet(52 + 2 * 1448, 1448)), 52 + 2 * 1448 + 2 * 52);
        assert_eq!((destination(&packet(100, 0)), destination(&[0; 12])), (Some(7), None));
    }

    #[test]
    fn a_line_is_busy_as_long_as_its_rate_says() {
        let distance =
            Distance { round_trip: Duration::from_millis(19), rate: Some("2gbit".parse().expect("a rate")), loss: 0.0 };
        assert_eq!(distance.takes(250_000), Duration::from_millis(1));
        assert_eq!(distance.queue(), distance.round_trip);
    }
}
