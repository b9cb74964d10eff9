//! Slow OSTs: detection by commit latency. New files avoid them.

use std::collections::{BTreeMap, BTreeSet};

use super::OstSpace;
use crate::limits;

/// State kept between polls.
#[derive(Default)]
pub struct SlowOsts {
    slow: BTreeSet<u32>,
    /// Slow in the last poll, for the first time: one slow commit is not enough.
    suspected: BTreeSet<u32>,
}

impl SlowOsts {
    /// OSTs whose commits take much longer than others': their disks are slow, stuck, or more loaded.
    pub fn all(&self) -> &BTreeSet<u32> {
        &self.slow
    }

    /// Evaluates a poll. An OST must be slow compared with all others and, if it is in pools, with the members of each:
    /// another kind of disk may be slower as a whole.
    pub fn note(&mut self, osts: &BTreeMap<u32, Option<OstSpace>>, pools: &BTreeMap<String, BTreeSet<u32>>) {
        let alive = osts.iter().filter_map(|(index, ost)| Some((*index, ost.filter(|ost| ost.alive)?.commit_us)));
        let times: BTreeMap<u32, u64> = alive.collect();
        let is_late = |ost: u32, us: u64| {
            let part = if self.slow.contains(&ost) { limits::SLOW_TILL } else { 1 };
            let late = |members: Option<&BTreeSet<u32>>| us > bound(&times, ost, members) / part;
            late(None) && pools.values().filter(|members| members.contains(&ost)).all(|members| late(Some(members)))
        };
        let late: BTreeSet<u32> = times.iter().filter(|(ost, us)| is_late(**ost, **us)).map(|(ost, _)| *ost).collect();
        let slow = late.iter().filter(|ost| self.slow.contains(ost) || self.suspected.contains(ost)).copied().collect();
        (self.slow, self.suspected) = (slow, late);
    }
}

/// The latency bound for `ost`, in microseconds: from the median of the other OSTs that have committed lately.
fn bound(times: &BTreeMap<u32, u64>, ost: u32, members: Option<&BTreeSet<u32>>) -> u64 {
    let is_fellow = |other: u32| other != ost && members.is_none_or(|members| members.contains(&other));
    let mut fellows: Vec<u64> =
        times.iter().filter(|(other, us)| **us > 0 && is_fellow(**other)).map(|(_, us)| *us).collect();
    fellows.sort_unstable();
    let usual = fellows.get(fellows.len().saturating_sub(1) / 2).copied().unwrap_or(limits::SLOW_COMMIT_US);
    (usual * limits::SLOW_TIMES).max(limits::SLOW_COMMIT_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osts(ms: &[u64]) -> BTreeMap<u32, Option<OstSpace>> {
        let ost = |ms: &u64| OstSpace { total_bytes: 100, available_bytes: 100, alive: true, commit_us: ms * 1000 };
        (0..).zip(ms.iter().map(|ms| Some(ost(ms)))).collect()
    }

    /// The slow OSTs after two polls.
    fn slow(ms: &[u64], pools: &[&[u32]]) -> Vec<u32> {
        let pools = pools.iter().enumerate().map(|(n, osts)| (n.to_string(), osts.iter().copied().collect())).collect();
        let mut slow = SlowOsts::default();
        slow.note(&osts(ms), &pools);
        assert_eq!(slow.all().len(), 0, "once is not enough");
        slow.note(&osts(ms), &pools);
        slow.all().iter().copied().collect()
    }

    #[test]
    fn ost_far_above_median_is_slow() {
        assert_eq!(slow(&[10, 12, 2000, 9], &[]), [2]);
        assert_eq!(slow(&[20, 2000], &[]), [1], "of two, the slower one");
        assert_eq!(slow(&[2000, 1900, 2100], &[]), [0; 0], "all are busy");
        assert_eq!(slow(&[1, 150, 1, 2], &[]), [0; 0], "that is not much");
        assert_eq!(slow(&[0, 0, 900, 0], &[]), [0; 0], "the others do nothing");
        assert_eq!(slow(&[0, 0, 1500, 0], &[]), [2], "that is too much for any");
    }

    #[test]
    fn an_ost_is_slow_only_if_it_is_slower_than_the_median_of_its_pools() {
        let (mixed, pools) = ([5, 4, 400, 450, 5], [&[0, 1, 4][..], &[2, 3]]);
        assert_eq!(slow(&mixed, &pools), [0; 0]);
        assert_eq!(slow(&mixed, &[]), [2, 3]);
        assert_eq!(slow(&[5, 4, 400, 4500, 5], &pools), [3]);
    }

    #[test]
    fn slow_ost_stays_slow_until_below_half_bound_or_dead() {
        let mut slow = SlowOsts::default();
        let mut polled = |ms: [u64; 3]| {
            slow.note(&osts(&ms), &BTreeMap::new());
            slow.all().len()
        };
        assert_eq!([polled([10, 10, 300]), polled([10, 10, 300]), polled([10, 10, 150])], [0, 1, 1]);
        assert_eq!([polled([10, 10, 90]), polled([10, 10, 150]), polled([10, 10, 300])], [0, 0, 0]);
        assert_eq!([polled([10, 10, 300]), polled([10, 10, 300])], [1, 1]);
        let mut dead = osts(&[10, 10, 300]);
        dead.insert(2, Some(OstSpace { alive: false, ..dead[&2].expect("known") }));
        slow.note(&dead, &BTreeMap::new());
        assert_eq!(slow.all().len(), 0);
    }
}
