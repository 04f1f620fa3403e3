//! `EndpointPickerConfig`: the configuration as an object of the cluster.
//!
//! Its fields are those of the file, at the same places: a file with another `apiVersion` and a name is an object.

use std::borrow::Cow;

use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Condition;
use crate::engine::config::document::Document;

/// The fields of a configuration, as they were written.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "forebay.dev",
    version = "v1alpha1",
    kind = "EndpointPickerConfig",
    namespaced,
    no_spec,
    shortname = "epc",
    doc = "What an endpoint picker does: its plugins, profiles, queues and sources of metrics.",
    status = "ConfigStatus",
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(
        name = "Programmed",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Programmed\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].message",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ConfigFields {
    /// By name.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// What became of a configuration.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// `Accepted`: it can run. `Programmed`: it runs.
    #[serde(default)]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// The fields of every object, which are not the configuration's.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl JsonSchema for ConfigFields {
    fn schema_name() -> Cow<'static, str> {
        "ConfigFields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = Document::json_schema(generator);
        if let Some(Value::Object(properties)) = schema.ensure_object().get_mut("properties") {
            properties.retain(|name, _| !OF_EVERY_OBJECT.contains(&name.as_str()));
        }
        schema.remove("additionalProperties");
        // What the user left out stays left out: the loader has the defaults.
        leave_out_defaults(schema.ensure_object());
        schema
    }
}

/// No field has this name itself.
fn leave_out_defaults(schema: &mut Map<String, Value>) {
    schema.remove("default");
    for value in schema.values_mut() {
        if let Value::Object(inner) = value {
            leave_out_defaults(inner);
        }
    }
}

impl EndpointPickerConfig {
    /// The text of the configuration, as a file would have it.
    pub fn text(&self) -> String {
        let mut fields = self.spec.fields.clone();
        fields.retain(|name, _| !OF_EVERY_OBJECT.contains(&name.as_str()) && name != "status");
        Value::Object(fields).to_string()
    }
}
