//! The instance: queue, batch and cache, and the steps that move them.

use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::FxHashMap;
use slab::Slab;

use super::adapters::Adapters;
use super::batch::{Blocked, Formation, Formed};
use super::config::{InstanceConfig, Rejected};
use super::event::{CacheEvent, Event};
use super::kv::{KvCache, KvCounts};
use super::queue::WaitQueue;
use super::sequence::{Member, Sequence, SequenceRequest};
use super::stats::{Load, Stats};
use super::step_time::{ScheduledTokens, StepTime};
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;
use crate::sim::record::InstanceTotals;

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
    /// Those that wait and those that run.
    sequences: Slab<Sequence>,
    /// Their slots.
    by_id: FxHashMap<RequestId, usize>,
    queue: WaitQueue,
    /// In the order of admission.
    running: Vec<Member>,
    adapters: Adapters,
    kv: KvCache,
    blocked: Option<Blocked>,
    step_ends: Option<Timestamp>,
    totals: Totals,
    batch: Vec<ScheduledTokens>,
    found: Vec<u32>,
}

#[derive(Debug, Default)]
struct Totals {
    preemptions: u64,
    queried_tokens: u64,
    cached_tokens: u64,
    input_tokens: u64,
    steps: u64,
    waiting_sum: u64,
    peak_kv_blocks: u32,
}

impl Instance {
    /// An idle instance with an empty cache.
    pub fn new(config: InstanceConfig, step_time: Box<dyn StepTime>) -> Self {
        Self {
            sequences: Slab::new(),
            by_id: FxHashMap::default(),
            queue: WaitQueue::new(config.scheduler, config.max_waiting),
            running: Vec::new(),
            adapters: Adapters::new(config.max_loras.get()),
            kv: KvCache::new(&config),
            blocked: None,
            step_ends: None,
            totals: Totals::default(),
            batch: Vec::new(),
            found: Vec::new(),
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
        self.config.check(request.prompt_tokens, request.max_output_tokens)?;
        if !self.queue.has_room() {
            let limit = self.config.max_waiting.get();
            return Err(Rejected::QueueFull { limit });
        }
        self.totals.input_tokens += u64::from(request.prompt_tokens);
        let id = request.id;
        let slot = self.sequences.insert(Sequence::new(request, now));
        let sequence = &mut self.sequences[slot];
        sequence.place = Some(self.queue.push(&sequence.request, slot));
        let before = self.by_id.insert(id, slot);
        debug_assert_eq!(before, None, "an id names one sequence");
        Ok(())
    }

    /// Drops a sequence, and frees its blocks at once. False if it is not here, or finished before. A step under way is
    /// not shortened. Takes time in proportion to the batch.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.by_id.remove(&id) else {
            return false;
        };
        let mut sequence = self.sequences.remove(slot);
        match sequence.place {
            Some(place) => self.queue.remove(place),
            None => {
                self.running.retain(|member| member.slot != slot);
                self.kv.release(&mut sequence.table);
                self.adapters.leave(sequence.request.adapter.as_ref());
            }
        }
        true
    }

    /// Its process ends and another one begins: what it had is gone, a step under way with it, and its cache is empty. Gives
    /// the sequences that are lost, in order of their ids. What it did so far stays counted.
    pub fn crash(&mut self) -> Vec<RequestId> {
        let mut lost: Vec<RequestId> = self.sequences.iter().map(|(_, sequence)| sequence.request.id).collect();
        lost.sort_unstable();
        for &id in &lost {
            self.cancel(id);
        }
        self.kv.forget_all();
        self.blocked = None;
        self.step_ends = None;
        lost
    }

    /// Starts a step, tells `sink` what happened, and returns when the step ends. `None` if there is nothing to do.
    ///
    /// # Panics
    ///
    /// If a step is under way.
    pub fn start_step(&mut self, now: Timestamp, sink: impl FnMut(Event)) -> Option<Timestamp> {
        assert!(self.step_ends.is_none(), "one step ends before the next begins");
        let Formed {
            preemptions,
            queried_tokens,
            cached_tokens,
        } = Formation {
            config: &self.config,
            kv: &mut self.kv,
            queue: &mut self.queue,
            sequences: &mut self.sequences,
            running: &mut self.running,
            adapters: &mut self.adapters,
            blocked: &mut self.blocked,
            found: &mut self.found,
            sink,
        }
        .form(now);
        self.totals.preemptions += preemptions;
        self.totals.queried_tokens += queried_tokens;
        self.totals.cached_tokens += cached_tokens;

        let scheduled = self.running.iter().filter(|member| member.scheduled > 0);
        self.batch.clear();
        self.batch.extend(scheduled.map(|member| ScheduledTokens {
            phase: member.phase(),
            prompt: member.prompt,
            context: member.computed,
            new: member.scheduled,
        }));
        if self.batch.is_empty() {
            debug_assert!(self.sequences.is_empty(), "an idle instance has nobody waiting");
            return None;
        }
        self.totals.steps += 1;
        self.totals.waiting_sum += self.queue.len() as u64;
        self.totals.peak_kv_blocks = self.totals.peak_kv_blocks.max(self.kv.used());
        let ends = now + self.step_time.step_time(&self.batch).max(SHORTEST_STEP);
        self.step_ends = Some(ends);
        self.step_ends
    }

    /// Ends the step under way, and tells `sink` what came out, in the order of admission.
    ///
    /// # Panics
    ///
    /// If no step is under way, or it ends later than `now`.
    pub fn finish_step(&mut self, now: Timestamp, mut sink: impl FnMut(Event)) {
        let ends = self.step_ends.take().expect("a step is under way");
        assert!(now >= ends, "the step ends at {ends:?}, and it is {now:?}");
        let mut finished = 0_usize;
        for member in &mut self.running {
            let scheduled = std::mem::take(&mut member.scheduled);
            member.computed += scheduled;
            if scheduled == 0 || member.computed < member.known {
                continue;
            }
            let id = member.id;
            let index = member.known - member.prompt;
            member.known += 1;
            sink(Event::Token { id, index });
            if member.is_finished() {
                finished += 1;
                self.by_id.remove(&id);
                let mut sequence = self.sequences.remove(member.slot);
                self.kv.release(&mut sequence.table);
                self.adapters.leave(sequence.request.adapter.as_ref());
                let length_capped = index + 1 < sequence.request.output_tokens;
                sink(Event::Finished { id, length_capped });
            }
        }
        if finished > 0 {
            self.running.retain(|member| !member.is_finished());
        }
    }

    /// When the step under way ends. `None` if there is none.
    pub fn step_ends(&self) -> Option<Timestamp> {
        self.step_ends
    }

    /// Queue, batch and cache in numbers, at the cost of reading them.
    pub fn load(&self) -> Load {
        let count = |sequences: usize| u32::try_from(sequences).unwrap_or(u32::MAX);
        Load {
            waiting: count(self.queue.len()),
            running: count(self.running.len()),
            kv_used_blocks: self.kv.used(),
            kv_total_blocks: self.kv.total(),
            preemptions: self.totals.preemptions,
        }
    }

    /// The state in numbers. Takes time in proportion to the sequences that wait.
    pub fn stats(&self) -> Stats {
        let mut waiting_adapters = BTreeMap::new();
        let adapters = (self.queue.slots()).filter_map(|slot| self.sequences[slot].request.adapter.clone());
        for adapter in adapters {
            *waiting_adapters.entry(adapter).or_default() += 1;
        }
        Stats {
            load: self.load(),
            prefix_queried_tokens: self.totals.queried_tokens,
            prefix_cached_tokens: self.totals.cached_tokens,
            running_adapters: self.adapters.iter().cloned().collect(),
            waiting_adapters,
        }
    }

    /// What it did so far. The waiting ones of a step are those that still wait when its batch is formed.
    pub fn totals(&self) -> InstanceTotals {
        let KvCounts { hits, misses, failures } = self.kv.counts();
        InstanceTotals {
            preemptions: self.totals.preemptions,
            block_hits: hits,
            block_misses: misses,
            input_tokens: self.totals.input_tokens,
            steps: self.totals.steps,
            waiting_sum: self.totals.waiting_sum,
            kv_allocations_refused: failures,
            peak_kv_blocks: self.totals.peak_kv_blocks,
        }
    }

    /// How many blocks at the start of `chain` the KV cache remembers.
    pub fn cached_blocks(&self, chain: &[u64]) -> usize {
        self.kv.cached_blocks(chain)
    }

    /// Records from now on what the KV cache stores and forgets. The record grows until it is
    /// [drained](Self::drain_cache_events), by up to two entries for each block that a step fills.
    pub fn watch_cache(&mut self) {
        self.kv.watch();
    }

    /// Adds to `events` what the KV cache stored and forgot since the last call, in order. A block counts as stored from
    /// the start of the step that fills it.
    pub fn drain_cache_events(&mut self, events: &mut Vec<CacheEvent>) {
        self.kv.drain_changes(events);
    }

    /// Panics unless every KV block and every sequence is accounted for.
    #[cfg(test)]
    pub(super) fn assert_conserved(&self) {
        self.kv
            .assert_conserved(self.sequences.iter().map(|(_, sequence)| &sequence.table));
        assert_eq!(self.sequences.len(), self.queue.len() + self.running.len());
        assert_eq!(self.sequences.len(), self.by_id.len());
        for member in &self.running {
            assert_eq!(self.sequences[member.slot].place, None);
            assert_eq!(self.sequences[member.slot].request.id, member.id);
        }
        for slot in self.queue.slots() {
            assert!(self.sequences[slot].place.is_some());
        }
    }

    /// Finds out again in the next step what is known about the first of the queue.
    #[cfg(test)]
    pub(super) fn forget_blocked(&mut self) {
        self.blocked = None;
    }

    /// What the step under way computes.
    #[cfg(test)]
    pub(super) fn batch(&self) -> &[ScheduledTokens] {
        &self.batch
    }
}
