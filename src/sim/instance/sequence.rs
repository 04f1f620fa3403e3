//! A sequence: a prompt and the answer that grows behind it.

use std::sync::Arc;

use super::kv::BlockTable;
use super::queue::Place;
use super::step_time::Phase;
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

/// What the driver asks an instance to generate.
#[derive(Clone, Debug)]
pub struct SequenceRequest {
    /// Names the sequence in events. Never used twice.
    pub id: RequestId,
    /// When the request reached the cluster. Decides between sequences of equal rank, and nothing else.
    pub arrival: Timestamp,
    /// The smaller, the more urgent.
    pub priority: i32,
    /// The LoRA adapter, or `None` for the base model.
    pub adapter: Option<Arc<str>>,
    /// Tokens of the prompt, at least one.
    pub prompt_tokens: u32,
    /// Tokens that the answer will have if nothing cuts it short. Zero counts as one, the token that the prefill yields.
    pub output_tokens: u32,
    /// Tokens that the answer may have, as the client declared. An instance refuses by this number and never by the true
    /// one, and it does not cut by it: a driver whose clients are held to it says so in `output_tokens`.
    pub max_output_tokens: Option<u32>,
    /// The names of the full blocks of prompt and answer, from [`super::BlockChain`], each of them once. May end early:
    /// blocks without a name are not remembered.
    pub chain: Arc<[u64]>,
}

/// A sequence inside an instance: what is seldom looked at. What every step needs of a running one is in [`Member`].
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: SequenceRequest,
    pub(super) enqueued_at: Timestamp,
    /// Where it waits; `None` while it runs.
    pub(super) place: Option<Place>,
    /// Tokens of the prompt, and of the answer as far as it came before it began to wait.
    pub(super) known: u32,
    pub(super) was_admitted: bool,
    /// Empty while it waits.
    pub(super) table: BlockTable,
}

/// A running sequence: what every step needs, in few bytes.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: RequestId,
    /// Its place among the sequences.
    pub(super) slot: usize,
    /// Tokens of the prompt.
    pub(super) prompt: u32,
    /// Tokens of the prompt and of the answer so far.
    pub(super) known: u32,
    /// It is finished when as many are known.
    pub(super) end: u32,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: u32,
    /// Tokens that the current step computes.
    pub(super) scheduled: u32,
    /// As long as no more than this many tokens are computed, the KV cache need not be asked.
    pub(super) covered: u32,
}

impl Sequence {
    pub(super) fn new(request: SequenceRequest, enqueued_at: Timestamp) -> Self {
        Self {
            known: request.prompt_tokens,
            request,
            enqueued_at,
            place: None,
            was_admitted: false,
            table: BlockTable::default(),
        }
    }
}

impl Member {
    /// Tokens that must be computed before the next one comes out. At least one.
    pub(super) fn outstanding(&self) -> u32 {
        self.known - self.computed
    }

    pub(super) fn phase(&self) -> Phase {
        if self.known > self.prompt && self.outstanding() == 1 {
            Phase::Decode
        } else {
            Phase::Prefill
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.known >= self.end
    }
}
