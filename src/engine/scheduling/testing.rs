//! Scenes for plugin tests: a pool, a request and what is known of both, written down in one line.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::admission::{Admission, AdmissionPolicy, TenantLoad, View};
use super::super::load::TokenLoad;
use super::super::plugin::{Entry, Needs, PrefixRef};
use super::super::pool::{Candidates, Endpoint, EndpointId, InFlight, Lora, Pool, SignalUpdate, Slot};
use super::super::request::{Kind, Request};
use super::super::saturation::SaturationDetector;
use super::super::seed::Seed;
use super::super::time::Timestamp;
use super::{Cycle, Filter, Picker, PrefixMatches, Scored, Scorer};

/// Endpoints `e000`, `e001`, ... in slots 0, 1, ..., and a request for them.
#[derive(Debug)]
pub(in crate::engine) struct Scene {
    now: Timestamp,
    pool: Pool,
    request: Request,
    prefix: PrefixMatches,
    load: TokenLoad,
    tenants: TenantLoad,
}

impl Scene {
    pub(in crate::engine) fn new() -> Self {
        Self {
            now: Timestamp::ZERO,
            pool: Pool::default(),
            request: Request::unknown(Kind::Inference),
            prefix: PrefixMatches::default(),
            load: TokenLoad::default(),
            tenants: TenantLoad::default(),
        }
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.pool.len()
    }

    pub(in crate::engine) fn waiting(self, values: &[u32]) -> Self {
        self.report(values, |waiting| SignalUpdate {
            waiting: Some(*waiting),
            ..SignalUpdate::default()
        })
    }

    pub(in crate::engine) fn running(self, values: &[u32]) -> Self {
        self.report(values, |running| SignalUpdate {
            running: Some(*running),
            ..SignalUpdate::default()
        })
    }

    pub(in crate::engine) fn kv_usage(self, values: &[f64]) -> Self {
        self.report(values, |usage| SignalUpdate {
            kv_usage: Some(*usage),
            ..SignalUpdate::default()
        })
    }

    /// Active adapters, waiting adapters, and the most that fit.
    pub(in crate::engine) fn lora(self, values: &[(&[&str], &[&str], u32)]) -> Self {
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        self.report(values, |(active, waiting, max)| SignalUpdate {
            lora: Some(Lora {
                active: names(active),
                waiting: names(waiting),
                max: *max,
            }),
            ..SignalUpdate::default()
        })
    }

    pub(in crate::engine) fn labels(mut self, values: &[&[(&str, &str)]]) -> Self {
        for (at, labels) in values.iter().enumerate() {
            let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
            self.pool.upsert(
                self.now,
                Arc::new(Endpoint {
                    labels: labels.collect(),
                    ..endpoint(at)
                }),
            );
        }
        self
    }

    pub(in crate::engine) fn prefix(mut self, matched: &[u32], total: u32) -> Self {
        self.prefix = PrefixMatches {
            known: true,
            total,
            block_tokens: 64,
            matched: matched.to_vec(),
        };
        self.report(matched, |_| SignalUpdate::default())
    }

    pub(in crate::engine) fn prompt_tokens(mut self, tokens: u32) -> Self {
        self.request.prompt_tokens = tokens;
        self
    }

    /// What endpoints have cached of the prompt does not count as load.
    pub(in crate::engine) fn cached_is_no_load(mut self) -> Self {
        self.load.cached = Some(PrefixRef(0));
        self
    }

    pub(in crate::engine) fn in_flight(mut self, values: &[InFlight]) -> Self {
        for (at, &in_flight) in values.iter().enumerate() {
            let slot = self.slot(at);
            self.pool.member_mut(slot).in_flight = in_flight;
        }
        self
    }

    pub(in crate::engine) fn requests_in_flight(self, values: &[u32]) -> Self {
        let in_flight = values.iter().map(|&requests| InFlight {
            requests,
            ..InFlight::default()
        });
        self.in_flight(&in_flight.collect::<Vec<_>>())
    }

    pub(in crate::engine) fn tenant(mut self, fairness_id: &str, in_flight: u32) -> Self {
        let fairness_id = fairness_id.into();
        (0..in_flight).for_each(|_| self.tenants.sent(&fairness_id));
        self
    }

    /// What `policy` answers to `request`.
    pub(in crate::engine) fn admits(&self, policy: &mut dyn AdmissionPolicy, request: &Request) -> Admission {
        self.admits_at(self.now, policy, request)
    }

    pub(in crate::engine) fn admits_at(
        &self,
        now: Timestamp,
        policy: &mut dyn AdmissionPolicy,
        request: &Request,
    ) -> Admission {
        let mut slots = Vec::new();
        policy.admit(now, request, View::new(&self.pool, &self.tenants, &mut slots))
    }

    /// Reports that are made from here on are made now, and so is the decision.
    pub(in crate::engine) fn now(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    pub(in crate::engine) fn target_model(mut self, model: &str) -> Self {
        self.request.target_model = model.into();
        self
    }

    fn report<T>(mut self, values: &[T], update: impl Fn(&T) -> SignalUpdate) -> Self {
        for (at, value) in values.iter().enumerate() {
            self.slot(at);
            let update = SignalUpdate {
                at: self.now,
                ..update(value)
            };
            self.pool.report(&endpoint(at).id, update);
        }
        self
    }

    /// The slot of the endpoint with this number, which is added if it is not there.
    fn slot(&mut self, at: usize) -> Slot {
        let endpoint = endpoint(at);
        let known = self.pool.slot(&endpoint.id);
        known.unwrap_or_else(|| self.pool.upsert(self.now, Arc::new(endpoint)))
    }

    pub(in crate::engine) fn with<T>(&self, f: impl FnOnce(&Cycle<'_>, Candidates<'_>) -> T) -> T {
        let slots: Vec<Slot> = self.pool.iter().map(|(slot, _)| slot).collect();
        self.with_some(&slots, f)
    }

    fn with_some<T>(&self, slots: &[Slot], f: impl FnOnce(&Cycle<'_>, Candidates<'_>) -> T) -> T {
        let prefix = std::slice::from_ref(&self.prefix);
        let cycle = Cycle::new(self.now, &self.request, prefix, self.load);
        f(&cycle, Candidates::new(&self.pool, slots))
    }
}

fn endpoint(at: usize) -> Endpoint {
    let name = format!("e{at:03}");
    Endpoint {
        id: EndpointId::new("default", &name),
        name: name.into(),
        address: [10, 0, 0, 1].into(),
        port: 8000,
        labels: std::collections::BTreeMap::new(),
        rank: 0,
    }
}

/// Any pool of up to twelve endpoints in any state.
pub(in crate::engine) fn any_scene() -> impl Strategy<Value = Scene> {
    let in_flight = (0_u32..200, 0_u64..2_000_000, 0_u32..20).prop_map(|(requests, tokens, unreported)| InFlight {
        requests,
        tokens,
        unreported,
    });
    let state = (0_u32..50, 0_u32..300, 0.0_f64..=1.0, 0_u32..10, 0_usize..4, in_flight);
    proptest::collection::vec(state, 1..12).prop_map(|states| {
        let waiting: Vec<_> = states.iter().map(|s| s.0).collect();
        let running: Vec<_> = states.iter().map(|s| s.1).collect();
        let kv: Vec<_> = states.iter().map(|s| s.2).collect();
        let prefix: Vec<_> = states.iter().map(|s| s.3).collect();
        let in_flight: Vec<_> = states.iter().map(|s| s.5).collect();
        let adapters: [&[&str]; 4] = [&[], &["a"], &["a", "b"], &["m"]];
        let lora: Vec<_> = states.iter().map(|s| (adapters[s.4], adapters[3 - s.4], 2)).collect();
        let roles: [&[(&str, &str)]; 4] = [
            &[],
            &[("llm-d.ai/role", "decode")],
            &[("llm-d.ai/role", "prefill")],
            &[("llm-d.ai/role", "encode")],
        ];
        let labels: Vec<_> = states.iter().map(|s| roles[s.4]).collect();
        Scene::new()
            .target_model("m")
            .labels(&labels)
            .waiting(&waiting)
            .running(&running)
            .kv_usage(&kv)
            .lora(&lora)
            .prefix(&prefix, 9)
            .in_flight(&in_flight)
    })
}

pub(in crate::engine) fn scores_by(scorer: &mut dyn Scorer, scene: &Scene) -> Vec<f64> {
    let mut scores = vec![0.0; scene.len()];
    scene.with(|cycle, candidates| scorer.score(cycle, candidates, &mut scores));
    scores
}

pub(in crate::engine) fn kept_by(filter: &mut dyn Filter, scene: &Scene) -> Vec<usize> {
    let everybody: Vec<_> = (0..scene.len()).collect();
    kept_of(filter, scene, &everybody)
}

/// What a filter keeps of the endpoints with these numbers.
pub(in crate::engine) fn kept_of(filter: &mut dyn Filter, scene: &Scene, candidates: &[usize]) -> Vec<usize> {
    let slots: Vec<_> = (0..).map(Slot).take(scene.len()).collect();
    let slots: Vec<_> = candidates.iter().map(|&at| slots[at]).collect();
    let mut kept = Vec::new();
    let mut chance = Seed(7).stream("filter");
    scene.with_some(&slots, |cycle, candidates| {
        filter.filter(cycle, candidates, &mut chance, &mut kept);
    });
    kept.into_iter().map(Slot::index).collect()
}

pub(in crate::engine) fn saturation_by(detector: &dyn SaturationDetector, scene: &Scene) -> f64 {
    scene.with(|cycle, endpoints| detector.saturation(cycle.now, endpoints))
}

pub(in crate::engine) fn scored(totals: &[f64]) -> Vec<Scored> {
    let slots = (0..).map(Slot);
    slots.zip(totals).map(|(slot, &total)| Scored { slot, total }).collect()
}

/// How often each candidate is picked first in a thousand draws.
pub(in crate::engine) fn pick_often(picker: &mut dyn Picker, scored: &[Scored]) -> Vec<u32> {
    let mut chance = Seed(7).stream("picker");
    let mut picks = vec![0; scored.len()];
    for _ in 0..1000 {
        let mut picked = Vec::new();
        picker.pick(scored, &mut chance, &mut picked);
        picks[picked[0].index()] += 1;
    }
    picks
}

/// Each described parameter is accepted with its default; an undescribed one is refused where others are described.
pub(in crate::engine) fn params_conform<T: ?Sized>(entry: &Entry<T>) {
    params_conform_beside(entry, &json!({}));
}

/// The same for a plugin that cannot do without the parameters `required`.
pub(in crate::engine) fn params_conform_beside<T: ?Sized>(entry: &Entry<T>, required: &Value) {
    let name = entry.type_name;
    let make = |parameter: &str, value: Value| {
        let mut params = required.clone();
        params[parameter] = value;
        entry.instance(Some(&params), &mut Needs::default()).map(drop)
    };
    for parameter in entry.parameters.iter().filter(|p| required.get(p.name).is_none()) {
        let default: Value = serde_json::from_str(parameter.default).expect("defaults are JSON");
        assert_eq!(make(parameter.name, default), Ok(()), "{name}: {}", parameter.name);
    }
    assert!(
        make("noSuchParameter", json!(1)).is_err() || entry.parameters.is_empty(),
        "{name}"
    );
}
