//! Which reads move access times. Pure; what is noted of them: `cache::access_times`.

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// Which reads move an access time, as mount(8) names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// The first one after a change, and the first one of a day (`relatime`).
    #[default]
    Relative,
    /// Each (`strictatime`).
    Always,
    /// None (`noatime`).
    Never,
}

impl AccessTimes {
    /// Whether a read at `now_ns` moves the access time of what was accessed, and changed, last at these times. Pure.
    pub fn moves(self, now_ns: i64, accessed_ns: i64, changed_ns: i64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => now_ns > accessed_ns,
            Self::Relative => changed_ns >= accessed_ns || now_ns.saturating_sub(accessed_ns) >= DAY_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Dice;

    #[test]
    fn relative_access_times_move_after_a_change_and_once_a_day() {
        let moves = |now_ns, accessed_ns, changed_ns| AccessTimes::Relative.moves(now_ns, accessed_ns, changed_ns);
        assert!(moves(10, 5, 5) && moves(10, 5, 7) && !moves(10, 5, 4));
        assert!(moves(5 + DAY_NS, 5, 4) && !moves(4 + DAY_NS, 5, 4));
        assert!(!moves(3, 5, 4), "a clock that was set back moves none");
    }

    #[test]
    fn all_or_no_reads_move_access_times_where_that_was_asked_for() {
        assert!(AccessTimes::Always.moves(10, 9, 0) && !AccessTimes::Always.moves(9, 9, 0));
        assert!(!AccessTimes::Never.moves(10, 5, 7));
    }

    #[test]
    fn a_relative_access_time_never_stays_behind_a_change_nor_a_day_behind_the_last_read() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (mut now, mut accessed, mut changed) = (DAY_NS, 0, 0);
            for _ in 0..100 {
                now += 1 + dice.below(DAY_NS as u64 / 3) as i64;
                if dice.one_in(3) {
                    changed = now;
                    continue;
                }
                if AccessTimes::Relative.moves(now, accessed, changed) {
                    assert!(accessed <= changed || now - accessed >= DAY_NS, "seed {seed}: it moves for nothing");
                    accessed = now;
                }
                assert!(accessed > changed && now - accessed < DAY_NS, "seed {seed}: {accessed} of {now}");
            }
        }
        assert!(
            !AccessTimes::Relative.moves(i64::MIN, i64::MAX, 0)
                && AccessTimes::Relative.moves(i64::MAX, i64::MIN, i64::MIN)
        );
    }
}
