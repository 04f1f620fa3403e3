//! The limits of an instance.

use std::num::NonZeroU32;

use super::instance::Rejected;

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

impl InstanceConfig {
    /// Tokens that the KV cache holds, and so the longest sequence.
    pub fn capacity_tokens(&self) -> u32 {
        self.kv_blocks.get().saturating_mul(self.block_tokens.get())
    }

    /// Whether a sequence can run at all.
    ///
    /// # Errors
    ///
    /// If its prompt is empty, or prompt and answer do not fit into an empty cache.
    pub fn check(&self, prompt_tokens: u32, output_tokens: u32) -> Result<(), Rejected> {
        if prompt_tokens == 0 {
            return Err(Rejected::EmptyPrompt);
        }
        let tokens = u64::from(prompt_tokens) + u64::from(output_tokens);
        let capacity = self.capacity_tokens();
        if tokens > u64::from(capacity) {
            return Err(Rejected::TooLong { tokens, capacity });
        }
        Ok(())
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
            max_waiting: count(1024),
            block_tokens: count(16),
            kv_blocks: count(32768),
            max_loras: count(4),
        }
    }
}
