//! What the knowledge of cached blocks is set to.

use std::num::NonZeroU32;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::super::super::plugin::{Needs, PRECISE_PREFIX_PRODUCER, Parameter, Plugin};
use super::Producer;

/// Settings of what is known of cached blocks (spec, scheduling 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrecisePrefixParams {
    /// Tokens of a block, exactly: as many as the servers cache together.
    pub block_size_tokens: NonZeroU32,
}

const DEFAULT_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("it is not zero");

impl Default for PrecisePrefixParams {
    fn default() -> Self {
        Self {
            block_size_tokens: DEFAULT_BLOCK_TOKENS,
        }
    }
}

/// What the user may write. Beside the size of a block, all of it is about where the events come from and how they are
/// read, and is accepted for the sake of configurations that have it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    token_processor_config: Option<TokenProcessor>,
    indexer_config: Option<Value>,
    kv_events_config: Option<Value>,
    speculative_indexing: Option<Value>,
    #[serde(rename = "speculativeTTL")]
    speculative_ttl: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TokenProcessor {
    block_size_tokens: i64,
    block_size: i64,
    #[serde(rename = "hashSeed")]
    _seed: Option<IgnoredAny>,
    #[serde(rename = "hashAlgorithm")]
    _algorithm: Option<IgnoredAny>,
}

impl Params {
    pub const DESCRIBED: [Parameter; 5] = [
        Parameter {
            name: "tokenProcessorConfig",
            default: "{}",
            summary: "`blockSizeTokens`: tokens of a block in the caches of the servers, 16 if it is 0 or missing; \
                      `blockSize` is its old name. `hashSeed` and `hashAlgorithm` are accepted",
        },
        Parameter {
            name: "indexerConfig",
            default: "{}",
            summary: "accepted, without effect",
        },
        Parameter {
            name: "kvEventsConfig",
            default: "{}",
            summary: "accepted, without effect: this version does not listen to the events of servers",
        },
        Parameter {
            name: "speculativeIndexing",
            default: "false",
            summary: "accepted, without effect",
        },
        Parameter {
            name: "speculativeTTL",
            default: "\"2s\"",
            summary: "accepted, without effect",
        },
    ];
}

#[derive(Debug, thiserror::Error)]
#[error("`tokenProcessorConfig`: `{name}` must not be negative, found `{value}`")]
pub struct Error {
    name: &'static str,
    value: i64,
}

impl Plugin for PrecisePrefixParams {
    const TYPE: &'static str = PRECISE_PREFIX_PRODUCER;
    const SUMMARY: &'static str = "knows who has cached which prefix from what the servers store and evict; only the \
                                   simulator tells it so far";
    const PARAMETERS: &'static [Parameter] = &Params::DESCRIBED;
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let ignored = [
            ("indexerConfig", &params.indexer_config),
            ("kvEventsConfig", &params.kv_events_config),
            ("speculativeIndexing", &params.speculative_indexing),
            ("speculativeTTL", &params.speculative_ttl),
        ];
        for (name, value) in ignored {
            needs.without_effect(
                name,
                value.as_ref(),
                "this version does not listen to the events of servers",
            );
        }
        let processor = params.token_processor_config.unwrap_or_default();
        let size = |name, value: i64| match u64::try_from(value) {
            Ok(size) => Ok(NonZeroU32::new(u32::try_from(size).unwrap_or(u32::MAX))),
            Err(_) => Err(Error { name, value }),
        };
        let (size, old) = (
            size("blockSizeTokens", processor.block_size_tokens)?,
            size("blockSize", processor.block_size)?,
        );
        Ok(Self {
            block_size_tokens: size.or(old).unwrap_or(DEFAULT_BLOCK_TOKENS),
        })
    }
}

impl From<PrecisePrefixParams> for Producer {
    fn from(params: PrecisePrefixParams) -> Self {
        Self::PrecisePrefix(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::*;

    fn block(processor: &Value) -> Result<u32, String> {
        let params = json!({"tokenProcessorConfig": processor});
        let made = instance::<PrecisePrefixParams>(Some(&params), &mut Needs::default());
        made.map(|made| made.block_size_tokens.get())
            .map_err(|error| error.message)
    }

    #[test]
    fn the_size_of_a_block_has_an_old_name_and_a_default() {
        assert_eq!(block(&json!({})), Ok(16));
        assert_eq!(block(&json!({"blockSize": 32})), Ok(32));
        assert_eq!(
            block(&json!({"blockSize": 32, "blockSizeTokens": 64, "hashSeed": "0"})),
            Ok(64)
        );
        assert_eq!(
            block(&json!({"blockSizeTokens": -1})),
            Err("`tokenProcessorConfig`: `blockSizeTokens` must not be negative, found `-1`".to_owned())
        );
    }
}
