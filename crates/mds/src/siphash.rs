//! SipHash-1-3: the keyed hash behind directory cookies.
//!
//! Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", with 1 compression and 3 finalization rounds.
//! Invariant: part of the disk format (dirent keys); it never changes.

/// 64-bit hash of `bytes` under the key (`k0`, `k1`).
pub fn siphash13(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let m = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        v[3] ^= m;
        round(&mut v);
        v[0] ^= m;
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    last[7] = bytes.len() as u8;
    let m = u64::from_le_bytes(last);
    v[3] ^= m;
    round(&mut v);
    v[0] ^= m;
    v[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    #[test]
    fn siphash_agrees_with_the_standard_library_under_the_zero_key() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            assert_eq!(siphash13(0, 0, &bytes), hasher.finish(), "length {length}");
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        assert_ne!(siphash13(1, 0, b"name"), siphash13(0, 0, b"name"));
        assert_ne!(siphash13(0, 1, b"name"), siphash13(0, 0, b"name"));
    }
}
