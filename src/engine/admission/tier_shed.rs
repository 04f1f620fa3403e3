//! Turns lower priorities away while the pool has work.

use serde::Deserialize;
use std::convert::Infallible;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, View, class_of};

/// Once the most loaded endpoint has more than `threshold` requests, waiting, running and in flight together, nothing
/// below `minPriority` is let in (spec, simulator 7).
#[derive(Debug)]
pub(super) struct TierShed {
    threshold: i64,
    min_priority: i32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    threshold: i64,
    min_priority: i32,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threshold: 0,
            min_priority: 3,
        }
    }
}

impl Plugin for TierShed {
    const TYPE: &'static str = "tier-shed";
    const SUMMARY: &'static str = "lets only higher priorities in once an endpoint is loaded";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "threshold",
            default: "0",
            summary: "load of the most loaded endpoint, requests that wait, run and are in flight together, up to which \
                      everything is let in",
        },
        Parameter {
            name: "minPriority",
            default: "3",
            summary: "lowest priority that is let in beyond that; a request without an objective has priority 0",
        },
    ];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self {
            threshold: params.threshold,
            min_priority: params.min_priority,
        })
    }
}

impl AdmissionPolicy for TierShed {
    fn admit(&mut self, _: Timestamp, request: &Request, mut view: View<'_>) -> Admission {
        if request.priority >= self.min_priority {
            return Admission::Admit;
        }
        let loads = view
            .candidates(request)
            .iter()
            .map(|(_, member)| member.effective_load());
        let load = i64::try_from(loads.max().unwrap_or(0)).unwrap_or(i64::MAX);
        if load <= self.threshold {
            return Admission::Admit;
        }
        let (class, priority, min) = (class_of(request), request.priority, self.min_priority);
        Admission::Reject {
            reason: format!("tier-shed: class={class} priority={priority} < min={min} load={load}").into(),
            retry_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::plugin::instance;
    use super::super::super::request::Kind;
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    fn answer(params: &Value, scene: &Scene, class: Option<&str>, priority: i32) -> Admission {
        let mut policy: TierShed = instance(Some(params), &mut Needs::default()).unwrap();
        let request = Request {
            objective: class.map(Into::into),
            priority,
            ..Request::unknown(Kind::Inference)
        };
        scene.admits(&mut policy, &request)
    }

    fn rejected(reason: &'static str) -> Admission {
        Admission::Reject {
            reason: reason.into(),
            retry_after: None,
        }
    }

    #[test]
    fn the_most_loaded_endpoint_decides_when_lower_priorities_are_turned_away() {
        let loaded = Scene::new()
            .waiting(&[0, 2])
            .running(&[0, 3])
            .requests_in_flight(&[1, 2]);

        assert_eq!(
            answer(&json!({}), &loaded, Some("batch"), -1),
            rejected("tier-shed: class=batch priority=-1 < min=3 load=7")
        );
        assert_eq!(answer(&json!({}), &loaded, Some("standard"), 3), Admission::Admit);
        assert_eq!(
            answer(&json!({"threshold": 7}), &loaded, Some("batch"), -1),
            Admission::Admit
        );
    }

    #[test]
    fn a_request_without_an_objective_is_of_the_standard_class() {
        let loaded = Scene::new().waiting(&[1]);

        assert_eq!(
            answer(&json!({"minPriority": 1}), &loaded, None, 0),
            rejected("tier-shed: class=standard priority=0 < min=1 load=1")
        );
    }

    #[test]
    fn an_idle_pool_lets_everything_in() {
        assert_eq!(
            answer(&json!({}), &Scene::new().waiting(&[0]), None, -9),
            Admission::Admit
        );
        assert_eq!(answer(&json!({}), &Scene::new(), None, -9), Admission::Admit);
    }
}
