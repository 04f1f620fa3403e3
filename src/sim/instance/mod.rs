//! One model server: a wait queue, a batch that changes at every step, and a KV cache (spec, simulator 13 to 15).
//!
//! The driver hands over sequences ([`SequenceRequest`]) and turns the crank of an [`Instance`]: `start_step` says when
//! the step ends, `finish_step` at that time says what came out. Nothing here reads a clock, and how long a step takes
//! is the answer of a [`StepTime`].
//!
//! What holds at all times:
//!
//! - every sequence that was taken in leaves exactly once: it finishes, or it is cancelled;
//! - used and free KV blocks add up to all blocks;
//! - a batch never exceeds its sequences, its tokens per step or its adapters;
//! - the effects of a step (tokens, ends, freed blocks) show when it ends, not when it begins;
//! - no step is skipped while sequences wait;
//! - who is refused, chosen or evicted does not depend on the true length of an answer.
//!
//! Where it is not what the reference simulator does: effects show at the end of a step; a prompt that is remembered as a
//! whole has its last tokens computed; tokens that came out stay out after a preemption; a sequence that evicts itself
//! does not hold up those behind it; and an answer ends when an empty cache would hold no more of it, where the reference
//! would preempt the sequence for ever.
//!
//! Read `instance.rs` first, then `batch.rs` (who gets tokens in a step), `scheduler.rs`, `kv.rs` and `queue.rs`.

mod adapters;
mod batch;
mod chain;
mod config;
mod event;
mod free_list;
#[allow(
    clippy::module_inception,
    reason = "the room is named for the thing, and so is the file of its main type"
)]
mod instance;
mod kv;
mod names;
mod queue;
mod scheduler;
mod sequence;
mod stats;
mod step_time;

pub use chain::{BYTES_PER_TOKEN, BlockChain};
pub use config::{InstanceConfig, Rejected};
pub use event::{CacheEvent, Event};
pub use instance::Instance;
pub use scheduler::{PreemptionPolicy, Scheduler, UnknownPolicy};
pub use sequence::SequenceRequest;
pub use stats::{Load, Stats};
pub use step_time::{LinearStepTime, Phase, ScheduledTokens, StepTime};

#[cfg(test)]
mod tests;
