//! Mean and percentiles of latencies, from microseconds (spec, simulator 28.1).

use crate::sim::record::Counts;

/// What is told of a set of latencies. One of no values has zeros everywhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// How many values there are.
    pub count: u64,
    /// Their mean.
    pub mean: Latency,
    /// Half of them are at most this.
    pub p50: Latency,
    /// Nine tenths of them are at most this.
    pub p90: Latency,
    /// All but a twentieth of them are at most this.
    pub p95: Latency,
    /// All but a hundredth of them are at most this.
    pub p99: Latency,
    /// The smallest.
    pub min: Latency,
    /// The largest.
    pub max: Latency,
}

/// A latency between two measured ones.
///
/// Milliseconds are not the microseconds divided by a thousand to the last bit: both are formed from the measured
/// values, so that reports agree with the reference simulator's byte for byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    lower: f64,
    upper: f64,
    fraction: f64,
}

impl Latency {
    fn exactly(us: f64) -> Self {
        Self {
            lower: us,
            upper: us,
            fraction: 0.0,
        }
    }

    /// In microseconds: `lower + (upper - lower) * fraction`.
    pub fn us(self) -> f64 {
        self.lower + (self.upper - self.lower) * self.fraction
    }

    /// In milliseconds: `lower / 1000 + (upper - lower) * fraction / 1000`.
    pub fn ms(self) -> f64 {
        self.lower / 1000.0 + (self.upper - self.lower) * self.fraction / 1000.0
    }
}

/// Where a percentile lies among `n` values in ascending order: at `p / 100 * (n - 1)`, between two of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) lower: u64,
    pub(super) upper: u64,
    pub(super) fraction: f64,
}

impl Rank {
    /// `n` is at least one.
    pub(super) fn of(percentile: f64, n: u64) -> Self {
        let rank = percentile / 100.0 * (n - 1) as f64;
        Self {
            lower: rank.floor() as u64,
            upper: (rank.ceil() as u64).min(n - 1),
            fraction: rank - rank.floor(),
        }
    }
}

impl Distribution {
    /// Of the given microseconds, in any order.
    pub fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
        let count = values.len() as u64;
        Self::of_ascending(count, sum as f64, values.into_iter().map(|value| (value as f64, 1)))
    }

    /// Of microseconds that need not be whole, in any order.
    pub fn of_fractions(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let sum = values.iter().sum();
        Self::of_ascending(values.len() as u64, sum, values.into_iter().map(|value| (value, 1)))
    }

    /// Of counted microseconds. The values are not listed one by one.
    pub fn of_counts(counts: &Counts) -> Self {
        let values = counts.iter().map(|(value, count)| (value as f64, count));
        Self::of_ascending(counts.total(), counts.sum() as f64, values)
    }

    /// `values` are the values in ascending order, each with how often it occurs in a row.
    fn of_ascending(total: u64, sum: f64, values: impl Iterator<Item = (f64, u64)>) -> Self {
        if total == 0 {
            return Self::default();
        }
        let ranks = [50.0, 90.0, 95.0, 99.0].map(|percentile| Rank::of(percentile, total));
        let mut found = [Latency::default(); 4];
        let (mut min, mut max) = (None, 0.0);
        let mut before = 0;
        for (value, count) in values {
            min.get_or_insert(value);
            max = value;
            let here = before..before + count;
            for (rank, latency) in ranks.iter().zip(&mut found) {
                if here.contains(&rank.lower) {
                    latency.lower = value;
                }
                if here.contains(&rank.upper) {
                    latency.upper = value;
                }
                latency.fraction = rank.fraction;
            }
            before += count;
        }
        let [p50, p90, p95, p99] = found;
        Self {
            count: total,
            mean: Latency::exactly(sum / total as f64),
            p50,
            p90,
            p95,
            p99,
            min: Latency::exactly(min.unwrap_or(0.0)),
            max: Latency::exactly(max),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_lie_between_the_values_next_to_their_rank() {
        let four = Distribution::of(vec![4_000, 1_000, 3_000, 2_000]);

        assert_eq!(four.mean.ms(), 2.5);
        // Rank 1.5 of 0..=3.
        assert_eq!(four.p50.ms(), 2.5);
        // Rank 2.7.
        assert_eq!(four.p90.us(), 3_000.0 + 0.7 * 1_000.0);
        assert_eq!((four.min.ms(), four.max.ms(), four.count), (1.0, 4.0, 4));
    }

    #[test]
    fn one_value_is_every_percentile() {
        let one = Distribution::of(vec![12_209]);

        for latency in [one.mean, one.p50, one.p90, one.p95, one.p99, one.min, one.max] {
            assert_eq!(latency.ms(), 12.209);
        }
    }

    #[test]
    fn no_values_are_zeros() {
        assert_eq!(Distribution::of(Vec::new()), Distribution::default());
        assert_eq!(Distribution::of_counts(&Counts::default()).p99.ms(), 0.0);
    }

    proptest! {
        #[test]
        fn counted_values_have_the_percentiles_of_the_list(
            values in prop::collection::vec(prop_oneof![0..40_u64, 300_000..2_000_000_u64], 0..200),
        ) {
            let mut counts = Counts::default();
            for &value in &values {
                counts.add(value);
            }

            prop_assert_eq!(Distribution::of_counts(&counts), Distribution::of(values));
        }

        #[test]
        fn percentiles_are_those_of_the_definition(values in prop::collection::vec(0..1_000_000_u64, 1..100)) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let defined = |p: f64| {
                let rank = p / 100.0 * (sorted.len() - 1) as f64;
                let (floor, ceiling) = (rank.floor() as usize, rank.ceil() as usize);
                let (lower, upper) = (sorted[floor] as f64, sorted[ceiling] as f64);
                lower / 1000.0 + (upper - lower) * (rank - floor as f64) / 1000.0
            };
            let distribution = Distribution::of(values);

            prop_assert_eq!(distribution.p50.ms(), defined(50.0));
            prop_assert_eq!(distribution.p90.ms(), defined(90.0));
            prop_assert_eq!(distribution.p95.ms(), defined(95.0));
            prop_assert_eq!(distribution.p99.ms(), defined(99.0));
        }
    }
}
