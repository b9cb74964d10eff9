//! Synthetic payload: zeros in one buffer that all requests share, with checksums that are computed once.

use std::rc::Rc;

use bytes::Bytes;
use forebay_env::AlignedBuf;
use forebay_proto::{
    Fid, WriteId,
    crc::{crc64, seal},
    limits::BLOCK_BYTES,
};

/// Bytes of a transfer.
pub const TRANSFER_BYTES: u64 = 1 << 20;

/// The bytes of a transfer.
#[derive(Clone)]
pub struct Zeros {
    bytes: Bytes,
    block_sum: Rc<u64>,
}

impl Zeros {
    /// Makes the shared buffer; once per experiment.
    pub fn new() -> Self {
        let bytes = AlignedBuf::zeroed(TRANSFER_BYTES as usize).freeze();
        let block_sum = Rc::new(crc64(&bytes[..BLOCK_BYTES as usize]));
        Self { bytes, block_sum }
    }

    /// The bytes of a transfer, without a copy.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Block checksums of a transfer at `offset`, as its writer computes them.
    pub fn sums(&self, fid: Fid, offset: u64, write_id: WriteId) -> Vec<u64> {
        let blocks = (0..TRANSFER_BYTES / BLOCK_BYTES).map(|block| offset + block * BLOCK_BYTES);
        blocks.map(|offset| seal(fid, offset, write_id, *self.block_sum, BLOCK_BYTES)).collect()
    }
}
