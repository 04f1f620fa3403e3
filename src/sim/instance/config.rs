//! The limits of an instance, and what it refuses.

use std::num::NonZeroU32;

use super::scheduler::{PreemptionPolicy, Scheduler};
use super::sequence::SequenceRequest;

/// What an instance has room for. The defaults are those of vLLM where it has them, and else resemble a model of
/// eight billion parameters on one GPU of 80 GB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceConfig {
    /// Sequences that may run at once. Default: 256.
    pub max_num_seqs: NonZeroU32,
    /// Tokens that one step may process, over all sequences. Default: 2048.
    pub max_num_batched_tokens: NonZeroU32,
    /// Tokens of one prompt that one step may process. Default: no limit but that of the step.
    pub long_prefill_token_threshold: Option<NonZeroU32>,
    /// Tokens of prompt and answer together. An answer that would become longer ends there. Default: no limit but that
    /// of the KV cache.
    pub max_model_len: Option<NonZeroU32>,
    /// The order of the wait queue. Default: first come, first served.
    pub scheduler: Scheduler,
    /// Who is evicted when KV blocks run out. Default: the one that was admitted last.
    pub preemption_policy: PreemptionPolicy,
    /// Sequences that may wait at once; one more is refused. Preempted sequences are taken back beyond it. Default:
    /// 1024.
    pub max_waiting: NonZeroU32,
    /// Tokens of a KV block. Default: 16.
    pub block_tokens: NonZeroU32,
    /// KV blocks of the cache. Default: 32768, which is 524288 tokens of 16 a block.
    pub kv_blocks: NonZeroU32,
    /// Different LoRA adapters that may run at once. Default: 4.
    pub max_loras: NonZeroU32,
}

/// Why a sequence is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// As many sequences wait as may.
    #[error("`{limit}` sequences wait already, and no more may")]
    QueueFull {
        /// The bound of the queue.
        limit: u32,
    },
    /// There is nothing to continue.
    #[error("the prompt has no tokens, and at least one is needed")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error("the prompt has `{prompt_tokens}` tokens, and prompt and answer together may have `{limit}`")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Tokens that prompt and answer may have.
        limit: u32,
    },
    /// Prompt and declared answer are too long.
    #[error(
        "the prompt has `{prompt_tokens}` tokens and the answer up to `{max_output_tokens}`, and together they may have \
         `{limit}`"
    )]
    BudgetTooLong {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Tokens that the answer may have, as the client declared.
        max_output_tokens: u32,
        /// Tokens that prompt and answer may have.
        limit: u32,
    },
    /// The prompt can never fit into the KV cache.
    #[error("the prompt has `{prompt_tokens}` tokens, and at most `{capacity}` fit into the kv cache")]
    PromptExceedsCache {
        /// Tokens of the prompt.
        prompt_tokens: u32,
        /// Tokens of the cache.
        capacity: u32,
    },
}

impl InstanceConfig {
    /// Tokens that the KV cache holds. Saturates one below the largest number.
    pub fn capacity_tokens(&self) -> u32 {
        let tokens = self.kv_blocks.get().saturating_mul(self.block_tokens.get());
        tokens.min(u32::MAX - 1)
    }

    /// Whether a sequence can run at all (spec, simulator 13.1, guards 2 to 6). The true length of the answer plays no
    /// part: `max_output_tokens` is what the client declared, and `None` and zero mean nothing.
    ///
    /// # Errors
    ///
    /// If the prompt is empty, or prompt and declared answer exceed [`max_model_len`](Self::max_model_len), or the prompt
    /// does not fit into an empty cache.
    pub fn check(&self, prompt_tokens: u32, max_output_tokens: Option<u32>) -> Result<(), Rejected> {
        if prompt_tokens == 0 {
            return Err(Rejected::EmptyPrompt);
        }
        if let Some(limit) = self.max_model_len.map(NonZeroU32::get) {
            if prompt_tokens >= limit {
                return Err(Rejected::PromptTooLong { prompt_tokens, limit });
            }
            let max_output_tokens = max_output_tokens.unwrap_or(0);
            if max_output_tokens > limit - prompt_tokens {
                return Err(Rejected::BudgetTooLong {
                    prompt_tokens,
                    max_output_tokens,
                    limit,
                });
            }
        }
        let capacity = self.capacity_tokens();
        if prompt_tokens > capacity {
            return Err(Rejected::PromptExceedsCache {
                prompt_tokens,
                capacity,
            });
        }
        Ok(())
    }

    /// Tokens of prompt and answer with which a sequence that passed [`check`](Self::check) ends: all of them, or as many
    /// as the model's limit or an empty cache allows. The last token of an answer needs no place in the cache.
    pub(super) fn end(&self, request: &SequenceRequest) -> u32 {
        let wanted = request.prompt_tokens.saturating_add(request.output_tokens.max(1));
        let limit = self.max_model_len.map_or(u32::MAX, NonZeroU32::get);
        wanted.min(limit).min(self.capacity_tokens() + 1)
    }
}

impl Default for InstanceConfig {
    fn default() -> Self {
        const fn count(value: u32) -> NonZeroU32 {
            NonZeroU32::new(value).expect("a default is not zero")
        }
        Self {
            max_num_seqs: count(256),
            max_num_batched_tokens: count(2048),
            long_prefill_token_threshold: None,
            max_model_len: None,
            scheduler: Scheduler::default(),
            preemption_policy: PreemptionPolicy::default(),
            max_waiting: count(1024),
            block_tokens: count(16),
            kv_blocks: count(32768),
            max_loras: count(4),
        }
    }
}
