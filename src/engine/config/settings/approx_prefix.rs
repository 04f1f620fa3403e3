//! What the approximate prefix index is set to.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, Needs, Parameter, Plugin};
use super::super::super::prefix::MIN_BLOCK_TOKENS;
use super::Producer;

/// Settings of one approximate prefix index (spec, scheduling 9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproxPrefixParams {
    /// Whether block size and capacity are what the engines report, where they do.
    pub auto_tune: bool,
    /// Tokens of a block where the engine does not decide; at least [`MIN_BLOCK_TOKENS`].
    pub block_size_tokens: u32,
    /// How much of a prompt is looked at.
    pub limit: MatchLimit,
    /// Blocks remembered of an endpoint where the engine does not decide. Not zero.
    pub capacity: usize,
}

/// How much of a prompt is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchLimit {
    /// The blocks that are full within so many tokens.
    Tokens(NonZeroU32),
    /// So many blocks.
    Blocks(NonZeroU32),
    /// All of it.
    Unlimited,
}

impl Default for ApproxPrefixParams {
    fn default() -> Self {
        Self {
            auto_tune: true,
            block_size_tokens: MIN_BLOCK_TOKENS,
            limit: MatchLimit::Tokens(DEFAULT_MATCH_TOKENS),
            capacity: DEFAULT_CAPACITY,
        }
    }
}

impl ApproxPrefixParams {
    /// Blocks of a prompt that are looked at when a block has `block_tokens` tokens; `None` for all. At least one.
    pub fn max_blocks(&self, block_tokens: u32) -> Option<u32> {
        match self.limit {
            MatchLimit::Tokens(tokens) => Some((tokens.get() / block_tokens.max(1)).max(1)),
            MatchLimit::Blocks(blocks) => Some(blocks.get()),
            MatchLimit::Unlimited => None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Params {
    auto_tune: bool,
    block_size_tokens: i64,
    block_size: i64,
    max_prefix_tokens_to_match: i64,
    max_prefix_blocks_to_match: i64,
    lru_capacity_per_server: i64,
}

const DEFAULT_BLOCK_TOKENS: i64 = 16;
const DEFAULT_MATCH_TOKENS: NonZeroU32 = NonZeroU32::new(131_072).expect("it is not zero");
const DEFAULT_CAPACITY: usize = 31_250;

impl Default for Params {
    fn default() -> Self {
        Self {
            auto_tune: true,
            block_size_tokens: DEFAULT_BLOCK_TOKENS,
            block_size: 0,
            max_prefix_tokens_to_match: DEFAULT_MATCH_TOKENS.get().into(),
            max_prefix_blocks_to_match: 2048,
            lru_capacity_per_server: 31_250,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`blockSizeTokens` must be above 0 when `autoTune` is off, found `{0}`")]
    BlockSize(i64),
    #[error("`{name}` must not be negative, found `{value}`")]
    Negative { name: &'static str, value: i64 },
}

impl Params {
    /// Says what is not taken as it is written.
    fn remark_on(&self, needs: &mut Needs) {
        if self.block_size != 0 {
            let message = match self.block_size_tokens == self.block_size_tokens() {
                true => "`blockSize` is deprecated, and has no effect beside `blockSizeTokens`",
                false => "`blockSize` is deprecated; write `blockSizeTokens`",
            };
            needs.remark("blockSize", message);
        }
        let size = self.block_size_tokens();
        if size < MIN_BLOCK_TOKENS.into() && size != DEFAULT_BLOCK_TOKENS {
            let message = format!("a block has at least {MIN_BLOCK_TOKENS} tokens here: `{size}` counts as that");
            needs.remark(
                if self.block_size > 0 {
                    "blockSize"
                } else {
                    "blockSizeTokens"
                },
                message,
            );
        }
        let usual = Self::default();
        if self.max_prefix_blocks_to_match != usual.max_prefix_blocks_to_match && self.max_prefix_tokens_to_match > 0 {
            let message = "`maxPrefixBlocksToMatch` has no effect unless `maxPrefixTokensToMatch` is 0";
            needs.remark("maxPrefixBlocksToMatch", message);
        }
    }

    fn block_size_tokens(&self) -> i64 {
        if self.block_size > 0 && self.block_size_tokens == DEFAULT_BLOCK_TOKENS {
            self.block_size
        } else {
            self.block_size_tokens
        }
    }

    fn limit(&self) -> Result<MatchLimit, Error> {
        let count = |name, value: i64| match u64::try_from(value) {
            Ok(value) => Ok(NonZeroU32::new(u32::try_from(value).unwrap_or(u32::MAX))),
            Err(_) => Err(Error::Negative { name, value }),
        };
        let tokens = count("maxPrefixTokensToMatch", self.max_prefix_tokens_to_match)?;
        let blocks = count("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match)?;
        Ok(match (tokens, blocks) {
            (Some(tokens), _) => MatchLimit::Tokens(tokens),
            (None, Some(blocks)) => MatchLimit::Blocks(blocks),
            (None, None) => MatchLimit::Unlimited,
        })
    }
}

impl Plugin for ApproxPrefixParams {
    const TYPE: &'static str = DEFAULT_PREFIX_PRODUCER;
    const SUMMARY: &'static str = "guesses from the requests served who has cached which prefix";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "autoTune",
            default: "true",
            summary: "takes block size and capacity from the metrics of the engines, where they report them",
        },
        Parameter {
            name: "blockSizeTokens",
            default: "16",
            summary: "tokens of a block; values below 64 act as 64",
        },
        Parameter {
            name: "blockSize",
            default: "0",
            summary: "deprecated: `blockSizeTokens`; counts when above 0 and the other is not set",
        },
        Parameter {
            name: "maxPrefixTokensToMatch",
            default: "131072",
            summary: "tokens of a prompt that are looked at; 0 leaves it to `maxPrefixBlocksToMatch`",
        },
        Parameter {
            name: "maxPrefixBlocksToMatch",
            default: "2048",
            summary: "blocks of a prompt that are looked at when `maxPrefixTokensToMatch` is 0; 0 for all",
        },
        Parameter {
            name: "lruCapacityPerServer",
            default: "31250",
            summary: "blocks remembered of each endpoint; 0 and below act as 31250",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        params.remark_on(needs);
        let block_size_tokens = params.block_size_tokens();
        if !params.auto_tune && block_size_tokens <= 0 {
            return Err(Error::BlockSize(block_size_tokens));
        }
        let usual = i64::try_from(DEFAULT_CAPACITY).expect("it is small");
        let capacity = needs.positive_or("lruCapacityPerServer", params.lru_capacity_per_server, usual);
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Ok(Self {
            auto_tune: params.auto_tune,
            block_size_tokens: u32::try_from(block_size_tokens.max(0))
                .unwrap_or(u32::MAX)
                .max(MIN_BLOCK_TOKENS),
            limit: params.limit()?,
            capacity,
        })
    }
}

impl From<ApproxPrefixParams> for Producer {
    fn from(params: ApproxPrefixParams) -> Self {
        Self::ApproxPrefix(params)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::*;

    fn made(params: &Value) -> Result<ApproxPrefixParams, String> {
        instance(Some(params), &mut Needs::default()).map_err(|error| error.message)
    }

    #[test]
    fn the_old_name_of_the_block_size_counts_only_where_the_new_one_is_not_set() {
        let block = |params| made(&params).unwrap().block_size_tokens;

        assert_eq!(block(json!({"blockSize": 128})), 128);
        assert_eq!(block(json!({"blockSize": 128, "blockSizeTokens": 256})), 256);
        assert_eq!(block(json!({"blockSizeTokens": 8})), 64);
    }

    #[test]
    fn the_default_is_what_comes_of_no_parameters() {
        assert_eq!(made(&json!({})), Ok(ApproxPrefixParams::default()));
    }

    #[test]
    fn blocks_are_limited_by_tokens_unless_those_are_zero() {
        let blocks = |params| made(&params).unwrap().max_blocks(64);

        assert_eq!(blocks(json!({})), Some(2048));
        assert_eq!(blocks(json!({"maxPrefixTokensToMatch": 640})), Some(10));
        assert_eq!(
            blocks(json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 7})),
            Some(7)
        );
        assert_eq!(
            blocks(json!({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0})),
            None
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(
            made(&json!({"autoTune": false, "blockSizeTokens": 0})).unwrap_err(),
            "`blockSizeTokens` must be above 0 when `autoTune` is off, found `0`"
        );
        assert_eq!(
            made(&json!({"maxPrefixTokensToMatch": -1})).unwrap_err(),
            "`maxPrefixTokensToMatch` must not be negative, found `-1`"
        );
    }
}
