//! `InferenceModelRewrite`: the model that is asked for in the place of another (spec, kubernetes 5).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Conditions, PoolReference};

/// The models that requests go to which ask for others.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "llm-d.ai",
    version = "v1alpha2",
    kind = "InferenceModelRewrite",
    namespaced,
    doc = "The models that requests go to which ask for others.",
    status = "Conditions",
    printcolumn(name = "Inference Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct RewriteSpec {
    /// The pool that it is for.
    pub pool_ref: PoolReference,
    /// Rules. One that names the model goes before one that takes every model, then the older object's, then the
    /// earlier one.
    pub rules: Vec<RewriteRule>,
}

/// The same in the older API group.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha2",
    kind = "InferenceModelRewrite",
    root = "OldInferenceModelRewrite",
    namespaced,
    doc = "The models that requests go to which ask for others. The current API group is `llm-d.ai`.",
    status = "Conditions",
    printcolumn(name = "Inference Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct OldRewriteSpec {
    /// What it says.
    #[serde(flatten)]
    pub rewrite: RewriteSpec,
}

impl From<OldInferenceModelRewrite> for InferenceModelRewrite {
    fn from(old: OldInferenceModelRewrite) -> Self {
        Self {
            metadata: old.metadata,
            spec: old.spec.rewrite,
            status: old.status,
        }
    }
}

/// Which models, and what is asked for in their place.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct RewriteRule {
    /// The models. Every one if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<ModelMatch>,
    /// What is asked for; with several, by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub targets: Vec<RewriteTarget>,
}

/// Requests that a rule is for.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct ModelMatch {
    /// The model that they ask for.
    pub model: ModelName,
}

/// A model's name.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct ModelName {
    /// How the name is compared.
    #[serde(default, rename = "type")]
    pub kind: MatchKind,
    /// The name.
    #[schemars(length(min = 1))]
    pub value: String,
}

/// How names are compared.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(inline)]
pub enum MatchKind {
    /// They are equal.
    #[default]
    Exact,
}

/// A model to ask for.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RewriteTarget {
    /// Its name.
    pub model_rewrite: String,
    /// Its part of the requests, against the weights of the others. Without any weights all parts are equal; beside
    /// weights, a target without one gets nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: Option<i32>,
}
