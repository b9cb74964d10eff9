//! Seeded damage to encoded values. The tests of the crate `forebay-decoders` take it from here.

/// Changes `bytes` in one of the ways in which decoders are deceived. Parts of `other` may come in.
pub fn damage(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below(bytes.len() - at + 1);
    match random.below(9) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        2 if at < bytes.len() => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6)],
        3 if at + 4 <= bytes.len() => {
            let rest = (bytes.len() - at - 4) as u32;
            let word = [0, 1, rest, rest.wrapping_sub(1), rest + 1, rest / 4, u32::MAX, 1 << 31][random.below(8)];
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..end)),
        6 => drop(bytes.splice(at..at, (0..random.below(64)).map(|_| random.next() as u8).collect::<Vec<_>>())),
        7 if !other.is_empty() => {
            drop(bytes.splice(at..end, other[random.below(other.len())..].iter().copied()));
        }
        // TLS and DER have lengths of two and three bytes, the first one the highest.
        8 if at + 3 <= bytes.len() => {
            let rest = (bytes.len() - at - 2) as u32;
            let word = [0, rest, rest - 1, rest + 1, 0x4000, 0xffff, 0xff_ffff][random.below(7)].to_be_bytes();
            let width = 2 + random.below(2);
            bytes[at..at + width].copy_from_slice(&word[4 - width..]);
        }
        _ => {}
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
