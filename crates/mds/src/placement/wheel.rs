//! The order in which OSTs take new files: each as often as its weight, evenly spread.

use std::collections::BTreeMap;

use forebay_proto::{Fid, ids::FID_SEQUENCE_BITS};

use super::Table;

/// A table, expanded: the wheel of all OSTs, and one for each pool.
pub struct Wheels {
    all: Wheel,
    pools: BTreeMap<String, Wheel>,
}

impl Wheels {
    /// The wheels of `table`.
    pub fn new(table: &Table) -> Self {
        let of_pool = |members: &std::collections::BTreeSet<u32>| {
            Wheel::new(&table.weights.iter().filter(|(ost, _)| members.contains(ost)).map(|(a, b)| (*a, *b)).collect())
        };
        let pools = table.pools.iter().map(|(name, members)| (name.clone(), of_pool(members))).collect();
        Self { all: Wheel::new(&table.weights), pools }
    }

    /// The wheel of all OSTs.
    pub fn all(&self) -> &Wheel {
        &self.all
    }

    /// The wheel of a pool; of all OSTs if `pool` is empty.
    pub fn of(&self, pool: &str) -> Option<&Wheel> {
        if pool.is_empty() { Some(&self.all) } else { self.pools.get(pool) }
    }

    /// Names of the pools, ordered.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(String::as_str)
    }
}

/// A set of OSTs, each as often as its weight.
pub struct Wheel {
    /// All OSTs, ordered, including those of weight 0.
    osts: Vec<u32>,
    /// Each OST as often as its weight.
    slots: Vec<u32>,
    /// The OSTs with a weight above 0, in the same order, for wide layouts.
    usable: Vec<u32>,
}

impl Wheel {
    /// The wheel of `weights`.
    fn new(weights: &BTreeMap<u32, u8>) -> Self {
        let divisor = weights.values().copied().fold(0, gcd).max(1);
        let mut places: Vec<(u64, u32)> = Vec::new();
        for (&ost, &weight) in weights {
            let turns = u64::from(weight / divisor);
            // The middle of each of the OST's equal shares of the wheel, in units of 2^-32.
            places.extend((0..turns).map(|turn| (((2 * turn + 1) << 32) / (2 * turns), ost)));
        }
        places.sort_unstable();
        Self {
            osts: weights.keys().copied().collect(),
            slots: places.into_iter().map(|(_, ost)| ost).collect(),
            usable: weights.iter().filter(|(_, weight)| **weight > 0).map(|(ost, _)| *ost).collect(),
        }
    }

    /// True if an OST takes new files.
    pub fn has_usable(&self) -> bool {
        !self.usable.is_empty()
    }

    /// One OST of all, whether it has space or not.
    pub fn any(&self, fid: Fid) -> Option<u32> {
        self.osts.get((fid.low % self.osts.len().max(1) as u64) as usize).copied()
    }

    /// True if the wheel includes `ost`.
    pub fn has(&self, ost: u32) -> bool {
        self.osts.binary_search(&ost).is_ok()
    }

    /// Up to `count` distinct OSTs for the component `number` of `fid`, none of them `full`. Consecutive fids of a
    /// sequence follow each other on the wheel.
    pub fn spread(&self, fid: Fid, number: u64, count: usize, full: &[u32]) -> Vec<u32> {
        let room = match full {
            [] => self.usable.len(),
            _ => self.usable.iter().filter(|ost| !full.contains(ost)).count(),
        };
        let count = count.min(room);
        if count == 0 {
            return Vec::new();
        }
        // Sequences begin at different positions, so that clients do not use the OSTs in lockstep.
        let begin = fid.sequence().0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let file = fid.low & ((1 << FID_SEQUENCE_BITS) - 1);
        let at = begin.wrapping_add(file.wrapping_mul(count as u64)).wrapping_add(number) % self.slots.len() as u64;
        let mut osts: Vec<u32> = Vec::with_capacity(count);
        if count == 1 && full.is_empty() {
            osts.push(self.slots[at as usize]);
            return osts;
        }
        let mut taken: Vec<bool> = self.osts.iter().map(|ost| full.contains(ost)).collect();
        for step in 0..self.slots.len() {
            let ost = self.slots[(at as usize + step) % self.slots.len()];
            let position = self.osts.binary_search(&ost).expect("every slot's OST is in the table");
            if !std::mem::replace(&mut taken[position], true) {
                osts.push(ost);
                if osts.len() == count {
                    break;
                }
            }
        }
        osts
    }

    /// `first`, then the usable OSTs that follow it by index. `None` if there is no OST `first`.
    pub fn from(&self, first: u32, count: usize) -> Option<Vec<u32>> {
        self.osts.binary_search(&first).ok()?;
        let after = self.usable.partition_point(|ost| *ost <= first);
        let others = self.usable[after..].iter().chain(&self.usable[..after]).filter(|ost| **ost != first);
        Some(std::iter::once(first).chain(others.copied()).take(count).collect())
    }
}

fn gcd(a: u8, b: u8) -> u8 {
    if b == 0 { a } else { gcd(b, a % b) }
}
