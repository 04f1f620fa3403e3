//! Overloaded is what completes less than arrives, or takes longer and longer.

use super::{Detect, Event, Level, Verdict};

/// Latencies from which a trend is believed.
const ENOUGH: usize = 20;
/// Arrivals at which confidence is full.
const CERTAIN: f64 = 20.0;

#[derive(Debug)]
pub(super) struct Composite {
    arrivals: u64,
    /// The sum of the first n latencies in order of completion, in microseconds, at n.
    sums: Vec<u128>,
}

impl Default for Composite {
    fn default() -> Self {
        Self {
            arrivals: 0,
            sums: vec![0],
        }
    }
}

impl Composite {
    fn completions(&self) -> usize {
        self.sums.len() - 1
    }

    fn mean(&self, from: usize, to: usize) -> f64 {
        (self.sums[to] - self.sums[from]) as f64 / (to - from).max(1) as f64
    }

    /// By which share the second half takes longer than the first.
    fn raw_trend(&self) -> f64 {
        let n = self.completions();
        let (first, second) = (self.mean(0, n / 2), self.mean(n / 2, n));
        if first > 0.0 {
            ((second - first) / first).max(0.0)
        } else {
            0.0
        }
    }

    /// Each quarter takes longer than the one before, on average.
    fn is_monotone(&self) -> bool {
        let n = self.completions();
        let quarters = [0, n / 4, n / 2, n * 3 / 4, n];
        let means = [0, 1, 2, 3].map(|at| self.mean(quarters[at], quarters[at + 1]));
        n >= ENOUGH && means.windows(2).all(|pair| pair[0] < pair[1])
    }
}

impl Detect for Composite {
    fn observe(&mut self, _: u64, event: Event) {
        match event {
            Event::Arrival => self.arrivals += 1,
            Event::Completion { e2e_us } => {
                let sum = self.sums[self.completions()] + u128::from(e2e_us);
                self.sums.push(sum);
            }
        }
    }

    fn verdict(&self) -> Verdict {
        if self.arrivals == 0 {
            return Verdict::of_nothing();
        }
        let arrivals = self.arrivals as f64;
        let deficit = (1.0 - self.completions() as f64 / arrivals).max(0.0);
        let raw_trend = self.raw_trend();
        let is_monotone = self.is_monotone();
        let trend = if is_monotone { raw_trend } else { 0.0 };
        let noise = 1.0 / arrivals.sqrt();
        let score = deficit.max(trend.min(1.0));
        let level = if score < noise {
            Level::Stable
        } else if trend > noise {
            Level::Overloaded
        } else {
            Level::Backlogged
        };
        Verdict {
            level,
            score,
            confidence: (arrivals / CERTAIN).min(1.0),
            signals: vec![
                ("latency_trend", trend.min(1.0)),
                ("latency_trend_raw", raw_trend.min(1.0)),
                ("noise_floor", noise),
                ("quartile_monotone", f64::from(u8::from(is_monotone))),
                ("rate_deficit", deficit),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(arrivals: u64, latencies: impl IntoIterator<Item = u64>) -> (Level, f64) {
        let mut composite = Composite::default();
        (0..arrivals).for_each(|_| composite.observe(0, Event::Arrival));
        for e2e_us in latencies {
            composite.observe(0, Event::Completion { e2e_us });
        }
        let verdict = composite.verdict();
        (verdict.level, verdict.score)
    }

    #[test]
    fn a_backlog_without_a_trend_is_no_overload() {
        // The noise of 16 arrivals is a quarter.
        assert_eq!(after(16, [5; 16]), (Level::Stable, 0.0));
        assert_eq!(after(16, [5; 13]), (Level::Stable, 3.0 / 16.0));
        assert_eq!(after(16, [5; 8]), (Level::Backlogged, 0.5));
    }

    #[test]
    fn a_trend_in_every_quarter_is_overload() {
        // Means 100, 200, 300, 400: halves of 150 and 350.
        let rising = [100, 200, 300, 400].into_iter().flat_map(|us| [us; 5]);
        assert_eq!(after(20, rising), (Level::Overloaded, 1.0));
        let wavering = [100, 200, 200, 400].into_iter().flat_map(|us| [us; 5]);
        assert_eq!(after(20, wavering), (Level::Stable, 0.0));
        let few = [100, 200, 300, 400].into_iter().flat_map(|us| [us; 4]);
        assert_eq!(after(16, few), (Level::Stable, 0.0));
    }
}
