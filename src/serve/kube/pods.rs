//! From a pod to endpoints (spec, kubernetes 9).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tracing::warn;

use crate::engine::pool::{Endpoint, EndpointId};

/// The annotation with the ports of a pod that serve, and its older name.
const ACTIVE_PORTS: [&str; 2] = ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"];

/// What matters of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodFacts {
    pub(super) name: Arc<str>,
    pub(super) labels: BTreeMap<String, String>,
    address: Option<IpAddr>,
    /// It says that it is ready, and nobody has asked it to go.
    is_ready: bool,
    active: ActivePorts,
}

/// The ports of a pod that serve.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ActivePorts {
    All,
    Only(Vec<u16>),
}

impl PodFacts {
    /// `None` if the pod has no name, which no API server allows.
    pub(super) fn of(pod: Pod) -> Option<Self> {
        let metadata = pod.metadata;
        let status = pod.status.unwrap_or_default();
        let says_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let annotations = metadata.annotations.unwrap_or_default();
        let active = ACTIVE_PORTS.iter().find_map(|name| annotations.get(*name));
        Some(Self {
            name: metadata.name?.into(),
            labels: metadata.labels.unwrap_or_default(),
            address: status.pod_ip.as_deref().and_then(|ip| ip.parse().ok()),
            is_ready: says_ready && metadata.deletion_timestamp.is_none(),
            active: active.map_or(ActivePorts::All, |list| ActivePorts::read(list)),
        })
    }

    /// An endpoint for each of the ports that is active; none if the pod is not ready.
    pub(super) fn endpoints(&self, namespace: &str, ports: &[u16]) -> Vec<Arc<Endpoint>> {
        let Some(address) = self.address.filter(|_| self.is_ready) else {
            return Vec::new();
        };
        let endpoint = |(rank, &port): (usize, &u16)| {
            Arc::new(Endpoint {
                id: EndpointId::new(namespace, &format!("{}-rank-{rank}", self.name)),
                name: Arc::clone(&self.name),
                address,
                port,
                labels: self.labels.clone(),
                rank: u32::try_from(rank).unwrap_or(u32::MAX),
            })
        };
        let active = |(_, port): &(usize, &u16)| match &self.active {
            ActivePorts::All => true,
            ActivePorts::Only(some) => some.contains(port),
        };
        let endpoints: Vec<_> = ports.iter().enumerate().filter(active).map(endpoint).collect();
        if endpoints.is_empty() && !ports.is_empty() {
            warn!(pod = %self.name, annotation = ACTIVE_PORTS[0], "ready pod has no active port and gets no requests");
        }
        endpoints
    }
}

impl ActivePorts {
    fn read(list: &str) -> Self {
        let ports = list.split(',').filter_map(|port| port.trim().parse().ok());
        Self::Only(ports.filter(|port| *port > 0).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> PodFacts {
        let mut pod = json!({
            "metadata": { "name": "p", "labels": { "app": "vllm" } },
            "status": { "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        change(&mut pod);
        PodFacts::of(serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn sockets(pod: &PodFacts, ports: &[u16]) -> Vec<String> {
        let endpoints = pod.endpoints("ns", ports);
        endpoints
            .iter()
            .map(|endpoint| format!("{} {}", endpoint.id, endpoint.socket()))
            .collect()
    }

    #[test]
    fn each_port_of_a_ready_pod_is_an_endpoint_with_its_rank() {
        let pod = pod(|_| {});

        assert_eq!(
            sockets(&pod, &[8000, 8001]),
            ["ns/p-rank-0 10.0.0.1:8000", "ns/p-rank-1 10.0.0.1:8001"]
        );
        let endpoint = &pod.endpoints("ns", &[8000, 8001])[1];
        assert_eq!((&*endpoint.name, endpoint.rank), ("p", 1));
        assert_eq!(endpoint.labels["app"], "vllm");
    }

    #[test]
    fn a_pod_that_is_not_ready_or_is_to_go_or_has_no_address_serves_nothing() {
        let unready = pod(|pod| pod["status"]["conditions"][0]["status"] = "False".into());
        let silent = pod(|pod| pod["status"]["conditions"] = Value::Null);
        let going = pod(|pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        let nowhere = pod(|pod| pod["status"]["podIP"] = Value::Null);

        for pod in [unready, silent, going, nowhere] {
            assert_eq!(sockets(&pod, &[8000]), [""; 0], "{pod:?}");
        }
    }

    #[test]
    fn an_annotation_tells_which_ports_are_active_and_ranks_stay() {
        let annotated = |name: &'static str, list: &'static str| {
            pod(move |pod| pod["metadata"]["annotations"] = json!({ name: list }))
        };

        let of = |list| sockets(&annotated("llm-d.ai/active-ports", list), &[8000, 8001]);
        assert_eq!(of("8001, 9000, x"), ["ns/p-rank-1 10.0.0.1:8001"]);
        assert_eq!(of(""), [""; 0]);
        assert_eq!(of("x"), [""; 0]);
        let old = annotated("inference.networking.k8s.io/active-ports", "8000");
        assert_eq!(sockets(&old, &[8000, 8001]), ["ns/p-rank-0 10.0.0.1:8000"]);
    }

    #[test]
    fn an_address_may_be_of_either_family() {
        let pod = pod(|pod| pod["status"]["podIP"] = "fd00::1".into());

        assert_eq!(sockets(&pod, &[8000]), ["ns/p-rank-0 [fd00::1]:8000"]);
    }
}
