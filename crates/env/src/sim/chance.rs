//! Seeded chance: one stream of random numbers per consumer, so that an additional draw of one consumer does not affect
//! others.

use std::cell::RefCell;

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A stream of random numbers.
pub(crate) struct Chance(RefCell<Pcg64Mcg>);

impl Chance {
    /// The stream number `stream` of the world with this seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mixed = seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(RefCell::new(Pcg64Mcg::seed_from_u64(mixed)))
    }

    pub(crate) fn u64(&self) -> u64 {
        self.0.borrow_mut().next_u64()
    }

    /// A number below `n`; zero if `n` is zero.
    pub(crate) fn below(&self, n: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub(crate) fn unit(&self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`.
    pub(crate) fn chance(&self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}
