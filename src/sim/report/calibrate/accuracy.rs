//! How near simulated latencies are to real ones.

use serde::Serialize;

use crate::sim::report::distribution::Rank;

/// How near one metric is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Of the whole workload.
    pub workload_level: WorkloadLevel,
    /// Request by request.
    pub request_level: RequestLevel,
    /// How many requests were compared.
    pub count: u64,
}

/// How near the distribution is. Times are microseconds; errors are simulated less real, and percent errors fractions of
/// the real value, without sign.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it, four times for each of six figures")]
pub struct WorkloadLevel {
    pub real_mean: f64,
    pub sim_mean: f64,
    pub mean_error: f64,
    pub mean_percent_error: f64,
    pub real_median: f64,
    pub sim_median: f64,
    pub median_error: f64,
    pub median_percent_error: f64,
    pub real_p50: f64,
    pub sim_p50: f64,
    pub p50_error: f64,
    pub p50_percent_error: f64,
    pub real_p90: f64,
    pub sim_p90: f64,
    pub p90_error: f64,
    pub p90_percent_error: f64,
    pub real_p95: f64,
    pub sim_p95: f64,
    pub p95_error: f64,
    pub p95_percent_error: f64,
    pub real_p99: f64,
    pub sim_p99: f64,
    pub p99_error: f64,
    pub p99_percent_error: f64,
}

/// How near the single requests are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestLevel {
    /// The mean of the errors, each as a fraction of the real value. Real values of zero are left out.
    pub mape: f64,
    /// Pearson's correlation. Zero for fewer than three requests, and where one side does not vary.
    pub pearson_r: f64,
    /// On which side the simulation errs.
    pub bias_direction: Bias,
    /// Both figures in a word.
    pub quality: Quality,
}

/// On which side a simulation errs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bias {
    /// It takes longer than reality.
    OverPredict,
    /// Reality takes longer.
    UnderPredict,
    /// Neither.
    Neutral,
}

/// How good a prediction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quality {
    /// Errors below 10 %, and a correlation above 0.95.
    Excellent,
    /// Errors below 20 %, and a correlation above 0.85.
    Good,
    /// Errors below 35 %, and a correlation above 0.70.
    Fair,
    /// Anything else.
    Poor,
}

impl Quality {
    fn of(mape: f64, pearson_r: f64) -> Self {
        let grades = [
            (0.10, 0.95, Self::Excellent),
            (0.20, 0.85, Self::Good),
            (0.35, 0.70, Self::Fair),
        ];
        let met = grades
            .into_iter()
            .find(|&(most, least, _)| mape < most && pearson_r > least);
        met.map_or(Self::Poor, |(_, _, grade)| grade)
    }
}

impl Accuracy {
    /// Of pairs of a real and a simulated value, at least one.
    pub(super) fn of(pairs: &[(f64, f64)]) -> Self {
        Self {
            workload_level: WorkloadLevel::of(pairs),
            request_level: RequestLevel::of(pairs),
            count: pairs.len() as u64,
        }
    }
}

/// A real and a simulated figure.
struct Figure {
    real: f64,
    sim: f64,
}

impl Figure {
    fn error(&self) -> f64 {
        self.sim - self.real
    }

    fn percent_error(&self) -> f64 {
        if self.real == 0.0 {
            return 0.0;
        }
        (self.error() / self.real).abs()
    }
}

impl WorkloadLevel {
    fn of(pairs: &[(f64, f64)]) -> Self {
        let sorted = |side: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(side).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let (real, sim) = (sorted(|pair| pair.0), sorted(|pair| pair.1));
        let mean = Figure {
            real: mean(&real),
            sim: mean(&sim),
        };
        let [p50, p90, p95, p99] = [50.0, 90.0, 95.0, 99.0].map(|p| Figure {
            real: percentile(&real, p),
            sim: percentile(&sim, p),
        });
        Self {
            real_mean: mean.real,
            sim_mean: mean.sim,
            mean_error: mean.error(),
            mean_percent_error: mean.percent_error(),
            real_median: p50.real,
            sim_median: p50.sim,
            median_error: p50.error(),
            median_percent_error: p50.percent_error(),
            real_p50: p50.real,
            sim_p50: p50.sim,
            p50_error: p50.error(),
            p50_percent_error: p50.percent_error(),
            real_p90: p90.real,
            sim_p90: p90.sim,
            p90_error: p90.error(),
            p90_percent_error: p90.percent_error(),
            real_p95: p95.real,
            sim_p95: p95.sim,
            p95_error: p95.error(),
            p95_percent_error: p95.percent_error(),
            real_p99: p99.real,
            sim_p99: p99.sim,
            p99_error: p99.error(),
            p99_percent_error: p99.percent_error(),
        }
    }
}

impl RequestLevel {
    fn of(pairs: &[(f64, f64)]) -> Self {
        let errors = pairs.iter().filter(|(real, _)| *real != 0.0);
        let errors: Vec<f64> = errors.map(|(real, sim)| (real - sim).abs() / real).collect();
        let mape = if errors.is_empty() { 0.0 } else { mean(&errors) };
        let pearson_r = pearson(pairs);
        let bias: f64 = pairs.iter().map(|(real, sim)| sim - real).sum();
        Self {
            mape,
            pearson_r,
            bias_direction: match bias {
                bias if bias > 0.0 => Bias::OverPredict,
                bias if bias < 0.0 => Bias::UnderPredict,
                _ => Bias::Neutral,
            },
            quality: Quality::of(mape, pearson_r),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// As of latencies of a run (spec, simulator 28.1).
fn percentile(sorted: &[f64], percentile: f64) -> f64 {
    let rank = Rank::of(percentile, sorted.len() as u64);
    let [lower, upper] = [rank.lower, rank.upper].map(|at| sorted[usize::try_from(at).expect("a place in the slice")]);
    lower + (upper - lower) * rank.fraction
}

/// The covariance, as a fraction of the product of both standard deviations.
fn pearson(pairs: &[(f64, f64)]) -> f64 {
    if pairs.len() < 3 {
        return 0.0;
    }
    let n = pairs.len() as f64;
    let (sum_x, sum_y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0, y + pair.1));
    let (mean_x, mean_y) = (sum_x / n, sum_y / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - mean_x, y - mean_y);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    if xx == 0.0 || yy == 0.0 {
        return 0.0;
    }
    xy / (xx * yy).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_of_hand_made_pairs() {
        let accuracy = Accuracy::of(&[(100.0, 110.0), (200.0, 180.0), (400.0, 420.0)]);

        // 10 %, 10 % and 5 %.
        assert!((accuracy.request_level.mape - 0.25 / 3.0).abs() < 1e-12);
        assert_eq!(accuracy.request_level.bias_direction, Bias::OverPredict);
        assert_eq!(
            (accuracy.workload_level.real_p50, accuracy.workload_level.p50_error),
            (200.0, -20.0)
        );
        assert_eq!(accuracy.workload_level.p50_percent_error, 0.1);
        // Rank 1.8: between 200 and 400.
        assert_eq!(accuracy.workload_level.real_p90, 360.0);
    }

    #[test]
    fn real_values_of_zero_have_no_fraction() {
        assert_eq!(RequestLevel::of(&[(0.0, 5.0), (10.0, 11.0)]).mape, 0.1);
        assert_eq!(RequestLevel::of(&[(0.0, 5.0)]).mape, 0.0);
    }

    #[test]
    fn correlation_needs_three_points_that_vary() {
        assert_eq!(pearson(&[(1.0, 1.0), (2.0, 2.0)]), 0.0);
        assert_eq!(pearson(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), 0.0);
        // Deviations -1, 0, 1 and -1, 1, 0: covariance 1, variances 2 and 2.
        assert!((pearson(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn quality_takes_both_a_small_error_and_a_high_correlation() {
        assert_eq!(Quality::of(0.05, 0.99), Quality::Excellent);
        assert_eq!(Quality::of(0.10, 0.99), Quality::Good);
        assert_eq!(Quality::of(0.05, 0.95), Quality::Good);
        assert_eq!(Quality::of(0.3, 0.8), Quality::Fair);
        assert_eq!(Quality::of(0.05, 0.5), Quality::Poor);
    }

    proptest! {
        #[test]
        fn a_scaled_prediction_correlates_wholly(
            real in prop::collection::hash_set(1..10_000_u32, 3..50),
            factor in 0.1..10.0_f64,
        ) {
            let mut real: Vec<_> = real.into_iter().map(f64::from).collect();
            real.sort_by(f64::total_cmp);
            let pairs: Vec<_> = real.iter().map(|&real| (real, real * factor)).collect();
            let level = RequestLevel::of(&pairs);

            prop_assert!((level.pearson_r - 1.0).abs() < 1e-9);
            prop_assert!((level.mape - (factor - 1.0).abs()).abs() < 1e-9);
        }
    }
}
