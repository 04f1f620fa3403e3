//! Prefers endpoints with short queues, by how long they are rather than by how they compare.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `0.5·(1 - min(waiting, threshold) / threshold)` (spec, scheduling 8.5).
#[derive(Debug)]
pub(super) struct LoadAwareScorer {
    threshold: f64,
}

/// What an endpoint without a queue scores.
const HIGHEST: f64 = 0.5;

const DEFAULT_THRESHOLD: i64 = 128;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    threshold: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threshold: DEFAULT_THRESHOLD,
        }
    }
}

impl Plugin for LoadAwareScorer {
    const TYPE: &'static str = "load-aware-scorer";
    const SUMMARY: &'static str =
        "prefers endpoints with short queues: a half without a queue, 0 from the threshold on";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "threshold",
        default: "128",
        summary: "waiting requests from which on an endpoint scores 0; 0 and below act as 128",
    }];
    type Params = Params;
    type Error = Infallible;

    fn from_params(Params { threshold }: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        let threshold = needs.positive_or("threshold", threshold, DEFAULT_THRESHOLD);
        Ok(Self {
            threshold: threshold as f64,
        })
    }
}

impl Scorer for LoadAwareScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        for (score, signals) in scores.iter_mut().zip(candidates.signals()) {
            let waiting = f64::from(signals.waiting).min(self.threshold);
            *score = HIGHEST * (1.0 - waiting / self.threshold);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scores(params: &Value, waiting: &[u32]) -> Vec<f64> {
        let mut scorer: LoadAwareScorer = instance(Some(params), &mut Needs::default()).unwrap();
        scores_by(&mut scorer, &Scene::new().waiting(waiting))
    }

    #[test]
    fn scores_fall_from_a_half_to_zero_at_the_threshold() {
        assert_eq!(scores(&json!({}), &[0, 32, 128, 500]), [0.5, 0.375, 0.0, 0.0]);
        assert_eq!(scores(&json!({"threshold": 4}), &[0, 1, 4]), [0.5, 0.375, 0.0]);
    }

    #[test]
    fn a_threshold_that_is_none_is_the_usual_one() {
        assert_eq!(scores(&json!({"threshold": 0}), &[64]), [0.25]);
    }
}
