//! `InferenceObjective`: the priority of the requests that name it (spec, kubernetes 4).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Conditions, PoolReference};

/// The priority of the requests that name the object.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "llm-d.ai",
    version = "v1alpha2",
    kind = "InferenceObjective",
    namespaced,
    doc = "The priority of the requests that name this object.",
    status = "Conditions",
    printcolumn(name = "Inference Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectiveSpec {
    /// The pool that it is for.
    pub pool_ref: PoolReference,
    /// Higher is more important; below zero, requests can be shed. 0 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// The same in the older API group.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha2",
    kind = "InferenceObjective",
    root = "OldInferenceObjective",
    namespaced,
    doc = "The priority of the requests that name this object. The current API group is `llm-d.ai`.",
    status = "Conditions",
    printcolumn(name = "Inference Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct OldObjectiveSpec {
    /// What it says.
    #[serde(flatten)]
    pub objective: ObjectiveSpec,
}

impl From<OldInferenceObjective> for InferenceObjective {
    fn from(old: OldInferenceObjective) -> Self {
        Self {
            metadata: old.metadata,
            spec: old.spec.objective,
            status: old.status,
        }
    }
}
