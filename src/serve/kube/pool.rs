//! From a pool of either API group to what matters of it (spec, kubernetes 2).

use std::collections::BTreeMap;

use kube::core::Selector;

use super::api::{InferencePool, OldInferencePool};

/// What a pool says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolFacts {
    /// Labels that its pods have.
    pub(super) labels: BTreeMap<String, String>,
    /// Labels of its own, by which objectives may select it.
    pub(super) own_labels: BTreeMap<String, String>,
    /// The ports of each pod, in the order of their ranks.
    pub(super) ports: Vec<u16>,
}

impl PoolFacts {
    /// The labels as a selector in text.
    pub(super) fn selector(&self) -> String {
        let labels = self.labels.clone();
        labels.into_iter().collect::<Selector>().to_string()
    }

    /// `None` if the pool was asked to go. Its labels and ports were checked when it was read.
    pub(super) fn of(pool: InferencePool) -> Option<Self> {
        let ports = pool.spec.target_ports.iter().map(|port| port.number);
        pool.metadata.deletion_timestamp.is_none().then(|| Self {
            ports: ports.filter_map(|port| u16::try_from(port).ok()).collect(),
            labels: pool.spec.selector.match_labels,
            own_labels: pool.metadata.labels.unwrap_or_default(),
        })
    }

    /// The same of the older group.
    pub(super) fn of_old(pool: OldInferencePool) -> Option<Self> {
        pool.metadata.deletion_timestamp.is_none().then(|| Self {
            ports: u16::try_from(pool.spec.target_port_number).ok().into_iter().collect(),
            labels: pool.spec.selector,
            own_labels: pool.metadata.labels.unwrap_or_default(),
        })
    }
}
