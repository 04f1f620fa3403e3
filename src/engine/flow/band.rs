//! The requests of one priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::request::Request;
use super::super::time::Timestamp;
use super::active::{ActiveFlow, ActiveFlows, Place};
use super::fairness::{FlowOrder, FlowRef};
use super::plan::BandPlan;
use super::retry::ReleaseRate;

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
    pub(super) rate: ReleaseRate,
    by_id: FxHashMap<Arc<str>, FlowRef>,
    /// The requests in order of arrival, by their keys, if they may be shed.
    arrivals: BTreeMap<u64, usize>,
    /// The requests of each active flow, by its reference.
    queues: Vec<Queue>,
}

/// The requests of one flow, by their keys in the slab of all that waits.
#[derive(Debug, Default)]
struct Queue {
    places: BTreeMap<Place, usize>,
    models: SmallVec<[ModelLoad; 1]>,
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
    pub(super) fn new(plan: BandPlan, order: FlowOrder) -> Self {
        Self {
            plan,
            active: ActiveFlows::new(order),
            load: Load::default(),
            last_served: None,
            rate: ReleaseRate::default(),
            by_id: FxHashMap::default(),
            arrivals: BTreeMap::new(),
            queues: Vec::new(),
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
        let queue = &mut self.queues[flow.0 as usize];
        queue.places.insert(place, key);
        queue.model_load(request).add(request.size_bytes);
        self.load.add(request.size_bytes);
        flow
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

    /// The key of the request that came last, if its requests may be shed.
    pub(super) fn last_to_come(&self) -> Option<usize> {
        self.arrivals.last_key_value().map(|(_, &key)| key)
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
        self.arrivals.remove(&place.arrival);
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

impl Queue {
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
