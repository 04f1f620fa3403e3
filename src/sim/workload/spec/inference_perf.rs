//! A load in the terms of inference-perf (spec, simulator 18.6).

use serde::{Deserialize, Serialize};

use super::nullable;

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
