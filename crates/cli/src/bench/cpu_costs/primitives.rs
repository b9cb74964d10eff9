//! What a byte costs by itself: copied, and summed.

use std::hint::black_box;

use forebay_proto::crc::crc64;

use crate::posix;

/// Larger than the caches near a core, so that bytes come from where payload comes from.
const BUFFER_BYTES: usize = 256 << 20;
/// The unit of data requests.
const PIECE_BYTES: usize = 1 << 20;

/// Nanoseconds of CPU per byte.
#[derive(Clone, Copy, Debug)]
pub struct Primitives {
    /// From one place in memory to another.
    pub copied_ns: f64,
    /// CRC-64/NVME.
    pub summed_ns: f64,
}

impl Primitives {
    /// With their names in the report.
    pub fn named(&self) -> [(&'static str, f64); 2] {
        [("byte copied", self.copied_ns), ("byte summed", self.summed_ns)]
    }
}

/// Once over the whole buffer each.
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
