//! SipHash-1-3, the hash of names (docs/format-mdt.md). Source: Aumasson and Bernstein, with 1 and 3 rounds.

/// 64-bit hash of `bytes` under the key (`k0`, `k1`).
pub fn siphash13(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut state = State {
        a: k0 ^ u64::from_be_bytes(*b"somepseu"),
        b: k1 ^ u64::from_be_bytes(*b"dorandom"),
        c: k0 ^ u64::from_be_bytes(*b"lygenera"),
        d: k1 ^ u64::from_be_bytes(*b"tedbytes"),
    };
    for chunk in bytes.chunks(8).filter(|chunk| chunk.len() == 8) {
        state.absorb(super::super::format::word64(chunk, 0));
    }
    let rest = &bytes[bytes.len() / 8 * 8..];
    let tail = rest.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    state.absorb((bytes.len() as u64) << 56 | tail);
    state.c ^= 0xff;
    for _ in 0..3 {
        state.round();
    }
    state.a ^ state.b ^ state.c ^ state.d
}

struct State {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

impl State {
    fn absorb(&mut self, word: u64) {
        self.d ^= word;
        self.round();
        self.a ^= word;
    }

    fn round(&mut self) {
        self.a = self.a.wrapping_add(self.b);
        self.c = self.c.wrapping_add(self.d);
        self.b = self.b.rotate_left(13) ^ self.a;
        self.d = self.d.rotate_left(16) ^ self.c;
        self.a = self.a.rotate_left(32);
        self.c = self.c.wrapping_add(self.b);
        self.a = self.a.wrapping_add(self.d);
        self.b = self.b.rotate_left(17) ^ self.c;
        self.d = self.d.rotate_left(21) ^ self.a;
        self.c = self.c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn siphash_agrees_with_the_standard_library_under_the_zero_key() {
        for length in 0..40 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            assert_eq!(siphash13(0, 0, &bytes), hasher.finish(), "length {length}");
        }
        assert_ne!(siphash13(1, 0, b"x"), siphash13(0, 1, b"x"));
    }
}
