//! The kernel's FUSE and our layer alone: programs write to and read from an empty file system in memory.
//!
//! Threads of this process are the programs. The rest of the process's CPU time belongs to the mount.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    sync::Barrier,
    thread,
};

use forebay_command::{
    error::{CliError, CliResult, Doing},
    paths::utf8,
    posix,
    summary::median,
};
use forebay_env::{real, sync::oneshot};
use forebay_fuse::FuseOptions;

use crate::{aligned::AlignedBuffer, line::Line};

/// Two sizes separate the cost of a request from that of its bytes. This one is large enough that the mount does not
/// busy-poll for the next request before it sleeps. That would be CPU time but no work.
const FEW_BYTES: u64 = 64 << 10;
/// How often the wake-up time is measured, at most.
const WAKE_ATTEMPTS: u32 = 5;
const BUSY: &str = "is the machine busy with something else?";
/// The most that the kernel requests at once.
const MANY_BYTES: u64 = 1 << 20;

/// Costs of the layer.
#[derive(Clone, Copy, Debug)]
pub struct Fuse {
    /// One write(2), in the program.
    pub program_write: Line,
    /// One read(2), in the program.
    pub program_read: Line,
    /// One write request of the kernel, in the mount.
    pub write: Line,
    /// One read request of the kernel, in the mount.
    pub read: Line,
    /// Wake-up time of a sleeping thread: half of the time in which a program waits for its request and no thread works
    /// on it.
    pub wake_us: f64,
    /// CPU time to wake a thread on an idle processor: half of what such a request costs more than one where no
    /// processor idles.
    pub wake_work_us: f64,
}

/// CPU microseconds of one request.
#[derive(Clone, Copy)]
struct Sample {
    program_us: f64,
    mount_us: f64,
    waited_us: f64,
}

/// Creates `point`, mounts an empty file system there, measures, unmounts.
pub fn measure(point: &Path, programs: u32, bytes: u64, repetitions: u32) -> CliResult<Fuse> {
    let shown = point.display().to_string();
    std::fs::create_dir(point).doing(|| format!("cannot make {shown}"))?;
    real::run(async |env| {
        let options = FuseOptions::new("bench-machine");
        let path = utf8(point)?;
        let mut mounted =
            forebay_fuse::mount_floor(&env, &path, &options).await.doing(|| format!("cannot mount at {shown}"))?;
        let (done, result) = oneshot::channel();
        let at = point.to_owned();
        // The programs run in another thread, while the shard serves them.
        let threads = thread::spawn(move || drop(done.send(all(&at, programs, bytes, repetitions))));
        let measured = result.await.unwrap_or_else(|_| Err(CliError::failed("the programs ended without a word")));
        let unmounted = mounted.unmount(measured.is_err()).await.doing(|| format!("cannot unmount {shown}"));
        threads.join().map_err(|_| CliError::failed("a program panicked"))?;
        // The user is told the first error.
        let measured = measured?;
        unmounted.map(|()| measured)
    })
}

fn all(point: &Path, programs: u32, bytes: u64, repetitions: u32) -> CliResult<Fuse> {
    let open = |number: u32| {
        let path = point.join(format!("data{number}"));
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
    };
    // So many programs that, together with the mount's thread, no processor idles.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let files = (0..programs.max(cores as u32 + 1))
        .map(open)
        .collect::<std::io::Result<Vec<_>>>()
        .doing(|| "cannot make files".into())?;
    let each = bytes / files.len() as u64;
    // Both sizes move as many bytes, because memory that is reused costs less.
    let side = |writes: bool| -> CliResult<(Sample, Line, Line)> {
        let few = medians(repetitions, || phase(&files, writes, FEW_BYTES, (each / FEW_BYTES).max(1)))?;
        let many = medians(repetitions, || phase(&files, writes, MANY_BYTES, (each / MANY_BYTES).max(1)))?;
        let cost = |pick: fn(&Sample) -> f64| Line::through((FEW_BYTES, pick(&few)), (MANY_BYTES, pick(&many)));
        Ok((few, cost(|sample| sample.program_us), cost(|sample| sample.mount_us)))
    };
    let (busy, program_write, write) = side(true)?;
    let (_, program_read, read) = side(false)?;
    let (lone, wake_us) = woken(|| medians(repetitions, || phase(&files[..1], true, FEW_BYTES, bytes / FEW_BYTES)))?;
    let wake_work_us = ((lone.program_us + lone.mount_us - busy.program_us - busy.mount_us) / 2.0).max(0.0);
    Ok(Fuse { program_write, program_read, write, read, wake_us, wake_work_us })
}

/// Measures a single program, and the time that mount and program take to wake up, once each. If other work keeps the
/// processors awake there is no wait to measure, so the measurement is repeated.
fn woken(mut measure: impl FnMut() -> CliResult<Sample>) -> CliResult<(Sample, f64)> {
    for _ in 0..WAKE_ATTEMPTS {
        let lone = measure()?;
        let wake_us = (lone.waited_us - lone.program_us - lone.mount_us) / 2.0;
        if wake_us > 0.0 {
            return Ok((lone, wake_us));
        }
    }
    Err(CliError::failed(format!(
        "programs waited for less time than was worked for them, {WAKE_ATTEMPTS} times: {BUSY}"
    )))
}

fn medians(repetitions: u32, mut one: impl FnMut() -> CliResult<Sample>) -> CliResult<Sample> {
    let samples = (0..repetitions).map(|_| one()).collect::<CliResult<Vec<_>>>()?;
    let of = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick));
    Ok(Sample { program_us: of(|s| s.program_us), mount_us: of(|s| s.mount_us), waited_us: of(|s| s.waited_us) })
}

/// A program for each file sends `requests` of `length` bytes, one after another.
fn phase(files: &[File], writes: bool, length: u64, requests: u64) -> CliResult<Sample> {
    let barrier = Barrier::new(files.len() + 1);
    let program = |file: &File| -> std::io::Result<(f64, u64)> {
        let mut buffer = AlignedBuffer::new(length as usize);
        // Already touched: no measurement includes page faults.
        buffer.bytes_mut().fill(1);
        barrier.wait();
        let (cpu, begun) = (posix::thread_cpu_seconds(), posix::monotonic_ns());
        for number in 0..requests {
            match writes {
                true => file.write_all_at(buffer.bytes(), number * length)?,
                false => file.read_exact_at(buffer.bytes_mut(), number * length)?,
            }
        }
        Ok((posix::thread_cpu_seconds() - cpu, posix::monotonic_ns() - begun))
    };
    let (spent, all) = thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| program(file))).collect();
        barrier.wait();
        let before = posix::own_cpu_seconds();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("a program does not panic");
        let spent = threads.into_iter().map(join).collect::<std::io::Result<Vec<_>>>();
        (spent, posix::own_cpu_seconds() - before)
    });
    let spent = spent.doing(|| format!("a request of {length} bytes failed"))?;
    let (cpu, waited_ns) = spent.iter().fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let count = (files.len() as u64 * requests) as f64;
    Ok(Sample {
        program_us: cpu * 1e6 / count,
        mount_us: (all - cpu).max(0.0) * 1e6 / count,
        waited_us: waited_ns as f64 / 1e3 / count,
    })
}
