//! Overloaded is what has more and more requests in flight.

use super::{Detect, Event, Level, Verdict};

/// A slope of this many times the noise is overload.
const CLEARLY: f64 = 3.0;
/// Arrivals at which confidence is full.
const CERTAIN: f64 = 20.0;

/// Requests in flight at the end of each bucket of time; a bucket without events has the value of the one before.
///
/// Of the buckets that are over only the sums for the line through them are kept.
#[derive(Debug)]
pub(super) struct BacklogDrift {
    window_us: u64,
    arrivals: u64,
    completions: u64,
    first_bucket: Option<u64>,
    /// The current bucket, counted from the first.
    x: u64,
    /// The sum of the values of earlier buckets.
    sum_y: i128,
    /// The sum of their values, each times its place.
    sum_xy: i128,
}

impl BacklogDrift {
    pub(super) fn new(window_s: u64) -> Self {
        Self {
            window_us: window_s.max(1).saturating_mul(1_000_000),
            arrivals: 0,
            completions: 0,
            first_bucket: None,
            x: 0,
            sum_y: 0,
            sum_xy: 0,
        }
    }

    fn in_flight(&self) -> i128 {
        i128::from(self.arrivals) - i128::from(self.completions)
    }

    /// The slope of the least-squares line through the buckets so far, requests per bucket. Zero for a single one.
    fn slope(&self) -> f64 {
        let x = i128::from(self.x);
        if x == 0 {
            return 0.0;
        }
        let n = x + 1;
        let sum_x = x * (x + 1) / 2;
        let sum_xx = x * (x + 1) * (2 * x + 1) / 6;
        let sum_y = self.sum_y + self.in_flight();
        let sum_xy = self.sum_xy + x * self.in_flight();
        (n * sum_xy - sum_x * sum_y) as f64 / (n * sum_xx - sum_x * sum_x) as f64
    }
}

impl Detect for BacklogDrift {
    fn observe(&mut self, at_us: u64, event: Event) {
        let bucket = at_us / self.window_us;
        let x = bucket - *self.first_bucket.get_or_insert(bucket);
        if x > self.x {
            // The places from `self.x` up to `x`, which is not over yet.
            let (from, to) = (i128::from(self.x), i128::from(x));
            self.sum_y += self.in_flight() * (to - from);
            self.sum_xy += self.in_flight() * (from + to - 1) * (to - from) / 2;
            self.x = x;
        }
        match event {
            Event::Arrival => self.arrivals += 1,
            Event::Completion { .. } => self.completions += 1,
        }
    }

    fn verdict(&self) -> Verdict {
        if self.arrivals == 0 {
            return Verdict::of_nothing();
        }
        let noise = 1.0 / (self.arrivals as f64).sqrt();
        let slope = self.slope();
        let level = if slope <= noise {
            Level::Stable
        } else if slope <= CLEARLY * noise {
            Level::Backlogged
        } else {
            Level::Overloaded
        };
        Verdict {
            level,
            score: (slope.max(0.0) / (CLEARLY * noise)).min(1.0),
            confidence: (self.arrivals as f64 / CERTAIN).min(1.0),
            signals: vec![
                ("arrivals", self.arrivals as f64),
                ("completions", self.completions as f64),
                ("in_flight", self.in_flight() as f64),
                ("noise_floor", noise),
                ("running_slope", slope),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The line through the listed values, as textbooks have it.
    fn least_squares(values: &[f64]) -> f64 {
        let n = values.len() as f64;
        let mean_x = (n - 1.0) / 2.0;
        let mean_y = values.iter().sum::<f64>() / n;
        let place = |x: usize| x as f64 - mean_x;
        let covariance: f64 = values.iter().enumerate().map(|(x, y)| place(x) * (y - mean_y)).sum();
        let variance: f64 = (0..values.len()).map(|x| place(x).powi(2)).sum();
        if variance > 0.0 { covariance / variance } else { 0.0 }
    }

    #[test]
    fn one_more_request_in_every_bucket_is_a_slope_of_one() {
        let mut drift = BacklogDrift::new(1);
        (0..16).for_each(|at| drift.observe(at * 1_000_000, Event::Arrival));
        let verdict = drift.verdict();

        assert_eq!(drift.slope(), 1.0);
        // Three times the noise of 16 arrivals is three quarters.
        assert_eq!((verdict.level, verdict.score), (Level::Overloaded, 1.0));
    }

    #[test]
    fn a_burst_that_stays_is_no_drift() {
        let mut drift = BacklogDrift::new(60);
        (0..50).for_each(|_| drift.observe(0, Event::Arrival));

        assert_eq!((drift.verdict().level, drift.verdict().score), (Level::Stable, 0.0));
    }

    proptest! {
        #[test]
        fn the_slope_is_that_of_the_line_through_all_buckets(
            steps in prop::collection::vec((0..4_u64, any::<bool>()), 1..60),
        ) {
            let mut drift = BacklogDrift::new(1);
            let mut values: Vec<f64> = Vec::new();
            let (mut at, mut in_flight) = (0, 0.0);
            for (later, arrives) in steps {
                at += later;
                let start = drift.first_bucket.unwrap_or(at);
                while values.len() < usize::try_from(at - start).unwrap() {
                    values.push(in_flight);
                }
                values.truncate(usize::try_from(at - start).unwrap());
                let event = if arrives { Event::Arrival } else { Event::Completion { e2e_us: 1 } };
                drift.observe(at * 1_000_000, event);
                in_flight += if arrives { 1.0 } else { -1.0 };
                values.push(in_flight);
            }

            prop_assert!((drift.slope() - least_squares(&values)).abs() < 1e-9);
        }
    }
}
