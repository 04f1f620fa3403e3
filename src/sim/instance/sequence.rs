//! A sequence: a prompt and the answer that grows behind it.

use std::sync::Arc;

use super::kv::BlockTable;
use super::step_time::Phase;
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

/// What the driver asks an instance to generate.
#[derive(Clone, Debug)]
pub struct SequenceRequest {
    /// Names the sequence in events. Never used twice.
    pub id: RequestId,
    /// The LoRA adapter, or `None` for the base model.
    pub adapter: Option<Arc<str>>,
    /// Tokens of the prompt, at least one.
    pub prompt_tokens: u32,
    /// Tokens that the answer will have. Zero counts as one, the token that the prefill yields.
    pub output_tokens: u32,
    /// The names of the full blocks of prompt and answer, from [`super::BlockChain`]. May end early: blocks without a
    /// name are not remembered.
    pub chain: Arc<[u64]>,
}

/// A sequence inside an instance.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: SequenceRequest,
    pub(super) enqueued_at: Timestamp,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: u32,
    /// Tokens of the answer so far.
    pub(super) generated: u32,
    /// Tokens that the current step computes.
    pub(super) scheduled: u32,
    pub(super) was_preempted: bool,
    pub(super) table: BlockTable,
}

impl Sequence {
    pub(super) fn new(request: SequenceRequest, enqueued_at: Timestamp) -> Self {
        Self {
            request,
            enqueued_at,
            computed: 0,
            generated: 0,
            scheduled: 0,
            was_preempted: false,
            table: BlockTable::default(),
        }
    }

    /// Tokens of the prompt and of the answer so far.
    pub(super) fn known(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }

    /// Tokens that must be computed before the next one comes out. At least one.
    pub(super) fn outstanding(&self) -> u32 {
        self.known() - self.computed
    }

    pub(super) fn phase(&self) -> Phase {
        if self.generated > 0 && self.outstanding() == 1 {
            Phase::Decode
        } else {
            Phase::Prefill
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.generated >= self.request.output_tokens.max(1)
    }
}
