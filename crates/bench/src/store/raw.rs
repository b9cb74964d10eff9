//! The raw device, measured as `bench xdd` does: threads, O_DIRECT `pwrite`s of 1 MiB, a flush at the end.
//!
//! The current content is read first and written back unchanged, so that a closed store on the device survives.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
};
use forebay_env::AlignedBuf;

use super::args::APPEND_BYTES;

/// Bytes held in memory at a time, and written without a pause.
const PIECE_BYTES: u64 = 2 << 30;

/// Writes the first `bytes` of `file` back, with `depth` requests in flight; returns the seconds that took.
pub fn rewrite(file: &File, bytes: u64, depth: u32) -> CliResult<f64> {
    let mut seconds = 0.0;
    let mut at = 0;
    while at < bytes {
        let length = PIECE_BYTES.min(bytes - at);
        let mut piece = AlignedBuf::zeroed(length as usize);
        file.read_exact_at(&mut piece, at).doing(|| "cannot read what the raw pass writes back".into())?;
        seconds += write(file, &piece, at, depth)?;
        at += length;
    }
    Ok(seconds)
}

fn write(file: &File, bytes: &[u8], at: u64, depth: u32) -> CliResult<f64> {
    let next = AtomicU64::new(0);
    let barrier = Barrier::new(depth as usize + 1);
    let work = || {
        barrier.wait();
        loop {
            let begin = (next.fetch_add(1, Ordering::Relaxed) * APPEND_BYTES) as usize;
            if begin >= bytes.len() {
                return Ok(());
            }
            let end = bytes.len().min(begin + APPEND_BYTES as usize);
            file.write_all_at(&bytes[begin..end], at + begin as u64)?;
        }
    };
    let (begin_ns, outcome) = thread::scope(|scope| {
        let threads: Vec<_> = (0..depth).map(|_| scope.spawn(work)).collect();
        barrier.wait();
        let begin_ns = posix::monotonic_ns();
        let join = |t: thread::ScopedJoinHandle<'_, std::io::Result<()>>| t.join().expect("it does not panic");
        (begin_ns, threads.into_iter().map(join).collect::<std::io::Result<Vec<()>>>())
    });
    outcome.and_then(|_| file.sync_data()).doing(|| "raw write".into())?;
    Ok((posix::monotonic_ns() - begin_ns) as f64 / 1e9)
}
