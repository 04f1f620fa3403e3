//! What may be concluded from a few runs.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of an interval.
pub(super) const CONFIDENCE: f64 = 0.95;

/// The mean. `None` of nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// What Student's t says of a mean, such as that of differences in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeanTest {
    pub(super) interval: [f64; 2],
    pub(super) p: f64,
}

impl MeanTest {
    /// With `d` the mean of `n` values and `s` their standard deviation, the interval is `d ± t(0.975, n - 1) s / √n`, and
    /// `p` is the chance of a `t` as far from zero as `d √n / s`, on both sides. Values that are all the same leave nothing
    /// to chance. `None` of fewer than two.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = mean(values)?;
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        if error == 0.0 {
            return Some(Self {
                interval: [mean, mean],
                p: if mean == 0.0 { 1.0 } else { 0.0 },
            });
        }
        let reach = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error;
        Some(Self {
            interval: [mean - reach, mean + reach],
            p: (2.0 * student.sf((mean / error).abs())).min(1.0),
        })
    }
}

/// Holm's correction: the k-th smallest of `m` is multiplied by `m - k`, counted from zero, and none becomes less than a
/// smaller one.
pub(super) fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|&a, &b| ps[a].total_cmp(&ps[b]));
    let mut corrected = vec![0.0; ps.len()];
    let mut largest = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        largest = largest.max((ps.len() - rank) as f64 * ps[at]).min(1.0);
        corrected[at] = largest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_interval_of_five_differences_is_that_of_a_table_of_t() {
        // Mean 3, standard deviation √2.5, error √0.5; t(0.975, 4) is 2.776445.
        let test = MeanTest::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let reach = 2.776_445_105_2 * 0.5_f64.sqrt();

        assert!((test.interval[0] - (3.0 - reach)).abs() < 1e-8, "{test:?}");
        assert!((test.interval[1] - (3.0 + reach)).abs() < 1e-8, "{test:?}");
        // t = 4.242641 with 4 degrees of freedom.
        assert!((test.p - 0.013_235_6).abs() < 1e-6, "{test:?}");
    }

    #[test]
    fn equal_differences_leave_nothing_to_chance() {
        assert_eq!(MeanTest::of(&[0.0, 0.0]).unwrap().p, 1.0);
        assert_eq!(MeanTest::of(&[2.0, 2.0]).unwrap().p, 0.0);
        assert_eq!(MeanTest::of(&[2.0]), None);
    }

    #[test]
    fn holm_multiplies_the_smallest_most_and_keeps_the_order() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);

        // Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 is not less than the one before.
        for (corrected, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((corrected - expected).abs() < 1e-12, "{corrected:?} is not {expected}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn corrected_ps_are_no_smaller_and_in_the_same_order(ps in prop::collection::vec(0.0..1.0_f64, 1..20)) {
            let corrected = holm(&ps);

            for (at, &p) in ps.iter().enumerate() {
                prop_assert!(corrected[at] >= p && corrected[at] <= 1.0);
                prop_assert!(corrected[at] <= (p * ps.len() as f64).min(1.0) || ps.iter().any(|&other| other < p));
                for (other, &q) in ps.iter().enumerate() {
                    prop_assert!(p > q || corrected[at] <= corrected[other]);
                }
            }
        }

        #[test]
        fn the_interval_spans_zero_exactly_if_p_is_not_small(
            differences in prop::collection::vec(-10.0..10.0_f64, 2..12),
        ) {
            let test = MeanTest::of(&differences).unwrap();
            prop_assume!((test.p - 0.05).abs() > 1e-6);
            let spans_zero = test.interval[0] <= 0.0 && test.interval[1] >= 0.0;

            prop_assert_eq!(spans_zero, test.p > 0.05);
        }
    }
}
