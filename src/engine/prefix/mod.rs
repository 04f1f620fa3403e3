//! Which endpoint has probably cached which prefix.
//!
//! A prompt is cut in blocks, and each block is named by a hash that also covers everything before it
//! ([`hash`]). Whoever served a chain of blocks is remembered, up to a bound ([`index`]); how many blocks of a new
//! prompt an endpoint has served before is its *match*. The index is a guess: it does not see what the server evicts.

pub mod hash;
pub mod index;

pub use hash::{BlockHasher, BlockLayout, PromptBlocks};
pub use index::{IndexLimits, PrefixIndex};

/// Tokens of a block, at the least, whatever a configuration or an engine says (spec, scheduling 9.2).
pub const MIN_BLOCK_TOKENS: u32 = 64;
