//! The parts of the engine, held together.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::admission::{Admission, AdmissionPolicy, TenantLoad, View};
use super::config::plan::EnginePlan;
use super::flow::fairness::Used;
use super::flow::{FlowControl, Left, Until, retry_after};
use super::invariant::{self, Figures};
use super::outcome::{Outcome, Refusal, Tally};
use super::pool::{Candidates, Pool, PoolChange, SignalUpdate, Slot};
use super::prefix::BlockLayout;
use super::request::{Kind, Request, RequestId, Subset};
use super::router::Router;
use super::saturation::{PoolSaturation, SaturationDetector, Split};
use super::scheduling::{Decision, Explain, Named, PluginName, Probe};
use super::seed::{Chance, Seed};
use super::time::Timestamp;

/// Decides which requests come in, how long they wait and where they go, and keeps the accounts of those that went.
///
/// The engine is a value: it does nothing by itself. Its driver tells it what happened ([`submit`](Self::submit),
/// [`cancel`](Self::cancel), [`progress`](Self::progress), [`pool_changed`](Self::pool_changed),
/// [`replan`](Self::replan)), and after each of these calls [`poll`](Self::poll)s until there is no more [`Effect`].
/// It calls `poll` again no later than at [`deadline`](Self::deadline). The time that it passes in never decreases.
///
/// Equal calls with equal seeds give equal effects. Each submitted request ends in exactly one [`Outcome`].
#[derive(Debug)]
pub struct Engine {
    admission: Named<dyn AdmissionPolicy>,
    detector: Named<dyn SaturationDetector>,
    split: Split,
    flow: Option<FlowControl>,
    router: Router,
    probe: Box<dyn Probe>,
    pool: Pool,
    /// Priorities by the names of objectives.
    objectives: BTreeMap<Arc<str>, i32>,
    in_flight: FxHashMap<RequestId, Booking>,
    /// Requests for a model in flight, by tenant.
    tenants: TenantLoad,
    effects: VecDeque<Effect>,
    /// Something happened after which a request that waits may have to go. That another one left is no such thing:
    /// no band has a higher ceiling than those above it.
    stirred: bool,
    /// When the pool may come to be less full by the passing of time alone, for those that wait.
    falls_at: Option<Timestamp>,
    /// The service ends: whoever comes is sent away.
    closed: bool,
    tally: Tally,
    retry_chance: Chance,
    candidates: Vec<Slot>,
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send the request to the endpoints of the decision. It is in flight until [`Progress::Ended`] or a cancel.
    Route {
        /// The request.
        id: RequestId,
        /// Its priority.
        priority: i32,
        /// How long it waited, if requests wait at all.
        waited: Option<Duration>,
        /// Where it goes, and why.
        decision: Decision,
    },
    /// Tell the client no. The request has ended.
    Refuse {
        /// The request.
        id: RequestId,
        /// Why, and what the client can do.
        refused: Refused,
    },
    /// End a request that is in flight, for another one that is more urgent. It is in flight until that is done.
    Evict {
        /// The request.
        id: RequestId,
    },
}

/// A request that was given no endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// More about it, for the client.
    pub reason: Option<Cow<'static, str>>,
    /// Its priority.
    pub priority: i32,
    /// How long it waited, if it did.
    pub waited: Option<Duration>,
    /// When the client may come again, if that makes sense.
    pub retry_after: Option<Duration>,
    /// The place in the queue that it would have had, if there was no room for it.
    pub position: Option<u64>,
}

impl Refused {
    /// A refusal about which there is no more to say.
    pub fn plain(refusal: Refusal, priority: i32) -> Self {
        Self {
            refusal,
            reason: None,
            priority,
            waited: None,
            retry_after: None,
            position: None,
        }
    }
}

impl Effect {
    /// The request that this is about.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Route { id, .. } | Self::Refuse { id, .. } | Self::Evict { id } => *id,
        }
    }
}

/// What became of a request that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The first bytes of the answer were seen: the prompt has been processed.
    AnswerBegan,
    /// The answer is over, or will not come.
    Ended(Outcome, Used),
}

/// What a request in flight has booked on its endpoint, and for whom.
#[derive(Debug)]
struct Booking {
    slot: Slot,
    joined: u64,
    requests: u32,
    tokens: u64,
    /// The priority of the band that released it.
    band: i32,
    fairness_id: Arc<str>,
}

impl Engine {
    /// An engine with an empty pool.
    pub fn new(plan: EnginePlan, seed: Seed, probe: Box<dyn Probe>, explain: Explain) -> Self {
        let EnginePlan {
            admission,
            detector,
            flow,
            scheduling,
        } = plan;
        let mut engine = Self {
            admission,
            detector,
            split: Split::default(),
            flow: flow.map(FlowControl::new),
            router: Router::new(scheduling, seed.stream("picker"), explain),
            probe,
            pool: Pool::default(),
            objectives: BTreeMap::new(),
            in_flight: FxHashMap::default(),
            tenants: TenantLoad::default(),
            effects: VecDeque::new(),
            stirred: false,
            falls_at: None,
            closed: false,
            tally: Tally::default(),
            retry_chance: seed.stream("retry-after"),
            candidates: Vec::new(),
        };
        engine.tell_emptiness(Timestamp::ZERO);
        engine
    }

    /// Takes a request in. `id` must be new.
    pub fn submit(&mut self, now: Timestamp, id: RequestId, mut request: Request) {
        self.tally.submitted += 1;
        self.stirred = true;
        if let Some(priority) = request.objective.as_ref().and_then(|name| self.objectives.get(name)) {
            request.priority = *priority;
        }
        if self.closed {
            return self.refuse(id, Refused::plain(Refusal::ShuttingDown, request.priority), None);
        }
        if request.kind == Kind::Bodiless {
            return self.route(now, id, &request, None);
        }
        let view = View::new(&self.pool, &self.tenants, &mut self.candidates);
        if let Admission::Reject { reason, retry_after } = self.admission.plugin.admit(now, &request, view) {
            let refused = Refused {
                reason: Some(reason),
                ..Refused::plain(Refusal::NotAdmitted, request.priority)
            };
            return self.refuse(id, refused, retry_after);
        }
        let Some(flow) = &mut self.flow else {
            if request.priority < 0 && self.saturation_of(now, &request) >= 1.0 {
                return self.refuse(id, Refused::plain(Refusal::Saturated, request.priority), None);
            }
            return self.route(now, id, &request, None);
        };
        let (priority, fairness_id) = (request.priority, request.fairness_id.clone());
        self.probe.enqueue_begins();
        let shed: Vec<Left> = std::iter::from_fn(|| flow.make_room(now, &request)).collect();
        let queued = flow.enqueue(now, id, request);
        let refusal = queued.err().map(|full| match self.pool.is_empty() {
            true => (Refusal::QueueFullNoEndpoints, full),
            false => (Refusal::QueueFull, full),
        });
        let outcome = refusal.map(|(refusal, _)| refusal);
        self.probe.enqueue_ended(&fairness_id, priority, outcome);
        if let Some((refusal, full)) = refusal {
            let refused = Refused {
                position: Some(full.ahead + 1),
                ..Refused::plain(refusal, priority)
            };
            self.refuse(id, refused, full.estimate());
        }
        for left in shed {
            self.refuse_left(&left, Refusal::Shed);
        }
    }

    /// The client is gone. Whatever the request holds is given back at once, and no effect about it follows. If the
    /// request waited, it is what leaves the queue.
    pub fn cancel(&mut self, now: Timestamp, id: RequestId) -> Option<Left> {
        if let Some(left) = self.flow.as_mut().and_then(|flow| flow.cancel(now, id)) {
            self.tally.end(Outcome::Refused(Refusal::Cancelled));
            return Some(left);
        }
        self.progress(now, id, Progress::Ended(Outcome::Disconnected, Used::default()));
        None
    }

    /// A request that was routed got on. About others, or after its end, nothing happens.
    pub fn progress(&mut self, now: Timestamp, id: RequestId, progress: Progress) {
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
            if let Progress::Ended(..) = progress {
                member.in_flight.requests -= booking.requests;
            }
        }
        self.stirred = true;
        if let Progress::Ended(outcome, used) = progress {
            let booking = self.in_flight.remove(&id).expect("it was there above");
            if booking.requests > 0 {
                self.tenants.ended(&booking.fairness_id);
            }
            if let Some(flow) = &mut self.flow
                && booking.requests > 0
            {
                let cut_off = flow.ended(now, id, booking.band, &booking.fairness_id, used);
                if let Some(took) = cut_off {
                    self.probe.revocation_confirmed(took);
                }
            }
            self.tally.end(outcome);
        }
    }

    /// The pool, or what is known of it, changed.
    pub fn pool_changed(&mut self, now: Timestamp, changes: Vec<PoolChange>) {
        for change in changes {
            match change {
                PoolChange::Upsert(endpoint) => {
                    self.pool.upsert(endpoint);
                }
                PoolChange::Remove(id) => {
                    if let Some((slot, gone)) = self.pool.remove(&id) {
                        self.router.forget(slot, &gone);
                    }
                }
                PoolChange::Report(id, update) => {
                    self.pool.report(&id, update);
                }
            }
        }
        self.stirred = true;
        self.tell_emptiness(now);
    }

    /// The endpoint in `slot` reported how it is. The same as [`PoolChange::Report`], for a driver that knows the slots.
    ///
    /// # Panics
    ///
    /// If the slot is not taken.
    pub fn reported(&mut self, slot: Slot, update: SignalUpdate) {
        self.pool.member_mut(slot).report(update);
        self.stirred = true;
    }

    /// The cache of the endpoint in `slot` changed: it does not have the `removed` blocks any more, and then it has the
    /// `stored` ones. Blocks have the names that they have in the prompts of requests. Nothing happens if no plugin
    /// reads it or if nobody is there. All blocks are forgotten when the endpoint leaves.
    ///
    /// Costs the same for each block, however many are known. Beyond
    /// [`IndexLimits::total_blocks`](super::prefix::IndexLimits) of all endpoints nothing more is taken in.
    pub fn cache_changed(&mut self, _now: Timestamp, slot: Slot, stored: &[u64], removed: &[u64]) {
        if self.pool.get(slot).is_some() {
            self.router.cache_changed(slot, stored, removed);
        }
    }

    /// True if a plugin reads what endpoints have cached, and the plan was loaded for a driver that tells
    /// ([`LoadOptions::cache_source`](super::config::LoadOptions)). If it gets true by [`replan`](Self::replan), all that
    /// is cached is to be told.
    pub fn wants_cache(&self) -> bool {
        self.router.wants_cache()
    }

    /// The objectives, and their priorities, are these. Requests that wait stay where they are.
    pub fn objectives_changed(&mut self, _now: Timestamp, objectives: BTreeMap<Arc<str>, i32>) {
        self.objectives = objectives;
        self.tell_priorities();
        self.stirred = true;
    }

    /// Another plan takes over. Requests in flight and those that wait, the pool, and what unchanged producers remember
    /// stay as they are. If the new plan has no flow control, whatever waits is routed.
    pub fn replan(&mut self, now: Timestamp, plan: EnginePlan) {
        let EnginePlan {
            admission,
            detector,
            flow,
            scheduling,
        } = plan;
        self.admission = admission;
        self.detector = detector;
        self.router.replan(scheduling);
        match (&mut self.flow, flow) {
            (Some(flow), Some(plan)) => flow.replan(plan),
            (none @ None, Some(plan)) => *none = Some(FlowControl::new(plan)),
            (_, None) => {
                let mut flow = self.flow.take();
                while let Some(left) = flow.as_mut().and_then(|flow| flow.drain(now)) {
                    self.route(now, left.id, &left.request, Some(&left));
                }
            }
        }
        self.tell_priorities();
        self.tell_emptiness(now);
        self.stirred = true;
    }

    /// The service ends: whatever waits is answered, and whoever comes is sent away. Requests in flight go on.
    pub fn close(&mut self, now: Timestamp) {
        self.closed = true;
        while let Some(left) = self.flow.as_mut().and_then(|flow| flow.drain(now)) {
            self.refuse_left(&left, Refusal::ShuttingDown);
        }
    }

    /// The next thing to do, if there is one. Releases at most one request that waits.
    pub fn poll(&mut self, now: Timestamp) -> Option<Effect> {
        if let Some(flow) = &mut self.flow {
            self.stirred |= flow.pass(now);
        }
        self.stirred |= self.falls_at.is_some_and(|at| at <= now);
        // Whose time was up before now must not go, and whose time is up now may still, as long as there is room.
        self.expire(now, Until::Before);
        if self.effects.is_empty() && self.stirred {
            self.release(now);
        }
        if self.effects.is_empty() {
            self.expire(now, Until::Now);
        }
        let effect = self.effects.pop_front();
        if effect.is_none() {
            debug_assert_eq!(invariant::check(invariant::AT_REST, &Figures::of(self)), Ok(()));
        }
        effect
    }

    /// When `poll` must be called though nothing happened.
    pub fn deadline(&self) -> Option<Timestamp> {
        let flow = self.flow.as_ref().filter(|flow| !flow.is_empty())?;
        [flow.deadline(), self.falls_at].into_iter().flatten().min()
    }

    /// How full the pool is.
    pub fn saturation(&self, now: Timestamp) -> PoolSaturation {
        PoolSaturation::of(&*self.detector.plugin, now, &self.pool, &mut Split::default())
    }

    /// How full one endpoint of the pool is, by the same detector.
    pub fn endpoint_saturation(&self, now: Timestamp, slot: Slot) -> f64 {
        let detector = &self.detector.plugin;
        detector.saturation(now, Candidates::new(&self.pool, &[slot]))
    }

    /// Whether the detector tells a full pool from an idle one (see [`SaturationDetector::discerns`]).
    pub fn discerns_saturation(&self) -> bool {
        self.detector.plugin.discerns()
    }

    /// Endpoints that count as full because nothing fresh is known of them.
    pub fn stale_endpoints(&self, now: Timestamp) -> usize {
        let everybody: Vec<Slot> = self.pool.iter().map(|(slot, _)| slot).collect();
        let detector = &self.detector.plugin;
        detector.stale(now, Candidates::new(&self.pool, &everybody))
    }

    /// The instance name of the saturation detector.
    pub fn detector_name(&self) -> &Arc<str> {
        &self.detector.name.name
    }

    /// The queues, if requests may wait.
    pub fn flow(&self) -> Option<&FlowControl> {
        self.flow.as_ref()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u64 {
        self.flow.as_ref().map_or(0, |flow| flow.held().requests)
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

    /// Requests for a model in flight, by tenant.
    pub fn tenants(&self) -> &TenantLoad {
        &self.tenants
    }

    /// Each prefix producer, and how many blocks it knows of.
    pub fn prefix_blocks(&self) -> impl Iterator<Item = (&PluginName, usize)> {
        self.router.prefix_blocks()
    }

    /// How the prompts of new requests are to be cut in blocks: as the first producer says that cannot do with another
    /// size; else by the settings of the first producer, or the block size that the first endpoint reports. All producers
    /// work with these blocks. `None` if no producer is in use.
    pub fn block_layout(&self) -> Option<BlockLayout> {
        self.router.block_layout(&self.pool)
    }

    /// Releases the next request, if there is room for one. What it books counts before the next one is looked at.
    fn release(&mut self, now: Timestamp) {
        self.falls_at = None;
        let Some(flow) = self.flow.as_mut().filter(|flow| !flow.is_empty()) else {
            self.stirred = false;
            return;
        };
        self.probe.dispatch_begins();
        let saturation = PoolSaturation::of(&*self.detector.plugin, now, &self.pool, &mut self.split).effective;
        match flow.release(now, saturation) {
            Some(left) => self.route(now, left.id, &left.request, Some(&left)),
            None => {
                self.stirred = false;
                let victims = flow.reclaim(now, saturation);
                self.effects.extend(victims.into_iter().map(|id| Effect::Evict { id }));
                self.pool.select(&Subset::All, &mut self.candidates);
                let everybody = Candidates::new(&self.pool, &self.candidates);
                self.falls_at = self.detector.plugin.falls_at(now, everybody);
            }
        }
        self.probe.dispatch_ended();
    }

    fn expire(&mut self, now: Timestamp, until: Until) {
        let refusal = match self.pool.is_empty() {
            true => Refusal::ExpiredNoEndpoints,
            false => Refusal::Expired,
        };
        while let Some(left) = self.flow.as_mut().and_then(|flow| flow.expire(now, until)) {
            self.refuse_left(&left, refusal);
        }
    }

    /// Sends a request to an endpoint. If it waited, `left` tells where and how long.
    fn route(&mut self, now: Timestamp, id: RequestId, request: &Request, left: Option<&Left>) {
        let waited = left.map(|left| left.waited);
        match self.router.decide(now, request, &self.pool, &mut *self.probe) {
            Ok((slot, decision)) => {
                self.book(
                    now,
                    id,
                    slot,
                    request,
                    left.map_or(request.priority, |left| left.priority),
                );
                self.effects.push_back(Effect::Route {
                    id,
                    priority: request.priority,
                    waited,
                    decision,
                });
            }
            Err(refusal) => {
                let refused = Refused {
                    waited,
                    ..Refused::plain(refusal, request.priority)
                };
                self.refuse(id, refused, None);
            }
        }
    }

    fn refuse_left(&mut self, left: &Left, refusal: Refusal) {
        let refused = Refused {
            waited: Some(left.waited),
            ..Refused::plain(refusal, left.request.priority)
        };
        self.refuse(left.id, refused, None);
    }

    /// Refuses a request. A client that may come again is told when, by the `estimate` if there is one.
    fn refuse(&mut self, id: RequestId, refused: Refused, estimate: Option<Duration>) {
        let retry_after = match refused.refusal.may_retry() {
            true => Some(retry_after(estimate, &mut self.retry_chance)),
            false => None,
        };
        self.tally.end(Outcome::Refused(refused.refusal));
        self.effects.push_back(Effect::Refuse {
            id,
            refused: Refused { retry_after, ..refused },
        });
    }

    fn saturation_of(&mut self, now: Timestamp, request: &Request) -> f64 {
        self.pool.select(&request.subset, &mut self.candidates);
        let candidates = Candidates::new(&self.pool, &self.candidates);
        self.detector.plugin.saturation(now, candidates)
    }

    fn book(&mut self, now: Timestamp, id: RequestId, slot: Slot, request: &Request, band: i32) {
        let (requests, tokens) = match request.kind {
            Kind::Inference => (1, u64::from(request.prompt_tokens)),
            Kind::Bodiless => (0, 0),
        };
        let member = self.pool.member_mut(slot);
        member.sent(now, requests, tokens);
        let booking = Booking {
            slot,
            joined: member.joined,
            requests,
            tokens,
            band,
            fairness_id: request.fairness_id.clone(),
        };
        self.router.record(slot, &self.pool, request);
        if requests > 0 {
            self.tenants.sent(&request.fairness_id);
        }
        if let Some(flow) = &mut self.flow
            && requests > 0
        {
            flow.sent(now, id, request.priority);
        }
        let before = self.in_flight.insert(id, booking);
        debug_assert!(before.is_none(), "request ids are used once");
    }

    fn tell_emptiness(&mut self, now: Timestamp) {
        if let Some(flow) = &mut self.flow {
            flow.pool_emptiness(now, self.pool.is_empty());
        }
    }

    fn tell_priorities(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.want_priorities(self.objectives.values().copied().collect());
        }
    }
}

#[cfg(test)]
mod tests;
