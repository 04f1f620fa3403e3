//! What an object has to be beyond its shape, where a definition of its kind may leave more room.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;

use super::api::{
    EndpointPickerConfig, InferenceModelRewrite, InferenceObjective, InferenceObjectiveV1, InferencePool,
    LabelSelector, OldInferenceModelRewrite, OldInferenceObjective, OldInferencePool,
};
use super::selector::{self, check_labels};

/// An object that can be checked before it is used.
pub(super) trait Checked {
    /// Fails with the field and what would be right, if the object makes no sense.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Checked for InferencePool {
    fn check(&self) -> Result<(), String> {
        check_labels(&self.spec.selector.match_labels)
            .map_err(|error| format!("spec.selector.matchLabels: {error}"))?;
        if self.spec.target_ports.is_empty() {
            return Err("spec.targetPorts is empty; list one port for each data-parallel rank of a pod".to_owned());
        }
        for (rank, port) in self.spec.target_ports.iter().enumerate() {
            check_port(port.number).map_err(|error| format!("spec.targetPorts[{rank}].number: {error}"))?;
        }
        Ok(())
    }
}

impl Checked for OldInferencePool {
    fn check(&self) -> Result<(), String> {
        check_labels(&self.spec.selector).map_err(|error| format!("spec.selector: {error}"))?;
        check_port(self.spec.target_port_number).map_err(|error| format!("spec.targetPortNumber: {error}"))
    }
}

impl Checked for InferenceObjective {
    fn check(&self) -> Result<(), String> {
        check_selector(self.spec.pool_selector.as_ref())
    }
}

impl Checked for InferenceObjectiveV1 {
    fn check(&self) -> Result<(), String> {
        check_selector(self.spec.pool_selector.as_ref())
    }
}

impl Checked for OldInferenceObjective {}
impl Checked for InferenceModelRewrite {}
impl Checked for OldInferenceModelRewrite {}
impl Checked for EndpointPickerConfig {}
impl Checked for Pod {}
impl Checked for Lease {}

fn check_selector(pools: Option<&LabelSelector>) -> Result<(), String> {
    let read = pools.map(selector::of).transpose();
    read.map(drop).map_err(|error| format!("spec.poolSelector: {error}"))
}

fn check_port(number: i32) -> Result<(), String> {
    match u16::try_from(number) {
        Ok(1..) => Ok(()),
        _ => Err(format!("`{number}` is not a port; write a number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn complaint(labels: &Value, ports: &Value) -> String {
        let pool: InferencePool = serde_json::from_value(json!({
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": { "name": "pool" },
            "spec": { "selector": { "matchLabels": labels }, "targetPorts": ports },
        }))
        .unwrap();
        pool.check().err().unwrap_or_default()
    }

    fn old_complaint(labels: &Value, port: i32) -> String {
        let pool: OldInferencePool = serde_json::from_value(json!({
            "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
            "kind": "InferencePool",
            "metadata": { "name": "pool" },
            "spec": { "selector": labels, "targetPortNumber": port },
        }))
        .unwrap();
        pool.check().err().unwrap_or_default()
    }

    #[test]
    fn a_pool_has_labels_and_ports_that_there_can_be() {
        let (good, port) = (json!({ "app": "vllm" }), json!([{ "number": 8000 }]));

        assert_eq!(complaint(&good, &port), "");
        let words = complaint(&json!({ "app": "my app" }), &port);
        assert!(words.starts_with("spec.selector.matchLabels: `my app`"), "{words}");
        let words = complaint(&json!({}), &port);
        assert!(words.starts_with("spec.selector.matchLabels: "), "{words}");
        let words = complaint(&good, &json!([{ "number": 8000 }, { "number": 70000 }]));
        assert!(words.starts_with("spec.targetPorts[1].number: `70000`"), "{words}");
        assert!(complaint(&good, &json!([])).starts_with("spec.targetPorts is empty"));
    }

    #[test]
    fn an_objective_selects_pools_by_labels_that_there_can_be() {
        let complaint = |selector: Value| {
            let objective: InferenceObjectiveV1 = serde_json::from_value(json!({
                "apiVersion": "llm-d.ai/v1",
                "kind": "InferenceObjective",
                "metadata": { "name": "gold" },
                "spec": { "poolSelector": selector },
            }))
            .unwrap();
            objective.check().err().unwrap_or_default()
        };

        assert_eq!(complaint(json!({ "matchLabels": { "tier": "gold" } })), "");
        assert_eq!(
            complaint(json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] })),
            ""
        );
        for (selector, word) in [
            (json!({}), "is empty"),
            (json!({ "matchLabels": {} }), "is empty"),
            (json!({ "matchLabels": { "my tier": "gold" } }), "`my tier`"),
            (
                json!({ "matchExpressions": [{ "key": "a b", "operator": "Exists" }] }),
                "`a b`",
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "In" }] }),
                "needs `values`",
            ),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists", "values": ["gold"] }] }),
                "takes no `values`",
            ),
        ] {
            let words = complaint(selector);
            assert!(
                words.starts_with("spec.poolSelector: ") && words.contains(word),
                "{words}"
            );
        }
    }

    #[test]
    fn so_does_one_of_the_older_group() {
        let good = json!({ "app": "vllm" });

        assert_eq!(old_complaint(&good, 8000), "");
        assert!(old_complaint(&json!({ "app": "a,b" }), 8000).starts_with("spec.selector: `a,b`"));
        assert!(old_complaint(&good, 0).starts_with("spec.targetPortNumber: `0`"));
    }
}
