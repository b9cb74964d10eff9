//! The device alone, with requests as OSTs send them.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use forebay_command::{
    error::{CliResult, Doing},
    posix,
    summary::median,
};

use crate::{
    aligned::AlignedBuffer,
    xdd::{self, Access, Operation, XddArgs},
};

/// Bytes of the requests for the throughput measurement.
const REQUEST_BYTES: u64 = 1 << 20;
/// Bytes of the smallest requests.
const SMALL_BYTES: u64 = 4 << 10;
/// Requests in flight in the measurements of throughput and of requests a second.
const DEEP: u32 = 16;
/// Flushes measured.
const FLUSHES: u32 = 50;

/// The measured properties of the device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its capacity; of a file system, the free bytes.
    pub bytes: u64,
    /// MB/s with many requests of 1 MiB in flight.
    pub read_mb_s: f64,
    /// The same for writes.
    pub write_mb_s: f64,
    /// Requests of 4 KiB a second at random offsets, with many in flight: the faster of reads and writes.
    pub iops: f64,
    /// Latency of a single request of 1 MiB, without the time for its bytes at the rate above.
    pub read_latency_us: f64,
    /// The same for writes.
    pub write_latency_us: f64,
    /// A flush after a write of 4 KiB.
    pub flush_ms: f64,
}

/// Measures in a file of `bytes` in `dir`, which was written once before.
pub fn measure(dir: &Path, bytes: u64, repetitions: u32) -> CliResult<Device> {
    let of = |operation, access, request, depth| -> CliResult<f64> {
        let bytes_moved = if request == SMALL_BYTES { bytes / 32 } else { bytes };
        let args = XddArgs {
            targets: vec![PathBuf::from(dir)],
            op: vec![operation],
            access: vec![access],
            request,
            depth,
            bytes: Some(bytes_moved),
            seconds: None,
            size: bytes,
            repetitions,
            seed: 1,
            buffered: false,
            sync: false,
            overwrite: false,
            json: false,
        };
        Ok(median(xdd::rates_mb_s(&args)?.into_iter()))
    };
    let (read, write) = (Operation::Read, Operation::Write);
    let deep = |operation| of(operation, Access::Sequential, REQUEST_BYTES, DEEP);
    let (write_mb_s, read_mb_s) = (deep(write)?, deep(read)?);
    let small = |operation| of(operation, Access::Random, SMALL_BYTES, DEEP);
    let iops = small(write)?.max(small(read)?) * 1e6 / SMALL_BYTES as f64;
    let latency = |operation, mb_s: f64| -> CliResult<f64> {
        let alone = of(operation, Access::Sequential, REQUEST_BYTES, 1)?;
        let us = |mb_s: f64| REQUEST_BYTES as f64 / mb_s;
        Ok((us(alone) - us(mb_s)).max(0.0))
    };
    Ok(Device {
        bytes: posix::free_bytes(dir).doing(|| format!("cannot ask for the room of {}", dir.display()))?,
        read_mb_s,
        write_mb_s,
        iops,
        read_latency_us: latency(read, read_mb_s)?,
        write_latency_us: latency(write, write_mb_s)?,
        flush_ms: flush_ms(dir)?,
    })
}

/// Small writes at an offset that was written before, each followed by a flush.
fn flush_ms(dir: &Path) -> CliResult<f64> {
    let path = dir.join("flush.data");
    let shown = path.display().to_string();
    let file = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&path);
    let file = file.doing(|| format!("cannot make {shown}"))?;
    let measured = flushes(&file).doing(|| format!("cannot flush {shown}"));
    std::fs::remove_file(&path).doing(|| format!("cannot remove {shown}"))?;
    Ok(median(measured?.into_iter()))
}

fn flushes(file: &File) -> std::io::Result<Vec<f64>> {
    let buffer = AlignedBuffer::new(SMALL_BYTES as usize);
    file.write_all_at(buffer.bytes(), 0)?;
    file.sync_all()?;
    let one = |_| {
        file.write_all_at(buffer.bytes(), 0)?;
        let begun = posix::monotonic_ns();
        file.sync_data()?;
        Ok((posix::monotonic_ns() - begun) as f64 / 1e6)
    };
    (0..FLUSHES).map(one).collect()
}
