//! Who computes how many tokens in the next step (spec, simulator 13.3 and 14).
//!
//! Running sequences come first, in the order in which they were admitted; what is left of the step's tokens goes to
//! the prompts of waiting ones, first come, first served. A long prompt is computed in chunks. A running sequence that
//! gets no KV block evicts the one admitted last, and nobody is admitted in such a step.

use super::config::InstanceConfig;
use super::instance::Event;
use super::kv::KvCache;
use super::queue::WaitQueue;
use super::sequence::Sequence;
use crate::engine::time::Timestamp;

/// The parts of an instance that forming a batch works on.
pub(super) struct Formation<'a> {
    pub(super) config: &'a InstanceConfig,
    pub(super) kv: &'a mut KvCache,
    pub(super) queue: &'a mut WaitQueue,
    pub(super) running: &'a mut Vec<Sequence>,
    pub(super) events: &'a mut Vec<Event>,
}

/// What forming a batch came to, beside the batch.
#[derive(Debug, Default)]
pub(super) struct Formed {
    pub(super) preemptions: u64,
    /// Tokens that were looked up in the prefix cache.
    pub(super) queried_tokens: u64,
    /// Those of them that were found.
    pub(super) cached_tokens: u64,
}

impl Formation<'_> {
    /// Sets `scheduled` of every running sequence, and admits and preempts as needed.
    pub(super) fn form(mut self, now: Timestamp) -> Formed {
        let mut formed = Formed::default();
        let mut budget = self.config.max_num_batched_tokens.get();
        formed.preemptions = self.continue_running(&mut budget);
        if formed.preemptions == 0 {
            self.admit_waiting(now, &mut budget, &mut formed);
        }
        formed
    }

    fn continue_running(&mut self, budget: &mut u32) -> u64 {
        let mut preemptions = 0;
        let mut at = 0;
        while at < self.running.len() && *budget > 0 {
            let new = self.chunk(self.running[at].outstanding(), *budget);
            let sequence = &mut self.running[at];
            let tokens = sequence.computed + new;
            if self.kv.grow(&mut sequence.table, &sequence.request.chain, tokens) {
                sequence.scheduled = new;
                *budget -= new;
                at += 1;
            } else {
                // The victim stands at or behind `at`: it has no tokens in this step that would have to be given back.
                preemptions += 1;
                self.preempt_last();
            }
        }
        preemptions
    }

    fn preempt_last(&mut self) {
        let mut victim = self.running.pop().expect("a sequence that needs blocks is running");
        self.kv.release(&mut victim.table);
        victim.computed = 0;
        victim.was_preempted = true;
        self.events.push(Event::Preempted { id: victim.request.id });
        self.queue.push_front(victim);
    }

    fn admit_waiting(&mut self, now: Timestamp, budget: &mut u32, formed: &mut Formed) {
        let mut at = 0;
        while *budget > 0 && self.running.len() < self.config.max_num_seqs.get() as usize {
            let Some(sequence) = self.queue.peek(at) else { return };
            // One whose adapter has no place keeps its own, and those behind it may pass.
            if !self.has_adapter_room(sequence) {
                at += 1;
                continue;
            }
            let request = &sequence.request;
            // At least one token is computed, even of a prompt that is remembered as a whole: the next comes out of it.
            let block_tokens = self.config.block_tokens.get();
            let reusable = ((sequence.known() - 1) / block_tokens) as usize;
            let cached = self
                .kv
                .cached_blocks(&request.chain[..reusable.min(request.chain.len())]);
            let cached_tokens = u32::try_from(cached).expect("there are fewer blocks than tokens") * block_tokens;
            let new = self.chunk(sequence.known() - cached_tokens, *budget);
            let Some(table) = self.kv.begin(&request.chain, cached, cached_tokens + new) else {
                return;
            };

            let mut sequence = self.queue.take(at).expect("the sequence was looked at before");
            sequence.table = table;
            sequence.computed = cached_tokens;
            sequence.scheduled = new;
            *budget -= new;
            if !sequence.was_preempted {
                formed.queried_tokens += u64::from(sequence.known());
                formed.cached_tokens += u64::from(cached_tokens);
                self.events.push(Event::Admitted {
                    id: sequence.request.id,
                    cached_tokens,
                    waited: now - sequence.enqueued_at,
                });
            }
            self.running.push(sequence);
        }
    }

    fn chunk(&self, tokens: u32, budget: u32) -> u32 {
        let threshold = self.config.long_prefill_token_threshold.map_or(u32::MAX, Into::into);
        tokens.min(threshold).min(budget)
    }

    fn has_adapter_room(&self, sequence: &Sequence) -> bool {
        let Some(adapter) = &sequence.request.adapter else {
            return true;
        };
        let mut others: Vec<_> = self
            .running
            .iter()
            .filter_map(|running| running.request.adapter.as_ref())
            .collect();
        others.sort_unstable();
        others.dedup();
        others.len() < self.config.max_loras.get() as usize || others.contains(&adapter)
    }
}
