//! Counts of sizes or times in buckets whose bounds are powers of two.
//!
//! Invariant: the counts of all buckets add up to the number of values recorded, and `sum` to their sum.
//! Not here: units. Sizes are recorded in bytes, times in microseconds; the recording code says which.

/// Buckets: bounds 2^0 to 2^39, and one for larger values (half a TiB, six days of microseconds).
pub const BUCKETS: usize = 41;

/// A histogram of fixed size. It never allocates, and recording costs a few instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts `value`. The sum saturates at its largest value.
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values recorded.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Largest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Upper bound (included) and count of each bucket, ascending; the bound of the last one is `u64::MAX`.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().map(|(index, count)| (bound(index), *count))
    }

    /// Values in `(above, up_to]`; both are powers of two, or 0 and `u64::MAX`.
    pub fn count_within(&self, above: u64, up_to: u64) -> u64 {
        self.buckets().filter(|(bound, _)| above < *bound && *bound <= up_to).map(|(_, count)| count).sum()
    }

    /// The value that `percent` of all values do not exceed, interpolated within its bucket; 0 if there is no value.
    ///
    /// Exact to its bucket, that is to a factor of two; never more than the largest value.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = self.count() as f64 * percent / 100.0;
        let (mut below, mut lower) = (0, 0);
        for (upper, count) in self.buckets() {
            if count > 0 && (below + count) as f64 >= rank {
                let upper = upper.min(self.max);
                let part = ((rank - below as f64) / count as f64).clamp(0.0, 1.0);
                return lower + (upper.saturating_sub(lower) as f64 * part).round() as u64;
            }
            (below, lower) = (below + count, upper);
        }
        self.max
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

/// The first bucket whose bound is at least `value`.
fn bucket(value: u64) -> usize {
    let index = u64::BITS - value.saturating_sub(1).leading_zeros();
    (index as usize).min(BUCKETS - 1)
}

fn bound(index: usize) -> u64 {
    if index == BUCKETS - 1 { u64::MAX } else { 1 << index }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn a_power_of_two_lies_in_the_bucket_that_it_bounds() {
        for (value, expected) in [(0, 1), (1, 1), (2, 2), (3, 4), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let histogram = of(&[value]);
            let found: Vec<u64> = histogram.buckets().filter(|(_, count)| *count > 0).map(|(bound, _)| bound).collect();
            assert_eq!(found, [expected], "{value}");
        }
        assert_eq!(of(&[(1 << 39) + 1, u64::MAX]).buckets().last(), Some((u64::MAX, 2)));
    }

    #[test]
    fn buckets_and_sums_add_up() {
        let values: Vec<u64> = (0..5000).map(|i| i * 37 % 70_001).collect();
        let histogram = of(&values);
        assert_eq!((histogram.count(), histogram.sum()), (5000, values.iter().sum()));
        assert_eq!(histogram.max(), *values.iter().max().unwrap());
        assert_eq!(histogram.count_within(0, 4096), values.iter().filter(|value| **value <= 4096).count() as u64);
        assert_eq!(histogram.count_within(0, 4096) + histogram.count_within(4096, u64::MAX), 5000);
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!((twice.count(), twice.sum(), twice.max()), (10_000, 2 * histogram.sum(), histogram.max()));
    }

    #[test]
    fn percentiles_are_right_to_a_factor_of_two_and_never_beyond_the_largest() {
        let values: Vec<u64> = (1..=10_000).collect();
        let histogram = of(&values);
        for percent in [1.0, 50.0, 90.0, 99.0, 99.9] {
            let (exact, got) = (percent * 100.0, histogram.percentile(percent) as f64);
            assert!(got >= exact / 2.0 && got <= exact * 2.0, "{percent}: {got}");
        }
        assert_eq!(histogram.percentile(100.0), 10_000);
        assert!((690..=700).contains(&of(&[700; 9]).percentile(99.9)));
        assert_eq!(Histogram::default().percentile(99.0), 0);
    }
}
