//! How an object says which pool it belongs to.

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
