//! Chance for tests: the same seed, the same cases.

use forebay_proto::Layout;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(crate) struct Dice(Pcg64Mcg);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// 1 to 5 stripes of 64 to 256 KiB.
    pub fn layout(&mut self) -> Layout {
        let count = 1 + self.below(5) as u32;
        Layout {
            generation: 1,
            stripe_bytes: (1 + self.below(4) as u32) * (64 << 10),
            osts: (0..count).map(|i| 10 + i).collect(),
        }
    }
}
