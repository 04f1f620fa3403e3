//! Overloaded is what takes long, on average over all that is completed so far.

use super::{Detect, Event, Level, Verdict};

#[derive(Debug)]
pub(super) struct Threshold {
    threshold_ms: f64,
    completions: u64,
    sum_us: u128,
}

impl Threshold {
    pub(super) fn new(threshold_ms: f64) -> Self {
        Self {
            threshold_ms,
            completions: 0,
            sum_us: 0,
        }
    }
}

impl Detect for Threshold {
    fn observe(&mut self, _: u64, event: Event) {
        if let Event::Completion { e2e_us } = event {
            self.completions += 1;
            self.sum_us += u128::from(e2e_us);
        }
    }

    fn verdict(&self) -> Verdict {
        let limit = self.threshold_ms;
        let mean_ms = self.sum_us as f64 / self.completions.max(1) as f64 / 1000.0;
        let (level, score) = if mean_ms < limit {
            (Level::Stable, 0.5 * mean_ms / limit)
        } else {
            (Level::Overloaded, 0.75 + ((mean_ms - limit) / limit / 4.0).min(0.25))
        };
        Verdict {
            level,
            score,
            confidence: 1.0 - 1.0 / ((self.completions + 1) as f64).sqrt(),
            signals: vec![("mean_e2e_ms", mean_ms), ("threshold_ms", limit)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_grow_with_the_mean_on_both_sides_of_the_threshold() {
        let after = |e2e_ms: &[u64]| {
            let mut threshold = Threshold::new(5_000.0);
            for ms in e2e_ms {
                threshold.observe(0, Event::Arrival);
                threshold.observe(0, Event::Completion { e2e_us: ms * 1_000 });
            }
            let verdict = threshold.verdict();
            (verdict.level, verdict.score, verdict.confidence)
        };

        assert_eq!(after(&[]), (Level::Stable, 0.0, 0.0));
        assert_eq!(after(&[1_000, 2_000, 3_000]), (Level::Stable, 0.2, 0.5));
        assert_eq!(after(&[5_000, 5_000, 5_000]), (Level::Overloaded, 0.75, 0.5));
        assert_eq!(after(&[7_500, 7_500, 7_500]), (Level::Overloaded, 0.875, 0.5));
        assert_eq!(after(&[90_000, 90_000, 90_000]), (Level::Overloaded, 1.0, 0.5));
    }
}
