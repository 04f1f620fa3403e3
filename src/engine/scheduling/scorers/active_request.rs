//! Prefers the endpoint with the fewest requests in flight.

use std::convert::Infallible;

use serde::Deserialize;
use serde_json::Value;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// 1 for an endpoint with no more than `idleThreshold` requests in flight, else `maxBusyScore·(max - c) / max`, so that
/// the busiest scores 0 (spec, scheduling 8.6).
#[derive(Debug)]
pub(super) struct ActiveRequestScorer {
    idle_threshold: u32,
    max_busy_score: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    idle_threshold: i64,
    max_busy_score: f64,
    #[serde(rename = "inFlightLoadProducerName")]
    producer: String,
    request_timeout: Option<Value>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            idle_threshold: 0,
            max_busy_score: 1.0,
            producer: String::new(),
            request_timeout: None,
        }
    }
}

impl Plugin for ActiveRequestScorer {
    const TYPE: &'static str = "active-request-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the fewest requests in flight";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "idleThreshold",
            default: "0",
            summary: "requests in flight up to which an endpoint counts as idle and scores 1; below 0 counts as 0",
        },
        Parameter {
            name: "maxBusyScore",
            default: "1.0",
            summary: "what an endpoint that is not idle scores at the most, 0 to 1; anything else counts as 1",
        },
        Parameter {
            name: "inFlightLoadProducerName",
            default: "\"inflight-load-producer\"",
            summary: "instance name of the data producer that says what counts as load in flight",
        },
        Parameter {
            name: "requestTimeout",
            default: "null",
            summary: "accepted, without effect: a request is in flight until it ends",
        },
    ];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.load_in_flight(&params.producer);
        let why = "a request is in flight until it ends";
        needs.without_effect("requestTimeout", params.request_timeout.as_ref(), why);
        if params.idle_threshold < 0 {
            needs.remark(
                "idleThreshold",
                format!("`idleThreshold` is `{}`, which counts as 0", params.idle_threshold),
            );
        }
        let within = (0.0..=1.0).contains(&params.max_busy_score);
        if !within {
            let message = format!(
                "`maxBusyScore` is `{}`, which counts as 1; it is within 0 and 1",
                params.max_busy_score
            );
            needs.remark("maxBusyScore", message);
        }
        Ok(Self {
            idle_threshold: u32::try_from(params.idle_threshold.max(0)).unwrap_or(u32::MAX),
            max_busy_score: if within { params.max_busy_score } else { 1.0 },
        })
    }
}

impl Scorer for ActiveRequestScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let requests = || candidates.iter().map(|(_, member)| member.in_flight.requests);
        let max = requests().max().unwrap_or(0);
        for (score, requests) in scores.iter_mut().zip(requests()) {
            *score = if requests <= self.idle_threshold {
                1.0
            } else {
                f64::from(max - requests) / f64::from(max) * self.max_busy_score
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

    fn scores(params: &Value, requests: &[u32]) -> Vec<f64> {
        let mut scorer: ActiveRequestScorer = instance(Some(params), &mut Needs::default()).unwrap();
        scores_by(&mut scorer, &Scene::new().requests_in_flight(requests))
    }

    #[test]
    fn the_idle_score_one_and_the_busiest_zero() {
        assert_eq!(scores(&json!({}), &[0, 1, 3, 4]), [1.0, 0.75, 0.25, 0.0]);
        assert_eq!(scores(&json!({}), &[0, 0]), [1.0, 1.0]);
    }

    #[test]
    fn the_busiest_score_zero_even_if_all_are_as_busy() {
        assert_eq!(scores(&json!({}), &[5, 5]), [0.0, 0.0]);
    }

    #[test]
    fn a_gap_can_be_kept_between_the_idle_and_the_others() {
        let params = json!({"idleThreshold": 1, "maxBusyScore": 0.5});

        assert_eq!(scores(&params, &[0, 1, 2, 4]), [1.0, 1.0, 0.25, 0.0]);
    }

    #[test]
    fn a_parameter_out_of_its_range_counts_as_its_default() {
        let params = json!({"idleThreshold": -3, "maxBusyScore": 1.5});

        assert_eq!(scores(&params, &[0, 1, 4]), [1.0, 0.75, 0.0]);
    }
}
