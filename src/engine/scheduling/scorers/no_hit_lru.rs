//! Spreads prompts that nobody has cached over the endpoints.

use std::collections::BTreeMap;
use std::convert::Infallible;

use serde::Deserialize;
use serde_json::Value;

use super::super::super::plugin::{Needs, Parameter, Plugin, PrefixRef};
use super::super::super::pool::{Candidates, Member};
use super::super::{Cycle, Scorer};

/// A request is *cold* if no candidate has a block of its prompt. For a cold request the candidates stand in a line:
/// those that never had one, in order of endpoint id, then the others, from the one that had its last one longest ago.
/// The one at place `i` of `n` scores `1 - i/(n - 1)`, and a candidate alone 1. Where the request is not cold, or where
/// nobody can know, all score a half (spec, simulator 10.6).
#[derive(Debug)]
pub(super) struct NoHitLruScorer {
    producer: PrefixRef,
    capacity: usize,
    /// When the endpoint that joined so had its last cold request, counted in cold requests.
    last: BTreeMap<u64, u64>,
    cold_requests: u64,
    /// The request that was scored last is cold.
    is_cold: bool,
    /// The line, kept for its space: when each had its last one, zero for never, and its place among the candidates.
    line: Vec<(u64, usize)>,
}

const NEUTRAL: f64 = 0.5;

const DEFAULT_CAPACITY: i64 = 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    lru_size: i64,
    prefix_match_info_producer_name: String,
    prefix_plugin_type: Option<Value>,
    prefix_plugin_name: Option<Value>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            lru_size: DEFAULT_CAPACITY,
            prefix_match_info_producer_name: String::new(),
            prefix_plugin_type: None,
            prefix_plugin_name: None,
        }
    }
}

impl Plugin for NoHitLruScorer {
    const TYPE: &'static str = "no-hit-lru-scorer";
    const SUMMARY: &'static str = "spreads prompts that no endpoint has cached: prefers the endpoint that got such a one \
                                   longest ago; a half for all where an endpoint has a part of the prompt";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "lruSize",
            default: "1024",
            summary: "endpoints that are remembered; 0 and below act as 1024",
        },
        Parameter {
            name: "prefixMatchInfoProducerName",
            default: "\"\"",
            summary: "instance name of the data producer that knows the matches; unless it is said, what the \
                      configuration has: precise-prefix-cache-producer, else prefix-affinity-producer, else \
                      approx-prefix-cache-producer",
        },
        Parameter {
            name: "prefixPluginType",
            default: "null",
            summary: "accepted, without effect",
        },
        Parameter {
            name: "prefixPluginName",
            default: "null",
            summary: "accepted, without effect",
        },
    ];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        let why = "`prefixMatchInfoProducerName` says who knows the matches";
        needs.without_effect("prefixPluginType", params.prefix_plugin_type.as_ref(), why);
        needs.without_effect("prefixPluginName", params.prefix_plugin_name.as_ref(), why);
        let producer = match params.prefix_match_info_producer_name.as_str() {
            "" => needs.usual().any.clone(),
            named => named.to_owned(),
        };
        let capacity = needs.positive_or("lruSize", params.lru_size, DEFAULT_CAPACITY);
        Ok(Self {
            producer: needs.prefix_matches(&producer),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            last: BTreeMap::default(),
            cold_requests: 0,
            is_cold: false,
            line: Vec::new(),
        })
    }
}

impl Scorer for NoHitLruScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let prefix = cycle.prefix(self.producer);
        self.is_cold = prefix.known && candidates.slots().iter().all(|&slot| prefix.matched(slot) == 0);
        if !self.is_cold {
            return scores.fill(NEUTRAL);
        }
        let last = |member: &Member| self.last.get(&member.joined).copied().unwrap_or(0);
        self.line.clear();
        self.line
            .extend(candidates.iter().map(|(_, member)| last(member)).zip(0..));
        self.line.sort_unstable();
        let steps = self.line.len().saturating_sub(1).max(1) as f64;
        for (rank, &(_, place)) in self.line.iter().enumerate() {
            scores[place] = 1.0 - rank as f64 / steps;
        }
    }

    fn routed(&mut self, _: &Cycle<'_>, chosen: &Member) {
        if !std::mem::take(&mut self.is_cold) {
            return;
        }
        self.cold_requests += 1;
        self.last.insert(chosen.joined, self.cold_requests);
        if self.last.len() > self.capacity {
            let oldest = self.last.iter().min_by_key(|(_, at)| **at).map(|(joined, _)| *joined);
            oldest.and_then(|joined| self.last.remove(&joined));
        }
    }

    fn left(&mut self, gone: &Member) {
        self.last.remove(&gone.joined);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scorer(params: &Value) -> NoHitLruScorer {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn cold() -> Scene {
        Scene::new().prefix(&[0, 0, 0], 4)
    }

    /// Scores the scene, and sends its request to the endpoint of this number.
    fn route(scorer: &mut NoHitLruScorer, scene: &Scene, to: usize) -> Vec<f64> {
        let scores = scores_by(scorer, scene);
        scene.with(|cycle, pool| scorer.routed(cycle, pool.iter().nth(to).unwrap().1));
        scores
    }

    #[test]
    fn whoever_got_a_cold_request_goes_to_the_end_of_the_line() {
        let mut scorer = scorer(&json!({}));

        assert_eq!(route(&mut scorer, &cold(), 0), [1.0, 0.5, 0.0]);
        assert_eq!(route(&mut scorer, &cold(), 2), [0.0, 1.0, 0.5]);
        assert_eq!(route(&mut scorer, &cold(), 1), [0.5, 1.0, 0.0]);
        assert_eq!(route(&mut scorer, &cold(), 0), [1.0, 0.0, 0.5]);
    }

    #[test]
    fn a_request_that_somebody_has_cached_makes_no_difference_and_changes_nothing() {
        let mut scorer = scorer(&json!({}));
        let warm = Scene::new().prefix(&[0, 1, 0], 4);

        assert_eq!(route(&mut scorer, &warm, 0), [0.5, 0.5, 0.5]);
        assert_eq!(scores_by(&mut scorer, &cold()), [1.0, 0.5, 0.0]);
    }

    #[test]
    fn where_nobody_can_know_nothing_is_cold() {
        let mut scorer = scorer(&json!({}));
        let unknown = Scene::new().waiting(&[0, 0]);

        assert_eq!(route(&mut scorer, &unknown, 0), [0.5, 0.5]);
        assert_eq!(scores_by(&mut scorer, &cold()), [1.0, 0.5, 0.0]);
    }

    #[test]
    fn a_candidate_alone_scores_one() {
        let mut scorer = scorer(&json!({}));
        let alone = Scene::new().prefix(&[0], 4);

        assert_eq!(route(&mut scorer, &alone, 0), [1.0]);
        assert_eq!(route(&mut scorer, &alone, 0), [1.0]);
    }

    #[test]
    fn beyond_its_size_the_one_longest_ago_is_forgotten() {
        let mut scorer = scorer(&json!({"lruSize": 1}));
        route(&mut scorer, &cold(), 0);
        route(&mut scorer, &cold(), 1);

        assert_eq!(scores_by(&mut scorer, &cold()), [1.0, 0.0, 0.5]);
    }

    #[test]
    fn an_endpoint_that_left_is_forgotten() {
        let mut scorer = scorer(&json!({}));
        route(&mut scorer, &cold(), 0);
        cold().with(|_, pool| scorer.left(pool.iter().next().unwrap().1));

        assert!(scorer.last.is_empty());
    }
}
