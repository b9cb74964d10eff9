//! Summary of repeated measurements: n, minimum, quartiles, maximum, mean.

use serde::Serialize;

/// Summary of a row's repetitions. Quartiles lie between the two nearest values (linear interpolation, as R's type 7).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Repetitions.
    pub n: usize,
    /// Least.
    pub min: f64,
    /// A quarter lies below.
    pub q1: f64,
    /// Half lies below.
    pub median: f64,
    /// A quarter lies above.
    pub q3: f64,
    /// Greatest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

impl Summary {
    /// The summary of `values` in any order; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|fraction| quantile(&sorted, fraction));
        Some(Self { n: sorted.len(), min, q1, median, q3, max, mean })
    }
}

/// Their median; 0 if there are none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    Summary::of(&values.collect::<Vec<_>>()).map_or(0.0, |summary| summary.median)
}

fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let position = fraction * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_the_nearest_values() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).expect("values");
        assert_eq!((summary.n, summary.min, summary.max, summary.mean), (4, 1.0, 4.0, 2.5));
        assert_eq!((summary.q1, summary.median, summary.q3), (1.75, 2.5, 3.25));
    }

    #[test]
    fn one_value_is_its_own_summary_and_none_has_none() {
        let summary = Summary::of(&[7.0]).expect("a value");
        assert_eq!((summary.min, summary.q1, summary.median, summary.q3, summary.max), (7.0, 7.0, 7.0, 7.0, 7.0));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn odd_counts_take_the_middle_value() {
        assert_eq!(Summary::of(&[5.0, 9.0, 1.0]).expect("values").median, 5.0);
    }
}
