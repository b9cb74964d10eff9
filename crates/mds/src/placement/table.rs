//! Weights of the OSTs, and the value of their row.

use std::collections::BTreeMap;

use forebay_proto::{DecodeError, Reader};

use crate::{limits, varint};

const VERSION: u8 = 1;

/// Weight of each OST in the placement of new files: 0 is passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// By index.
    pub weights: BTreeMap<u32, u8>,
}

/// What is known of an OST's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OstSpace {
    /// Bytes that can hold file data.
    pub total_bytes: u64,
    /// Bytes still free.
    pub available_bytes: u64,
    /// It answered lately.
    pub alive: bool,
}

impl Table {
    /// The row's value: version, count, then index and weight of each.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        varint::put(&mut out, self.weights.len() as u64);
        for (ost, weight) in &self.weights {
            varint::put(&mut out, (*ost).into());
            out.push(*weight);
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
        Ok(Self { weights })
    }
}

/// Weights by free space: the freest OST has the most, a full or dead one none (unless all are). An OST that nobody has
/// heard of yet counts as free: it may be starting. A weight that hardly moved stays as it was in `last`. Where no OST that
/// answers has room, those that do not answer are counted on: writers wait for them, as for any server that is away.
pub fn weigh(osts: &BTreeMap<u32, Option<OstSpace>>, last: &Table) -> Table {
    let freest = osts.values().flatten().filter(|ost| ost.alive).map(|ost| ost.available_bytes).max().unwrap_or(0);
    let roomy = |ost: &OstSpace| ost.available_bytes > ost.total_bytes / limits::FULL_FRACTION;
    let all_full = !osts.values().any(|ost| ost.as_ref().is_none_or(|ost| ost.alive && roomy(ost)));
    let weigh_one = |ost: &OstSpace| {
        if !ost.alive || ost.available_bytes == 0 || !(roomy(ost) || all_full) {
            return 0;
        }
        let share = u128::from(ost.available_bytes) * u128::from(limits::WEIGHT_MAX) / u128::from(freest.max(1));
        (share as u8).clamp(1, limits::WEIGHT_MAX)
    };
    let weights = osts.iter().map(|(index, ost)| {
        let weight = ost.as_ref().map_or(limits::WEIGHT_MAX, weigh_one);
        let old = last.weights.get(index).copied().unwrap_or(0);
        let hardly_moved = weight > 0 && old > 0 && weight.abs_diff(old) < limits::WEIGHT_STEP;
        (*index, if hardly_moved { old } else { weight })
    });
    let weights: BTreeMap<u32, u8> = weights.collect();
    if weights.values().any(|weight| *weight > 0) {
        return Table { weights };
    }
    let counted_on =
        |ost: &Option<OstSpace>| ost.is_some_and(|ost| !ost.alive && (roomy(&ost) || ost.total_bytes == 0));
    let weights = osts.iter().map(|(index, ost)| {
        let old = last.weights.get(index).copied().filter(|old| *old > 0);
        (*index, if counted_on(ost) { old.unwrap_or(limits::WEIGHT_MAX) } else { 0 })
    });
    Table { weights: weights.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ost(total_bytes: u64, available_bytes: u64) -> Option<OstSpace> {
        Some(OstSpace { total_bytes, available_bytes, alive: true })
    }

    fn weights(osts: &[Option<OstSpace>], last: &Table) -> Vec<u8> {
        weigh(&(0..).zip(osts.iter().copied()).collect(), last).weights.into_values().collect()
    }

    #[test]
    fn the_freest_ost_weighs_most_and_full_ones_nothing() {
        assert_eq!(weights(&[ost(100, 100), ost(100, 50), ost(100, 1)], &Table::default()), [16, 8, 0]);
    }

    #[test]
    fn when_all_are_nearly_full_what_is_left_is_used() {
        assert_eq!(weights(&[ost(1000, 10), ost(1000, 0)], &Table::default()), [16, 0]);
    }

    #[test]
    fn a_dead_ost_is_passed_over_and_an_unknown_one_is_tried() {
        let dead = Some(OstSpace { total_bytes: 100, available_bytes: 100, alive: false });
        assert_eq!(weights(&[dead, None], &Table::default()), [0, 16]);
    }

    #[test]
    fn when_none_that_answers_has_room_those_that_are_silent_are_waited_for() {
        let silent = |total_bytes, available_bytes| Some(OstSpace { total_bytes, available_bytes, alive: false });
        let last = Table { weights: [(0, 9), (1, 0)].into() };
        assert_eq!(weights(&[silent(100, 100), silent(100, 100)], &last), [9, 16]);
        assert_eq!(weights(&[silent(100, 100), ost(100, 0), silent(0, 0)], &last), [9, 0, 16]);
        assert_eq!(weights(&[silent(100, 0), silent(100, 100)], &last), [0, 16]);
        assert_eq!(weights(&[silent(100, 100), ost(100, 50)], &last), [0, 16]);
    }

    #[test]
    fn a_weight_that_hardly_moved_stays() {
        let last = Table { weights: [(0, 16), (1, 16)].into() };
        assert_eq!(weights(&[ost(100, 100), ost(100, 96)], &last), [16, 16]);
        assert_eq!(weights(&[ost(100, 100), ost(100, 80)], &last), [16, 12]);
    }

    /// The golden bytes of docs/format-mdt.md.
    #[test]
    fn tables_have_the_bytes_of_the_format() {
        let table = Table { weights: [(0, 16), (300, 0)].into() };
        assert_eq!(table.encode(), [1, 2, 0, 16, 0xac, 2, 0]);
        assert_eq!(Table::decode(&table.encode()), Ok(table));
        assert!(Table::decode(&[1, 0xff, 0xff, 0xff, 0x7f, 1]).is_err());
    }
}
