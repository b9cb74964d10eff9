//! For tests: chance (the same seed, the same cases), and what many of them begin with.

use forebay_proto::{Component, FOR_EVER, Fid, Layout, message::Attr};
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

    /// 1 to 3 components of 1 to 5 stripes of 64 to 256 KiB; some but the first without OSTs, some beginning anywhere.
    pub fn layout(&mut self) -> Layout {
        let mut components: Vec<Component> = Vec::new();
        for left in (0..1 + self.below(3)).rev() {
            let start = components.last().map_or(0, |last| last.end);
            let odd = if self.one_in(2) { self.below(64 << 10) } else { 0 };
            let end = if left == 0 { FOR_EVER } else { start + ((1 + self.below(20)) << 16) + odd };
            let count = if start > 0 && self.one_in(3) { 0 } else { 1 + self.below(5) as u32 };
            let stripe_bytes = (1 + self.below(4) as u32) * (64 << 10);
            // Neighbours share some OSTs.
            let first = 10 + self.below(4) as u32;
            let osts = (0..count).map(|i| first + i).collect();
            components.push(Component { start, end, ..Component::plain(stripe_bytes, osts) });
        }
        let layout = Layout { components, ..Layout::plain(1, 64 << 10, vec![0]) };
        assert_eq!(layout.validate(), Ok(()));
        layout
    }
}

/// Attributes of a regular file with this number, without bytes.
pub(crate) fn attr(low: u64) -> Attr {
    Attr {
        fid: Fid { high: 0, low },
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        btime_ns: 0,
        truncate_epoch: 0,
        attr_epoch: 0,
        flags: 0,
    }
}
