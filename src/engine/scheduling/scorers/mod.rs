//! Scorers: opinions on how well each candidate would serve.

mod kv_cache_utilization;
mod least;
mod lora_affinity;
mod prefix_cache;
mod queue;
mod running_requests;

use super::super::plugin::{Entry, Plugin, instance};
use super::Scorer;

/// Every scorer. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn Scorer>] = &[
    entry::<queue::QueueScorer>(),
    entry::<running_requests::RunningRequestsScorer>(),
    entry::<kv_cache_utilization::KvCacheUtilizationScorer>(),
    entry::<prefix_cache::PrefixCacheScorer>(),
    entry::<lora_affinity::LoraAffinityScorer>(),
];

const fn entry<P: Plugin + Scorer + 'static>() -> Entry<dyn Scorer> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
