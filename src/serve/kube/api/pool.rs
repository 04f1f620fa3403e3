//! `InferencePool`: which pods serve, and on which ports (spec, kubernetes 2).

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::{GROUP, KIND};

/// Pods that serve the same models, and who picks among them.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "inference.networking.k8s.io",
    version = "v1",
    kind = "InferencePool",
    namespaced,
    shortname = "infpool",
    doc = "Pods that serve the same models, and who picks among them.",
    status = "PoolStatus",
    printcolumn(name = "Ports", type_ = "string", json_path = ".spec.targetPorts[*].number"),
    printcolumn(name = "Picker", type_ = "string", json_path = ".spec.endpointPickerRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PoolSpec {
    /// Which pods of the namespace belong to the pool.
    pub selector: PoolSelector,
    /// Ports on which each pod serves. With several, each is a data-parallel rank of its own.
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "atomic"),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(p1, self.exists_one(p2, p1.number == p2.number))",
            "message": "port numbers are given once"
        }])
    )]
    pub target_ports: Vec<TargetPort>,
    /// What the pods speak: `http`, or `kubernetes.io/h2c` for HTTP/2 in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "app_protocol")]
    pub app_protocol: Option<String>,
    /// The endpoint picker that the gateway asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_picker_ref: Option<PickerReference>,
}

/// Pods by their labels.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PoolSelector {
    /// Labels that a pod must have, with their values.
    #[schemars(schema_with = "labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// A port of the pods.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct TargetPort {
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub number: i32,
}

/// The Service of an endpoint picker.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.kind != 'Service' || has(self.port)",
    "message": "a Service needs a port"
}]))]
pub struct PickerReference {
    /// API group; empty for a Service.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// Kind.
    #[serde(default = "service")]
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Port of the ext_proc service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PickerPort>,
    /// What the gateway does while the picker cannot be reached.
    #[serde(default)]
    pub failure_mode: FailureMode,
}

/// A port of the picker's Service.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct PickerPort {
    /// Its number.
    #[schemars(range(min = 1, max = 65535))]
    pub number: i32,
}

/// What a gateway does while the picker cannot be reached.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(inline)]
pub enum FailureMode {
    /// Requests go to any pod.
    FailOpen,
    /// Requests fail.
    #[default]
    FailClose,
}

/// What gateways say of a pool. Forebay neither reads nor writes it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct PoolStatus {
    /// One entry for each gateway.
    #[serde(default)]
    #[schemars(length(max = 32), schema_with = "parents")]
    pub parents: Vec<serde_json::Value>,
}

/// Pods that serve the same models: the pool before version 1.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "inference.networking.x-k8s.io",
    version = "v1alpha2",
    kind = "InferencePool",
    root = "OldInferencePool",
    namespaced,
    shortname = "xinfpool",
    doc = "Pods that serve the same models: the pool before version 1.",
    status = "PoolStatus",
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.targetPortNumber"),
    printcolumn(name = "Picker", type_ = "string", json_path = ".spec.extensionRef.name"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct OldInferencePoolSpec {
    /// Labels that a pod must have, with their values.
    #[schemars(schema_with = "labels")]
    pub selector: BTreeMap<String, String>,
    /// Port on which each pod serves.
    #[schemars(range(min = 1, max = 65535))]
    pub target_port_number: i32,
    /// The endpoint picker that the gateway asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<ExtensionReference>,
}

/// The Service of an endpoint picker, as the older pool names it.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionReference {
    /// API group; empty for a Service.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = GROUP))]
    pub group: String,
    /// Kind.
    #[serde(default = "service")]
    #[schemars(length(min = 1, max = 63), regex(pattern = KIND))]
    pub kind: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Port of the ext_proc service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port_number: Option<i32>,
    /// What the gateway does while the picker cannot be reached.
    #[serde(default)]
    pub failure_mode: FailureMode,
}

fn service() -> String {
    "Service".to_owned()
}

/// Labels that pods can have. Of their keys a definition cannot say much.
fn labels(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 64,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}

fn app_protocol(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "enum": ["http", "kubernetes.io/h2c"],
        "default": "http",
    })
}

fn parents(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "x-kubernetes-list-type": "atomic",
    })
}
