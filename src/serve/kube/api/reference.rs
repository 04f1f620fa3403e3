//! How an object says which pool it belongs to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::POOL_GROUP;

/// A pool in the same namespace.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolReference {
    /// API group of the pool.
    #[serde(default = "pool_group")]
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// Kind of the pool.
    #[serde(default = "pool_kind")]
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND))]
    pub kind: String,
    /// Name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Pools of the same namespace, by their labels. All that is said has to be so.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.matchLabels) && size(self.matchLabels) > 0) || \
             (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
    "message": "poolSelector must not be empty",
}]))]
pub struct LabelSelector {
    /// Labels that the pool must have, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// What else must be so of its labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// What must be so of a label.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// How its value relates to `values`.
    pub operator: LabelOperator,
    /// Values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label's value relates to given ones.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(inline)]
pub enum LabelOperator {
    /// It is one of them.
    In,
    /// It is none of them, or the label is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// A DNS subdomain, or nothing.
pub(super) const GROUP: &str = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A kind.
pub(super) const KIND: &str = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";

fn pool_group() -> String {
    POOL_GROUP.to_owned()
}

fn pool_kind() -> String {
    "InferencePool".to_owned()
}
