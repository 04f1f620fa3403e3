//! The parts of the engine, held together.

mod answers;
mod loads;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::admission::{Admission, AdmissionPolicy, TenantLoad, View};
use super::attempts::{Attempt, Attempts, Fate, Key};
use super::config::plan::EnginePlan;
use super::flow::fairness::Used;
use super::flow::{Ended, FlowControl, Forecast, Full, Left, Until, retry_after};
use super::input::{Answered, Input, Progress};
use super::invariant::{self, Figures};
use super::journal::{Answer, Entry, Event, Recorder};
use super::outcome::{Outcome, Refusal, Tally};
use super::pool::health::{HealthChange, Scrape, ScrapeFailure};
use super::pool::{Candidates, Pool, PoolChange, SignalUpdate, Slot};
use super::prefix::BlockLayout;
use super::request::{Kind, Request, RequestId, Slo, Subset};
use super::router::Router;
use super::saturation::{self, PoolSaturation, SaturationDetector, Split};
use super::scheduling::{Decision, Explain, Named, PluginName, Probe};
use super::seed::{Chance, Seed};
use super::time::Timestamp;
use answers::Awaited;
pub use loads::TenantLoadAt;
use loads::{LoadKey, Loads};

/// Decides which requests come in, how long they wait and where they go, and keeps the accounts of those that went.
///
/// The engine is a value: it does nothing by itself. Its driver [`apply`](Self::apply)s an [`Input`] for each thing that
/// happened, and [`poll`](Self::poll)s until there is no more [`Effect`]. Other inputs may come between two polls. It
/// polls again no later than at [`deadline`](Self::deadline). The time that it passes in never decreases.
///
/// Equal calls with equal seeds give equal effects: `apply`, [`replan`](Self::replan) and `poll` are the only ways to
/// change an engine, and each of them tells the [`Recorder`], if there is one. Each submitted request ends in exactly one
/// [`Outcome`].
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
    /// Requests that are not answered yet, to recognise those that come again.
    attempts: Attempts,
    /// Requests for a model in flight, by tenant.
    tenants: TenantLoad,
    /// The same by endpoint, tenant and priority.
    loads: Loads,
    /// What was decided and is not handed out yet. No more than what one input decides at once: what ends many waits,
    /// such as [`Input::Close`], is done by one request at each poll. Only [`replan`](Self::replan) may add thousands.
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
    recorder: Option<Box<dyn Recorder>>,
    tried: Vec<Slot>,
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Effect {
    /// Send the request to the endpoints of the decision. It is in flight until [`Progress::Ended`] or [`Input::Cancel`].
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
        /// When the client may come again.
        retry_after: Duration,
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
            Self::Route { id, .. } | Self::Refuse { id, .. } | Self::Evict { id, .. } => *id,
        }
    }
}

/// How long a request has waited of which the driver was not told anything yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its priority.
    pub priority: i32,
    /// How long it has waited.
    pub waited: Duration,
}

/// What a request in flight has booked on its endpoint, and for whom.
#[derive(Debug)]
struct Booking {
    slot: Slot,
    joined: u64,
    sent: Timestamp,
    /// Until it is answered.
    awaited: Option<Awaited>,
    requests: u32,
    tokens: u64,
    /// The tokens stay until the answer ends.
    to_the_end: bool,
    /// The priority of the band that released it.
    band: i32,
    fairness_id: Arc<str>,
    slo: Slo,
    ttl: Option<Duration>,
    /// Where it is counted for pages, if it is.
    load: Option<LoadKey>,
}

impl Engine {
    /// An engine with an empty pool.
    pub fn new(plan: EnginePlan, seed: Seed, probe: Box<dyn Probe>, explain: Explain) -> Self {
        let EnginePlan {
            admission,
            detector,
            flow,
            outliers,
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
            attempts: Attempts::default(),
            tenants: TenantLoad::default(),
            loads: Loads::default(),
            effects: VecDeque::new(),
            stirred: false,
            falls_at: None,
            closed: false,
            tally: Tally::default(),
            retry_chance: seed.stream("retry-after"),
            candidates: Vec::new(),
            recorder: None,
            tried: Vec::new(),
        };
        engine.pool.detect_outliers(outliers);
        engine.tell_emptiness(Timestamp::ZERO);
        engine
    }

    /// Has a recorder told of everything from now on: to be called before the first input.
    pub fn record_with(&mut self, recorder: Box<dyn Recorder>) {
        self.recorder = Some(recorder);
    }

    /// Something happened. What follows from it is to be [`poll`](Self::poll)ed.
    pub fn apply(&mut self, now: Timestamp, input: Input) {
        self.record(now, || Event::Input(input.clone()));
        match input {
            Input::Submit { id, request } => self.submit(now, id, request),
            Input::Cancel { id } => self.cancel(now, id),
            Input::Progress { id, progress } => self.progress(now, id, progress),
            Input::Lost { id } => self.lost(now, id),
            Input::PoolChanged { changes } => self.pool_changed(now, changes),
            Input::Reported { slot, update } => self.reported(slot, update),
            Input::CacheChanged { slot, stored, removed } => self.cache_changed(slot, &stored, &removed),
            Input::ObjectivesChanged { priorities } => self.objectives_changed(priorities),
            Input::Close => self.close(),
        }
    }

    fn submit(&mut self, now: Timestamp, id: RequestId, mut request: Request) {
        self.tally.submitted += 1;
        self.stirred = true;
        if let Some(priority) = request.objective.as_ref().and_then(|name| self.objectives.get(name)) {
            request.priority = *priority;
        }
        if self.closed {
            return self.refuse(id, Refused::plain(Refusal::ShuttingDown, request.priority), None);
        }
        self.pass(now);
        self.notice_a_retry(now, &request);
        if request.kind == Kind::Bodiless {
            return self.route(now, id, request, None);
        }
        let view = View::new(&self.pool, &self.tenants, &mut self.candidates);
        let (refusal, reason, retry_after) = match self.admission.plugin.admit(now, &request, view) {
            Admission::Admit => return self.admitted(now, id, request),
            Admission::Reject { reason, retry_after } => (Refusal::NotAdmitted, reason, retry_after),
            Admission::TooLarge { reason } => (Refusal::NeverAdmitted, reason, None),
        };
        let refused = Refused {
            reason: Some(reason),
            ..Refused::plain(refusal, request.priority)
        };
        self.refuse(id, refused, retry_after);
    }

    /// The admission policy let a request in.
    fn admitted(&mut self, now: Timestamp, id: RequestId, request: Request) {
        let Some(flow) = &mut self.flow else {
            if request.priority < 0 && self.is_saturated(now, &request) {
                return self.refuse(id, Refused::plain(Refusal::Saturated, request.priority), None);
            }
            return self.route(now, id, request, None);
        };
        let (priority, fairness_id) = (request.priority, request.fairness_id.clone());
        self.probe.enqueue_begins();
        let displaced = match flow.make_room(now, &request) {
            Ok(displaced) => displaced,
            Err(full) => {
                let forecast = flow.forecast(now, &request, self.in_flight.len());
                let refused = self.full(full, &request, forecast);
                self.probe.enqueue_ended(&fairness_id, priority, Some(refused.refusal));
                return self.refuse(id, refused, forecast.wait);
            }
        };
        flow.enqueue(now, id, request);
        self.probe.enqueue_ended(&fairness_id, priority, None);
        for (refusal, left) in displaced {
            self.refuse_left(now, &left, refusal);
        }
    }

    /// Why a request for which there is no room is refused.
    fn full(&self, full: Full, request: &Request, forecast: Forecast) -> Refused {
        let refusal = match full {
            Full::Never { max_bytes } => {
                let size = request.size_bytes;
                return Refused {
                    reason: Some(format!("its body has {size} bytes, and no more than {max_bytes} may wait").into()),
                    ..Refused::plain(Refusal::Oversized, request.priority)
                };
            }
            Full::Now if self.pool.is_gone() => Refusal::QueueFullNoEndpoints,
            Full::Now => Refusal::QueueFull,
        };
        Refused {
            position: Some(forecast.ahead + 1),
            ..Refused::plain(refusal, request.priority)
        }
    }

    fn cancel(&mut self, now: Timestamp, id: RequestId) {
        let was_waiting = self.flow.as_mut().and_then(|flow| flow.cancel(now, id)).is_some();
        match self.withdraw_effects(id) {
            _ if was_waiting => self.tally.end(Outcome::Refused(Refusal::Cancelled)),
            Some(Effect::Refuse { .. }) => self.tally.end(Outcome::Refused(Refusal::Cancelled)),
            // Nobody was told of the endpoint, so nothing was sent there.
            Some(Effect::Route { .. }) => self.end(now, id, Outcome::Refused(Refusal::Cancelled), Used::default()),
            Some(Effect::Evict { .. }) | None => self.end(now, id, Outcome::Disconnected, Used::default()),
        }
    }

    fn lost(&mut self, now: Timestamp, id: RequestId) {
        let outcome = Outcome::Refused(Refusal::Internal);
        if self.will_answer(id) {
            return;
        }
        match self.in_flight.contains_key(&id) {
            true => self.end(now, id, outcome, Used::default()),
            false => self.tally.end(outcome),
        }
    }

    /// Takes back the effects about a request that are not handed out yet, and returns the first. There are two at most: none is
    /// decided for a request that waits, one when it is routed or refused, and one when it is cut off.
    fn withdraw_effects(&mut self, id: RequestId) -> Option<Effect> {
        let mut withdrawn = None;
        while let Some(at) = self.effects.iter().position(|effect| effect.id() == id) {
            let effect = self.effects.remove(at);
            withdrawn = withdrawn.or(effect);
        }
        withdrawn
    }

    fn progress(&mut self, now: Timestamp, id: RequestId, progress: Progress) {
        match progress {
            Progress::Answered { by, how } => self.answered(now, id, by, how),
            Progress::AnswerBegan => {
                self.answered(now, id, None, Answered::Served);
                self.answer_began(id);
            }
            Progress::Ended(outcome, used) => {
                self.withdraw_effects(id);
                self.end(now, id, outcome, used);
            }
        }
    }

    /// The prompt has been processed: its tokens are no load any more, unless those of the answer count too.
    fn answer_began(&mut self, id: RequestId) {
        let Some(booking) = self.in_flight.get_mut(&id) else {
            return;
        };
        if booking.to_the_end {
            return;
        }
        let tokens = std::mem::take(&mut booking.tokens);
        if let Some(load) = &booking.load {
            self.loads.subtract_tokens(load, tokens);
        }
        if let Some(member) = self.pool.member_since(booking.slot, booking.joined) {
            member.in_flight.tokens -= tokens;
        }
        self.stirred = true;
    }

    /// Gives back what a request in flight holds. Nothing happens if it is not in flight.
    fn end(&mut self, now: Timestamp, id: RequestId, outcome: Outcome, used: Used) {
        let Some(booking) = self.in_flight.remove(&id) else {
            return;
        };
        if let Some(load) = &booking.load {
            self.loads.remove(load, booking.tokens);
        }
        if let Some(member) = self.pool.member_since(booking.slot, booking.joined) {
            member.in_flight.tokens -= booking.tokens;
            member.in_flight.requests -= booking.requests;
        }
        self.stirred = true;
        self.tally.end(outcome);
        let (requests, band, fairness_id) = (booking.requests, booking.band, booking.fairness_id.clone());
        let took = now - booking.sent;
        self.learn_from_the_end(now, id, booking, outcome);
        if requests > 0 {
            self.tenants.ended(&fairness_id);
            if let Some(flow) = self.flow.as_mut().filter(|_| outcome == Outcome::Completed) {
                flow.served(took);
            }
            let ended = Ended {
                id,
                priority: band,
                flow: &fairness_id,
                used,
            };
            // Last, because it calls a plugin: whatever that does, the books are right.
            if let Some(flow) = &mut self.flow
                && let Some(took) = flow.ended(now, ended, self.detector.plugin.settles_in())
            {
                self.probe.revocation_confirmed(took);
            }
        }
    }

    fn pool_changed(&mut self, now: Timestamp, changes: Vec<PoolChange>) {
        for change in changes {
            match change {
                PoolChange::Upsert(endpoint) => {
                    if let Some(slot) = self.pool.moves(&endpoint) {
                        self.router.forget_cached(slot);
                    }
                    self.pool.upsert(now, endpoint);
                }
                PoolChange::Remove(id) => {
                    if let Some((slot, gone)) = self.pool.remove(&id) {
                        self.router.forget(slot, &gone);
                    }
                }
                PoolChange::Report(id, update) => {
                    self.pool.report(&id, update);
                }
                PoolChange::Scrape(id, scrape) => {
                    let Some(slot) = self.pool.slot(&id) else { continue };
                    self.pool.scraped(now, slot, scrape);
                    if let Scrape::Failed {
                        failure: ScrapeFailure::Refused,
                        ..
                    } = scrape
                    {
                        // The process has ended, and its cache with it. One that hangs still has it.
                        self.router.forget_cached(slot);
                    }
                }
            }
        }
        self.stirred = true;
        self.tell_emptiness(now);
    }

    fn reported(&mut self, slot: Slot, update: SignalUpdate) {
        self.pool.reported(slot, update);
        self.stirred = true;
    }

    fn cache_changed(&mut self, slot: Slot, stored: &[u64], removed: &[u64]) {
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

    fn objectives_changed(&mut self, priorities: BTreeMap<Arc<str>, i32>) {
        self.objectives = priorities;
        self.tell_priorities();
        self.stirred = true;
    }

    /// Another plan takes over. Requests in flight and those that wait, the pool, and what unchanged producers remember
    /// stay as they are. If the new plan has no flow control, whatever waits is routed.
    ///
    /// No [`Input`], because a plan is no value that a journal could hold: it is made of plugins.
    pub fn replan(&mut self, now: Timestamp, plan: EnginePlan) {
        self.record(now, || Event::Replan);
        let EnginePlan {
            admission,
            detector,
            flow,
            outliers,
            scheduling,
        } = plan;
        self.pool.detect_outliers(outliers);
        self.admission = admission;
        self.detector = detector;
        self.router.replan(scheduling);
        match (&mut self.flow, flow) {
            (Some(flow), Some(plan)) => flow.replan(plan),
            (none @ None, Some(plan)) => *none = Some(FlowControl::new(plan)),
            (_, None) => {
                let mut flow = self.flow.take();
                while let Some(left) = flow.as_mut().and_then(|flow| flow.drain(now)) {
                    match self.closed {
                        true => self.refuse_left(now, &left, Refusal::ShuttingDown),
                        false => self.route(now, left.id, left.request, Some((left.waited, left.priority))),
                    }
                }
            }
        }
        self.tell_priorities();
        self.tell_emptiness(now);
        self.stirred = true;
    }

    fn close(&mut self) {
        self.closed = true;
    }

    /// The next thing to do, if there is one. Releases, refuses or routes at most one request that waits.
    pub fn poll(&mut self, now: Timestamp) -> Option<Effect> {
        let effect = self.next_effect(now);
        match &effect {
            // Counted here and not when it is decided: until it is handed out, the client may still leave.
            Some(Effect::Refuse { refused, .. }) => self.tally.end(Outcome::Refused(refused.refusal)),
            Some(Effect::Route { .. } | Effect::Evict { .. }) => {}
            None => debug_assert_eq!(invariant::check(invariant::AT_REST, &Figures::of(self)), Ok(())),
        }
        self.record(now, || Event::Poll(effect.as_ref().map(Answer::from)));
        effect
    }

    fn next_effect(&mut self, now: Timestamp) -> Option<Effect> {
        self.pass(now);
        self.stirred |= self.falls_at.is_some_and(|at| at <= now);
        if self.effects.is_empty() && self.closed {
            self.drain(now);
        }
        // Whose time was up before now must not go, and whose time is up now may still, as long as there is room.
        if self.effects.is_empty() {
            self.expire(now, Until::Before);
        }
        if self.effects.is_empty() && self.stirred {
            self.release(now);
        }
        if self.effects.is_empty() {
            self.expire(now, Until::Now);
        }
        self.effects.pop_front()
    }

    fn record(&mut self, now: Timestamp, event: impl FnOnce() -> Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(Entry {
                at: now,
                event: event(),
            });
        }
    }

    /// True if the driver will be told what becomes of a request that was submitted: it waits, or the effect is on its way.
    pub fn will_answer(&self, id: RequestId) -> bool {
        let waits = self.flow.as_ref().is_some_and(|flow| flow.waits(id));
        waits || self.effects.iter().any(|effect| effect.id() == id)
    }

    /// How long a request has waited, if it waits, or if it waited and the driver was not told of its end yet.
    pub fn wait(&self, now: Timestamp, id: RequestId) -> Option<Wait> {
        let waits = self.flow.as_ref().and_then(|flow| flow.wait(now, id));
        waits.or_else(|| {
            let effect = self.effects.iter().find(|effect| effect.id() == id)?;
            let (priority, waited) = match effect {
                Effect::Route { priority, waited, .. } => (*priority, *waited),
                Effect::Refuse { refused, .. } => (refused.priority, refused.waited),
                Effect::Evict { .. } => return None,
            };
            Some(Wait {
                priority,
                waited: waited?,
            })
        })
    }

    /// The next change of an endpoint's health that was not told yet, for people: nothing depends on it. Of a thousand that
    /// nobody asks for the oldest are dropped.
    pub fn next_health_change(&mut self) -> Option<HealthChange> {
        self.pool.next_health_change()
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
        saturation::saturation(&*self.detector.plugin, now, &self.pool, &[slot])
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

    /// What is in flight for a model, by endpoint, tenant and priority.
    pub fn loads(&self) -> impl Iterator<Item = TenantLoadAt<'_>> {
        self.loads
            .iter(|slot, joined| answers::is_there(&self.pool, slot, joined))
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
            Some(left) => self.route(now, left.id, left.request, Some((left.waited, left.priority))),
            None => {
                self.stirred = false;
                let victims = flow.reclaim(now, saturation, || self.tenants.total());
                for id in victims {
                    self.evict(now, id);
                }
                self.pool.select(&Subset::All, &mut self.candidates);
                let everybody = Candidates::new(&self.pool, &self.candidates);
                let falls_at = self.detector.plugin.falls_at(now, everybody);
                self.falls_at = falls_at.into_iter().chain(self.pool.health_changes_at()).min();
            }
        }
        self.probe.dispatch_ended();
    }

    /// Cuts a request off that is in flight. Its client is told how long an equal request would have to wait now.
    fn evict(&mut self, now: Timestamp, id: RequestId) {
        let equal = self.in_flight.get(&id).map(|booking| Request {
            fairness_id: booking.fairness_id.clone(),
            priority: booking.band,
            slo: booking.slo,
            ttl: booking.ttl,
            ..Request::unknown(Kind::Inference)
        });
        let wait = |request: &Request| self.flow.as_ref()?.forecast(now, request, self.in_flight.len()).wait;
        let estimate = equal.as_ref().and_then(wait);
        let retry_after = retry_after(estimate, &mut self.retry_chance);
        self.effects.push_back(Effect::Evict { id, retry_after });
    }

    /// Refuses a request that has waited too long, if there is one.
    fn expire(&mut self, now: Timestamp, until: Until) {
        let refusal = match self.pool.is_gone() {
            true => Refusal::ExpiredNoEndpoints,
            false => Refusal::Expired,
        };
        if let Some(left) = self.flow.as_mut().and_then(|flow| flow.expire(now, until)) {
            self.refuse_left(now, &left, refusal);
        }
    }

    /// Refuses a request that waits, because the service ends.
    fn drain(&mut self, now: Timestamp) {
        if let Some(left) = self.flow.as_mut().and_then(|flow| flow.drain(now)) {
            self.refuse_left(now, &left, Refusal::ShuttingDown);
        }
    }

    /// Time passed.
    fn pass(&mut self, now: Timestamp) {
        if let Some(flow) = &mut self.flow {
            self.stirred |= flow.pass(now);
        }
        if self.pool.pass(now) {
            self.health_may_have_changed(now);
        }
    }

    /// Sends a request to an endpoint. If it waited, `waited` tells how long, and at which priority.
    fn route(&mut self, now: Timestamp, id: RequestId, request: Request, waited: Option<(Duration, i32)>) {
        Self::find_tried(&self.attempts, &self.pool, &request, &mut self.tried);
        let detector = &*self.detector.plugin;
        let decided = self
            .router
            .decide(now, &request, &self.pool, &self.tried, detector, &mut *self.probe);
        let (waited, band) = match waited {
            Some((waited, band)) => (Some(waited), band),
            None => (None, request.priority),
        };
        let priority = request.priority;
        match decided {
            Ok((slots, decision)) => {
                self.book(now, id, &slots, request, band);
                self.effects.push_back(Effect::Route {
                    id,
                    priority,
                    waited,
                    decision,
                });
            }
            Err(refusal) => {
                let refused = Refused {
                    waited,
                    ..Refused::plain(refusal, priority)
                };
                self.refuse(id, refused, None);
            }
        }
    }

    fn refuse_left(&mut self, now: Timestamp, left: &Left, refusal: Refusal) {
        let in_flight = self.in_flight.len();
        let flow = self.flow.as_ref().filter(|_| refusal.may_retry());
        let estimate = flow.and_then(|flow| flow.forecast(now, &left.request, in_flight).wait);
        let refused = Refused {
            waited: Some(left.waited),
            ..Refused::plain(refusal, left.request.priority)
        };
        self.refuse(left.id, refused, estimate);
    }

    /// Refuses a request. A client that may come again is told when, by the `estimate` if there is one.
    fn refuse(&mut self, id: RequestId, refused: Refused, estimate: Option<Duration>) {
        let retry_after = match refused.refusal.may_retry() {
            true => Some(retry_after(estimate, &mut self.retry_chance)),
            false => None,
        };
        self.effects.push_back(Effect::Refuse {
            id,
            refused: Refused { retry_after, ..refused },
        });
    }

    /// True if the endpoints that `request` may go to are full. A pool without any is not: there, nobody is shed for want of room.
    fn is_saturated(&mut self, now: Timestamp, request: &Request) -> bool {
        self.pool.select(&request.subset, &mut self.candidates);
        let saturation = || saturation::saturation(&*self.detector.plugin, now, &self.pool, &self.candidates);
        !self.candidates.is_empty() && saturation() >= 1.0
    }

    /// Books a request on the first of `slots`.
    fn book(&mut self, now: Timestamp, id: RequestId, slots: &[Slot], request: Request, band: i32) {
        let slot = slots[0];
        let (requests, tokens) = match request.kind {
            Kind::Inference => (1, self.router.tokens_on(slot, &request)),
            Kind::Bodiless => (0, 0),
        };
        let key = Key::of(&request);
        let Request {
            fairness_id,
            priority,
            prompt_blocks: prompt,
            slo,
            ttl,
            ..
        } = request;
        let known = self.router.record(slot, &self.pool, &prompt);
        self.pool.chosen(now, slot);
        let member = self.pool.member_mut(slot);
        member.sent(now, requests, tokens);
        let joined = member.joined;
        if let Some(key) = key {
            let attempt = Attempt {
                id,
                slot,
                joined,
                sent: now,
                known: known.clone(),
                fate: Fate::Open,
            };
            self.attempts.sent(key, attempt);
        }
        if requests > 0 {
            self.tenants.sent(&fairness_id);
        }
        if let Some(flow) = &mut self.flow
            && requests > 0
        {
            flow.sent(now, id, priority);
        }
        let fallbacks: SmallVec<_> = slots[1..].iter().map(|&slot| (slot, self.pool[slot].joined)).collect();
        let booking = Booking {
            slot,
            joined,
            sent: now,
            awaited: Some(Awaited {
                fallbacks,
                prompt,
                known,
                key,
            }),
            requests,
            tokens,
            to_the_end: self.router.counts_answers(),
            band,
            load: (requests > 0).then(|| self.loads.add((slot, joined), &fairness_id, band, tokens)),
            fairness_id,
            slo,
            ttl,
        };
        let before = self.in_flight.insert(id, booking);
        debug_assert!(before.is_none(), "request ids are used once");
    }

    fn tell_emptiness(&mut self, now: Timestamp) {
        if let Some(flow) = &mut self.flow {
            let endpoints = if self.pool.is_gone() { 0 } else { self.pool.len() };
            flow.pool_size(now, endpoints);
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
