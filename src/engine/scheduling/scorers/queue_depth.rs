//! Prefers the endpoint with the least load, as it compares with the others.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::{Candidates, Member};
use super::super::{Cycle, Scorer};
use super::least::prefer_least;

/// `(max - load) / (max - min)` over the candidates; 1 for all if they are equal (spec, simulator 10.4).
#[derive(Debug)]
pub(super) struct QueueDepthScorer {
    signal: Signal,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    signal: Signal,
}

/// What is taken for the load.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Signal {
    /// What waits, what runs and what is in flight.
    #[default]
    EffectiveLoad,
    /// What waits.
    Waiting,
}

impl Plugin for QueueDepthScorer {
    const TYPE: &'static str = "queue-depth-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the least load, by where it stands between the least and \
                                   the most loaded one";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "signal",
        default: "\"effective-load\"",
        summary: "what is taken for the load: `effective-load`, requests that wait, run and are in flight together, or \
                  `waiting`, as queue-scorer does",
    }];
    type Params = Params;
    type Error = Infallible;

    fn from_params(Params { signal }: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        if let Signal::Waiting = signal {
            needs.signals();
        }
        Ok(Self { signal })
    }
}

impl Scorer for QueueDepthScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        match self.signal {
            Signal::EffectiveLoad => prefer_least(candidates, Member::effective_load, scores),
            Signal::Waiting => prefer_least(candidates, |member| member.signals.waiting.into(), scores),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    fn scores(params: &Value, scene: &Scene) -> Vec<f64> {
        let mut scorer: QueueDepthScorer = instance(Some(params), &mut Needs::default()).unwrap();
        scores_by(&mut scorer, scene)
    }

    #[test]
    fn the_load_is_what_waits_runs_and_is_in_flight_unless_it_is_only_what_waits() {
        let scene = Scene::new()
            .waiting(&[1, 0, 0])
            .running(&[2, 0, 4])
            .requests_in_flight(&[1, 0, 4]);

        assert_eq!(scores(&json!({}), &scene), [0.5, 1.0, 0.0]);
        assert_eq!(scores(&json!({"signal": "waiting"}), &scene), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn equal_loads_score_one() {
        let scene = Scene::new().waiting(&[1, 0]).running(&[0, 1]);

        assert_eq!(scores(&json!({}), &scene), [1.0, 1.0]);
    }
}
