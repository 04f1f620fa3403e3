//! What is said of one client.

use serde::{Deserialize, Serialize};

use super::{ArrivalSpec, DistributionSpec, is_false, nullable};

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
