//! The gateway of a simulated cluster: the second driver of the engine.
//!
//! There is no policy here. Requests become calls of [`Engine`], its effects become events; the signals that the engine
//! works with are as old as the scenario says (spec, simulator 11).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use smallvec::smallvec;

use super::super::classes::STANDARD;
use super::super::instance::{CacheEvent, Instance, Load};
use super::super::record::instance_name;
use super::super::request::SimRequest;
use super::Scenario;
use super::faults::{Fault, FaultKind, Faults};
use crate::engine::config::plan::EnginePlan;
use crate::engine::flow::fairness::Used;
use crate::engine::journal::Recorder;
use crate::engine::outcome::Outcome;
use crate::engine::pool::health::{RequestFailure, Scrape, ScrapeFailure};
use crate::engine::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate, Slot};
use crate::engine::prefix::{BlockLayout, PromptBlocks};
use crate::engine::request::{DEFAULT_FAIRNESS_ID, Kind, Request, RequestId, Slo, Subset};
use crate::engine::scheduling::{Explain, NoProbe};
use crate::engine::seed::Seed;
use crate::engine::time::Timestamp;
use crate::engine::{Answered, Effect, Engine, Input, Progress};

/// The engine, and what it is told of the instances.
#[derive(Debug)]
pub(super) struct Gateway {
    engine: Engine,
    /// The slots of the instances, by index.
    slots: Vec<Slot>,
    /// The indexes of the instances, by slot.
    indexes: Vec<u32>,
    /// Whether the last scrape of each instance failed, by index.
    unreadable: Vec<bool>,
    layout: Option<BlockLayout>,
    signals: Refreshed,
    caches: Option<Refreshed>,
    cache_events: Vec<CacheEvent>,
}

/// Something that is read at most so often.
#[derive(Clone, Copy, Debug)]
struct Refreshed {
    every_us: u64,
    last_us: u64,
}

impl Refreshed {
    fn every(every_us: u64) -> Self {
        Self { every_us, last_us: 0 }
    }

    /// True if it is to be read anew. It counts as read then.
    fn is_due(&mut self, now_us: u64) -> bool {
        let due = now_us - self.last_us >= self.every_us;
        if due {
            self.last_us = now_us;
        }
        due
    }
}

/// A scrape that was not answered for so long has failed, as for the live picker.
const SCRAPE_TIMEOUT_US: u64 = 1_000_000;

/// The end of the time that the engine can tell, in 584 years.
pub(super) const LAST_US: u64 = u64::MAX.div_ceil(1000);

/// A point of the engine's time.
pub(super) fn timestamp(at_us: u64) -> Timestamp {
    Timestamp::from_nanos(at_us.saturating_mul(1000))
}

/// The first whole microsecond at or after a point of the engine's time.
pub(super) fn microseconds(at: Timestamp) -> u64 {
    at.as_nanos().div_ceil(1000)
}

impl Gateway {
    /// A gateway before `instances`, about which it knows what is true at the start.
    pub(super) fn new(
        scenario: &Scenario,
        plan: EnginePlan,
        explain: Explain,
        journal: Option<Box<dyn Recorder>>,
        instances: &mut [Instance],
    ) -> Self {
        let mut engine = Engine::new(plan, Seed(scenario.seed), Box::new(NoProbe), explain);
        if let Some(journal) = journal {
            engine.record_with(journal);
        }
        let count = u32::try_from(instances.len()).expect("the number of instances came as a u32");
        let endpoints: Vec<_> = (0..count).map(|index| Arc::new(endpoint(index, scenario))).collect();
        let ids: Vec<EndpointId> = endpoints.iter().map(|endpoint| endpoint.id.clone()).collect();
        let changes = endpoints.into_iter().map(PoolChange::Upsert).collect();
        engine.apply(Timestamp::ZERO, Input::PoolChanged { changes });
        let priorities = scenario.classes.objectives();
        engine.apply(Timestamp::ZERO, Input::ObjectivesChanged { priorities });

        let slots: Vec<Slot> = ids
            .iter()
            .map(|id| engine.pool().slot(id).expect("the endpoint was added"))
            .collect();
        let mut indexes = vec![0; engine.pool().capacity()];
        for (slot, index) in slots.iter().zip(0..) {
            indexes[slot.index()] = index;
        }
        let caches = engine.wants_cache().then(|| {
            instances.iter_mut().for_each(Instance::watch_cache);
            Refreshed::every(scenario.cache_signal_delay_us)
        });
        let mut gateway = Self {
            unreadable: vec![false; slots.len()],
            slots,
            indexes,
            layout: None,
            signals: Refreshed::every(scenario.snapshot_refresh_us),
            caches,
            cache_events: Vec::new(),
            engine,
        };
        gateway.read_signals(0, instances, &Faults::of(scenario));
        gateway.layout = gateway.engine.block_layout();
        gateway
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The index of the instance behind a slot.
    pub(super) fn index(&self, slot: Slot) -> u32 {
        self.indexes[slot.index()]
    }

    /// The slots of the instances, by index.
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The slot of an instance.
    pub(super) fn slot(&self, instance: u32) -> Slot {
        self.slots[instance as usize]
    }

    /// The index of the instance that an endpoint stands for.
    pub(super) fn instance_of(&self, endpoint: &Endpoint) -> u32 {
        let slot = self.engine.pool().slot(&endpoint.id);
        self.index(slot.expect("instances do not leave"))
    }

    /// A request comes.
    pub(super) fn submit(&mut self, now_us: u64, id: u32, request: &SimRequest, scenario: &Scenario) {
        let (now, id) = (timestamp(now_us), request_id(id));
        let request = self.as_the_engine_sees_it(request, scenario);
        self.engine.apply(now, Input::Submit { id, request });
    }

    /// The answer of a request began.
    pub(super) fn answer_began(&mut self, now_us: u64, id: u32) {
        self.progress(now_us, id, Progress::AnswerBegan);
    }

    /// A request that was sent to an instance is over there.
    pub(super) fn ended(&mut self, now_us: u64, id: u32, outcome: Outcome, used: Used) {
        self.progress(now_us, id, Progress::Ended(outcome, used));
    }

    /// A request failed at the instance that it was sent to.
    pub(super) fn failed(&mut self, now_us: u64, id: u32, failure: RequestFailure) {
        let how = Answered::Failed(failure);
        self.progress(now_us, id, Progress::Answered { by: None, how });
        self.ended(now_us, id, Outcome::UpstreamError, Used::default());
    }

    fn progress(&mut self, now_us: u64, id: u32, progress: Progress) {
        let id = request_id(id);
        self.engine.apply(timestamp(now_us), Input::Progress { id, progress });
    }

    /// The client of a request is gone.
    pub(super) fn cancel(&mut self, now_us: u64, id: u32) {
        let id = request_id(id);
        self.engine.apply(timestamp(now_us), Input::Cancel { id });
    }

    /// The next effect, if there is one.
    pub(super) fn next_effect(&mut self, now_us: u64) -> Option<Effect> {
        self.engine.poll(timestamp(now_us))
    }

    /// True if requests wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.engine.waiting() > 0
    }

    /// When the engine is to be called though nothing happened.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.engine.deadline().map(microseconds)
    }

    /// When newer signals may let a request go that waits. `None` if none waits, or signals are always new.
    pub(super) fn refresh_due_us(&self) -> Option<u64> {
        let periodic = self.signals.every_us > 0 && self.engine.waiting() > 0;
        periodic.then(|| self.signals.last_us + self.signals.every_us)
    }

    /// How old the signals are that the engine works with.
    pub(super) fn signal_age_us(&self, now_us: u64) -> u64 {
        now_us - self.signals.last_us
    }

    /// Reads what is to be had of the instances.
    pub(super) fn refresh(&mut self, now_us: u64, instances: &mut [Instance], faults: &Faults) {
        if self.signals.is_due(now_us) {
            self.read_signals(now_us, instances, faults);
        }
        if self.caches.as_mut().is_some_and(|caches| caches.is_due(now_us)) {
            self.read_caches(now_us, instances);
        }
    }

    fn read_signals(&mut self, now_us: u64, instances: &[Instance], faults: &Faults) {
        for (index, instance) in (0..).zip(instances) {
            let slot = self.slot(index);
            match faults.at(index) {
                Some(fault) if fault.kind != FaultKind::Failing => {
                    self.cannot_be_scraped(now_us, index, fault);
                    continue;
                }
                _ => {}
            }
            let Load {
                waiting,
                running,
                kv_used_blocks,
                kv_total_blocks,
                ..
            } = instance.load();
            let update = SignalUpdate {
                at: timestamp(now_us),
                waiting: Some(waiting),
                running: Some(running),
                kv_usage: Some(f64::from(kv_used_blocks) / f64::from(kv_total_blocks.max(1))),
                lora: None,
                block_tokens: Some(instance.config().block_tokens.get()),
                total_blocks: Some(kv_total_blocks),
            };
            self.engine.apply(timestamp(now_us), Input::Reported { slot, update });
            if std::mem::take(&mut self.unreadable[index as usize]) {
                self.scraped(now_us, slot, Scrape::Succeeded);
            }
        }
    }

    /// The metrics of an instance cannot be read: the engine is told as soon as a scrape would show it.
    fn cannot_be_scraped(&mut self, now_us: u64, index: u32, fault: &Fault) {
        let (failure, began_us) = match fault.kind {
            FaultKind::Hung if now_us - fault.from_us < SCRAPE_TIMEOUT_US => return,
            FaultKind::Hung => (ScrapeFailure::Timeout, now_us - SCRAPE_TIMEOUT_US),
            FaultKind::Dead | FaultKind::Failing => (ScrapeFailure::Refused, now_us),
        };
        self.unreadable[index as usize] = true;
        let began = timestamp(began_us);
        self.scraped(now_us, self.slot(index), Scrape::Failed { failure, began });
    }

    fn scraped(&mut self, now_us: u64, slot: Slot, scrape: Scrape) {
        let id = self.engine.pool()[slot].endpoint.id.clone();
        let changes = vec![PoolChange::Scrape(id, scrape)];
        self.engine.apply(timestamp(now_us), Input::PoolChanged { changes });
    }

    fn read_caches(&mut self, now_us: u64, instances: &mut [Instance]) {
        for (&slot, instance) in self.slots.iter().zip(instances) {
            self.cache_events.clear();
            instance.drain_cache_events(&mut self.cache_events);
            for event in &self.cache_events {
                let (stored, removed) = match *event {
                    CacheEvent::Stored(name) => (smallvec![name], smallvec![]),
                    CacheEvent::Removed(name) => (smallvec![], smallvec![name]),
                };
                let change = Input::CacheChanged { slot, stored, removed };
                self.engine.apply(timestamp(now_us), change);
            }
        }
    }

    /// What policies may know of a request: nothing of how long its answer will be.
    fn as_the_engine_sees_it(&self, request: &SimRequest, scenario: &Scenario) -> Request {
        let client = &*request.client;
        let class = &client.slo_class;
        let serves = scenario.serves(&client.model);
        let target_us = request
            .slo_target_us
            .or_else(|| scenario.slo_targets_us.get(class).copied());
        Request {
            model: scenario.model.clone(),
            target_model: match &*client.adapter {
                "" => scenario.model.clone(),
                _ => client.adapter.clone(),
            },
            fairness_id: match &*client.tenant {
                "" => Arc::from(DEFAULT_FAIRNESS_ID),
                _ => client.tenant.clone(),
            },
            objective: (!class.is_empty() && !scenario.one_queue).then(|| class.clone()),
            priority: match scenario.one_queue {
                true => scenario.classes.priority(STANDARD),
                false => scenario.classes.priority(class),
            },
            prompt_tokens: request.prompt_tokens,
            prompt_blocks: self.layout.map_or_else(PromptBlocks::default, |layout| {
                prompt_blocks(request, scenario.instance.block_tokens.get(), layout)
            }),
            max_output_tokens: request.max_output_tokens,
            size_bytes: u64::from(request.prompt_tokens) * 4,
            streaming: client.streaming,
            subset: if serves { Subset::All } else { Subset::Only(Vec::new()) },
            slo: Slo {
                ttft: target_us.map(std::time::Duration::from_micros),
                tpot: None,
            },
            received: timestamp(request.arrival_us),
            ..Request::unknown(Kind::Inference)
        }
    }
}

/// The blocks of a prompt as a prefix index cuts them, from the names of its KV blocks: a name stands for everything up
/// to the end of its block. A block of the index is a whole number of KV blocks.
fn prompt_blocks(request: &SimRequest, kv_block_tokens: u32, layout: BlockLayout) -> PromptBlocks {
    let each = layout.block_tokens.div_ceil(kv_block_tokens).max(1);
    let full = (request.prompt_tokens / (kv_block_tokens * each)).min(layout.max_blocks) as usize;
    let names = request.chain.iter().skip(each as usize - 1).step_by(each as usize);
    PromptBlocks::from_chain(kv_block_tokens * each, names.take(full).copied().collect())
}

/// An instance as an endpoint. Endpoints are kept in order of their ids, so the ids are numbers of equal length.
fn endpoint(index: u32, scenario: &Scenario) -> Endpoint {
    Endpoint {
        id: EndpointId::new("simulation", &format!("{index:010}")),
        name: instance_name(index).into(),
        address: IpAddr::V4(Ipv4Addr::from(index)),
        port: 8000,
        labels: scenario.labels.get(index as usize).cloned().unwrap_or_default(),
        rank: 0,
    }
}

fn request_id(id: u32) -> RequestId {
    RequestId(u64::from(id))
}
