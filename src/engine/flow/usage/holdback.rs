//! Holds room back for higher priorities.

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin, Stability};
use super::UsageLimitPolicy;

/// Ceilings that fall in a line from the highest band to the lowest (spec, flow control 13.2). Every band that is
/// there counts, whether or not it has requests.
#[derive(Debug)]
pub(super) struct PriorityHoldback {
    domain: Domain,
    min: f64,
    max: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    shape: Shape,
    domain: Domain,
    min_ceiling: Option<f64>,
    max_ceiling: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            shape: Shape::Linear,
            domain: Domain::Rank,
            min_ceiling: None,
            max_ceiling: 1.0,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    #[default]
    Linear,
}

/// What the line is drawn over.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Domain {
    /// The places of the bands.
    #[default]
    Rank,
    /// Their priorities.
    Value,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`minCeiling` is missing: the ceiling of the lowest band, at least 0 and below 1")]
    NoMin,
    #[error("`minCeiling` must be at least 0 and below 1, found `{0}`")]
    Min(f64),
    #[error("`maxCeiling` must be above 0 and at most 1, found `{0}`")]
    Max(f64),
    #[error("`minCeiling` must be below `maxCeiling`, found `{min}` and `{max}`")]
    Order { min: f64, max: f64 },
}

impl Plugin for PriorityHoldback {
    const TYPE: &'static str = "priority-holdback-policy";
    const SUMMARY: &'static str = "holds room back for higher priorities: the lower the band, the lower its ceiling";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "shape",
            default: "\"linear\"",
            summary: "how the ceilings fall; only `linear`",
        },
        Parameter {
            name: "domain",
            default: "\"rank\"",
            summary: "what they fall over: `rank`, the places of the bands, or `value`, their priorities",
        },
        Parameter {
            name: "minCeiling",
            default: "null",
            summary: "ceiling of the lowest band; required; at least 0, below 1 and below `maxCeiling`",
        },
        Parameter {
            name: "maxCeiling",
            default: "1.0",
            summary: "ceiling of the highest band; above 0, at most 1",
        },
    ];
    const STABILITY: Stability = Stability::Alpha;
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let Params {
            shape: Shape::Linear,
            domain,
            min_ceiling,
            max_ceiling: max,
        } = params;
        let min = min_ceiling.ok_or(Error::NoMin)?;
        if !(0.0..1.0).contains(&min) {
            return Err(Error::Min(min));
        }
        if !(max > 0.0 && max <= 1.0) {
            return Err(Error::Max(max));
        }
        if min >= max {
            return Err(Error::Order { min, max });
        }
        Ok(Self { domain, min, max })
    }
}

impl UsageLimitPolicy for PriorityHoldback {
    fn ceilings(&mut self, _: f64, priorities: &[i32], ceilings: &mut [f64]) {
        let (Some(&highest), Some(&lowest)) = (priorities.first(), priorities.last()) else {
            return;
        };
        let range = self.max - self.min;
        let span = f64::from(highest) - f64::from(lowest);
        if span == 0.0 {
            ceilings.fill(self.max);
            return;
        }
        let steps = (priorities.len() - 1) as f64;
        for (rank, (ceiling, &priority)) in ceilings.iter_mut().zip(priorities).enumerate() {
            *ceiling = match self.domain {
                Domain::Rank => self.max - rank as f64 * range / steps,
                Domain::Value => self.min + (f64::from(priority) - f64::from(lowest)) / span * range,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::*;

    fn ceilings(params: &Value, priorities: &[i32]) -> Vec<f64> {
        let mut policy: PriorityHoldback = instance(Some(params), &mut Needs::default()).unwrap();
        let mut ceilings = vec![1.0; priorities.len()];
        policy.ceilings(0.5, priorities, &mut ceilings);
        ceilings
    }

    #[test]
    fn by_rank_the_bands_are_evenly_spaced() {
        let params = json!({"minCeiling": 0.4});

        assert_eq!(ceilings(&params, &[100, 10, 0]), [1.0, 0.7, 0.4]);
    }

    #[test]
    fn by_rank_the_ceiling_at_place_i_of_n_is_one_less_i_parts_of_what_is_held_back() {
        let (lowest, bands) = (0.7, [4, 3, 0, -1, -2, -3]);
        let expected = (0..bands.len()).map(|i| 1.0 - i as f64 * (1.0 - lowest) / (bands.len() - 1) as f64);

        // Spec, simulator 8.4.
        assert_eq!(
            ceilings(&json!({"minCeiling": lowest}), &bands),
            expected.collect::<Vec<_>>()
        );
    }

    #[test]
    fn by_value_the_bands_are_spaced_as_their_priorities_are() {
        let params = json!({"minCeiling": 0.4, "domain": "value"});

        let ceilings = ceilings(&params, &[100, 10, 0]);

        let expected = [1.0, 0.46, 0.4];
        assert!(
            ceilings.iter().zip(expected).all(|(c, e)| (c - e).abs() < 1e-12),
            "{ceilings:?}"
        );
    }

    #[test]
    fn a_band_alone_has_the_highest_ceiling() {
        for domain in ["rank", "value"] {
            let params = json!({"minCeiling": 0.4, "maxCeiling": 0.9, "domain": domain});

            assert_eq!(ceilings(&params, &[7]), [0.9]);
        }
    }

    #[test]
    fn ceilings_outside_their_ranges_are_refused() {
        let refusal = |params: Value| {
            let refused = instance::<PriorityHoldback>(Some(&params), &mut Needs::default());
            refused.unwrap_err().message
        };

        assert_eq!(
            refusal(json!({})),
            "`minCeiling` is missing: the ceiling of the lowest band, at least 0 and below 1"
        );
        assert_eq!(
            refusal(json!({"minCeiling": 1})),
            "`minCeiling` must be at least 0 and below 1, found `1`"
        );
        assert_eq!(
            refusal(json!({"minCeiling": 0.2, "maxCeiling": 1.1})),
            "`maxCeiling` must be above 0 and at most 1, found `1.1`"
        );
        assert_eq!(
            refusal(json!({"minCeiling": 0.5, "maxCeiling": 0.5})),
            "`minCeiling` must be below `maxCeiling`, found `0.5` and `0.5`"
        );
        assert!(refusal(json!({"minCeiling": 0.5, "shape": "cubic"})).contains("expected `linear`"));
    }
}
