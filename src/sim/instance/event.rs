//! What an instance tells its driver.

use std::time::Duration;

use crate::engine::request::RequestId;

/// What happened to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It entered the batch for the first time. Comes from the start of a step.
    Admitted {
        /// The sequence.
        id: RequestId,
        /// Tokens of its prompt that were found in the KV cache.
        cached_tokens: u32,
        /// Time since it was enqueued.
        waited: Duration,
    },
    /// It lost its blocks and waits again. Comes from the start of a step.
    ///
    /// The tokens that came out stay out, and are computed again together with the prompt, as in vLLM. The reference
    /// simulator forgets them and lets the answer begin anew.
    Preempted {
        /// The sequence.
        id: RequestId,
    },
    /// It entered the batch again after a preemption. Comes from the start of a step.
    Resumed {
        /// The sequence.
        id: RequestId,
    },
    /// A token came out. Comes from the end of a step.
    Token {
        /// The sequence.
        id: RequestId,
        /// Position in the answer; 0 is the first token.
        index: u32,
    },
    /// Its last token came out, just before this, and its blocks are free. Comes from the end of a step.
    Finished {
        /// The sequence.
        id: RequestId,
        /// The answer was cut short: by the limit of the model, or because the KV cache holds no more.
        length_capped: bool,
    },
}

/// A change of what the KV cache remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// The block of this name can be found from now on.
    Stored(u64),
    /// The block of this name is gone.
    Removed(u64),
}
