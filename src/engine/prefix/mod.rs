//! Which endpoint has which prefix cached.
//!
//! A prompt is cut in blocks, and each block is named by a hash that also covers everything before it
//! ([`hash`]). Whoever served a chain of blocks is remembered, up to a bound ([`index`]); how many blocks of a new
//! prompt an endpoint has served before is its *match*. That is a guess: it does not see what the server evicts. Where the
//! servers tell what they store and evict, there is no need to guess ([`cache`]).

pub mod cache;
pub mod hash;
mod holders;
pub mod index;

pub use cache::CacheIndex;
pub use hash::{BlockHasher, BlockLayout, HashKey, PromptBlocks};
pub use holders::Matching;
pub use index::{IndexLimits, PrefixIndex};

/// Tokens of a block of the approximate producer, at the least, whatever a configuration or an engine says (spec,
/// scheduling 9.2).
pub const MIN_BLOCK_TOKENS: u32 = 64;
