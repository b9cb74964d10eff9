//! The placement table: weights and pools of OSTs, and the value of its row.

use std::collections::{BTreeMap, BTreeSet};

use forebay_proto::{DecodeError, Errno, ErrorReply, Reader, limits::POOL_NAME_BYTES};

use crate::{limits, varint};

const VERSION: u8 = 2;

/// Weight of each OST in the placement of new files (0: gets none), and the members of each pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// By index.
    pub weights: BTreeMap<u32, u8>,
    /// By name.
    pub pools: BTreeMap<String, BTreeSet<u32>>,
}

/// What is known of an OST's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OstSpace {
    /// Bytes that can hold file data.
    pub total_bytes: u64,
    /// Bytes still free.
    pub available_bytes: u64,
    /// True if it replied lately.
    pub alive: bool,
    /// Recent commit latency in microseconds; zero if there were no commits, or it is unknown.
    pub commit_us: u64,
}

impl OstSpace {
    /// True if more is free than a remainder that would fill up at once.
    pub fn has_free_space(&self) -> bool {
        self.available_bytes > self.total_bytes / limits::FULL_FRACTION
    }
}

impl Table {
    /// The row's value: version, count, then index and weight of each; number of pools, then name and members of each.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        varint::put(&mut out, self.weights.len() as u64);
        for (ost, weight) in &self.weights {
            varint::put(&mut out, (*ost).into());
            out.push(*weight);
        }
        varint::put(&mut out, self.pools.len() as u64);
        for (name, osts) in &self.pools {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            varint::put(&mut out, osts.len() as u64);
            osts.iter().for_each(|ost| varint::put(&mut out, (*ost).into()));
        }
        out
    }

    /// Reads a row's value.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.u8()? != VERSION {
            return Err(DecodeError::new("placement: a version this program does not know"));
        }
        let count = varint::get(&mut r)?;
        let mut weights = BTreeMap::new();
        for _ in 0..count {
            weights.insert(varint::get_u32(&mut r)?, r.u8()?);
        }
        let mut pools = BTreeMap::new();
        for _ in 0..varint::get(&mut r)? {
            let length = usize::from(r.u8()?);
            let name = std::str::from_utf8(r.take(length)?);
            let name = name.map_err(|_| DecodeError::new("placement: a pool's name is not UTF-8"))?.to_owned();
            let count = varint::get(&mut r)?;
            let osts = (0..count).map(|_| varint::get_u32(&mut r)).collect::<Result<_, _>>()?;
            pools.insert(name, osts);
        }
        Ok(Self { weights, pools })
    }
}

/// Refuses (EINVAL, ENAMETOOLONG) an invalid pool name.
pub fn check_pool_name(name: &str) -> Result<(), ErrorReply> {
    if name.len() > POOL_NAME_BYTES {
        let words = format!("a pool's name has at most {POOL_NAME_BYTES} characters");
        return Err(ErrorReply::new(Errno::ENAMETOOLONG, words));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(plain) || name == "none" {
        let words = "a pool's name is of letters, digits, _ and -, and not 'none'";
        return Err(ErrorReply::new(Errno::EINVAL, words));
    }
    Ok(())
}

/// Weights by free space. The OST with most free space gets the highest weight, and a full or dead one gets 0 (unless
/// all are). An OST that has not replied yet counts as free: it may be starting. A `slow` OST gets an eighth of its
/// weight and not 0, so that widely striped files still use it. A weight that hardly moved stays as in `last`. If no
/// OST that replies has space, OSTs that do not reply but had space keep their weight: writers wait for them, as for
/// any server that is away.
pub fn weigh(osts: &BTreeMap<u32, Option<OstSpace>>, slow: &BTreeSet<u32>, last: &Table) -> Table {
    let pools = last.pools.clone();
    let freest = osts.values().flatten().filter(|ost| ost.alive).map(|ost| ost.available_bytes).max().unwrap_or(0);
    let with_space = OstSpace::has_free_space;
    let all_full = !osts.values().any(|ost| ost.as_ref().is_none_or(|ost| ost.alive && with_space(ost)));
    let weigh_one = |ost: &OstSpace| {
        if !ost.alive || ost.available_bytes == 0 || !(with_space(ost) || all_full) {
            return 0;
        }
        let share = u128::from(ost.available_bytes) * u128::from(limits::WEIGHT_MAX) / u128::from(freest.max(1));
        (share as u8).clamp(1, limits::WEIGHT_MAX)
    };
    let weights = osts.iter().map(|(index, ost)| {
        let weight = ost.as_ref().map_or(limits::WEIGHT_MAX, weigh_one);
        let weight = if slow.contains(index) { weight.div_ceil(8) } else { weight };
        let old = last.weights.get(index).copied().unwrap_or(0);
        let hardly_moved = weight > 0 && old > 0 && weight.abs_diff(old) < limits::WEIGHT_STEP;
        (*index, if hardly_moved { old } else { weight })
    });
    let weights: BTreeMap<u32, u8> = weights.collect();
    if weights.values().any(|weight| *weight > 0) {
        return Table { weights, pools };
    }
    let counted_on =
        |ost: &Option<OstSpace>| ost.is_some_and(|ost| !ost.alive && (with_space(&ost) || ost.total_bytes == 0));
    let weights = osts.iter().map(|(index, ost)| {
        let old = last.weights.get(index).copied().filter(|old| *old > 0);
        (*index, if counted_on(ost) { old.unwrap_or(limits::WEIGHT_MAX) } else { 0 })
    });
    Table { weights: weights.collect(), pools }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ost(total_bytes: u64, available_bytes: u64) -> Option<OstSpace> {
        Some(OstSpace { total_bytes, available_bytes, alive: true, commit_us: 0 })
    }

    fn weights(osts: &[Option<OstSpace>], last: &Table) -> Vec<u8> {
        weigh(&(0..).zip(osts.iter().copied()).collect(), &BTreeSet::new(), last).weights.into_values().collect()
    }

    #[test]
    fn the_freest_ost_weighs_most_and_full_ones_nothing() {
        assert_eq!(weights(&[ost(100, 100), ost(100, 50), ost(100, 1)], &Table::default()), [16, 8, 0]);
    }

    #[test]
    fn a_slow_ost_has_an_eighth_of_its_weight_and_is_not_left_out() {
        let osts = [ost(100, 100), ost(100, 100), ost(100, 40), ost(100, 1)];
        let weights = |slow: &[u32], last: &Table| -> Vec<u8> {
            let slow = slow.iter().copied().collect();
            weigh(&(0..).zip(osts).collect(), &slow, last).weights.into_values().collect()
        };
        assert_eq!(weights(&[1, 2, 3], &Table::default()), [16, 2, 1, 0]);
        let was = Table { weights: (0..4).zip([16, 2, 6, 0]).collect(), ..Table::default() };
        assert_eq!(weights(&[], &was), [16, 16, 6, 0]);
    }

    #[test]
    fn when_all_are_nearly_full_what_is_left_is_used() {
        assert_eq!(weights(&[ost(1000, 10), ost(1000, 0)], &Table::default()), [16, 0]);
    }

    #[test]
    fn a_dead_ost_is_passed_over_and_an_unknown_one_is_tried() {
        let dead = Some(OstSpace { total_bytes: 100, available_bytes: 100, alive: false, commit_us: 0 });
        assert_eq!(weights(&[dead, None], &Table::default()), [0, 16]);
    }

    #[test]
    fn silent_osts_have_weights_when_no_ost_that_answers_has_space() {
        let silent =
            |total_bytes, available_bytes| Some(OstSpace { total_bytes, available_bytes, alive: false, commit_us: 0 });
        let last = Table { weights: [(0, 9), (1, 0)].into(), ..Table::default() };
        assert_eq!(weights(&[silent(100, 100), silent(100, 100)], &last), [9, 16]);
        assert_eq!(weights(&[silent(100, 100), ost(100, 0), silent(0, 0)], &last), [9, 0, 16]);
        assert_eq!(weights(&[silent(100, 0), silent(100, 100)], &last), [0, 16]);
        assert_eq!(weights(&[silent(100, 100), ost(100, 50)], &last), [0, 16]);
    }

    #[test]
    fn a_weight_that_hardly_moved_stays() {
        let last = Table { weights: [(0, 16), (1, 16)].into(), ..Table::default() };
        assert_eq!(weights(&[ost(100, 100), ost(100, 96)], &last), [16, 16]);
        assert_eq!(weights(&[ost(100, 100), ost(100, 80)], &last), [16, 12]);
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn tables_have_the_bytes_of_the_format() {
        let pools = [("fast".to_owned(), [0, 300].into())].into();
        let table = Table { weights: [(0, 16), (300, 0)].into(), pools };
        assert_eq!(table.encode(), b"\x02\x02\x00\x10\xac\x02\x00\x01\x04fast\x02\x00\xac\x02");
        assert_eq!(Table::decode(&table.encode()), Ok(table));
        assert!(Table::decode(&[2, 0xff, 0xff, 0xff, 0x7f, 1]).is_err());
    }

    #[test]
    fn names_of_pools_are_plain_and_short() {
        for bad in ["", "a b", "none", "x.y", "sixteen-letters-"] {
            assert!(check_pool_name(bad).is_err(), "{bad}");
        }
        assert_eq!(check_pool_name("flash_2-a"), Ok(()));
    }
}
