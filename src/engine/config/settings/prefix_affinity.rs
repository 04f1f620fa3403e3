//! What the prefix index of the simulator's kind is set to.

use std::num::{NonZeroU32, NonZeroUsize};

use serde::Deserialize;

use super::super::super::plugin::{Needs, PREFIX_AFFINITY_PRODUCER, Parameter, Plugin};
use super::Producer;

/// Settings of one prefix index that counts full blocks from the start of a prompt (spec, simulator 10.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixAffinityParams {
    /// Tokens of a block, exactly.
    pub block_size_tokens: NonZeroU32,
    /// Blocks remembered of an endpoint.
    pub capacity: NonZeroUsize,
}

impl Default for PrefixAffinityParams {
    fn default() -> Self {
        Self {
            block_size_tokens: const { NonZeroU32::new(16).expect("it is not zero") },
            capacity: const { NonZeroUsize::new(10_000).expect("it is not zero") },
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    block_size_tokens: i64,
    lru_capacity_per_server: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            block_size_tokens: 16,
            lru_capacity_per_server: 10_000,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{name}` must be above 0, found `{value}`")]
pub struct Error {
    name: &'static str,
    value: i64,
}

impl Plugin for PrefixAffinityParams {
    const TYPE: &'static str = PREFIX_AFFINITY_PRODUCER;
    const SUMMARY: &'static str = "guesses from the requests served who has cached which prefix, in full blocks from the \
                                   start of the prompt to the first that is missing";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "blockSizeTokens",
            default: "16",
            summary: "tokens of a block, exactly; above 0",
        },
        Parameter {
            name: "lruCapacityPerServer",
            default: "10000",
            summary: "blocks remembered of each endpoint; above 0",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let above_zero = |name, value: i64| {
            usize::try_from(value)
                .ok()
                .and_then(NonZeroUsize::new)
                .ok_or(Error { name, value })
        };
        let block = above_zero("blockSizeTokens", params.block_size_tokens)?;
        Ok(Self {
            block_size_tokens: NonZeroU32::try_from(block).unwrap_or(NonZeroU32::MAX),
            capacity: above_zero("lruCapacityPerServer", params.lru_capacity_per_server)?,
        })
    }
}

impl From<PrefixAffinityParams> for Producer {
    fn from(params: PrefixAffinityParams) -> Self {
        Self::PrefixAffinity(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::*;

    fn made(params: &Value) -> Result<PrefixAffinityParams, String> {
        instance(Some(params), &mut Needs::default()).map_err(|error| error.message)
    }

    #[test]
    fn the_default_is_what_comes_of_no_parameters() {
        assert_eq!(made(&json!({})), Ok(PrefixAffinityParams::default()));
    }

    #[test]
    fn blocks_may_be_as_small_as_one_token_and_no_smaller() {
        let block = |size: i64| made(&json!({"blockSizeTokens": size})).map(|made| made.block_size_tokens.get());

        assert_eq!(block(1), Ok(1));
        assert_eq!(block(0), Err("`blockSizeTokens` must be above 0, found `0`".to_owned()));
    }

    #[test]
    fn an_index_that_remembers_nothing_is_refused() {
        let refusal = made(&json!({"lruCapacityPerServer": -1})).unwrap_err();

        assert_eq!(refusal, "`lruCapacityPerServer` must be above 0, found `-1`");
    }
}
