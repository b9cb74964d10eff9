//! CRC-64/NVME: of whole buffers, combined from parts, and seeded for blocks of file data.
//!
//! A block's sum covers its position and its writer. So it detects valid bytes in the wrong place, and old valid bytes
//! in the right place.

use crc_fast::{CrcAlgorithm, checksum};

use crate::{Fid, WriteId};

/// Bytes of a seed: fid, offset, write id.
pub const SEED_BYTES: usize = 40;

/// CRC-64/NVME of `bytes`.
pub fn crc64(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The sum of two adjacent buffers, from the sum of each and the length of the second.
///
/// Source: zlib's crc32_combine: the first sum is multiplied by x^(8 n). Differs: powers are computed at compile time,
/// so that a block of 64 KiB takes one multiplication (0.1 us). The matrices of `crc_fast` took 40 us, more than its
/// checksum.
pub fn combine(first: u64, second: u64, second_bytes: u64) -> u64 {
    let mut shifted = first;
    let mut rest = second_bytes;
    let mut power = 3; // x^(2^3) is a byte
    while rest != 0 {
        if rest & 1 == 1 {
            shifted = multiply(POWERS[power], shifted);
        }
        rest >>= 1;
        power += 1;
    }
    shifted ^ second
}

/// The polynomial of CRC-64/NVME, bits reversed.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// x^(2^n) modulo the polynomial, bits reversed.
const POWERS: [u64; 68] = {
    let mut powers = [1 << 62; 68];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// The product of two polynomials over GF(2), modulo the polynomial, bits reversed.
const fn multiply(a: u64, mut b: u64) -> u64 {
    let mut product = 0;
    let mut bit = 64;
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u64.wrapping_sub(a >> bit & 1);
        b = b >> 1 ^ POLYNOMIAL & 0u64.wrapping_sub(b & 1);
    }
    product
}

/// The sum of one block of an object: CRC of the 40-byte seed followed by the block's bytes.
///
/// `offset` is the block's first byte within the file's object space. Shape: at most one block long.
pub fn block_sum(fid: Fid, offset: u64, write_id: WriteId, bytes: &[u8]) -> u64 {
    seal(fid, offset, write_id, crc64(bytes), bytes.len() as u64)
}

/// As [`block_sum`], from the plain CRC of the block's bytes.
pub fn seal(fid: Fid, offset: u64, write_id: WriteId, plain: u64, block_bytes: u64) -> u64 {
    combine(crc64(&seed(fid, offset, write_id)), plain, block_bytes)
}

fn seed(fid: Fid, offset: u64, write_id: WriteId) -> [u8; SEED_BYTES] {
    let mut seed = [0; SEED_BYTES];
    for (part, word) in seed.chunks_exact_mut(8).zip([fid.high, fid.low, offset, write_id.client, write_id.sequence]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    seed
}

/// The blocks of `[offset, offset + length)`, cut at multiples of `block_bytes` of the object's offset.
///
/// Returns (offset, length) pairs; the first and last may be short.
pub fn blocks(offset: u64, length: u64, block_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = (at / block_bytes + 1) * block_bytes;
        let piece = (at, stop.min(end) - at);
        at = stop.min(end);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_of_the_check_string_is_the_published_one() {
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn combined_sum_equals_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
        let (a, b) = bytes.split_at(317);
        assert_eq!(combine(crc64(a), crc64(b), b.len() as u64), crc64(&bytes));
    }

    #[test]
    fn combine_equals_that_of_the_checksum_library_for_all_lengths() {
        let mut word = 1u64;
        let mut next = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            word ^ word >> 29
        };
        for bits in 0..63 {
            let (first, second, length) = (next(), next(), next() >> (63 - bits));
            let expected = crc_fast::checksum_combine(CrcAlgorithm::Crc64Nvme, first, second, length);
            assert_eq!(combine(first, second, length), expected, "length {length}");
        }
    }

    #[test]
    fn blocks_are_cut_at_multiples_of_the_object_offset() {
        assert_eq!(blocks(10, 100, 64).collect::<Vec<_>>(), [(10, 54), (64, 46)]);
        assert_eq!(blocks(64, 64, 64).collect::<Vec<_>>(), [(64, 64)]);
        assert_eq!(blocks(5, 0, 64).count(), 0);
    }
}
