//! What endpoints report of themselves.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::time::Timestamp;

/// The last known state of an endpoint's engine. An endpoint that was never heard of looks idle, and has no date.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Requests in the server's own queue.
    pub waiting: u32,
    /// Requests in the running batch.
    pub running: u32,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: f64,
    /// LoRA adapters and their limits.
    pub lora: Lora,
    /// Tokens of a KV block. Zero if unknown.
    pub block_tokens: u32,
    /// KV blocks of the server. Zero if unknown.
    pub total_blocks: u32,
    /// When this was true: the time of the last report that said anything.
    pub at: Option<Timestamp>,
}

/// LoRA adapters of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lora {
    /// Adapters with running requests.
    pub active: Arc<[Box<str>]>,
    /// Adapters with waiting requests.
    pub waiting: Arc<[Box<str>]>,
    /// Adapters that can be loaded at once. Zero if the server reports none.
    pub max: u32,
}

/// One report. What it does not mention stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignalUpdate {
    /// When this was true.
    pub at: Timestamp,
    /// See [`Signals::waiting`].
    pub waiting: Option<u32>,
    /// See [`Signals::running`].
    pub running: Option<u32>,
    /// See [`Signals::kv_usage`].
    pub kv_usage: Option<f64>,
    /// See [`Signals::lora`].
    pub lora: Option<Lora>,
    /// See [`Signals::block_tokens`].
    pub block_tokens: Option<u32>,
    /// See [`Signals::total_blocks`].
    pub total_blocks: Option<u32>,
}

impl SignalUpdate {
    /// True if the report says nothing.
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                at: self.at,
                ..Self::default()
            }
    }
}

impl Signals {
    /// Takes over what `update` says. An older report than the last one, or an empty one, changes nothing.
    pub(super) fn apply(&mut self, update: SignalUpdate) {
        if update.is_empty() || self.at.is_some_and(|at| update.at < at) {
            return;
        }
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut self.waiting, update.waiting);
        set(&mut self.running, update.running);
        set(&mut self.kv_usage, update.kv_usage);
        set(&mut self.lora, update.lora);
        set(&mut self.block_tokens, update.block_tokens);
        set(&mut self.total_blocks, update.total_blocks);
        self.at = Some(update.at);
    }
}
