//! The cost of one byte alone: to copy it, and to checksum it.

use std::hint::black_box;

use forebay_command::posix;
use forebay_proto::crc::crc64;

/// Larger than a core's caches, so that the bytes come from memory, as payload does.
const BUFFER_BYTES: usize = 256 << 20;
/// The unit of data requests.
const PIECE_BYTES: usize = 1 << 20;

/// Nanoseconds of CPU per byte.
#[derive(Clone, Copy, Debug)]
pub struct Primitives {
    /// To copy it within memory.
    pub copied_ns: f64,
    /// To compute its CRC-64/NVME.
    pub summed_ns: f64,
}

impl Primitives {
    /// The values with their names in the report.
    pub fn named(&self) -> [(&'static str, f64); 2] {
        [("byte copied", self.copied_ns), ("byte summed", self.summed_ns)]
    }
}

/// Measures each in one pass over the whole buffer.
pub fn measure() -> Primitives {
    let source: Vec<u8> = (0..BUFFER_BYTES).map(|at| (at >> 9) as u8).collect();
    let mut target = vec![1u8; BUFFER_BYTES];
    let copied_ns = per_byte(|| {
        for (to, from) in target.chunks_mut(PIECE_BYTES).zip(source.chunks(PIECE_BYTES)) {
            black_box(&mut *to).copy_from_slice(black_box(from));
        }
    });
    let summed_ns = per_byte(|| {
        for piece in source.chunks(PIECE_BYTES) {
            black_box(crc64(black_box(piece)));
        }
    });
    Primitives { copied_ns, summed_ns }
}

fn per_byte(work: impl FnOnce()) -> f64 {
    let began = posix::own_cpu_seconds();
    work();
    (posix::own_cpu_seconds() - began) * 1e9 / BUFFER_BYTES as f64
}
