//! What users write: documents in YAML or JSON, and the settings that are made of them.
//!
//! Nothing here reads a file: text comes in, values or errors with lines go out.

pub mod data_layer;
pub mod duration;
pub mod engine_metrics;
pub mod yaml;
