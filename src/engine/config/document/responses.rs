//! What clients are told.

use serde::Deserialize;

use super::nullable;
#[cfg(feature = "serve")]
use super::schema;
use crate::engine::config::responses::ErrorFormat;

/// What clients are told. Not in the reference.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Responses {
    /// How the body of a refusal is written: `text` as the reference does, or `openai`. Default: `text`.
    #[cfg_attr(feature = "serve", schemars(schema_with = "schema::text"))]
    pub error_format: Option<ErrorFormat>,
    /// Headers that responses get.
    #[serde(deserialize_with = "nullable")]
    pub headers: ResponseHeaders,
}

/// Headers that responses get, by the names that are given here. Default: none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "serve", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResponseHeaders {
    /// Name of the header with the id of the request. Usually `x-request-id`.
    pub request_id: Option<String>,
    /// Name of the header with the milliseconds that the request waited for an endpoint. Usually
    /// `x-forebay-queue-wait-ms`.
    pub queue_wait: Option<String>,
}
