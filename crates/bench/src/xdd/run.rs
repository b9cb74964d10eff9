//! One pass over all targets: threads, requests, times.

use std::{
    os::unix::fs::FileExt,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    posix,
    units::{GIB, MIB},
};
use forebay_env::AlignedBuf;

use super::{
    args::{Access, Operation, XddArgs},
    target::Target,
};
use crate::{
    ior::SplitMix64,
    report::{Row, Sample},
};

/// The operation and access pattern of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    operation: Operation,
    access: Access,
}

/// Every operation with every kind of access.
pub fn passes(args: &XddArgs) -> Vec<Pass> {
    let of = |&access| args.op.iter().map(move |&operation| Pass { operation, access });
    args.access.iter().flat_map(of).collect()
}

impl Pass {
    fn name(self) -> String {
        let access = match self.access {
            Access::Sequential => "sequential",
            Access::Random => "random",
        };
        let operation = match self.operation {
            Operation::Write => "write",
            Operation::Read => "read",
        };
        format!("{access}-{operation}")
    }
}

/// The result of one target, or of all together, in a pass.
pub struct Measured {
    name: String,
    bytes: u64,
    seconds: f64,
    slowest_request_s: f64,
    cpu_s: f64,
}

impl Measured {
    /// 10^6 bytes a second.
    pub fn mb_s(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / 1e6 / self.seconds } else { 0.0 }
    }
}

/// The result of one thread.
#[derive(Clone, Copy, Default)]
struct Share {
    bytes: u64,
    end_ns: u64,
    slowest_ns: u64,
}

/// Runs `pass` once on all targets in parallel. If there are several, the last entry is the total.
pub fn measure(args: &XddArgs, pass: Pass, targets: &[Target]) -> CliResult<Vec<Measured>> {
    if args.buffered && pass.operation == Operation::Read {
        targets.iter().for_each(|target| posix::drop_file_pages(&target.file));
    }
    let cursors: Vec<Cursor> = targets.iter().map(|target| Cursor::new(args, pass, target)).collect();
    let barrier = Barrier::new(targets.len() * args.depth as usize + 1);
    let cpu_before = posix::own_cpu_seconds();
    let (begin_ns, shares) = thread::scope(|scope| {
        let spawn = |cursor| {
            let barrier = &barrier;
            (0..args.depth).map(|_| scope.spawn(move || work(args, cursor, barrier))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = cursors.iter().map(spawn).collect();
        barrier.wait();
        let begin_ns = posix::monotonic_ns();
        let join = |t: thread::ScopedJoinHandle<'_, CliResult<Share>>| t.join().expect("a bench thread does not panic");
        let shares: Vec<CliResult<Vec<Share>>> =
            threads.into_iter().map(|threads| threads.into_iter().map(join).collect()).collect();
        (begin_ns, shares)
    });
    let cpu_s = posix::own_cpu_seconds() - cpu_before;
    let shares: Vec<Vec<Share>> = shares.into_iter().collect::<CliResult<_>>()?;
    let mut measured: Vec<Measured> =
        targets.iter().zip(&shares).map(|(t, shares)| sum_up(&t.name, begin_ns, shares, 0.0)).collect();
    let all = sum_up("all", begin_ns, &shares.concat(), cpu_s);
    match &mut measured[..] {
        [only] => only.cpu_s = cpu_s,
        _ => measured.push(all),
    }
    Ok(measured)
}

fn sum_up(name: &str, begin_ns: u64, shares: &[Share], cpu_s: f64) -> Measured {
    let latest = |of: fn(&Share) -> u64| shares.iter().map(of).max().unwrap_or(0);
    Measured {
        name: name.into(),
        bytes: shares.iter().map(|share| share.bytes).sum(),
        seconds: latest(|share| share.end_ns).saturating_sub(begin_ns) as f64 / 1e9,
        slowest_request_s: latest(|share| share.slowest_ns) as f64 / 1e9,
        cpu_s,
    }
}

/// Hands out the requests of one target to its threads.
struct Cursor<'a> {
    target: &'a Target,
    pass: Pass,
    request_bytes: u64,
    requests: Option<u64>,
    lasting: Option<Duration>,
    seed: u64,
    next: AtomicU64,
}

impl<'a> Cursor<'a> {
    fn new(args: &XddArgs, pass: Pass, target: &'a Target) -> Self {
        let lasting = args.seconds;
        let requests = match lasting {
            Some(_) => None,
            None => Some((args.bytes.unwrap_or(target.bytes) / args.request).max(1)),
        };
        let (request_bytes, seed) = (args.request, args.seed);
        Self { target, pass, request_bytes, requests, lasting, seed, next: AtomicU64::new(0) }
    }

    /// Offset of the next request; `None` when all are assigned.
    fn next_offset(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.requests.is_some_and(|requests| number >= requests) {
            return None;
        }
        let places = self.target.bytes / self.request_bytes;
        let place = match self.pass.access {
            Access::Sequential => number % places,
            Access::Random => SplitMix64(self.seed.wrapping_add(number.wrapping_mul(7919))).next_u64() % places,
        };
        Some(place * self.request_bytes)
    }
}

fn work(args: &XddArgs, cursor: &Cursor<'_>, barrier: &Barrier) -> CliResult<Share> {
    // Memory of the kind that servers use. It is touched: no measurement includes page faults, and the zero page is not
    // written in place of each page.
    let mut buffer = AlignedBuf::zeroed(args.request as usize);
    buffer.fill(1);
    barrier.wait();
    let begin_ns = posix::monotonic_ns();
    let mut share = Share { end_ns: begin_ns, ..Share::default() };
    let wall_ns = cursor.lasting.map(|time| begin_ns + time.as_nanos() as u64);
    while let Some(offset) = cursor.next_offset().filter(|_| wall_ns.is_none_or(|wall| share.end_ns < wall)) {
        request(cursor, &mut buffer, offset)?;
        let now_ns = posix::monotonic_ns();
        share.slowest_ns = share.slowest_ns.max(now_ns - share.end_ns);
        share.bytes += args.request;
        share.end_ns = now_ns;
    }
    if args.sync && cursor.pass.operation == Operation::Write {
        cursor.target.file.sync_data().doing(|| format!("flush of {}", cursor.target.name))?;
        share.end_ns = posix::monotonic_ns();
    }
    Ok(share)
}

fn request(cursor: &Cursor<'_>, buffer: &mut AlignedBuf, offset: u64) -> CliResult {
    let file = &cursor.target.file;
    let (what, result) = match cursor.pass.operation {
        Operation::Write => ("write", file.write_all_at(buffer, offset)),
        Operation::Read => ("read", file.read_exact_at(buffer, offset)),
    };
    let Target { name, .. } = cursor.target;
    result.map_err(|error| {
        CliError::failed(format!("{what} of {} bytes at {offset} of {name}: {error}", cursor.request_bytes))
    })
}

/// Adds a pass's figures to the rows of the same phase and target.
pub fn add_samples(rows: &mut Vec<Row>, pass: Pass, measured: &[Measured]) {
    for one in measured {
        let labels = vec![("target", one.name.clone().into())];
        let value = if one.seconds > 0.0 { one.bytes as f64 / MIB / one.seconds } else { 0.0 };
        let per_gib = if one.bytes == 0 { 0.0 } else { one.cpu_s / (one.bytes as f64 / GIB) };
        let details = vec![
            ("MiB", one.bytes as f64 / MIB),
            ("seconds", one.seconds),
            ("slowest_request_s", one.slowest_request_s),
            ("cpu_s", one.cpu_s),
            ("cpu_s_per_GiB", per_gib),
        ];
        let sample = Sample { value, details };
        match rows.iter_mut().find(|row| row.phase == pass.name() && row.labels == labels) {
            Some(row) => row.samples.push(sample),
            None => rows.push(Row { phase: pass.name(), labels, unit: "MiB/s", samples: vec![sample] }),
        }
    }
}
