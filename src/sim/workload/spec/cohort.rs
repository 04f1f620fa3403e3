//! What is said of clients that are alike.
//!
//! Most fields are those of a [`ClientSpec`](super::ClientSpec). They are written out once more because serde does not
//! refuse unknown fields where structs are flattened into each other.

use serde::{Deserialize, Serialize};

use super::{ArrivalSpec, DistributionSpec, MultimodalSpec, NetworkSpec, ReasoningSpec, is_false, nullable};

/// Clients that are alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CohortSpec {
    /// Its name; members are `<id>-<n>`, counted from 0. Default: `cohort-<n>`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How many members it has: 1 to [`MOST_MEMBERS`](super::MOST_MEMBERS).
    pub population: u32,
    /// See [`super::ClientSpec::tenant_id`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub tenant_id: String,
    /// See [`super::ClientSpec::slo_class`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub slo_class: String,
    /// See [`super::ClientSpec::model`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// See [`super::ClientSpec::adapter`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub adapter: String,
    /// The share of all members together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_fraction: Option<f64>,
    /// See [`super::ClientSpec::arrival`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<ArrivalSpec>,
    /// See [`super::ClientSpec::input_distribution`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_distribution: Option<DistributionSpec>,
    /// See [`super::ClientSpec::output_distribution`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_distribution: Option<DistributionSpec>,
    /// See [`super::ClientSpec::prefix_group`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub prefix_group: String,
    /// See [`super::ClientSpec::prefix_length`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u32>,
    /// Whether members share the prefix, or each has its own. Default: they share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_sharing: Option<PrefixSharing>,
    /// See [`super::ClientSpec::streaming`].
    #[serde(skip_serializing_if = "is_false")]
    pub streaming: bool,
    /// See [`super::ClientSpec::network`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,
    /// See [`super::ClientSpec::multimodal`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multimodal: Option<MultimodalSpec>,
    /// See [`super::ClientSpec::reasoning`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningSpec>,
    /// See [`super::ClientSpec::timeout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// See [`super::ClientSpec::slo_target_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_target_us: Option<u64>,
    /// See [`super::ClientSpec::closed_loop`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<bool>,
    /// Active for longer at some hours of the first day than at others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diurnal: Option<DiurnalSpec>,
    /// Active for a while only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spike: Option<SpikeSpec>,
    /// Active until a time, and then less and less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainSpec>,
}

/// Who shares the prefix of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixSharing {
    /// All members.
    Shared,
    /// Nobody: each member has a prefix of its own.
    PerMember,
}

/// Hours of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiurnalSpec {
    /// The hour with the most activity: 0 to 23.
    pub peak_hour: u32,
    /// How many times as active the peak is as the trough: at least 1.
    pub peak_to_trough_ratio: f64,
}

/// A burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SpikeSpec {
    /// When it begins.
    pub start_time_us: u64,
    /// How long it lasts.
    pub duration_us: u64,
    /// Requests per second of all members together, instead of the share of the aggregate rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_rate: Option<f64>,
}

/// An end by and by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DrainSpec {
    /// When activity begins to shrink.
    pub start_time_us: u64,
    /// How long it takes until nothing is left.
    pub ramp_duration_us: u64,
}
