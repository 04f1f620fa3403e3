//! `InferenceObjective`: the priority of the requests that name it.
//!
//! The group `llm-d.ai` has two versions of it. API servers store each object once, in the version `v1alpha2`, and without
//! a conversion webhook they drop every field that the stored version does not have. So `v1alpha2` has the fields of both.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Conditions;
use super::reference::{LabelSelector, PoolReference};

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
    printcolumn(name = "Inference Pools", type_ = "string", json_path = ".spec.poolRefs[*].name"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.poolRef) || has(self.poolRefs) || has(self.poolSelector)",
        "message": "poolRef, poolRefs or poolSelector must be set",
    },
    {
        "rule": "!has(self.poolRef) || (!has(self.poolRefs) && !has(self.poolSelector))",
        "message": "poolRef cannot be combined with poolRefs or poolSelector",
    },
]))]
pub struct ObjectiveSpec {
    /// The one pool that it is for. `llm-d.ai/v1` has `poolRefs` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolReference>,
    /// Pools that it is for, as in `llm-d.ai/v1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pool_refs: Vec<PoolReference>,
    /// It is for pools with these labels too, as in `llm-d.ai/v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_selector: Option<LabelSelector>,
    /// Higher is more important; below zero, requests can be shed. 0 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

/// The same in the current version.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "llm-d.ai",
    version = "v1",
    kind = "InferenceObjective",
    root = "InferenceObjectiveV1",
    namespaced,
    doc = "The priority of the requests that name this object.",
    status = "Conditions",
    printcolumn(name = "Inference Pools", type_ = "string", json_path = ".spec.poolRefs[*].name"),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.poolRefs) || has(self.poolSelector)",
    "message": "poolRefs or poolSelector must be set",
}]))]
pub struct ObjectiveSpecV1 {
    /// Pools that it is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(min = 1, max = 16),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pool_refs: Vec<PoolReference>,
    /// It is for pools with these labels too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_selector: Option<LabelSelector>,
    /// Higher is more important; below zero, requests can be shed. 0 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl From<InferenceObjectiveV1> for InferenceObjective {
    fn from(object: InferenceObjectiveV1) -> Self {
        let ObjectiveSpecV1 {
            pool_refs,
            pool_selector,
            priority,
        } = object.spec;
        Self {
            metadata: object.metadata,
            spec: ObjectiveSpec {
                pool_ref: None,
                pool_refs,
                pool_selector,
                priority,
            },
            status: object.status,
        }
    }
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
#[serde(rename_all = "camelCase")]
pub struct OldObjectiveSpec {
    /// The pool that it is for.
    pub pool_ref: PoolReference,
    /// Higher is more important; below zero, requests can be shed. 0 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl From<OldInferenceObjective> for InferenceObjective {
    fn from(old: OldInferenceObjective) -> Self {
        let OldObjectiveSpec { pool_ref, priority } = old.spec;
        Self {
            metadata: old.metadata,
            spec: ObjectiveSpec {
                pool_ref: Some(pool_ref),
                pool_refs: Vec::new(),
                pool_selector: None,
                priority,
            },
            status: old.status,
        }
    }
}
