//! The parts of the engine, held together.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::config::plan::{PrefixProducer, SchedulingPlan};
use super::outcome::{Outcome, Refusal, Tally};
use super::pool::{Endpoint, Pool, PoolChange, Slot};
use super::prefix::{BlockLayout, IndexLimits, MIN_BLOCK_TOKENS, PrefixIndex};
use super::request::{Kind, Request, RequestId};
use super::scheduling::{
    Chosen, Cycle, Decision, Explain, NoDecision, PrefixHit, PrefixMatches, Probe, Scheduler, Why,
};
use super::seed::{Chance, Seed};
use super::time::Timestamp;

/// Decides where requests go, and keeps the accounts of those that went.
///
/// The engine is a value: it does nothing by itself. Its driver tells it what happened ([`submit`](Self::submit),
/// [`cancel`](Self::cancel), [`progress`](Self::progress), [`pool_changed`](Self::pool_changed),
/// [`replan`](Self::replan)), and after each of these calls [`poll`](Self::poll)s until there is no more [`Effect`].
/// It calls `poll` again no later than at [`deadline`](Self::deadline). The time that it passes in never decreases.
///
/// Equal calls with equal seeds give equal effects. Each submitted request ends in exactly one [`Outcome`].
#[derive(Debug)]
pub struct Engine {
    scheduler: Scheduler,
    prefix: Vec<Producer>,
    /// What the producers found for the request at hand, in their order.
    matches: Vec<PrefixMatches>,
    pool: Pool,
    in_flight: FxHashMap<RequestId, Booking>,
    effects: VecDeque<Effect>,
    tally: Tally,
    chance: Chance,
    probe: Box<dyn Probe>,
    explain: Explain,
    candidates: Vec<Slot>,
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send the request to the endpoints of the decision. It is in flight until [`Progress::Ended`] or a cancel.
    Route {
        /// The request.
        id: RequestId,
        /// Where it goes, and why.
        decision: Decision,
    },
    /// Tell the client no. The request has ended.
    Refuse {
        /// The request.
        id: RequestId,
        /// Why.
        refusal: Refusal,
    },
}

impl Effect {
    /// The request that this is about.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Route { id, .. } | Self::Refuse { id, .. } => *id,
        }
    }
}

/// What became of a request that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The first bytes of the answer were seen: the prompt has been processed.
    AnswerBegan,
    /// The answer is over, or will not come.
    Ended(Outcome),
}

#[derive(Debug)]
struct Producer {
    settings: PrefixProducer,
    index: PrefixIndex,
}

/// What a request in flight has booked on its endpoint.
#[derive(Debug)]
struct Booking {
    slot: Slot,
    joined: u64,
    requests: u32,
    tokens: u64,
}

impl Engine {
    /// An engine with an empty pool.
    pub fn new(plan: SchedulingPlan, seed: Seed, probe: Box<dyn Probe>, explain: Explain) -> Self {
        let (scheduler, prefix) = parts(plan, explain, Vec::new());
        Self {
            scheduler,
            matches: vec![PrefixMatches::default(); prefix.len()],
            prefix,
            pool: Pool::default(),
            in_flight: FxHashMap::default(),
            effects: VecDeque::new(),
            tally: Tally::default(),
            chance: seed.stream("picker"),
            probe,
            explain,
            candidates: Vec::new(),
        }
    }

    /// Takes a request in. `id` must be new.
    pub fn submit(&mut self, now: Timestamp, id: RequestId, request: &Request) {
        self.tally.submitted += 1;
        match self.decide(now, request) {
            Ok((primary, decision)) => {
                self.book(id, primary, request);
                self.effects.push_back(Effect::Route { id, decision });
            }
            Err(refusal) => {
                self.tally.end(Outcome::Refused(refusal));
                self.effects.push_back(Effect::Refuse { id, refusal });
            }
        }
    }

    /// The client is gone. Whatever the request holds is given back at once, and no effect about it follows.
    pub fn cancel(&mut self, now: Timestamp, id: RequestId) {
        self.progress(now, id, Progress::Ended(Outcome::Disconnected));
    }

    /// A request that was routed got on. About others, or after its end, nothing happens.
    pub fn progress(&mut self, _now: Timestamp, id: RequestId, progress: Progress) {
        let Some(booking) = self.in_flight.get_mut(&id) else {
            return;
        };
        let member = match self.pool.get(booking.slot) {
            Some(member) if member.joined == booking.joined => Some(self.pool.member_mut(booking.slot)),
            _ => None,
        };
        let tokens = std::mem::take(&mut booking.tokens);
        if let Some(member) = member {
            member.in_flight.tokens -= tokens;
            if let Progress::Ended(_) = progress {
                member.in_flight.requests -= booking.requests;
            }
        }
        if let Progress::Ended(outcome) = progress {
            self.in_flight.remove(&id);
            self.tally.end(outcome);
        }
    }

    /// The pool, or what is known of it, changed.
    pub fn pool_changed(&mut self, _now: Timestamp, changes: Vec<PoolChange>) {
        for change in changes {
            match change {
                PoolChange::Upsert(endpoint) => {
                    self.pool.upsert(endpoint);
                }
                PoolChange::Remove(id) => {
                    if let Some((slot, _)) = self.pool.remove(&id) {
                        self.prefix.iter_mut().for_each(|producer| producer.index.forget(slot));
                    }
                }
                PoolChange::Report(id, update) => {
                    self.pool.report(&id, update);
                }
            }
        }
    }

    /// Another plan takes over. Requests in flight, the pool, and what unchanged producers remember stay as they are.
    pub fn replan(&mut self, _now: Timestamp, plan: SchedulingPlan) {
        let remembered = std::mem::take(&mut self.prefix);
        (self.scheduler, self.prefix) = parts(plan, self.explain, remembered);
        self.matches.resize(self.prefix.len(), PrefixMatches::default());
    }

    /// The next thing to do, if there is one.
    pub fn poll(&mut self, _now: Timestamp) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When `poll` must be called though nothing happened. Never, as long as no request waits.
    pub fn deadline(&self) -> Option<Timestamp> {
        None
    }

    /// The endpoints, and what is known of them.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// How many requests came, and how they ended.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Requests that were routed and have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Each prefix producer by instance name, and how many blocks it remembers.
    pub fn prefix_blocks(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.prefix.iter().map(|p| (&p.settings.name, p.index.len()))
    }

    /// How the prompts of new requests are to be cut in blocks: by the first producer's settings, or the block size
    /// that the first endpoint reports. All producers work with these blocks. `None` if no producer is in use.
    pub fn block_layout(&self) -> Option<BlockLayout> {
        let params = &self.prefix.first()?.settings.params;
        let first = self.pool.iter().next();
        let reported = first.map_or(0, |(_, member)| member.signals.block_tokens);
        let wanted = match reported {
            1.. if params.auto_tune => reported,
            _ => params.block_size_tokens,
        };
        let block_tokens = wanted.max(MIN_BLOCK_TOKENS);
        Some(BlockLayout {
            block_tokens,
            max_blocks: params.max_blocks(block_tokens).unwrap_or(u32::MAX),
        })
    }

    fn decide(&mut self, now: Timestamp, request: &Request) -> Result<(Slot, Decision), Refusal> {
        self.pool.select(&request.subset, &mut self.candidates);
        if self.candidates.is_empty() {
            return Err(Refusal::NoEndpoints);
        }
        if request.kind == Kind::Bodiless {
            return Ok(self.any_candidate());
        }
        self.probe.cycle_begins();
        for (producer, found) in self.prefix.iter().zip(&mut self.matches) {
            let blocks = &request.prompt_blocks;
            found.total = u32::try_from(blocks.hashes().len()).unwrap_or(u32::MAX);
            found.block_tokens = blocks.block_tokens();
            producer.index.matches(blocks, self.pool.capacity(), &mut found.matched);
        }
        let cycle = Cycle::new(now, request, &self.matches);
        let chosen = self
            .scheduler
            .schedule(&cycle, &self.pool, &self.candidates, &mut self.chance, &mut *self.probe);
        self.probe.cycle_ended();
        let chosen = chosen.map_err(|none| match none {
            NoDecision::FilteredOut => Refusal::FilteredOut,
            NoDecision::NothingRan => Refusal::Unschedulable,
        })?;
        Ok(self.decision(chosen))
    }

    /// Any endpoint will do: no profile runs, and nothing is scored.
    fn any_candidate(&mut self) -> (Slot, Decision) {
        use rand::RngExt;

        let at = self.chance.random_range(0..self.candidates.len());
        let slot = self.candidates[at];
        let decision = Decision {
            endpoints: SmallVec::from_elem(self.pool[slot].endpoint.clone(), 1),
            profile: Arc::from(""),
            prefix: SmallVec::new(),
            why: Arc::new(Why::unscored(self.candidates.len())),
        };
        (slot, decision)
    }

    fn decision(&self, Chosen { slots, profile, why }: Chosen) -> (Slot, Decision) {
        let primary = slots[0];
        let endpoint = |&slot: &Slot| -> Arc<Endpoint> { self.pool[slot].endpoint.clone() };
        let hit = |(producer, found): (&Producer, &PrefixMatches)| PrefixHit {
            producer: producer.settings.name.clone(),
            matched: found.matched(primary),
            total: found.total,
            block_tokens: found.block_tokens,
        };
        let decision = Decision {
            endpoints: slots.iter().map(endpoint).collect(),
            profile,
            prefix: self.prefix.iter().zip(&self.matches).map(hit).collect(),
            why: Arc::new(why),
        };
        (primary, decision)
    }

    fn book(&mut self, id: RequestId, slot: Slot, request: &Request) {
        let (requests, tokens) = match request.kind {
            Kind::Inference => (1, u64::from(request.prompt_tokens)),
            Kind::Bodiless => (0, 0),
        };
        let member = self.pool.member_mut(slot);
        member.in_flight.requests += requests;
        member.in_flight.tokens += tokens;
        let booking = Booking {
            slot,
            joined: member.joined,
            requests,
            tokens,
        };
        let reported = member.signals.total_blocks as usize;
        for Producer { settings, index } in &mut self.prefix {
            let params = &settings.params;
            let capacity = if params.auto_tune && reported > 0 {
                reported
            } else {
                params.capacity
            };
            index.record(slot, &request.prompt_blocks, capacity);
        }
        let before = self.in_flight.insert(id, booking);
        debug_assert!(before.is_none(), "request ids are used once");
    }
}

/// A plan at work. A producer that was there before, with the same settings, keeps what it remembers.
fn parts(plan: SchedulingPlan, explain: Explain, mut remembered: Vec<Producer>) -> (Scheduler, Vec<Producer>) {
    let mut scheduler = Scheduler::new(plan.handler, plan.profiles, plan.instances);
    scheduler.explain(explain);
    let producer = |settings: PrefixProducer| {
        let before = remembered.iter().position(|producer| producer.settings == settings);
        before.map(|at| remembered.swap_remove(at)).unwrap_or_else(|| Producer {
            index: PrefixIndex::new(IndexLimits::default()),
            settings,
        })
    };
    let prefix = plan.prefix.into_iter().map(producer).collect();
    (scheduler, prefix)
}

#[cfg(test)]
mod tests;
