//! Scorers: opinions on how well each candidate would serve.

mod active_request;
mod busiest;
mod kv_cache_utilization;
mod least;
mod load_aware;
mod load_balance;
mod lora_affinity;
mod no_hit_lru;
mod precise_prefix;
mod prefix_affinity;
mod prefix_cache;
mod queue;
mod queue_depth;
mod running_requests;
mod token_load;
mod vllm_dp;

use super::super::plugin::{Entry, Plugin, instance};
use super::Scorer;

/// Every scorer. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn Scorer>] = &[
    entry::<queue::QueueScorer>(),
    entry::<queue_depth::QueueDepthScorer>(),
    entry::<load_balance::LoadBalanceScorer>(),
    entry::<load_aware::LoadAwareScorer>(),
    entry::<active_request::ActiveRequestScorer>(),
    entry::<token_load::TokenLoadScorer>(),
    entry::<vllm_dp::VllmDpScorer>(),
    entry::<running_requests::RunningRequestsScorer>(),
    entry::<kv_cache_utilization::KvCacheUtilizationScorer>(),
    entry::<prefix_cache::PrefixCacheScorer>(),
    entry::<prefix_affinity::PrefixAffinityScorer>(),
    entry::<precise_prefix::PrecisePrefixScorer>(),
    entry::<no_hit_lru::NoHitLruScorer>(),
    entry::<lora_affinity::LoraAffinityScorer>(),
    entry::<busiest::BusiestScorer>(),
];

/// The type of the scorer that reads what endpoints have cached.
pub const PRECISE_PREFIX_SCORER: &str = precise_prefix::PrecisePrefixScorer::TYPE;

/// The type of the scorer that reads what endpoints served, in full blocks from the start of a prompt.
pub const PREFIX_AFFINITY_SCORER: &str = prefix_affinity::PrefixAffinityScorer::TYPE;

const fn entry<P: Plugin + Scorer + 'static>() -> Entry<dyn Scorer> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
