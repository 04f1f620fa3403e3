//! Prefers the endpoint with the fewest tokens in flight, once the request is added.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `1 - min(t, threshold) / threshold`, where `t` is the tokens in flight to the endpoint and those that this request
/// would add there.
#[derive(Debug)]
pub(super) struct TokenLoadScorer {
    threshold: f64,
}

const DEFAULT_THRESHOLD: i64 = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    queue_threshold_tokens: i64,
    #[serde(rename = "inFlightLoadProducerName")]
    producer: String,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            queue_threshold_tokens: DEFAULT_THRESHOLD,
            producer: String::new(),
        }
    }
}

impl Plugin for TokenLoadScorer {
    const TYPE: &'static str = "token-load-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the fewest tokens in flight, those of the request included \
                                   that the endpoint has not cached";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "queueThresholdTokens",
            default: "4194304",
            summary: "tokens in flight from which on an endpoint scores 0; 0 and below act as 4194304",
        },
        Parameter {
            name: "inFlightLoadProducerName",
            default: "\"inflight-load-producer\"",
            summary: "instance name of the data producer that says what counts as load in flight",
        },
    ];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.load_in_flight(&params.producer);
        let threshold = needs.positive_or("queueThresholdTokens", params.queue_threshold_tokens, DEFAULT_THRESHOLD);
        Ok(Self {
            threshold: threshold as f64,
        })
    }
}

impl Scorer for TokenLoadScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        for (score, (slot, member)) in scores.iter_mut().zip(candidates.iter()) {
            let tokens = member.in_flight.tokens.saturating_add(cycle.tokens_on(slot));
            *score = 1.0 - (tokens as f64).min(self.threshold) / self.threshold;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::super::super::pool::InFlight;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scene(tokens: &[u64], prompt: u32) -> Scene {
        let in_flight = tokens.iter().map(|&tokens| InFlight {
            tokens,
            ..InFlight::default()
        });
        let in_flight: Vec<_> = in_flight.collect();
        Scene::new().in_flight(&in_flight).prompt_tokens(prompt)
    }

    fn scores(params: &Value, scene: &Scene) -> Vec<f64> {
        let mut scorer: TokenLoadScorer = instance(Some(params), &mut Needs::default()).unwrap();
        scores_by(&mut scorer, scene)
    }

    #[test]
    fn scores_fall_from_one_to_zero_at_the_threshold() {
        let params = json!({"queueThresholdTokens": 1000});

        assert_eq!(scores(&params, &scene(&[0, 250, 1000, 9000], 0)), [1.0, 0.75, 0.0, 0.0]);
        assert_eq!(scores(&json!({}), &scene(&[1 << 20], 0)), [0.75]);
    }

    #[test]
    fn the_request_itself_counts_where_it_is_not_cached() {
        let params = json!({"queueThresholdTokens": 1024});
        let scene = scene(&[0, 0], 256).prefix(&[0, 3], 4);

        assert_eq!(scores(&params, &scene), [0.75, 0.75]);
        assert_eq!(scores(&params, &scene.cached_is_no_load()), [0.75, 1.0 - 64.0 / 1024.0]);
    }

    #[test]
    fn a_threshold_that_is_not_positive_is_the_default() {
        for threshold in [0, -5] {
            let params = json!({"queueThresholdTokens": threshold});

            assert_eq!(scores(&params, &scene(&[1 << 21], 0)), [0.5]);
        }
    }

    /// The formula as it is written down for operators of llm-d.
    fn reference(tokens: u64, uncached: u64, threshold: i64) -> f64 {
        let threshold = if threshold <= 0 { 4_194_304 } else { threshold };
        let total = i128::from(tokens) + i128::from(uncached);
        if total <= 0 {
            return 1.0;
        }
        1.0 - total.min(threshold.into()) as f64 / threshold as f64
    }

    proptest! {
        #[test]
        fn scores_are_those_of_the_reference(
            tokens in proptest::collection::vec(0_u64..20_000_000, 1..8),
            prompt in 0_u32..2_000_000,
            threshold in -10_i64..10_000_000,
        ) {
            let expected: Vec<f64> = tokens.iter().map(|&tokens| reference(tokens, prompt.into(), threshold)).collect();

            let scores = scores(&json!({"queueThresholdTokens": threshold}), &scene(&tokens, prompt));

            prop_assert_eq!(scores, expected);
        }
    }
}
