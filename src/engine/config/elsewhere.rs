//! Plugin types that llm-d has and this version has not, so that they are not taken for slips.

/// Such types, and what kind of plugin each is. A type leaves this list when it enters a table.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("disagg-profile-handler", "profile handler"),
    ("pd-profile-handler", "profile handler"),
    ("data-parallel-profile-handler", "profile handler"),
    ("header-profile-handler", "profile handler"),
    ("always-disagg-pd-decider", "decider"),
    ("prefix-based-pd-decider", "decider"),
    ("always-disagg-multimodal-decider", "decider"),
    ("disagg-headers-handler", "pre-request plugin"),
    ("prefill-header-handler", "pre-request plugin"),
    ("by-label", "filter"),
    ("slo-headroom-tier-filter", "filter"),
    ("header-based-testing-filter", "filter"),
    ("session-affinity-filter", "filter"),
    ("endpoint-attribute-filter", "filter"),
    ("topology-affinity-filter", "filter"),
    ("utilization-filter", "filter"),
    ("multicluster-session-affinity-filter", "filter"),
    ("mm-embeddings-cache-scorer", "scorer"),
    ("latency-scorer", "scorer"),
    ("context-length-aware", "scorer"),
    ("session-affinity-scorer", "scorer"),
    ("header-label-affinity-scorer", "scorer"),
    ("endpoint-attribute-scorer", "scorer"),
    ("topology-affinity-scorer", "scorer"),
    ("multicluster-queue-scorer", "scorer"),
    ("multicluster-kv-cache-utilization-scorer", "scorer"),
    ("multicluster-prefix-cache-scorer", "scorer"),
    ("predicted-latency-producer", "data producer"),
    ("mm-embeddings-cache-producer", "data producer"),
    ("session-id-producer", "data producer"),
    ("burst-prefix-cache-producer", "data producer"),
    ("p2p-source-producer", "data producer"),
    ("multicluster-approx-prefix-cache-producer", "data producer"),
    ("latency-slo-admitter", "admitter"),
    ("probabilistic-admitter", "admitter"),
    ("disaggregatedset-rollout-screener", "screener"),
    ("agent-identity", "request header processor"),
    ("request-attribute-reporter", "response plugin"),
    ("destination-endpoint-served-verifier", "response plugin"),
    ("models-data-source", "data source"),
    ("dcgm-data-source", "data source"),
    ("multicluster-metrics-data-source", "data source"),
    ("k8s-notification-source", "data source"),
    ("models-data-extractor", "extractor"),
    ("dcgm-extractor", "extractor"),
    ("topology-extractor", "extractor"),
    ("multicluster-metrics-extractor", "extractor"),
    ("multicluster-file-discovery", "discovery"),
    ("sglanghttp-parser", "parser"),
    ("vllmgrpc-parser", "parser"),
    ("vertexai-parser", "parser"),
    ("sheddable-eviction-filter", "eviction policy"),
    ("priority-then-time-eviction-order-policy", "eviction policy"),
];

/// Data sources of llm-d that are accepted and nobody needs here, and why.
pub(super) const UNNEEDED_SOURCES: &[(&str, &str)] = &[(
    "endpoint-notification-source",
    "plugins are told which endpoints come and go without a source for it",
)];

/// Why a data source of llm-d is accepted without effect, if it is.
pub(super) fn unneeded_source(type_name: &str) -> Option<&'static str> {
    let (_, why) = UNNEEDED_SOURCES.iter().find(|(name, _)| *name == type_name)?;
    Some(why)
}

/// Types that llm-d and the Gateway API Inference Extension had once, and what does their work now.
const GONE: &[(&str, &str)] = &[
    (
        "low-queue-filter",
        "name `queue-scorer` in the profile, or `utilization-detector` as a filter",
    ),
    ("least-queue-filter", "name `queue-scorer` in the profile"),
    (
        "least-kv-cache-filter",
        "name `kv-cache-utilization-scorer` in the profile",
    ),
    ("lora-affinity-filter", "name `lora-affinity-scorer` in the profile"),
    (
        "decision-tree-filter",
        "name its filters in the profile, one after the other",
    ),
    (
        "slo-aware-routing",
        "llm-d calls it `latency-scorer`, which this version of forebay does not have",
    ),
    (
        "slo-aware-profile-handler",
        "leave it out: one profile needs no handler",
    ),
    (
        "predicted-latency-scorer",
        "llm-d calls it `latency-scorer`, which this version of forebay does not have",
    ),
    (
        "model-server-protocol-models",
        "llm-d calls it `models-data-extractor`, which this version of forebay does not have",
    ),
    (
        "eviction-sheddable-filter",
        "leave it out, and write `flowControl.enableEviction: true`",
    ),
    (
        "eviction-priority-then-time-ordering",
        "leave it out, and write `flowControl.enableEviction: true`",
    ),
    (
        "kvcache-aware-scorer",
        "name `precise-prefix-cache-scorer` in the profile",
    ),
    ("prefix-aware-scorer", "name `prefix-cache-scorer` in the profile"),
];

/// What does the work of a type that there was once.
pub(super) fn successor(type_name: &str) -> Option<&'static str> {
    let (_, successor) = GONE.iter().find(|(name, _)| *name == type_name)?;
    Some(successor)
}

/// What kind of plugin a type is that llm-d has and this version has not.
pub(super) fn kind_elsewhere(type_name: &str) -> Option<&'static str> {
    let (_, kind) = ELSEWHERE.iter().find(|(name, _)| *name == type_name)?;
    Some(kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::catalog::{ALIASES, catalog};
    use super::*;

    #[test]
    fn what_is_here_is_not_elsewhere() {
        for entry in catalog() {
            assert_eq!(kind_elsewhere(entry.type_name), None, "{}", entry.type_name);
            assert_eq!(unneeded_source(entry.type_name), None, "{}", entry.type_name);
        }
    }

    #[test]
    fn all_types_of_the_reference_are_known() {
        let catalog = catalog();
        let here = catalog.iter().map(|entry| entry.type_name);
        let all: BTreeSet<_> = here
            .chain(ELSEWHERE.iter().map(|(name, _)| *name))
            .chain(UNNEEDED_SOURCES.iter().map(|(name, _)| *name))
            .chain(ALIASES.iter().map(|(old, _)| *old))
            .collect();

        // So many the reference registers (spec, scheduling 1).
        assert!(all.len() >= 97, "{}", all.len());
    }
}
