//! Prefers the endpoint that has served most of the start of the prompt before.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, PREFIX_AFFINITY_PRODUCER, Parameter, Plugin, PrefixRef};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// Matched blocks over full blocks of the prompt; 0 for a prompt shorter than a block (spec, simulator 10.4).
#[derive(Debug)]
pub(super) struct PrefixAffinityScorer {
    producer: PrefixRef,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    prefix_match_info_producer_name: String,
}

impl Plugin for PrefixAffinityScorer {
    const TYPE: &'static str = "prefix-affinity-scorer";
    const SUMMARY: &'static str = "prefers the endpoint that has served most of the prompt before, in full blocks from \
                                   its start";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "prefixMatchInfoProducerName",
        default: "\"prefix-affinity-producer\"",
        summary: "instance name of the data producer that knows the matches",
    }];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        let producer = match params.prefix_match_info_producer_name.as_str() {
            "" => PREFIX_AFFINITY_PRODUCER,
            named => named,
        };
        Ok(Self {
            producer: needs.prefix_matches(producer),
        })
    }
}

impl Scorer for PrefixAffinityScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let prefix = cycle.prefix(self.producer);
        if prefix.total == 0 {
            return;
        }
        for (score, &slot) in scores.iter_mut().zip(candidates.slots()) {
            *score = f64::from(prefix.matched(slot)) / f64::from(prefix.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scores(matched: &[u32], total: u32) -> Vec<f64> {
        let mut scorer: PrefixAffinityScorer = instance(None, &mut Needs::default()).unwrap();
        scores_by(&mut scorer, &Scene::new().prefix(matched, total))
    }

    #[test]
    fn a_score_is_the_matched_share_of_the_full_blocks() {
        assert_eq!(scores(&[0, 3, 5], 5), [0.0, 0.6, 1.0]);
    }

    #[test]
    fn a_prompt_shorter_than_a_block_matches_nobody() {
        assert_eq!(scores(&[0, 0], 0), [0.0, 0.0]);
    }
}
