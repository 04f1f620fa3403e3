//! The file that describes a workload, version 2 (spec, simulator 18.2): what may be written, without any judgement.
//!
//! [`load()`] reads the text of one; [`check()`] says what is wrong with one, wherever it came from. Rates are requests per
//! second, times microseconds, unless a name says otherwise.

mod check;
mod client;
mod cohort;
mod distribution;
mod inference_perf;
mod load;
#[cfg(test)]
mod odd_values;
mod sampling;
#[cfg(test)]
mod tests;
mod upgrade;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use check::{Problem, check};
pub use client::{
    ClientSpec, ContextGrowth, LifecycleSpec, MultiTurnSpec, MultimodalSpec, NetworkSpec, ReasoningSpec, WindowSpec,
};
pub use cohort::{CohortSpec, DiurnalSpec, DrainSpec, PrefixSharing, SpikeSpec};
pub use distribution::{ArrivalSpec, DistributionKind, DistributionSpec, ProcessName};
pub use inference_perf::{InferencePerf, SharedPrefixSpec, StageSpec};
pub use load::{Loaded, load};

/// The version that is written.
pub const VERSION: &str = "2";

/// The most members of a cohort.
pub const MOST_MEMBERS: u32 = 100_000;

/// When a client gives up if nothing is said, in microseconds: for conversations and users only.
pub const SESSION_TIMEOUT_US: u64 = 300_000_000;

/// The most users of one client.
pub const MOST_USERS: u32 = 1_000_000;

/// The length of a shared prefix if none is given.
pub const PREFIX_LENGTH: u32 = 50;

/// A whole description.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadSpec {
    /// `2`; `1` and nothing are brought up to it.
    #[serde(deserialize_with = "text_or_number", skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What all chance follows from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// What kind of requests these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// Requests per second of all clients with a `rate_fraction`. Zero: every one has rates of its own.
    pub aggregate_rate: f64,
    /// When requests stop to arrive; nothing and 0: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<u64>,
    /// How many requests there are; nothing and 0: as many as arrive before the horizon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_requests: Option<u64>,
    /// Who sends requests.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSpec>,
    /// Groups of clients that are alike.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<CohortSpec>,
    /// Data of ServeGen, which cannot be read here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servegen_data: Option<serde_json::Value>,
    /// A description in the terms of inference-perf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inference_perf: Option<InferencePerf>,
    /// Latencies by SLO class at which a request counts as good.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub goodput_slo_targets: BTreeMap<String, GoodputTarget>,
}

/// What kind of requests a workload has. For readers: it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Text.
    Language,
    /// Text with images, audio or video.
    Multimodal,
    /// Long answers, of which a part is reasoning.
    Reasoning,
    /// Not said.
    #[serde(rename = "")]
    Unsaid,
}

/// Latencies that a good request does not exceed, in milliseconds. What is not given does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoodputTarget {
    /// To the first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Between tokens, in the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_ms: Option<f64>,
    /// To the last token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
}

impl WorkloadSpec {
    /// Lets every client give up after so many microseconds; negative: never.
    pub fn set_timeout(&mut self, timeout_us: i64) {
        self.clients
            .iter_mut()
            .for_each(|client| client.timeout = Some(timeout_us));
        self.cohorts
            .iter_mut()
            .for_each(|cohort| cohort.timeout = Some(timeout_us));
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// What is written as nothing (`clients:`) is as if it were not there.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// `2` and `"2"` are the same version.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Version;

    impl Visitor<'_> for Version {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a version such as \"2\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_unit<E: de::Error>(self) -> Result<String, E> {
            Ok(String::new())
        }
    }

    deserializer.deserialize_any(Version)
}
