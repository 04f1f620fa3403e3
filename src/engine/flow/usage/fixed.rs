//! The same ceiling for every band.

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::UsageLimitPolicy;

/// Every band may release until the pool is as full as the threshold says (spec, flow control 13.1).
#[derive(Debug)]
pub(super) struct StaticLimit {
    threshold: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    threshold: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self { threshold: 1.0 }
    }
}

/// A threshold from which on it is probably meant in percent.
const PERCENT: f64 = 10.0;

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`threshold` must be above 0, where 1 is a full pool, found `{0}`")]
    Threshold(f64),
}

impl Plugin for StaticLimit {
    const TYPE: &'static str = "static-usage-limit-policy";
    const SUMMARY: &'static str = "lets every priority fill the pool up to the same point";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "threshold",
        default: "1.0",
        summary: "saturation at which nothing more is released; 1 is full; above 0",
    }];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let threshold = params.threshold;
        if threshold >= PERCENT {
            let message =
                format!("`threshold` is a share: `{threshold}` fills the pool {threshold} times; write 0.8 for 80 %");
            needs.remark("threshold", message);
        }
        if threshold > 0.0 {
            Ok(Self { threshold })
        } else {
            Err(Error::Threshold(threshold))
        }
    }
}

impl UsageLimitPolicy for StaticLimit {
    fn ceilings(&mut self, _: f64, _: &[i32], ceilings: &mut [f64]) {
        ceilings.fill(self.threshold);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::*;

    #[test]
    fn every_band_has_the_threshold_for_a_ceiling() {
        let mut policy: StaticLimit = instance(Some(&json!({"threshold": 0.7})), &mut Needs::default()).unwrap();
        let mut ceilings = [1.0; 3];

        policy.ceilings(0.9, &[100, 0, -5], &mut ceilings);

        assert_eq!(ceilings, [0.7, 0.7, 0.7]);
    }

    #[test]
    fn a_threshold_that_would_release_nothing_is_refused() {
        for threshold in [0.0, -0.5, f64::NAN] {
            let refused = StaticLimit::from_params(Params { threshold }, &mut Needs::default());

            assert_eq!(
                refused.unwrap_err().to_string(),
                format!("`threshold` must be above 0, where 1 is a full pool, found `{threshold}`")
            );
        }
    }
}
