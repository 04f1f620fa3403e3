//! The state of an instance in numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a router looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sequences that wait.
    pub waiting: u32,
    /// Sequences in the batch.
    pub running: u32,
    /// KV blocks that a sequence holds.
    pub kv_used_blocks: u32,
    /// KV blocks of the cache.
    pub kv_total_blocks: u32,
    /// Preemptions so far.
    pub preemptions: u64,
}

/// What a metrics page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Queue, batch and cache.
    pub load: Load,
    /// Prompt tokens looked up in the prefix cache so far.
    pub prefix_queried_tokens: u64,
    /// Those of them that were found.
    pub prefix_cached_tokens: u64,
    /// Running sequences by adapter, the base model left out.
    pub running_adapters: BTreeMap<Arc<str>, u32>,
    /// Waiting sequences by adapter, the base model left out.
    pub waiting_adapters: BTreeMap<Arc<str>, u32>,
}

impl Load {
    /// Share of the KV blocks in use, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.kv_used_blocks) / f64::from(self.kv_total_blocks.max(1))
    }
}
