//! The resources that are read, as types. Their definitions (`crds/`) are made from these types.
//!
//! Kinds of other projects are described here as far as Forebay reads them, so that they can be installed where nobody
//! else does. [`EndpointPickerConfig`] is our own.

#![expect(
    clippy::duplicated_attributes,
    reason = "each printed column has a type, and may have the same as another one"
)]

mod condition;
mod config;
mod manifest;
mod objective;
mod pool;
mod reference;
mod rewrite;

pub use condition::{Condition, Conditions, Truth};
pub use config::{ConfigFields, ConfigStatus, EndpointPickerConfig};
pub use manifest::{MANIFESTS, Manifest};
pub use objective::{
    InferenceObjective, InferenceObjectiveV1, ObjectiveSpec, ObjectiveSpecV1, OldInferenceObjective, OldObjectiveSpec,
};
pub use pool::{
    ExtensionReference, FailureMode, InferencePool, OldInferencePool, OldInferencePoolSpec, PickerPort,
    PickerReference, PoolSelector, PoolSpec, PoolStatus, TargetPort,
};
pub use reference::{LabelOperator, LabelRequirement, LabelSelector, PoolReference};
pub use rewrite::{
    InferenceModelRewrite, MatchKind, ModelMatch, ModelName, OldInferenceModelRewrite, OldRewriteSpec, RewriteRule,
    RewriteSpec, RewriteTarget,
};

/// The API group of the older kinds, the pool among them.
pub const OLD_GROUP: &str = "inference.networking.x-k8s.io";
/// The API group of the current pool.
pub const POOL_GROUP: &str = "inference.networking.k8s.io";
