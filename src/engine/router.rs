//! From a request and a pool to a decision: candidates, prefix matches, scheduling.

use std::sync::Arc;

use rand::RngExt;
use smallvec::SmallVec;

use super::config::plan::{PrefixProducer, SchedulingPlan};
use super::outcome::Refusal;
use super::pool::{Endpoint, Pool, Slot};
use super::prefix::{BlockLayout, IndexLimits, MIN_BLOCK_TOKENS, PrefixIndex};
use super::request::{Kind, Request};
use super::scheduling::{
    Chosen, Cycle, Decision, Explain, NoDecision, PrefixHit, PrefixMatches, Probe, Scheduler, Why,
};
use super::seed::Chance;
use super::time::Timestamp;

/// Chooses endpoints, and remembers who served which prefix.
#[derive(Debug)]
pub(super) struct Router {
    scheduler: Scheduler,
    producers: Vec<Producer>,
    /// What the producers found for the request at hand, in their order.
    matches: Vec<PrefixMatches>,
    chance: Chance,
    explain: Explain,
    candidates: Vec<Slot>,
}

#[derive(Debug)]
struct Producer {
    settings: PrefixProducer,
    index: PrefixIndex,
}

impl Router {
    pub(super) fn new(plan: SchedulingPlan, chance: Chance, explain: Explain) -> Self {
        let (scheduler, producers) = parts(plan, explain, Vec::new());
        Self {
            scheduler,
            matches: vec![PrefixMatches::default(); producers.len()],
            producers,
            chance,
            explain,
            candidates: Vec::new(),
        }
    }

    /// Another plan takes over. What unchanged producers remember stays.
    pub(super) fn replan(&mut self, plan: SchedulingPlan) {
        let remembered = std::mem::take(&mut self.producers);
        (self.scheduler, self.producers) = parts(plan, self.explain, remembered);
        self.matches.resize(self.producers.len(), PrefixMatches::default());
    }

    /// Forgets what the endpoint that was in `slot` served.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.producers
            .iter_mut()
            .for_each(|producer| producer.index.forget(slot));
    }

    /// Notes that the endpoint in `slot` serves the prompt of `request`.
    pub(super) fn record(&mut self, slot: Slot, pool: &Pool, request: &Request) {
        let reported = pool[slot].signals.total_blocks as usize;
        for Producer { settings, index } in &mut self.producers {
            let params = &settings.params;
            let capacity = if params.auto_tune && reported > 0 {
                reported
            } else {
                params.capacity
            };
            index.record(slot, &request.prompt_blocks, capacity);
        }
    }

    /// Each prefix producer by instance name, and how many blocks it remembers.
    pub(super) fn prefix_blocks(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.producers.iter().map(|p| (&p.settings.name, p.index.len()))
    }

    /// See [`Engine::block_layout`](super::Engine::block_layout).
    pub(super) fn block_layout(&self, pool: &Pool) -> Option<BlockLayout> {
        let params = &self.producers.first()?.settings.params;
        let first = pool.iter().next();
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

    /// The endpoints for a request, and the slot of the first one.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: &Request,
        pool: &Pool,
        probe: &mut dyn Probe,
    ) -> Result<(Slot, Decision), Refusal> {
        pool.select(&request.subset, &mut self.candidates);
        if self.candidates.is_empty() {
            return Err(Refusal::NoEndpoints);
        }
        if request.kind == Kind::Bodiless {
            return Ok(self.any_candidate(pool));
        }
        probe.cycle_begins();
        for (producer, found) in self.producers.iter().zip(&mut self.matches) {
            let blocks = &request.prompt_blocks;
            found.total = u32::try_from(blocks.hashes().len()).unwrap_or(u32::MAX);
            found.block_tokens = blocks.block_tokens();
            producer.index.matches(blocks, pool.capacity(), &mut found.matched);
        }
        let cycle = Cycle::new(now, request, &self.matches);
        let chosen = self
            .scheduler
            .schedule(&cycle, pool, &self.candidates, &mut self.chance, probe);
        probe.cycle_ended();
        let chosen = chosen.map_err(|none| match none {
            NoDecision::FilteredOut => Refusal::FilteredOut,
            NoDecision::NothingRan => Refusal::Unschedulable,
        })?;
        Ok(self.decision(chosen, pool))
    }

    /// Any endpoint will do: no profile runs, and nothing is scored.
    fn any_candidate(&mut self, pool: &Pool) -> (Slot, Decision) {
        let at = self.chance.random_range(0..self.candidates.len());
        let slot = self.candidates[at];
        let decision = Decision {
            endpoints: SmallVec::from_elem(pool[slot].endpoint.clone(), 1),
            profile: Arc::from(""),
            prefix: SmallVec::new(),
            why: Arc::new(Why::unscored(self.candidates.len())),
        };
        (slot, decision)
    }

    fn decision(&self, Chosen { slots, profile, why }: Chosen, pool: &Pool) -> (Slot, Decision) {
        let primary = slots[0];
        let endpoint = |&slot: &Slot| -> Arc<Endpoint> { pool[slot].endpoint.clone() };
        let hit = |(producer, found): (&Producer, &PrefixMatches)| PrefixHit {
            producer: producer.settings.name.clone(),
            matched: found.matched(primary),
            total: found.total,
            block_tokens: found.block_tokens,
        };
        let decision = Decision {
            endpoints: slots.iter().map(endpoint).collect(),
            profile,
            prefix: self.producers.iter().zip(&self.matches).map(hit).collect(),
            why: Arc::new(why),
        };
        (primary, decision)
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
