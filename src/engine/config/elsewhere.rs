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
    ("endpoint-notification-source", "data source"),
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
        }
    }

    #[test]
    fn all_types_of_the_reference_are_known() {
        let catalog = catalog();
        let here = catalog.iter().map(|entry| entry.type_name);
        let all: BTreeSet<_> = here
            .chain(ELSEWHERE.iter().map(|(name, _)| *name))
            .chain(ALIASES.iter().map(|(old, _)| *old))
            .collect();

        // So many the reference registers (spec, scheduling 1).
        assert!(all.len() >= 97, "{}", all.len());
    }
}
