//! From a request and a pool to a decision: candidates, prefix matches, scheduling.

use std::sync::Arc;

use rand::RngExt;
use smallvec::SmallVec;

use super::config::plan::{PrefixProducer, PrefixSource, SchedulingPlan};
use super::load::TokenLoad;
use super::outcome::Refusal;
use super::pool::{Endpoint, Member, Pool, Slot};
use super::prefix::{BlockLayout, CacheIndex, IndexLimits, MIN_BLOCK_TOKENS, Matching, PrefixIndex, PromptBlocks};
use super::request::{Kind, Request};
use super::saturation::{self, SaturationDetector};
use super::scheduling::{
    Chosen, Cycle, Decision, Explain, NoDecision, PluginName, PrefixHit, PrefixMatches, Probe, Scheduler, Why,
};
use super::seed::Chance;
use super::time::Timestamp;

/// Chooses endpoints, and remembers who served which prefix.
#[derive(Debug)]
pub(super) struct Router {
    scheduler: Scheduler,
    producers: Vec<Producer>,
    /// What endpoints told that they have cached. Empty unless a producer reads it.
    caches: CacheIndex,
    /// What the producers found for the request at hand, in their order.
    matches: Vec<PrefixMatches>,
    /// What counts as the load of a request.
    load: TokenLoad,
    chance: Chance,
    explain: Explain,
    candidates: Vec<Slot>,
}

/// Blocks of a prompt that an endpoint had before it was sent there, by producer.
pub(super) type Known = SmallVec<[usize; 1]>;

#[derive(Debug)]
struct Producer {
    settings: PrefixProducer,
    /// What it remembers of requests served. None if it goes by what endpoints tell.
    index: Option<PrefixIndex>,
}

impl Producer {
    fn new(settings: PrefixProducer) -> Self {
        let matching = match settings.source {
            PrefixSource::Approx(_) => Some(Matching::Anywhere),
            PrefixSource::Affinity(_) => Some(Matching::Leading),
            PrefixSource::Caches { .. } => None,
        };
        let index = matching.map(|matching| PrefixIndex::new(matching, IndexLimits::default()));
        Self { settings, index }
    }

    fn is_fed_with_caches(&self) -> bool {
        matches!(self.settings.source, PrefixSource::Caches { is_fed: true, .. })
    }

    /// Blocks remembered of an endpoint that reports to have `reported` of them, or zero.
    fn capacity(&self, reported: usize) -> usize {
        match &self.settings.source {
            PrefixSource::Approx(params) if params.auto_tune && reported > 0 => reported,
            PrefixSource::Approx(params) => params.capacity,
            PrefixSource::Affinity(params) => params.capacity.get(),
            PrefixSource::Caches { .. } => 0,
        }
    }

    /// How it wants prompts to be cut for endpoints that report blocks of `reported` tokens, or zero.
    fn layout(&self, reported: u32) -> BlockLayout {
        match &self.settings.source {
            PrefixSource::Approx(params) => {
                let wanted = match reported {
                    1.. if params.auto_tune => reported,
                    _ => params.block_size_tokens,
                };
                let block_tokens = wanted.max(MIN_BLOCK_TOKENS);
                BlockLayout {
                    block_tokens,
                    max_blocks: params.max_blocks(block_tokens).unwrap_or(u32::MAX),
                }
            }
            exact @ (PrefixSource::Affinity(_) | PrefixSource::Caches { .. }) => BlockLayout {
                block_tokens: exact.block_tokens(),
                max_blocks: u32::MAX,
            },
        }
    }
}

impl Router {
    pub(super) fn new(plan: SchedulingPlan, chance: Chance, explain: Explain) -> Self {
        let load = plan.load;
        let (scheduler, producers) = parts(plan, explain, Vec::new());
        Self {
            load,
            scheduler,
            matches: vec![PrefixMatches::default(); producers.len()],
            producers,
            caches: CacheIndex::default(),
            chance,
            explain,
            candidates: Vec::new(),
        }
    }

    /// Another plan takes over. What unchanged producers remember stays.
    pub(super) fn replan(&mut self, plan: SchedulingPlan) {
        self.load = plan.load;
        let remembered = std::mem::take(&mut self.producers);
        (self.scheduler, self.producers) = parts(plan, self.explain, remembered);
        self.matches.resize(self.producers.len(), PrefixMatches::default());
        if !self.wants_cache() {
            self.caches = CacheIndex::default();
        }
    }

    /// See [`Engine::wants_cache`](super::Engine::wants_cache).
    pub(super) fn wants_cache(&self) -> bool {
        self.producers.iter().any(Producer::is_fed_with_caches)
    }

    /// See [`Engine::cache_changed`](super::Engine::cache_changed).
    pub(super) fn cache_changed(&mut self, slot: Slot, stored: &[u64], removed: &[u64]) {
        if self.wants_cache() {
            removed.iter().for_each(|&hash| self.caches.removed(slot, hash));
            stored.iter().for_each(|&hash| self.caches.stored(slot, hash));
        }
    }

    /// Forgets all about an endpoint that was in `slot` and left.
    pub(super) fn forget(&mut self, slot: Slot, gone: &Member) {
        self.scheduler.left(gone);
        self.forget_cached(slot);
    }

    /// Forgets what the endpoint in `slot` has cached: its process ended.
    pub(super) fn forget_cached(&mut self, slot: Slot) {
        let indexes = self.producers.iter_mut().filter_map(|producer| producer.index.as_mut());
        indexes.for_each(|index| index.forget(slot));
        self.caches.forget(slot);
    }

    /// Tokens that `request`, for which a decision was just made, adds to the endpoint in `slot`.
    pub(super) fn tokens_on(&self, slot: Slot, request: &Request) -> u64 {
        self.load.of(request, &self.matches, slot)
    }

    /// True if tokens are in flight until the answer ends, and not only until it begins.
    pub(super) fn counts_answers(&self) -> bool {
        self.load.answer.is_some()
    }

    /// Notes that the endpoint in `slot` serves a prompt. Returns how many of its blocks the endpoint had before, by
    /// producer.
    pub(super) fn record(&mut self, slot: Slot, pool: &Pool, prompt: &PromptBlocks) -> Known {
        let reported = pool[slot].signals.total_blocks as usize;
        let record = |producer: &mut Producer| {
            let capacity = producer.capacity(reported);
            let index = producer.index.as_mut();
            index.map_or(0, |index| index.record(slot, prompt, capacity))
        };
        self.producers.iter_mut().map(record).collect()
    }

    /// Takes back what [`record`](Self::record) noted: the endpoint did not serve the prompt.
    pub(super) fn withdraw(&mut self, slot: Slot, prompt: &PromptBlocks, known: &Known) {
        for (producer, &known) in self.producers.iter_mut().zip(known) {
            if let Some(index) = &mut producer.index {
                index.withdraw(slot, prompt, known);
            }
        }
    }

    /// Each prefix producer, and how many blocks it knows of.
    pub(super) fn prefix_blocks(&self) -> impl Iterator<Item = (&PluginName, usize)> {
        let blocks = |producer: &Producer| match &producer.index {
            Some(index) => index.len(),
            None => self.caches.len(),
        };
        self.producers
            .iter()
            .map(move |producer| (&producer.settings.name, blocks(producer)))
    }

    /// See [`Engine::block_layout`](super::Engine::block_layout).
    pub(super) fn block_layout(&self, pool: &Pool) -> Option<BlockLayout> {
        let exact = self
            .producers
            .iter()
            .find(|producer| producer.settings.source.is_exact());
        let first = pool.iter().next();
        let reported = first.map_or(0, |(_, member)| member.signals.block_tokens);
        Some(exact.or(self.producers.first())?.layout(reported))
    }

    /// The endpoints for a request that failed at those in `tried` before: their slots, and the decision. `detector` says
    /// which of them have room for a request that no profile looks at.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: &Request,
        pool: &Pool,
        tried: &[Slot],
        detector: &dyn SaturationDetector,
        probe: &mut dyn Probe,
    ) -> Result<(SmallVec<[Slot; 1]>, Decision), Refusal> {
        pool.select(&request.subset, &mut self.candidates);
        if self.candidates.is_empty() {
            return Err(Refusal::NoEndpoints);
        }
        if request.kind == Kind::Bodiless {
            return Ok(self.least_loaded(now, pool, tried, detector));
        }
        probe.cycle_begins();
        for (producer, found) in self.producers.iter_mut().zip(&mut self.matches) {
            let blocks = &request.prompt_blocks;
            found.block_tokens = blocks.block_tokens();
            match &mut producer.index {
                Some(index) => {
                    found.known = true;
                    found.total = index.matching().total(blocks);
                    index.matches(blocks, pool.capacity(), &mut found.matched);
                }
                None => {
                    found.known = producer.is_fed_with_caches();
                    found.total = Matching::Leading.total(blocks);
                    self.caches.matches(blocks, pool.capacity(), &mut found.matched);
                }
            }
        }
        if request.only_if_cached {
            // What an endpoint has cached that fails requests is not available.
            pool.keep_best(&mut self.candidates, tried);
            let matches = &self.matches;
            self.candidates
                .retain(|&slot| matches.iter().any(|found| found.matched(slot) > 0));
            if self.candidates.is_empty() {
                probe.cycle_ended();
                return Err(Refusal::NotCached);
            }
        }
        let cycle = Cycle::new(now, request, &self.matches, self.load).after(tried);
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

    /// The least loaded of the endpoints that can be used, one with room before one without, and of equal ones any. No
    /// profile runs: there is no prompt that one could go by.
    fn least_loaded(
        &mut self,
        now: Timestamp,
        pool: &Pool,
        tried: &[Slot],
        detector: &dyn SaturationDetector,
    ) -> (SmallVec<[Slot; 1]>, Decision) {
        let candidates = self.candidates.len();
        pool.keep_best(&mut self.candidates, tried);
        let usable = self.candidates.len();
        let load = |slot: Slot| {
            let is_full = saturation::saturation(detector, now, pool, &[slot]) >= 1.0;
            (is_full, pool[slot].effective_load())
        };
        let least = self.candidates.iter().map(|&slot| load(slot)).min();
        self.candidates.retain(|&slot| Some(load(slot)) == least);
        let at = self.chance.random_range(0..self.candidates.len());
        let slot = self.candidates[at];
        let decision = Decision {
            endpoints: SmallVec::from_elem(pool[slot].endpoint.clone(), 1),
            profile: Arc::from(""),
            prefix: SmallVec::new(),
            why: Arc::new(Why::unscored(candidates, candidates - usable)),
        };
        (SmallVec::from_elem(slot, 1), decision)
    }

    fn decision(&self, Chosen { slots, profile, why }: Chosen, pool: &Pool) -> (SmallVec<[Slot; 1]>, Decision) {
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
        (SmallVec::from_vec(slots), decision)
    }
}

/// A plan at work. A producer that was there before, with the same settings, keeps what it remembers.
fn parts(plan: SchedulingPlan, explain: Explain, mut remembered: Vec<Producer>) -> (Scheduler, Vec<Producer>) {
    let mut scheduler = Scheduler::new(plan.handler, plan.profiles, plan.instances);
    scheduler.explain(explain);
    let producer = |settings: PrefixProducer| {
        let before = remembered.iter().position(|producer| producer.settings == settings);
        before.map_or_else(|| Producer::new(settings), |at| remembered.swap_remove(at))
    };
    let prefix = plan.prefix.into_iter().map(producer).collect();
    (scheduler, prefix)
}
