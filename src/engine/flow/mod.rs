//! Flow control: holds requests that the pool cannot take, and releases them in a fair order.
//!
//! A request waits in a *flow*, which is one tenant at one priority; the flows of a priority make a *band*. While the
//! pool has room, the highest band that has requests is served; within it a fairness policy chooses the flow, and the
//! ordering policy of the band says which request of the flow is the first.
//!
//! What always holds:
//!
//! - Within its limits, a request that comes is held; it leaves exactly once: released, expired, cancelled, shed for a
//!   more urgent one, displaced by one of a flow that has less, or answered at the end.
//! - A band whose ceiling is reached, and that has requests, holds all bands below it. A band without requests holds
//!   nobody.
//! - Every operation takes time in the logarithm of what it looks at, whatever the number of idle tenants; there are no
//!   idle flows: a flow is there while it has requests.
//! - What is booked for a request when it comes is given back when it leaves, to the byte.

pub mod active;
mod band;
mod displacement;
mod eviction;
mod expiry;
pub mod fairness;
mod forecast;
mod longest;
pub mod ordering;
mod pace;
pub mod plan;
mod retry;
pub mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;

use super::Wait;
use super::outcome::Refusal;
use super::request::{Request, RequestId};
use super::time::Timestamp;
use active::Place;
use band::Band;
pub use band::{FlowDepth, Load};
use displacement::{Newcomer, Search};
pub use eviction::EvictionCounts;
use eviction::{Demand, Evictor};
use expiry::{Expiry, Patience};
use fairness::{FlowRef, Used};
pub use forecast::Forecast;
use forecast::Start;
use ordering::Arrival;
use pace::{MeanTime, Pace};
use plan::{BandPlan, FlowPlan};
pub use retry::retry_after;

/// The queues, and the rules by which they are served.
#[derive(Debug)]
pub struct FlowControl {
    plan: FlowPlan,
    /// The highest priority first.
    bands: Vec<Band>,
    /// Priorities that objectives have. Their bands stay, however idle.
    wanted: BTreeSet<i32>,
    waiting: Slab<Waiting>,
    by_id: FxHashMap<RequestId, usize>,
    expiry: Expiry,
    held: Load,
    arrivals: u64,
    priorities: Vec<i32>,
    ceilings: Vec<f64>,
    /// Cuts off what is in flight, if the plan says so.
    evictor: Option<Evictor>,
    endpoints: usize,
    /// How fast requests are released while they have to wait for it.
    pace: Pace,
    /// How long requests are in flight.
    service: MeanTime,
    /// How long it takes to get a first endpoint.
    start: Start,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    request: Request,
    priority: i32,
    flow: FlowRef,
    place: Place,
    patience: Patience,
}

/// A request that leaves the queue.
#[derive(Debug)]
pub struct Left {
    /// Which one.
    pub id: RequestId,
    /// What is known of it.
    pub request: Request,
    /// The priority of the band in which it waited.
    pub priority: i32,
    /// How long it waited.
    pub waited: Duration,
}

/// A request that was sent and has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Which one.
    pub id: RequestId,
    /// The priority of the band that released it.
    pub priority: i32,
    /// Its fairness id.
    pub flow: &'a Arc<str>,
    /// What it used.
    pub used: Used,
}

/// Why a request cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There is no room for it now.
    Now,
    /// It has more bytes than may wait at all.
    Never {
        /// The number of bytes that may wait: in its band, or in all bands together.
        max_bytes: u64,
    },
}

impl FlowControl {
    /// Empty queues.
    pub fn new(plan: FlowPlan) -> Self {
        let mut control = Self {
            bands: Vec::new(),
            wanted: BTreeSet::new(),
            waiting: Slab::new(),
            by_id: FxHashMap::default(),
            expiry: Expiry::default(),
            held: Load::default(),
            arrivals: 0,
            priorities: Vec::new(),
            ceilings: Vec::new(),
            evictor: plan.evicts.then(Evictor::default),
            endpoints: 0,
            pace: Pace::default(),
            service: MeanTime::default(),
            start: Start::default(),
            plan,
        };
        control.set_bands();
        control
    }

    /// Another plan takes over. Whatever waits goes on waiting, in the order of its arrival, even if it is more than the
    /// new limits allow; the new ones hold for what comes. Bands of the same priority go on where they were: with the
    /// flow whose turn it is, and with the rate of their releases.
    pub fn replan(&mut self, plan: FlowPlan) {
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort_unstable_by_key(|waiting| waiting.place.arrival);
        if plan.evicts != self.evictor.is_some() {
            self.evictor = plan.evicts.then(Evictor::default);
        }
        self.plan = plan;
        let before = std::mem::take(&mut self.bands);
        self.by_id.clear();
        self.expiry.clear();
        self.held = Load::default();
        self.set_bands();
        for old in before {
            if let Ok(at) = self.band_at(old.plan.priority) {
                self.bands[at].last_served = old.last_served;
                self.bands[at].released = old.released;
            }
        }
        for Waiting {
            id,
            request,
            priority,
            patience,
            place,
            ..
        } in waiting
        {
            self.hold(id, request, priority, patience.enqueued, place.arrival);
        }
    }

    /// The priorities that objectives have. Each gets a band; a band that no objective wants any more goes when it is
    /// empty, unless the configuration has it.
    pub fn want_priorities(&mut self, wanted: BTreeSet<i32>) {
        self.wanted = wanted;
        self.set_bands();
    }

    /// The pool has so many endpoints that requests can be sent to.
    pub fn pool_size(&mut self, now: Timestamp, endpoints: usize) {
        self.expiry.set_regime(now, endpoints == 0);
        match endpoints {
            0 => self.start.begins(now),
            _ => self.start.ends(now, !self.waiting.is_empty()),
        }
        if self.endpoints != endpoints {
            // What is released next goes into room that comes with an endpoint, and tells nothing of the others' pace.
            self.pace.idle(now, self.endpoints);
            for band in &mut self.bands {
                band.resized(now, self.endpoints);
            }
            self.endpoints = endpoints;
        }
    }

    /// Holds a request, for which there must be room: see [`make_room`](Self::make_room). A priority without a band waits
    /// at priority 0.
    pub fn enqueue(&mut self, now: Timestamp, id: RequestId, request: Request) {
        let band = &self.bands[self.band_for(request.priority)];
        debug_assert!(self.plan.limits.admit(self.held, request.size_bytes));
        debug_assert!(band.plan.admits(band.load, request.size_bytes));
        let priority = band.plan.priority;
        self.arrivals += 1;
        self.hold(id, request, priority, now, self.arrivals);
    }

    /// Makes room for `request`, which is to be enqueued next: takes out the requests that give their places to it, and says
    /// why. Mostly none, because there is room.
    ///
    /// If the limits of all bands are reached, and the plan says so, less urgent requests below priority zero are shed.
    /// Otherwise the newest of the longest flows are displaced.
    ///
    /// # Errors
    ///
    /// If there is no room and none can be made. Then nothing was taken out.
    pub fn make_room(&mut self, now: Timestamp, request: &Request) -> Result<Vec<(Refusal, Left)>, Full> {
        let (limits, size) = (self.plan.limits, request.size_bytes);
        let at = self.band_for(request.priority);
        let band = &self.bands[at];
        let band_has_room = band.plan.admits(band.load, size);
        if band_has_room && limits.admit(self.held, size) {
            return Ok(Vec::new());
        }
        let max_bytes = band.plan.max_bytes.min(limits.bytes.unwrap_or(u64::MAX));
        if size > max_bytes {
            return Err(Full::Never { max_bytes });
        }
        let may_shed = self.plan.shed_when_full && band_has_room;
        let (refusal, keys) = match may_shed.then(|| self.shed_for(at, size)).flatten() {
            Some(shed) => (Refusal::Shed, shed),
            None => {
                let newcomer = Newcomer {
                    band: at,
                    fairness_id: &request.fairness_id,
                    size,
                };
                let size_of = |key: usize| self.waiting[key].request.size_bytes;
                let search = Search::new(&self.bands, self.held, newcomer, size_of);
                (Refusal::Displaced, search.run(limits).ok_or(Full::Now)?)
            }
        };
        let priority = band.plan.priority;
        let leave = |key| {
            let left = self.take(now, key);
            // The band of `request` stays: it is about to have a request again.
            if left.priority != priority {
                self.drop_idle_band(left.priority);
            }
            (refusal, left)
        };
        Ok(keys.into_iter().map(leave).collect())
    }

    /// The keys of those that are shed for a request of this size in the band at `at`: of the lowest priority the newest,
    /// and so on. `None` if all that may be shed would not be enough.
    fn shed_for(&self, at: usize, size: u64) -> Option<Vec<usize>> {
        let bound = self.bands[at].plan.priority.min(0);
        let sheddable = || self.bands.iter().filter(|band| band.plan.priority < bound);
        let mut kept = self.held;
        for band in sheddable() {
            kept.requests -= band.load.requests;
            kept.bytes -= band.load.bytes;
        }
        if !self.plan.limits.admit(kept, size) {
            return None;
        }
        let mut kept = self.held;
        let mut shed = Vec::new();
        for key in sheddable().rev().flat_map(Band::sheddable) {
            if self.plan.limits.admit(kept, size) {
                break;
            }
            kept.subtract(self.waiting[key].request.size_bytes);
            shed.push(key);
        }
        Some(shed)
    }

    /// Releases the next request, if one may go while the pool is as full as `saturation` says.
    pub fn release(&mut self, now: Timestamp, saturation: f64) -> Option<Left> {
        self.ceilings.clear();
        self.ceilings.resize(self.bands.len(), 1.0);
        self.plan
            .usage
            .plugin
            .ceilings(saturation, &self.priorities, &mut self.ceilings);
        let at = self.bands.iter().position(|band| !band.active.is_empty())?;
        if saturation >= self.ceilings[at] {
            self.pace.blocked(now);
            return None;
        }
        let was_blocked = self.pace.is_blocked();
        self.pace.released(now, self.endpoints);
        let band = &mut self.bands[at];
        let fairness = &mut self.plan.fairness[band.plan.fairness.0].plugin;
        let flow = fairness.pick(now, band.last_served.as_ref(), &band.active);
        let flow_id = band.active.get(flow).id.clone();
        let key = band.first_of(flow);
        band.releases(now, flow, was_blocked, self.endpoints);
        let left = self.take(now, key);
        if let Ok(at) = self.band_at(left.priority) {
            let band = &mut self.bands[at];
            band.last_served = Some(flow_id.clone());
            let fairness = &mut self.plan.fairness[band.plan.fairness.0].plugin;
            fairness.released(now, &flow_id, left.waited);
        }
        self.drop_idle_band(left.priority);
        Some(left)
    }

    /// The next request that has waited for longer than it may: until before `now`, or until `now`.
    pub fn expire(&mut self, now: Timestamp, until: Until) -> Option<Left> {
        let waiting = &self.waiting;
        let key = self.expiry.next_expired(now, until, |key| waiting[key].patience)?;
        let left = self.take(now, key);
        self.drop_idle_band(left.priority);
        Some(left)
    }

    /// Takes a request out, if it waits.
    pub fn cancel(&mut self, now: Timestamp, id: RequestId) -> Option<Left> {
        let key = *self.by_id.get(&id)?;
        let left = self.take(now, key);
        self.drop_idle_band(left.priority);
        Some(left)
    }

    /// True if a request waits.
    pub fn waits(&self, id: RequestId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// How long a request has waited, if it waits.
    pub fn wait(&self, now: Timestamp, id: RequestId) -> Option<Wait> {
        let waiting = self.waiting.get(*self.by_id.get(&id)?)?;
        Some(Wait {
            priority: waiting.request.priority,
            waited: now.since(waiting.patience.enqueued),
        })
    }

    /// Takes out any request, so that all can be answered when the service ends.
    pub fn drain(&mut self, now: Timestamp) -> Option<Left> {
        let (key, _) = self.waiting.iter().next()?;
        Some(self.take(now, key))
    }

    /// A request was sent to an endpoint.
    pub fn sent(&mut self, now: Timestamp, id: RequestId, priority: i32) {
        if let Some(evictor) = &mut self.evictor {
            evictor.sent(now, id, priority);
        }
    }

    /// A request that was sent has ended, which the saturation shows after `settles_in`. Tells how long after it was cut
    /// off, if it was.
    pub fn ended(&mut self, now: Timestamp, ended: Ended<'_>, settles_in: Duration) -> Option<Duration> {
        let band = &self.bands[self.band_for(ended.priority)];
        let fairness = &mut self.plan.fairness[band.plan.fairness.0].plugin;
        fairness.ended(now, ended.flow, ended.used);
        self.evictor.as_mut()?.ended(now, ended.id, settles_in)
    }

    /// A request was served to its end, which took so long.
    pub fn served(&mut self, took: Duration) {
        self.service.took(took);
    }

    /// Who is to be cut off, after [`release`](Self::release) let nobody go at this saturation, which `in_flight` requests
    /// make up.
    pub fn reclaim(
        &mut self,
        now: Timestamp,
        saturation: f64,
        in_flight: impl FnOnce() -> u64,
    ) -> SmallVec<[RequestId; 2]> {
        let Self {
            evictor: Some(evictor),
            bands,
            ceilings,
            ..
        } = self
        else {
            return SmallVec::new();
        };
        let demand = |(band, &ceiling): (&Band, &f64)| Demand {
            priority: band.plan.priority,
            ceiling,
            has_requests: !band.active.is_empty(),
        };
        evictor.reclaim(now, saturation, in_flight, bands.iter().zip(&*ceilings).map(demand))
    }

    /// Lets time pass. True if another look at who waits is due.
    ///
    /// To be called before [`release`](Self::release) and [`forecast`](Self::forecast), which go by the order of that moment.
    pub fn pass(&mut self, now: Timestamp) -> bool {
        self.put_late_behind(now);
        self.evictor.as_mut().is_some_and(|evictor| evictor.pass(now))
    }

    /// Puts requests behind that can no longer meet their deadlines. That frees no room, so nobody has to be looked at again.
    fn put_late_behind(&mut self, now: Timestamp) {
        let Self { bands, waiting, .. } = self;
        for band in bands {
            while let Some((key, place)) = band.put_late_behind(now, |key| waiting[key].patience.enqueued) {
                waiting[key].place = place;
            }
        }
    }

    /// What was cut off so far, and what of it does not show yet, in units of saturation.
    pub fn eviction(&self) -> Option<(&EvictionCounts, f64)> {
        let evictor = self.evictor.as_ref()?;
        Some((evictor.counts(), evictor.pending()))
    }

    /// When something changes by time alone, such as that a request has waited too long.
    pub fn deadline(&self) -> Option<Timestamp> {
        let eviction = self.evictor.as_ref().and_then(Evictor::deadline);
        self.expiry.deadline().into_iter().chain(eviction).min()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What waits in all.
    pub fn held(&self) -> Load {
        self.held
    }

    /// What may wait in all.
    pub fn limits(&self) -> plan::GlobalLimits {
        self.plan.limits
    }

    /// Each band with what waits in it, the highest priority first.
    pub fn bands(&self) -> impl Iterator<Item = (&BandPlan, Load)> {
        self.bands.iter().map(|band| (&band.plan, band.load))
    }

    /// What waits, by priority, flow and model.
    pub fn depths(&self) -> impl Iterator<Item = (i32, FlowDepth<'_>)> {
        self.bands.iter().flat_map(|band| {
            let priority = band.plan.priority;
            band.depths().map(move |depth| (priority, depth))
        })
    }

    /// The fairness policies, by instance.
    pub fn fairness(&self) -> impl Iterator<Item = &dyn fairness::FairnessPolicy> {
        self.plan.fairness.iter().map(|named| &*named.plugin)
    }

    /// How long a request may wait in a band.
    fn patience(&self, at: usize, request: &Request, enqueued: Timestamp) -> Patience {
        let shorter = |budget: Option<Duration>| match (budget, request.ttl) {
            (Some(budget), Some(wish)) => Some(budget.min(wish)),
            (budget, wish) => budget.or(wish),
        };
        Patience {
            enqueued,
            with_endpoints: shorter(self.bands[at].plan.ttl),
            without_endpoints: shorter(self.plan.without_endpoints),
        }
    }

    /// Where a request would stand in its flow that came now. `None` if it would be the last of all.
    fn place(&self, at: usize, request: &Request, now: Timestamp) -> Option<Place> {
        let ordering = &self.plan.ordering[self.bands[at].plan.ordering.0].plugin;
        (!ordering.is_by_arrival()).then(|| Place {
            key: ordering.key(&Arrival {
                request,
                received: now,
                enqueued: now,
                deadline: self.patience(at, request, now).deadline(),
            }),
            arrival: u64::MAX,
        })
    }

    fn hold(&mut self, id: RequestId, request: Request, priority: i32, enqueued: Timestamp, arrival: u64) {
        let at = self.band_for(priority);
        let patience = self.patience(at, &request, enqueued);
        let band = &mut self.bands[at];
        let key = self.waiting.vacant_key();
        let ordering = &self.plan.ordering[band.plan.ordering.0].plugin;
        let place = Place {
            key: ordering.key(&Arrival {
                request: &request,
                received: request.received,
                enqueued,
                deadline: patience.deadline(),
            }),
            arrival,
        };
        let flow = band.insert(key, place, enqueued, &request);
        self.held.add(request.size_bytes);
        self.expiry.insert(key, patience);
        self.by_id.insert(id, key);
        self.waiting.insert(Waiting {
            id,
            request,
            priority: band.plan.priority,
            flow,
            place,
            patience,
        });
    }

    fn take(&mut self, now: Timestamp, key: usize) -> Left {
        let Waiting {
            id,
            request,
            priority,
            flow,
            place,
            patience,
        } = self.waiting.remove(key);
        if self.waiting.is_empty() {
            self.pace.idle(now, self.endpoints);
        }
        self.by_id.remove(&id);
        self.expiry.remove(key, patience);
        self.held.subtract(request.size_bytes);
        if let Ok(at) = self.band_at(priority) {
            let waiting = &self.waiting;
            self.bands[at].remove(flow, place, &request, |key| waiting[key].patience.enqueued);
        }
        Left {
            id,
            request,
            priority,
            waited: now.since(patience.enqueued),
        }
    }

    /// Where the band is in which a new request of this priority waits: without one of its own, that of priority 0.
    fn band_for(&self, priority: i32) -> usize {
        let at = self.band_at(priority).or_else(|_| self.band_at(0));
        at.expect("band 0 is always there")
    }

    fn band_at(&self, priority: i32) -> Result<usize, usize> {
        self.bands.binary_search_by(|band| priority.cmp(&band.plan.priority))
    }

    /// Makes the bands that are wanted, and drops those that nobody wants and that hold nothing.
    fn set_bands(&mut self) {
        let Self {
            bands, plan, wanted, ..
        } = self;
        let of_objectives = wanted.iter().map(|&priority| {
            let template = if priority < 0 {
                plan.negative_template
            } else {
                plan.template
            };
            BandPlan { priority, ..template }
        });
        for band in plan.bands.iter().copied().chain(of_objectives) {
            if let Err(at) = bands.binary_search_by(|other| band.priority.cmp(&other.plan.priority)) {
                let fairness = &*plan.fairness[band.fairness.0].plugin;
                let ordering = &*plan.ordering[band.ordering.0].plugin;
                bands.insert(at, Band::new(band, fairness, ordering, plan.displace_when_full));
            }
        }
        bands.retain(|band| {
            let priority = band.plan.priority;
            !band.active.is_empty() || wanted.contains(&priority) || plan.bands.iter().any(|b| b.priority == priority)
        });
        self.list_priorities();
    }

    fn drop_idle_band(&mut self, priority: i32) {
        let Ok(at) = self.band_at(priority) else { return };
        let is_configured = self.plan.bands.iter().any(|plan| plan.priority == priority);
        if self.bands[at].active.is_empty() && !is_configured && !self.wanted.contains(&priority) {
            self.bands.remove(at);
            self.list_priorities();
        }
    }

    fn list_priorities(&mut self) {
        self.priorities.clear();
        self.priorities.extend(self.bands.iter().map(|band| band.plan.priority));
    }
}

/// Which requests have waited too long at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Those whose time was up before.
    Before,
    /// Those whose time is up, now included.
    Now,
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told;
#[cfg(test)]
mod traffic;
