//! Which process writes which bytes of which file: IOR's arithmetic, without I/O.

use serde::{Deserialize, Serialize};

use super::stamp::Stamp;

/// The shape of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Processes.
    pub tasks: u32,
    /// A file per process, or one file for all.
    pub file_per_process: bool,
    /// Bytes of one read or write.
    pub transfer_bytes: u64,
    /// Contiguous bytes of one process in one segment; a multiple of the transfer.
    pub block_bytes: u64,
    /// How often the blocks of all processes follow each other in the file.
    pub segments: u64,
    /// Shuffles every process's transfers with this seed.
    pub random_seed: Option<u64>,
}

impl Shape {
    /// Transfers of one process.
    pub fn transfers(&self) -> u64 {
        self.block_bytes / self.transfer_bytes * self.segments
    }

    /// Bytes of one process.
    pub fn task_bytes(&self) -> u64 {
        self.block_bytes * self.segments
    }

    /// Offset of transfer `number` (in the order of offsets) of `rank` in its file.
    pub fn offset(&self, rank: u32, number: u64) -> u64 {
        let per_block = self.block_bytes / self.transfer_bytes;
        let (segment, within) = (number / per_block, number % per_block * self.transfer_bytes);
        if self.file_per_process {
            segment * self.block_bytes + within
        } else {
            (segment * u64::from(self.tasks) + u64::from(rank)) * self.block_bytes + within
        }
    }

    /// Offsets of `rank`'s transfers in the order in which it issues them.
    pub fn offsets(&self, rank: u32) -> impl Iterator<Item = u64> + '_ {
        let order = self.random_seed.map(|seed| shuffled(self.transfers(), seed ^ u64::from(rank)));
        (0..self.transfers()).map(move |i| {
            let number = order.as_ref().map_or(i, |order| order[i as usize]);
            self.offset(rank, number)
        })
    }

    /// Name of `rank`'s file: `base`, followed by the rank if there is a file per process.
    pub fn file_name(&self, base: &str, rank: u32) -> String {
        if self.file_per_process { format!("{base}.{rank:08}") } else { base.to_owned() }
    }

    /// The stamp of the bytes of `rank`'s file.
    pub fn stamp(&self, rank: u32, repetition: u32) -> Stamp {
        Stamp { file: if self.file_per_process { rank } else { 0 }, repetition }
    }
}

/// The numbers below `count` in an order that depends on `seed` alone (Fisher-Yates over SplitMix64).
pub fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut random = SplitMix64(seed);
    for i in (1..order.len()).rev() {
        order.swap(i, (random.next_u64() % (i as u64 + 1)) as usize);
    }
    order
}

/// A small generator for orders of access: not for secrets.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// 64 more bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn shape(file_per_process: bool) -> Shape {
        Shape { tasks: 3, file_per_process, transfer_bytes: 10, block_bytes: 20, segments: 4, random_seed: None }
    }

    #[test]
    fn processes_of_a_shared_file_cover_it_once() {
        let shape = shape(false);
        let all: Vec<u64> = (0..3).flat_map(|rank| shape.offsets(rank).collect::<Vec<_>>()).collect();
        let distinct: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(all.len(), 24);
        assert_eq!(distinct, (0..24).map(|i| i * 10).collect());
        assert_eq!(shape.offset(1, 3), 3 * 20 + 20 + 10, "second segment, second block, second transfer");
    }

    #[test]
    fn a_file_per_process_is_contiguous_and_has_its_own_name_and_stamp() {
        let shape = shape(true);
        assert_eq!(shape.offsets(2).collect::<Vec<_>>(), (0..8).map(|i| i * 10).collect::<Vec<_>>());
        assert_eq!(
            (shape.file_name("x", 2), shape.stamp(2, 5)),
            ("x.00000002".into(), Stamp { file: 2, repetition: 5 })
        );
    }

    #[test]
    fn random_order_is_a_permutation_that_the_seed_repeats() {
        let random = Shape { random_seed: Some(7), ..shape(true) };
        let offsets: Vec<u64> = random.offsets(0).collect();
        assert_eq!(offsets, random.offsets(0).collect::<Vec<_>>());
        assert_ne!(offsets, shape(true).offsets(0).collect::<Vec<_>>());
        assert_eq!(offsets.into_iter().collect::<BTreeSet<_>>(), (0..8).map(|i| i * 10).collect());
    }
}
