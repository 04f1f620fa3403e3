//! What counts as load in flight.

use serde::Deserialize;

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, Needs, Parameter, Plugin};
use super::Producer;

/// Settings of the in-flight load (spec, scheduling 9.4).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InflightLoadParams {
    /// Counts the tokens that an answer will probably have, too.
    pub add_estimated_output_tokens: bool,
    /// Tokens of an answer for each token of its prompt.
    pub output_ratio: f64,
    /// The most tokens that an answer is counted with.
    pub max_estimated_output_tokens: Option<i64>,
    /// Instance whose prefix matches are taken off the load.
    pub prefix_match_info_producer_name: String,
    /// Without effect for want of a syncer between replicas.
    pub sync_cross_replica_state: bool,
}

impl Default for InflightLoadParams {
    fn default() -> Self {
        Self {
            add_estimated_output_tokens: false,
            output_ratio: 1.5,
            max_estimated_output_tokens: None,
            prefix_match_info_producer_name: DEFAULT_PREFIX_PRODUCER.to_owned(),
            sync_cross_replica_state: true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`outputRatio` must not be negative, found `{0}`")]
    Ratio(f64),
    #[error("`maxEstimatedOutputTokens` must not be negative, found `{0}`")]
    Max(i64),
}

impl Plugin for InflightLoadParams {
    const TYPE: &'static str = "inflight-load-producer";
    const SUMMARY: &'static str = "counts requests and tokens in flight to each endpoint";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "addEstimatedOutputTokens",
            default: "false",
            summary: "counts the tokens that an answer will probably have, too",
        },
        Parameter {
            name: "outputRatio",
            default: "1.5",
            summary: "tokens of an answer for each token of its prompt; not negative",
        },
        Parameter {
            name: "maxEstimatedOutputTokens",
            default: "null",
            summary: "the most tokens that an answer is counted with; not negative",
        },
        Parameter {
            name: "prefixMatchInfoProducerName",
            default: "\"approx-prefix-cache-producer\"",
            summary: "instance name of the data producer whose matches are taken off the load",
        },
        Parameter {
            name: "syncCrossReplicaState",
            default: "true",
            summary: "accepted; nothing synchronises replicas",
        },
    ];
    type Params = Self;
    type Error = Error;

    fn from_params(params: Self, needs: &mut Needs) -> Result<Self, Error> {
        if !params.add_estimated_output_tokens {
            let usual = Self::default();
            let given = [
                (
                    "outputRatio",
                    params.output_ratio.total_cmp(&usual.output_ratio).is_ne(),
                ),
                ("maxEstimatedOutputTokens", params.max_estimated_output_tokens.is_some()),
            ];
            for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                needs.remark(
                    name,
                    format!("`{name}` has no effect without `addEstimatedOutputTokens: true`"),
                );
            }
        }
        if params.output_ratio < 0.0 {
            return Err(Error::Ratio(params.output_ratio));
        }
        match params.max_estimated_output_tokens {
            Some(max) if max < 0 => Err(Error::Max(max)),
            _ => Ok(params),
        }
    }
}

impl From<InflightLoadParams> for Producer {
    fn from(params: InflightLoadParams) -> Self {
        Self::InflightLoad(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::*;

    #[test]
    fn negative_counts_are_refused() {
        let refusal = |params: Value| instance::<InflightLoadParams>(Some(&params), &mut Needs::default()).unwrap_err();

        assert_eq!(
            refusal(json!({"outputRatio": -0.5})).message,
            "`outputRatio` must not be negative, found `-0.5`"
        );
        assert_eq!(
            refusal(json!({"maxEstimatedOutputTokens": -1})).message,
            "`maxEstimatedOutputTokens` must not be negative, found `-1`"
        );
    }
}
