//! The file that describes a workload, version 2 (spec, simulator 18.2): what may be written, without any judgement.
//!
//! [`load()`] reads the text of one; [`check()`] says what is wrong with one, wherever it came from. Rates are requests per
//! second, times microseconds, unless a name says otherwise.

mod check;
mod load;
mod sampling;
#[cfg(test)]
mod tests;
mod upgrade;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use check::{Problem, check};
pub use load::{Loaded, load};

/// The version that is written.
pub const VERSION: &str = "2";

/// The most members of a cohort.
pub const MOST_MEMBERS: u32 = 100_000;

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

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSpec {
    /// Its name. Default: `client-<n>`, counted from 0.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Whose share of the pool its requests count against.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub tenant_id: String,
    /// One of the [`Classes`](crate::sim::classes::Classes), or empty. Either every client has one or none.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub slo_class: String,
    /// The model that it asks for.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The LoRA adapter that it asks for.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub adapter: String,
    /// Its share of the aggregate rate, relative to those of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_fraction: Option<f64>,
    /// Instead of a rate: so many users, each of whom sends a request when the one before is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How long such a user waits before the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_time_us: Option<u64>,
    /// How requests follow each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<ArrivalSpec>,
    /// Tokens of a prompt, without the shared prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_distribution: Option<DistributionSpec>,
    /// Tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_distribution: Option<DistributionSpec>,
    /// Clients of one group begin their prompts alike.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub prefix_group: String,
    /// Tokens of that beginning. The first client of a group decides. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u32>,
    /// It asks for a stream of events.
    #[serde(skip_serializing_if = "is_false")]
    pub streaming: bool,
    /// Its network. Kept, and without effect on a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,
    /// When it is active. Default: always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleSpec>,
    /// Prompts of several media.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multimodal: Option<MultimodalSpec>,
    /// Answers with reasoning, and conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningSpec>,
    /// When it gives up; negative: never. Default: 300 s for conversations and users, never for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Latency that it hopes for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_target_us: Option<u64>,
    /// Whether a turn of a conversation waits for the answer to the one before. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<bool>,
}

/// Clients that are alike.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CohortSpec {
    /// Its name; members are `<id>-<n>`, counted from 0. Default: `cohort-<n>`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How many members it has: 1 to [`MOST_MEMBERS`].
    pub population: u32,
    /// See [`ClientSpec::tenant_id`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub tenant_id: String,
    /// See [`ClientSpec::slo_class`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub slo_class: String,
    /// See [`ClientSpec::model`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// See [`ClientSpec::adapter`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub adapter: String,
    /// The share of all members together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_fraction: Option<f64>,
    /// See [`ClientSpec::arrival`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival: Option<ArrivalSpec>,
    /// See [`ClientSpec::input_distribution`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_distribution: Option<DistributionSpec>,
    /// See [`ClientSpec::output_distribution`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_distribution: Option<DistributionSpec>,
    /// See [`ClientSpec::prefix_group`].
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub prefix_group: String,
    /// See [`ClientSpec::prefix_length`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u32>,
    /// Whether members share the prefix, or each has its own. Default: they share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_sharing: Option<PrefixSharing>,
    /// See [`ClientSpec::streaming`].
    #[serde(skip_serializing_if = "is_false")]
    pub streaming: bool,
    /// See [`ClientSpec::network`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,
    /// See [`ClientSpec::multimodal`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multimodal: Option<MultimodalSpec>,
    /// See [`ClientSpec::reasoning`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningSpec>,
    /// See [`ClientSpec::timeout`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// See [`ClientSpec::slo_target_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_target_us: Option<u64>,
    /// See [`ClientSpec::closed_loop`].
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

/// How requests follow each other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalSpec {
    /// The distribution of the gaps between them.
    pub process: ProcessName,
    /// The ratio of standard deviation and mean. For gamma and weibull. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cv: Option<f64>,
    /// The shape of the distribution, together with `scale` instead of `cv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// The scale of the distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
}

/// The name of a distribution of gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessName {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps.
    Poisson,
    /// Gaps of a gamma distribution.
    Gamma,
    /// Gaps of a Weibull distribution.
    Weibull,
}

impl ProcessName {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Constant, Self::Poisson, Self::Gamma, Self::Weibull];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
            Self::Gamma => "gamma",
            Self::Weibull => "weibull",
        }
    }
}

/// A distribution of lengths.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DistributionSpec {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: DistributionKind,
    /// Its parameters by name; for empirical ones shares by length.
    #[serde(default, deserialize_with = "nullable")]
    pub params: BTreeMap<String, f64>,
}

/// The name of a distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionKind {
    /// `mean`, `std_dev`, `min`, `max`.
    Gaussian,
    /// `mean`, and `min` and `max` if wanted.
    Exponential,
    /// `mu`, `sigma`, and `min` and `max` if wanted.
    Lognormal,
    /// `alpha`, `xm`, `mu`, `sigma`, `mix_weight`.
    ParetoLognormal,
    /// `value`.
    Constant,
    /// Lengths and their shares.
    Empirical,
}

/// A network. Kept, and without effect on a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSpec {
    /// Round trip in milliseconds.
    pub rtt_ms: f64,
    /// Megabits per second.
    pub bandwidth_mbps: f64,
}

/// When a client is active.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifecycleSpec {
    /// Times at which it is.
    #[serde(deserialize_with = "nullable")]
    pub windows: Vec<WindowSpec>,
}

/// A time at which a client is active.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// From here.
    pub start_us: u64,
    /// To, but without, this.
    pub end_us: u64,
    /// Requests per second; or if there is an aggregate rate, the client's share of it, relative to those of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_rate: Option<f64>,
    /// Instead of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<ArrivalSpec>,
    /// Instead of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_distribution: Option<DistributionSpec>,
    /// Instead of the client's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_distribution: Option<DistributionSpec>,
}

impl WindowSpec {
    /// Whether requests are others here than elsewhere.
    pub fn has_its_own_way(&self) -> bool {
        self.trace_rate.is_some()
            || self.arrival.is_some()
            || self.input_distribution.is_some()
            || self.output_distribution.is_some()
    }
}

/// Prompts of several media. A length is that of one item; a count is how many items there are, 1 if it is not given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultimodalSpec {
    /// Tokens of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_distribution: Option<DistributionSpec>,
    /// Tokens of an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_distribution: Option<DistributionSpec>,
    /// Images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_count_distribution: Option<DistributionSpec>,
    /// Tokens of a piece of audio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_distribution: Option<DistributionSpec>,
    /// Pieces of audio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_count_distribution: Option<DistributionSpec>,
    /// Tokens of a video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_distribution: Option<DistributionSpec>,
    /// Videos.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_count_distribution: Option<DistributionSpec>,
}

/// Answers with reasoning, and conversations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReasoningSpec {
    /// The part of an answer that is reasoning, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason_ratio_distribution: Option<DistributionSpec>,
    /// Conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_turn: Option<MultiTurnSpec>,
}

/// Conversations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiTurnSpec {
    /// Turns of one: at least 1.
    pub max_rounds: u32,
    /// How long it is from an answer to the next turn.
    pub think_time_us: u64,
    /// `accumulate`: prompts begin with all that was said before. Empty: they do not.
    #[serde(skip_serializing_if = "ContextGrowth::is_none")]
    pub context_growth: ContextGrowth,
    /// The client has one conversation only.
    #[serde(skip_serializing_if = "is_false")]
    pub single_session: bool,
}

/// What becomes of what was said before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextGrowth {
    /// Prompts begin with it.
    Accumulate,
    /// It is forgotten.
    #[default]
    #[serde(rename = "")]
    None,
}

impl ContextGrowth {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// A description in the terms of inference-perf.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InferencePerf {
    /// Rates, one after the other.
    #[serde(deserialize_with = "nullable")]
    pub stages: Vec<StageSpec>,
    /// What the prompts are like.
    pub shared_prefix: SharedPrefixSpec,
}

/// A rate, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StageSpec {
    /// Requests per second.
    pub rate: f64,
    /// Seconds.
    pub duration: u64,
}

/// Prompts that begin with one of some system prompts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SharedPrefixSpec {
    /// Different system prompts.
    pub num_unique_system_prompts: u32,
    /// Users of each.
    pub num_users_per_system_prompt: u32,
    /// Tokens of a system prompt.
    pub system_prompt_len: u32,
    /// Tokens of a question.
    pub question_len: u32,
    /// Tokens of an answer.
    pub output_len: u32,
    /// Each user has one conversation.
    pub enable_multi_turn_chat: bool,
}

/// When a client gives up if nothing is said, in microseconds: for conversations and users only.
pub const SESSION_TIMEOUT_US: u64 = 300_000_000;

/// The most users of one client.
pub const MOST_USERS: u32 = 1_000_000;

/// The length of a shared prefix if none is given.
pub const PREFIX_LENGTH: u32 = 50;

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

impl ClientSpec {
    /// Its conversations, if it has any.
    pub fn multi_turn(&self) -> Option<&MultiTurnSpec> {
        self.reasoning.as_ref()?.multi_turn.as_ref()
    }

    /// Its windows; none if it is always active.
    pub fn windows(&self) -> &[WindowSpec] {
        self.lifecycle.as_ref().map_or(&[], |lifecycle| &lifecycle.windows)
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
