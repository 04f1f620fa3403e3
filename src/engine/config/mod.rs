//! What users write: documents in YAML or JSON, and the settings that are made of them.
//!
//! Nothing here reads a file: text comes in, values or errors with lines go out. [`load()`] is the way from the text of
//! an `EndpointPickerConfig` to the [`Plan`] that runs:
//!
//! ```text
//! text ─ yaml ─▶ Value + lines ─ document ─▶ Document ─ load ─▶ Plan
//! ```
//!
//! A [`Document`](document::Document) is what was written, a [`Plan`] is what runs; nobody validates after that. Every
//! error in a text is found at once, and says where it is and what would be right ([`Finding`]). The reference's
//! phrases are kept in the messages, since people search and match for them (spec, config 6).

pub mod catalog;
pub mod data_layer;
pub mod document;
pub mod duration;
mod elsewhere;
pub mod engine_metrics;
mod finding;
mod gates;
mod load;
mod misfit;
pub mod plan;
pub mod quantity;
mod report;
pub mod responses;
pub mod settings;
mod strict;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
pub mod yaml;

pub use finding::{ConfigErrors, Finding, Severity, SourceName};
pub use gates::FeatureGates;
pub use load::{DEFAULT, LoadOptions, Loaded, load};
pub use plan::Plan;
pub use report::Report;
pub use strict::read_strictly;
