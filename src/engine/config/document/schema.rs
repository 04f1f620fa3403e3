//! Fields whose schema is not that of their type. Schemas are made for the definition of the cluster's object.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Whatever the plugin takes.
pub(super) fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A number, or text such as `10Gi`.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "nullable": true,
        "x-kubernetes-int-or-string": true,
    })
}

/// Text.
pub(super) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "nullable": true,
    })
}

/// A duration in text, such as `1m30s`.
pub(super) fn span(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "nullable": true,
    })
}
