//! Prefers the endpoint that has most of the prompt in its cache.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin, PrefixRef};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `(c - min) / (max - min)` over the candidates, where `c` is the number of blocks from the start of the prompt that
/// are in the endpoint's cache; 1 for all if they are equal, as they are where nobody tells of caches (spec, simulator
/// 10.4). The reference of the picker takes the share of the prompt instead (spec, scheduling 8.11).
#[derive(Debug)]
pub(super) struct PrecisePrefixScorer {
    producer: PrefixRef,
}

/// What the user may write. In llm-d the scorer may have its producer's parameters too; these are moved there.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    prefix_match_info_producer_name: String,
}

impl Plugin for PrecisePrefixScorer {
    const TYPE: &'static str = "precise-prefix-cache-scorer";
    const SUMMARY: &'static str = "prefers the endpoint that has most of the prompt in its cache, by where it stands \
                                   between the least and the most; only the simulator knows that so far";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "prefixMatchInfoProducerName",
        default: "\"precise-prefix-cache-producer\"",
        summary: "instance name of the data producer that knows the matches; the first precise one that is declared \
                      unless it is said",
    }];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        let producer = match params.prefix_match_info_producer_name.as_str() {
            "" => needs.usual().precise.clone(),
            named => named.to_owned(),
        };
        Ok(Self {
            producer: needs.prefix_matches(&producer),
        })
    }
}

impl Scorer for PrecisePrefixScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let prefix = cycle.prefix(self.producer);
        let cached = || candidates.slots().iter().map(|&slot| prefix.matched(slot));
        let (min, max) = cached().fold((u32::MAX, u32::MIN), |(min, max), x| (min.min(x), max.max(x)));
        for (score, cached) in scores.iter_mut().zip(cached()) {
            *score = if max == min {
                1.0
            } else {
                f64::from(cached - min) / f64::from(max - min)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scores(cached: &[u32]) -> Vec<f64> {
        let mut scorer: PrecisePrefixScorer = instance(None, &mut Needs::default()).unwrap();
        scores_by(&mut scorer, &Scene::new().prefix(cached, 4))
    }

    #[test]
    fn the_most_cached_scores_one_and_the_least_cached_zero() {
        assert_eq!(scores(&[0, 2, 4]), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn who_has_as_much_as_all_others_scores_one() {
        assert_eq!(scores(&[2, 2, 2]), [1.0, 1.0, 1.0]);
        assert_eq!(scores(&[0, 0]), [1.0, 1.0]);
    }
}
