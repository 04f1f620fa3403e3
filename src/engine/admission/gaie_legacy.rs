//! Turns what may be shed away while the pool is full.

use serde::Deserialize;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, View, class_of};

/// While the mean over the endpoints of `max(waiting / queueDepthThreshold, kv / kvThreshold)` is 1 or more, nothing
/// below priority 0 is let in; nor is it without endpoints (spec, simulator 7).
#[derive(Debug)]
pub(super) struct GaieLegacy {
    queue_depth: f64,
    kv: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    queue_depth_threshold: f64,
    kv_threshold: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            queue_depth_threshold: 5.0,
            kv_threshold: 0.8,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{name}` must be above 0, found `{value}`")]
pub(super) struct Error {
    name: &'static str,
    value: f64,
}

impl Plugin for GaieLegacy {
    const TYPE: &'static str = "gaie-legacy";
    const SUMMARY: &'static str =
        "lets nothing below priority 0 in while the pool is full by what its endpoints report";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "queueDepthThreshold",
            default: "5",
            summary: "waiting requests at which an endpoint is full; above 0",
        },
        Parameter {
            name: "kvThreshold",
            default: "0.8",
            summary: "share of the KV cache at which an endpoint is full; above 0",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        needs.signals();
        let positive = |name, value: f64| match value > 0.0 {
            true => Ok(value),
            false => Err(Error { name, value }),
        };
        if params.kv_threshold > 1.0 {
            let message = format!(
                "`kvThreshold` is a share, and no cache is as full as `{}`; write 0.8 for 80 %",
                params.kv_threshold
            );
            needs.remark("kvThreshold", message);
        }
        Ok(Self {
            queue_depth: positive("queueDepthThreshold", params.queue_depth_threshold)?,
            kv: positive("kvThreshold", params.kv_threshold)?,
        })
    }
}

impl AdmissionPolicy for GaieLegacy {
    fn admit(&mut self, _: Timestamp, request: &Request, mut view: View<'_>) -> Admission {
        if request.priority >= 0 {
            return Admission::Admit;
        }
        let signals = view.candidates(request).signals();
        let saturation = match signals.len() {
            0 => 1.0,
            endpoints => {
                let loads = signals.map(|s| (f64::from(s.waiting) / self.queue_depth).max(s.kv_usage / self.kv));
                loads.sum::<f64>() / endpoints as f64
            }
        };
        if saturation < 1.0 {
            return Admission::Admit;
        }
        let class = class_of(request);
        Admission::Reject {
            reason: format!("gaie-saturated: class={class} saturation={saturation:.2}").into(),
            retry_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::plugin::instance;
    use super::super::super::request::Kind;
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    fn answer(scene: &Scene, priority: i32) -> Admission {
        let mut policy: GaieLegacy = instance(None, &mut Needs::default()).unwrap();
        let request = Request {
            objective: Some("batch".into()),
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
    fn a_full_pool_turns_away_what_is_below_zero() {
        // 7/5 and 0.8/0.8: 1.2 on average.
        let full = Scene::new().waiting(&[7, 0]).kv_usage(&[0.1, 0.8]);

        assert_eq!(
            answer(&full, -1),
            rejected("gaie-saturated: class=batch saturation=1.20")
        );
        assert_eq!(answer(&full, 0), Admission::Admit);
    }

    #[test]
    fn a_pool_with_room_lets_everything_in() {
        assert_eq!(answer(&Scene::new().waiting(&[9, 0]), -1), Admission::Admit);
    }

    #[test]
    fn a_pool_without_endpoints_is_full() {
        assert_eq!(
            answer(&Scene::new(), -1),
            rejected("gaie-saturated: class=batch saturation=1.00")
        );
    }

    #[test]
    fn a_threshold_that_nothing_is_below_is_refused() {
        let refused = instance::<GaieLegacy>(Some(&json!({"kvThreshold": 0})), &mut Needs::default());

        assert_eq!(refused.unwrap_err().message, "`kvThreshold` must be above 0, found `0`");
    }
}
