//! Who computes how many tokens in the next step (spec, simulator 13.3 and 14).
//!
//! Running sequences come first, in the order in which they were admitted; what is left of the step's tokens goes to
//! the prompts of waiting ones, in the order of the scheduler. A long prompt is computed in chunks. When a running
//! sequence gets no KV block, others are evicted until it does or is evicted itself, and nobody is admitted in such a
//! step.
//!
//! After a sequence was evicted for its own sake, those behind it are still served. vLLM and the reference simulator leave
//! them out of the step, which may then compute nothing at all although there is work.

use slab::Slab;

use super::adapters::Adapters;
use super::config::InstanceConfig;
use super::event::Event;
use super::kv::KvCache;
use super::queue::WaitQueue;
use super::sequence::{Member, Sequence};
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

/// The parts of an instance that forming a batch works on.
pub(super) struct Formation<'a, S> {
    pub(super) config: &'a InstanceConfig,
    pub(super) kv: &'a mut KvCache,
    pub(super) queue: &'a mut WaitQueue,
    pub(super) sequences: &'a mut Slab<Sequence>,
    pub(super) running: &'a mut Vec<Member>,
    pub(super) adapters: &'a mut Adapters,
    pub(super) blocked: &'a mut Option<Blocked>,
    /// Keeps its memory from step to step.
    pub(super) found: &'a mut Vec<u32>,
    pub(super) sink: S,
}

/// The first of the queue, when it found too few free blocks. What was found out about it is remembered, so that it does
/// not have to be found out again in every step.
#[derive(Debug)]
pub(super) struct Blocked {
    id: RequestId,
    /// Blocks of it that were remembered. No more of them are, unless the next one is stored.
    cached: u32,
    /// The next one, if it has a name.
    next: Option<u64>,
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

impl<S: FnMut(Event)> Formation<'_, S> {
    /// Sets `scheduled` of every running sequence, and admits and preempts as needed.
    pub(super) fn form(mut self, now: Timestamp) -> Formed {
        let mut formed = Formed::default();
        let mut budget = self.config.max_num_batched_tokens.get();
        formed.preemptions = self.continue_running(&mut budget);
        if formed.preemptions == 0 {
            self.admit_waiting(now, budget, &mut formed);
        }
        formed
    }

    fn continue_running(&mut self, budget: &mut u32) -> u64 {
        let mut preemptions = 0;
        let mut at = 0;
        while at < self.running.len() && *budget > 0 {
            let member = &mut self.running[at];
            let new = chunk(self.config, member.outstanding(), *budget);
            let tokens = member.computed + new;
            if tokens > member.covered {
                let sequence = &mut self.sequences[member.slot];
                let Some(covered) = self.kv.grow(&mut sequence.table, &sequence.request.chain, tokens) else {
                    preemptions += 1;
                    let victim = self.config.preemption_policy.victim(self.running, self.sequences);
                    *budget += self.preempt(victim);
                    if victim < at {
                        at -= 1;
                    }
                    continue;
                };
                member.covered = covered;
            }
            member.scheduled = new;
            *budget -= new;
            at += 1;
        }
        preemptions
    }

    /// Evicts the running sequence at `at`. Returns the tokens that it would have computed in this step.
    fn preempt(&mut self, at: usize) -> u32 {
        let member = self.running.remove(at);
        let sequence = &mut self.sequences[member.slot];
        self.kv.release(&mut sequence.table);
        self.adapters.leave(sequence.request.adapter.as_ref());
        sequence.known = member.known;
        sequence.place = Some(self.queue.take_back(&sequence.request, member.slot));
        (self.sink)(Event::Preempted { id: member.id });
        member.scheduled
    }

    fn admit_waiting(&mut self, now: Timestamp, mut budget: u32, formed: &mut Formed) {
        let mut passed = None;
        while budget > 0 && self.running.len() < self.config.max_num_seqs.get() as usize {
            let Some((place, slot)) = self.queue.first_behind(passed) else {
                return;
            };
            let sequence = &mut self.sequences[slot];
            let request = &sequence.request;
            // One whose adapter has no place keeps its own, and those behind it may pass.
            if !self.adapters.have_room(request.adapter.as_ref()) {
                passed = Some(place);
                continue;
            }
            let block_tokens = self.config.block_tokens.get();
            if let Some(blocked) = &*self.blocked
                && blocked.id == request.id
                && blocked.next == self.kv.awaited()
            {
                let new = chunk(self.config, sequence.known - blocked.cached * block_tokens, budget);
                if self.kv.lacks(new.div_ceil(block_tokens)) {
                    self.kv.count_failure();
                    return;
                }
            }
            // At least one token is computed, even of a prompt that is remembered as a whole: the next comes out of it.
            let reusable = ((sequence.known - 1) / block_tokens) as usize;
            let reusable = &request.chain[..reusable.min(request.chain.len())];
            self.kv.find(reusable, self.found);
            let cached = u32::try_from(self.found.len()).expect("there are fewer blocks than tokens");
            let cached_tokens = cached * block_tokens;
            let new = chunk(self.config, sequence.known - cached_tokens, budget);
            let Some((table, covered)) = self.kv.begin(&request.chain, self.found, cached_tokens + new) else {
                let next = reusable.get(cached as usize).copied();
                self.kv.await_name(next);
                *self.blocked = Some(Blocked {
                    id: request.id,
                    cached,
                    next,
                });
                return;
            };

            *self.blocked = None;
            self.queue.remove(place);
            self.adapters.enter(request.adapter.as_ref());
            let id = request.id;
            self.running.push(Member {
                id,
                slot,
                prompt: request.prompt_tokens,
                known: sequence.known,
                end: self.config.end(request),
                computed: cached_tokens,
                scheduled: new,
                covered,
            });
            sequence.table = table;
            sequence.place = None;
            budget -= new;
            if std::mem::replace(&mut sequence.was_admitted, true) {
                (self.sink)(Event::Resumed { id });
                continue;
            }
            formed.queried_tokens += u64::from(sequence.known);
            formed.cached_tokens += u64::from(cached_tokens);
            (self.sink)(Event::Admitted {
                id,
                cached_tokens,
                waited: now - sequence.enqueued_at,
            });
        }
    }
}

fn chunk(config: &InstanceConfig, tokens: u32, budget: u32) -> u32 {
    let threshold = config.long_prefill_token_threshold.map_or(u32::MAX, Into::into);
    tokens.min(threshold).min(budget)
}
