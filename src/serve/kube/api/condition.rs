//! Conditions: what a controller says of an object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A status that has conditions and nothing else.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Conditions {
    /// What is known of the object, by type.
    #[serde(default)]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// One thing that is known of an object.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_name: String,
    /// Whether it is so.
    pub status: Truth,
    /// Why, in one word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When the status last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the object that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether something is so.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(inline)]
pub enum Truth {
    /// It is.
    True,
    /// It is not.
    False,
    /// Nobody knows.
    Unknown,
}
