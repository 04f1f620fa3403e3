//! The requests of one priority.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::request::Request;
use super::super::time::Timestamp;
use super::active::{ActiveFlow, ActiveFlows, Place};
use super::displacement::Measure;
use super::fairness::{FairnessPolicy, FlowRef};
use super::forecast::Before;
use super::longest::{Length, Longest};
use super::ordering::{LAST, OrderingPolicy};
use super::pace::{Pace, Recent};
use super::plan::BandPlan;

/// A number of requests and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Load {
    pub(super) fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    pub(super) fn subtract(&mut self, bytes: u64) {
        self.requests -= 1;
        self.bytes -= bytes;
    }
}

#[derive(Debug)]
pub(super) struct Band {
    pub(super) plan: BandPlan,
    pub(super) active: ActiveFlows,
    pub(super) load: Load,
    pub(super) last_served: Option<Arc<str>>,
    /// Releases, lately.
    pub(super) released: Recent,
    /// Not by hash: clients choose the ids.
    by_id: BTreeMap<Arc<str>, FlowRef>,
    /// The requests in order of arrival, by their keys, if they may be shed.
    arrivals: BTreeMap<u64, usize>,
    /// The requests of each active flow, by its reference.
    queues: Vec<Queue>,
    /// The flows by length, if the newest of the longest may be displaced.
    lengths: Option<Lengths>,
    /// The requests of all flows whose deadlines have not passed. Empty unless the band is ordered by deadlines.
    deadlines: BTreeMap<Place, FlowRef>,
    has_deadlines: bool,
}

/// The requests of one flow, by their keys in the slab of all that waits.
#[derive(Debug, Default)]
struct Queue {
    places: BTreeMap<Place, usize>,
    /// The same in order of arrival, if they may be displaced.
    arrivals: BTreeMap<u64, usize>,
    load: Load,
    pace: Pace,
    models: SmallVec<[ModelLoad; 1]>,
}

/// Beyond so many flows, or requests of a flow, the place of a request is estimated from this many.
const LOOKED_AT: usize = 256;

#[derive(Debug, Default)]
struct Lengths {
    by_requests: Longest,
    by_bytes: Longest,
}

#[derive(Debug)]
struct ModelLoad {
    model: Arc<str>,
    target_model: Arc<str>,
    load: Load,
}

/// What waits in a flow for one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowDepth<'a> {
    /// The fairness id.
    pub flow: &'a Arc<str>,
    /// The model that the clients asked for.
    pub model: &'a Arc<str>,
    /// The model that endpoints will be asked for.
    pub target_model: &'a Arc<str>,
    /// What waits.
    pub load: Load,
}

impl Band {
    /// An empty band whose flows `fairness` chooses from. If `displaces`, requests of its longest flows can be made to give
    /// way, as long as the policy tells flows apart.
    pub(super) fn new(
        plan: BandPlan,
        fairness: &dyn FairnessPolicy,
        ordering: &dyn OrderingPolicy,
        displaces: bool,
    ) -> Self {
        Self {
            plan,
            active: ActiveFlows::new(fairness.order()),
            lengths: (displaces && fairness.tells_flows_apart()).then(Lengths::default),
            load: Load::default(),
            last_served: None,
            released: Recent::default(),
            by_id: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            queues: Vec::new(),
            deadlines: BTreeMap::new(),
            has_deadlines: ordering.keys_are_deadlines(),
        }
    }

    /// Adds the request with this key, and returns its flow.
    pub(super) fn insert(&mut self, key: usize, place: Place, enqueued: Timestamp, request: &Request) -> FlowRef {
        let flow = match self.by_id.get(&request.fairness_id) {
            Some(&flow) => {
                if place < self.active.get(flow).head {
                    self.active.set_head(flow, place, enqueued);
                }
                flow
            }
            None => {
                let flow = self.active.insert(ActiveFlow {
                    id: request.fairness_id.clone(),
                    head: place,
                    head_enqueued: enqueued,
                });
                self.by_id.insert(request.fairness_id.clone(), flow);
                if self.queues.len() <= flow.0 as usize {
                    self.queues.resize_with(flow.0 as usize + 1, Queue::default);
                }
                flow
            }
        };
        if self.may_be_shed() {
            self.arrivals.insert(place.arrival, key);
        }
        if self.has_deadlines && place.key != LAST {
            self.deadlines.insert(place, flow);
        }
        let queue = &mut self.queues[flow.0 as usize];
        if queue.places.is_empty() {
            queue.pace = Pace::default();
            queue.pace.restart(enqueued);
        }
        queue.places.insert(place, key);
        queue.load.add(request.size_bytes);
        queue.model_load(request).add(request.size_bytes);
        self.load.add(request.size_bytes);
        if let Some(lengths) = &mut self.lengths {
            queue.arrivals.insert(place.arrival, key);
            match queue.places.len() {
                1 => lengths.insert(flow, queue),
                _ => lengths.update(flow, queue),
            }
        }
        flow
    }

    /// True if requests of its longest flows can be made to give way.
    pub(super) fn displaces(&self) -> bool {
        self.lengths.is_some()
    }

    /// Its flows by length. `None` if none of its requests can be made to give way.
    pub(super) fn longest(&self, measure: Measure) -> Option<&Longest> {
        let lengths = self.lengths.as_ref()?;
        Some(match measure {
            Measure::Requests => &lengths.by_requests,
            Measure::Bytes => &lengths.by_bytes,
        })
    }

    /// The key of the request of `flow` with this arrival number, and the number of the one that came before it.
    pub(super) fn newest_of(&self, flow: FlowRef, arrival: u64) -> (usize, Option<u64>) {
        let mut newest_first = self.queues[flow.0 as usize].arrivals.range(..=arrival).rev();
        let (_, &key) = newest_first.next().expect("the flow has this request");
        (key, newest_first.next().map(|(&arrival, _)| arrival))
    }

    /// A request of `flow` is released. Only if it `was_blocked` before does that tell how fast the flow is served.
    pub(super) fn releases(&mut self, now: Timestamp, flow: FlowRef, was_blocked: bool, endpoints: usize) {
        self.released.count(now);
        let pace = &mut self.queues[flow.0 as usize].pace;
        match was_blocked {
            true => pace.released(now, endpoints),
            false => pace.restart(now),
        }
    }

    /// The number of endpoints changes; so far it was this one. Takes time in the number of flows.
    pub(super) fn resized(&mut self, now: Timestamp, endpoints: usize) {
        for queue in &mut self.queues {
            queue.pace.resized(now, endpoints);
        }
    }

    /// How fast the flow of this fairness id was served while it waited.
    pub(super) fn pace_of(&self, fairness_id: &Arc<str>) -> Option<&Pace> {
        let flow = self.by_id.get(fairness_id)?;
        Some(&self.queues[flow.0 as usize].pace)
    }

    /// What would be released before a request of this flow that stood at `place`; without a place it is the last of all.
    pub(super) fn before(&self, fairness: &dyn FairnessPolicy, flow: &Arc<str>, place: Option<Place>) -> Before {
        let of_queue = |reference: FlowRef| self.queues[reference.0 as usize].before(place);
        let own_queue = self.by_id.get(flow).copied();
        let own = own_queue.map_or(0, of_queue);
        if fairness.tells_flows_apart() {
            return self.before_in_turns(fairness, flow, own);
        }
        if place.is_none() {
            let own_flow = own_queue.map_or(0, |flow| self.queues[flow.0 as usize].load.requests);
            let others = self.load.requests - own_flow;
            return Before {
                own,
                others,
                others_at_most: others,
            };
        }
        let (others, _) = self.sum_over_others(flow, |reference, _| (of_queue(reference), 0));
        Before {
            own,
            others,
            others_at_most: others,
        }
    }

    /// What would be released before a request of this flow that has `own` requests of the flow before it, if the flows take
    /// turns.
    fn before_in_turns(&self, fairness: &dyn FairnessPolicy, flow: &Arc<str>, own: u64) -> Before {
        let (others, others_at_most) = self.sum_over_others(flow, |reference, id| {
            let turns = fairness.turns_before(self.last_served.as_ref(), flow, own + 1, id);
            (self.queues[reference.0 as usize].load.requests.min(turns), turns)
        });
        Before {
            own,
            others,
            others_at_most,
        }
    }

    /// The sums of two figures over the flows but this one; estimated if there are many.
    fn sum_over_others(&self, flow: &Arc<str>, figures: impl Fn(FlowRef, &Arc<str>) -> (u64, u64)) -> (u64, u64) {
        let own = self.by_id.get(flow).copied();
        let others = self.active.iter().filter(|(reference, _)| Some(*reference) != own);
        let (mut first, mut second, mut seen) = (0, 0, 0_usize);
        for (reference, other) in others.take(LOOKED_AT) {
            let (one, two) = figures(reference, &other.id);
            (first, second, seen) = (first + one, second + two, seen + 1);
        }
        let all = self.active.len() - usize::from(own.is_some());
        let scaled = |sum: u64| match seen {
            0 => 0,
            seen => (sum as f64 * all as f64 / seen as f64).round() as u64,
        };
        (scaled(first), scaled(second))
    }

    /// True if its requests have deadlines, and `place` is that of one that can still be met.
    pub(super) fn is_in_time(&self, place: Place) -> bool {
        self.has_deadlines && place.key != LAST
    }

    /// What of `before` would really be released before a request of this flow at `place`, which has a deadline: not those
    /// whose own deadlines pass meanwhile. `per_second` of those that count are released: of the flow, if flows take turns.
    pub(super) fn before_in_time(
        &self,
        now: Timestamp,
        fairness: &dyn FairnessPolicy,
        flow: &Arc<str>,
        place: Place,
        before: Before,
        per_second: f64,
    ) -> Before {
        let is_released = |released: u64, other: Place| {
            let seconds = (released + 1) as f64 / per_second;
            let at = now + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            at.as_nanos() <= other.key
        };
        let walk = |earlier: &mut dyn Iterator<Item = &Place>, all: u64| {
            let (mut released, mut seen) = (0, 0);
            for &other in earlier.take(LOOKED_AT) {
                released += u64::from(is_released(released, other));
                seen += 1;
            }
            match seen {
                0 => 0,
                seen => (released as f64 * all.max(seen) as f64 / seen as f64).round() as u64,
            }
        };
        if !fairness.tells_flows_apart() {
            return Before {
                own: walk(
                    &mut self.deadlines.range(..place).map(|(place, _)| place),
                    before.own + before.others,
                ),
                ..Before::default()
            };
        }
        let own = self.by_id.get(flow).map_or(0, |flow| {
            let places = &self.queues[flow.0 as usize].places;
            walk(&mut places.range(..place).map(|(place, _)| place), before.own)
        });
        self.before_in_turns(fairness, flow, own)
    }

    /// What waits in the flow of this fairness id.
    pub(super) fn load_of(&self, fairness_id: &Arc<str>) -> Load {
        let flow = self.by_id.get(fairness_id);
        flow.map_or_else(Load::default, |flow| self.queues[flow.0 as usize].load)
    }

    /// The key of the first request of a flow.
    pub(super) fn first_of(&self, flow: FlowRef) -> usize {
        let places = &self.queues[flow.0 as usize].places;
        *places.first_key_value().expect("an active flow has requests").1
    }

    /// True if its requests may be shed.
    fn may_be_shed(&self) -> bool {
        self.plan.priority < 0
    }

    /// The keys of its requests that may be shed, the newest first.
    pub(super) fn sheddable(&self) -> impl Iterator<Item = usize> {
        self.arrivals.values().rev().copied()
    }

    /// Takes a request out; `enqueued` tells when the one with a key began to wait.
    pub(super) fn remove(
        &mut self,
        flow: FlowRef,
        place: Place,
        request: &Request,
        enqueued: impl Fn(usize) -> Timestamp,
    ) {
        let queue = &mut self.queues[flow.0 as usize];
        queue.places.remove(&place);
        self.deadlines.remove(&place);
        self.arrivals.remove(&place.arrival);
        queue.load.subtract(request.size_bytes);
        if let Some(lengths) = &mut self.lengths {
            queue.arrivals.remove(&place.arrival);
            match queue.places.len() {
                0 => lengths.remove(flow),
                _ => lengths.update(flow, queue),
            }
        }
        queue.model_load(request).subtract(request.size_bytes);
        queue.models.retain(|model| model.load.requests > 0);
        self.load.subtract(request.size_bytes);
        match queue.places.first_key_value() {
            None => {
                self.active.remove(flow);
                self.by_id.remove(&request.fairness_id);
            }
            Some((&head, &key)) if self.active.get(flow).head == place => {
                self.active.set_head(flow, head, enqueued(key));
            }
            Some(_) => {}
        }
    }

    /// Puts a request behind those that can still be served in time, because its deadline has passed, and returns its key and
    /// its new place. `None` if there is no such request. `enqueued` tells when the one with a key began to wait.
    ///
    /// To be called until there is none, before anybody looks at the order of the band. Each request is moved at most once.
    pub(super) fn put_late_behind(
        &mut self,
        now: Timestamp,
        enqueued: impl Fn(usize) -> Timestamp,
    ) -> Option<(usize, Place)> {
        let first = self.deadlines.first_entry();
        let first = first.filter(|first| first.key().key < now.as_nanos())?;
        let (place, flow) = first.remove_entry();
        let behind = Place { key: LAST, ..place };
        let places = &mut self.queues[flow.0 as usize].places;
        let key = places
            .remove(&place)
            .expect("a request with a deadline is in its queue");
        places.insert(behind, key);
        if self.active.get(flow).head == place {
            let (&head, &first) = places.first_key_value().expect("the flow has this request");
            self.active.set_head(flow, head, enqueued(first));
        }
        Some((key, behind))
    }

    pub(super) fn depths(&self) -> impl Iterator<Item = FlowDepth<'_>> {
        self.active.iter().flat_map(|(reference, flow)| {
            let models = self.queues[reference.0 as usize].models.iter();
            models.map(|model| FlowDepth {
                flow: &flow.id,
                model: &model.model,
                target_model: &model.target_model,
                load: model.load,
            })
        })
    }
}

impl Lengths {
    fn insert(&mut self, flow: FlowRef, queue: &Queue) {
        self.by_requests.insert(flow, queue.length(Measure::Requests));
        self.by_bytes.insert(flow, queue.length(Measure::Bytes));
    }

    fn update(&mut self, flow: FlowRef, queue: &Queue) {
        self.by_requests.update(flow, queue.length(Measure::Requests));
        self.by_bytes.update(flow, queue.length(Measure::Bytes));
    }

    fn remove(&mut self, flow: FlowRef) {
        self.by_requests.remove(flow);
        self.by_bytes.remove(flow);
    }
}

impl Queue {
    /// How many of its requests would be released before one at `place`.
    fn before(&self, place: Option<Place>) -> u64 {
        let all = self.load.requests;
        let is_last = place.is_none_or(|place| self.places.last_key_value().is_none_or(|(last, _)| *last < place));
        match place {
            Some(place) if !is_last => {
                let counted = self.places.range(..place).take(LOOKED_AT).count();
                match counted {
                    LOOKED_AT => (LOOKED_AT as u64 + all) / 2,
                    fewer => fewer as u64,
                }
            }
            _ => all,
        }
    }

    fn length(&self, measure: Measure) -> Length {
        let (&newest, _) = self.arrivals.last_key_value().expect("an active flow has requests");
        Length {
            amount: measure.of(self.load),
            newest,
        }
    }

    fn model_load(&mut self, request: &Request) -> &mut Load {
        let same = |load: &ModelLoad| load.model == request.model && load.target_model == request.target_model;
        let at = self.models.iter().position(same).unwrap_or_else(|| {
            self.models.push(ModelLoad {
                model: request.model.clone(),
                target_model: request.target_model.clone(),
                load: Load::default(),
            });
            self.models.len() - 1
        });
        &mut self.models[at].load
    }
}
