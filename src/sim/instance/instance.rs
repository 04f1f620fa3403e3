//! The instance: queue, batch and cache, and the steps that move them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{Formation, Formed};
use super::config::InstanceConfig;
use super::kv::KvCache;
use super::queue::WaitQueue;
use super::sequence::{Sequence, SequenceRequest};
use super::step_time::{ScheduledTokens, StepTime};
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

/// No step is shorter than this, so that time passes whatever a [`StepTime`] says.
const SHORTEST_STEP: Duration = Duration::from_micros(1);

/// A model server.
///
/// The driver calls [`start_step`](Self::start_step) whenever no step is under way and something was enqueued, then
/// [`finish_step`](Self::finish_step) at the time it was told, and then starts the next one. Times never go back.
#[derive(Debug)]
pub struct Instance {
    config: InstanceConfig,
    step_time: Box<dyn StepTime>,
    queue: WaitQueue,
    /// In the order of admission.
    running: Vec<Sequence>,
    kv: KvCache,
    step_ends: Option<Timestamp>,
    totals: Totals,
    batch: Vec<ScheduledTokens>,
}

#[derive(Debug, Default)]
struct Totals {
    preemptions: u64,
    queried_tokens: u64,
    cached_tokens: u64,
}

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
    /// It lost its blocks and waits again, ahead of all others. Comes from the start of a step. The tokens that came out
    /// stay; they are computed again together with the prompt.
    Preempted {
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
    },
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
    /// Prompt and answer together can never fit into the KV cache.
    #[error("prompt and answer have `{tokens}` tokens, and at most `{capacity}` fit into the kv cache")]
    TooLong {
        /// Tokens of prompt and answer.
        tokens: u64,
        /// Tokens of the cache.
        capacity: u32,
    },
    /// There is nothing to continue.
    #[error("the prompt has no tokens, and at least one is needed")]
    EmptyPrompt,
}

/// The state of an instance in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences that wait.
    pub waiting: u32,
    /// Sequences in the batch.
    pub running: u32,
    /// KV blocks that a sequence holds.
    pub kv_used_blocks: u32,
    /// KV blocks of the cache.
    pub kv_total_blocks: u32,
    /// Prompt tokens looked up in the prefix cache so far.
    pub prefix_queried_tokens: u64,
    /// Those of them that were found.
    pub prefix_cached_tokens: u64,
    /// Preemptions so far.
    pub preemptions: u64,
    /// Running sequences by adapter, the base model left out.
    pub running_adapters: BTreeMap<Arc<str>, u32>,
    /// Waiting sequences by adapter, the base model left out.
    pub waiting_adapters: BTreeMap<Arc<str>, u32>,
}

impl Stats {
    /// Share of the KV blocks in use, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.kv_used_blocks) / f64::from(self.kv_total_blocks.max(1))
    }
}

impl Instance {
    /// An idle instance with an empty cache.
    pub fn new(config: InstanceConfig, step_time: Box<dyn StepTime>) -> Self {
        Self {
            queue: WaitQueue::new(config.max_waiting),
            running: Vec::new(),
            kv: KvCache::new(&config),
            step_ends: None,
            totals: Totals::default(),
            batch: Vec::new(),
            config,
            step_time,
        }
    }

    /// The limits that the instance was made with.
    pub fn config(&self) -> &InstanceConfig {
        &self.config
    }

    /// Takes a sequence in. It waits until a step admits it.
    ///
    /// # Errors
    ///
    /// Nothing is changed if the sequence could never run, or if too many wait already.
    pub fn enqueue(&mut self, now: Timestamp, request: SequenceRequest) -> Result<(), Rejected> {
        self.config.check(request.prompt_tokens, request.output_tokens)?;
        if !self.queue.has_room() {
            let limit = self.config.max_waiting.get();
            return Err(Rejected::QueueFull { limit });
        }
        self.queue.push_back(Sequence::new(request, now));
        Ok(())
    }

    /// Drops a sequence, and frees its blocks at once. False if it is not here, or finished before. A step under way is
    /// not shortened.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if let Some(at) = self.running.iter().position(|sequence| sequence.request.id == id) {
            let mut sequence = self.running.remove(at);
            self.kv.release(&mut sequence.table);
            return true;
        }
        self.queue.take_id(id).is_some()
    }

    /// Starts a step, adds what happened to `events`, and returns when the step ends. `None` if there is nothing to do.
    ///
    /// # Panics
    ///
    /// If a step is under way.
    pub fn start_step(&mut self, now: Timestamp, events: &mut Vec<Event>) -> Option<Timestamp> {
        assert!(self.step_ends.is_none(), "one step ends before the next begins");
        let Formed {
            preemptions,
            queried_tokens,
            cached_tokens,
        } = Formation {
            config: &self.config,
            kv: &mut self.kv,
            queue: &mut self.queue,
            running: &mut self.running,
            events,
        }
        .form(now);
        self.totals.preemptions += preemptions;
        self.totals.queried_tokens += queried_tokens;
        self.totals.cached_tokens += cached_tokens;

        let scheduled = self.running.iter().filter(|sequence| sequence.scheduled > 0);
        self.batch.clear();
        self.batch.extend(scheduled.map(|sequence| ScheduledTokens {
            phase: sequence.phase(),
            prompt: sequence.request.prompt_tokens,
            context: sequence.computed,
            new: sequence.scheduled,
        }));
        if self.batch.is_empty() {
            debug_assert_eq!(self.queue.len(), 0, "an idle instance has nobody waiting");
            return None;
        }
        let ends = now + self.step_time.step_time(&self.batch).max(SHORTEST_STEP);
        self.step_ends = Some(ends);
        self.step_ends
    }

    /// Ends the step under way, and adds what came out to `events`, in the order of admission.
    ///
    /// # Panics
    ///
    /// If no step is under way, or it ends later than `now`.
    pub fn finish_step(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        let ends = self.step_ends.take().expect("a step is under way");
        assert!(now >= ends, "the step ends at {ends:?}, and it is {now:?}");
        for sequence in &mut self.running {
            let scheduled = std::mem::take(&mut sequence.scheduled);
            sequence.computed += scheduled;
            if scheduled == 0 || sequence.outstanding() > 0 {
                continue;
            }
            let id = sequence.request.id;
            let index = sequence.generated;
            sequence.generated += 1;
            events.push(Event::Token { id, index });
            if sequence.is_finished() {
                self.kv.release(&mut sequence.table);
                events.push(Event::Finished { id });
            }
        }
        self.running.retain(|sequence| !sequence.is_finished());
    }

    /// When the step under way ends. `None` if there is none.
    pub fn step_ends(&self) -> Option<Timestamp> {
        self.step_ends
    }

    /// The state in numbers. Takes time in proportion to the sequences.
    pub fn stats(&self) -> Stats {
        fn by_adapter<'a>(sequences: impl Iterator<Item = &'a Sequence>) -> BTreeMap<Arc<str>, u32> {
            let mut counts = BTreeMap::new();
            for adapter in sequences.filter_map(|sequence| sequence.request.adapter.clone()) {
                *counts.entry(adapter).or_default() += 1;
            }
            counts
        }
        let count = |sequences: usize| u32::try_from(sequences).unwrap_or(u32::MAX);
        Stats {
            waiting: count(self.queue.len()),
            running: count(self.running.len()),
            kv_used_blocks: self.kv.used(),
            kv_total_blocks: self.kv.total(),
            prefix_queried_tokens: self.totals.queried_tokens,
            prefix_cached_tokens: self.totals.cached_tokens,
            preemptions: self.totals.preemptions,
            running_adapters: by_adapter(self.running.iter()),
            waiting_adapters: by_adapter(self.queue.iter()),
        }
    }

    /// Panics unless every KV block is accounted for.
    #[cfg(test)]
    pub(super) fn assert_conserved(&self) {
        self.kv.assert_conserved(
            self.running
                .iter()
                .chain(self.queue.iter())
                .map(|sequence| &sequence.table),
        );
    }

    /// What the step under way computes.
    #[cfg(test)]
    pub(super) fn batch(&self) -> &[ScheduledTokens] {
        &self.batch
    }
}
