//! Prefers the endpoint that has served most of the prompt before.

use serde::Deserialize;

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, Needs, Parameter, Plugin, PrefixRef};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `w·min(1, matched·block/scale)² + (1 - w)·matched/total`, with `w` 0 by default (spec, scheduling 8.8).
#[derive(Debug)]
pub(super) struct PrefixCacheScorer {
    producer: PrefixRef,
    length_weight: f64,
    length_scale_tokens: f64,
}

const DEFAULT_SCALE_TOKENS: i64 = 8192;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    prefix_match_info_producer_name: String,
    match_length_weight: f64,
    match_length_scale_tokens: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: DEFAULT_PREFIX_PRODUCER.to_owned(),
            match_length_weight: 0.0,
            match_length_scale_tokens: DEFAULT_SCALE_TOKENS,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`matchLengthWeight` must be within 0 and 1, found `{0}`")]
    Weight(f64),
    #[error("`matchLengthScaleTokens` must be above 0 when `matchLengthWeight` is, found `{0}`")]
    Scale(i64),
}

impl Plugin for PrefixCacheScorer {
    const TYPE: &'static str = "prefix-cache-scorer";
    const SUMMARY: &'static str = "prefers the endpoint that has served most of the prompt before";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "prefixMatchInfoProducerName",
            default: "\"approx-prefix-cache-producer\"",
            summary: "instance name of the data producer that knows the matches",
        },
        Parameter {
            name: "matchLengthWeight",
            default: "0.0",
            summary: "share of the score that comes from the length of the match rather than its ratio, 0 to 1",
        },
        Parameter {
            name: "matchLengthScaleTokens",
            default: "8192",
            summary: "tokens of a match that counts as long; above 0",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let Params {
            prefix_match_info_producer_name: producer,
            match_length_weight: weight,
            match_length_scale_tokens: scale,
        } = params;
        if !(0.0..=1.0).contains(&weight) {
            return Err(Error::Weight(weight));
        }
        if weight <= 0.0 && scale != DEFAULT_SCALE_TOKENS {
            let message = "`matchLengthScaleTokens` has no effect while `matchLengthWeight` is 0";
            needs.remark("matchLengthScaleTokens", message);
        }
        if weight > 0.0 && scale <= 0 {
            return Err(Error::Scale(scale));
        }
        let producer = match producer.as_str() {
            "" => DEFAULT_PREFIX_PRODUCER,
            named => named,
        };
        Ok(Self {
            producer: needs.prefix_matches(producer),
            length_weight: weight,
            length_scale_tokens: scale as f64,
        })
    }
}

impl Scorer for PrefixCacheScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let prefix = cycle.prefix(self.producer);
        if prefix.total == 0 {
            return;
        }
        for (score, &slot) in scores.iter_mut().zip(candidates.slots()) {
            let matched = f64::from(prefix.matched(slot));
            let ratio = matched / f64::from(prefix.total);
            *score = if self.length_weight > 0.0 {
                let length = (matched * f64::from(prefix.block_tokens) / self.length_scale_tokens).min(1.0);
                self.length_weight * length * length + (1.0 - self.length_weight) * ratio
            } else {
                ratio
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn a_score_is_the_matched_share_of_the_prompt() {
        let scene = Scene::new().prefix(&[0, 2, 8], 8);
        let mut scorer: PrefixCacheScorer = instance(None, &mut Needs::default()).unwrap();

        assert_eq!(scores_by(&mut scorer, &scene), [0.0, 0.25, 1.0]);
    }

    #[test]
    fn a_prompt_without_blocks_matches_nobody() {
        let scene = Scene::new().prefix(&[0, 0], 0);
        let mut scorer: PrefixCacheScorer = instance(None, &mut Needs::default()).unwrap();

        assert_eq!(scores_by(&mut scorer, &scene), [0.0, 0.0]);
    }

    #[test]
    fn a_weight_on_length_prefers_the_long_match_over_the_equal_ratio() {
        let params = json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 256});
        let scene = Scene::new().prefix(&[2, 8], 8);
        let mut scorer: PrefixCacheScorer = instance(Some(&params), &mut Needs::default()).unwrap();

        // 2 blocks are 128 tokens: half of the scale, squared to a quarter.
        assert_eq!(scores_by(&mut scorer, &scene), [0.5 * 0.25 + 0.5 * 0.25, 1.0]);
    }

    #[test]
    fn a_weight_outside_its_range_is_refused() {
        let refused = instance::<PrefixCacheScorer>(Some(&json!({"matchLengthWeight": 1.5})), &mut Needs::default());

        assert_eq!(
            refused.unwrap_err().to_string(),
            "`matchLengthWeight` must be within 0 and 1, found `1.5`"
        );
    }
}
