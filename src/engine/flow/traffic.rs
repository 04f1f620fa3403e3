//! Tenants, and a pool of servers that takes a random but repeatable time for each request: for promises about waiting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;

use super::super::config::{LoadOptions, SourceName, load};
use super::super::outcome::{Outcome, Refusal};
use super::super::pool::{Endpoint, EndpointId, PoolChange};
use super::super::request::{Kind, Request, RequestId};
use super::super::scheduling::{Explain, NoProbe};
use super::super::seed::Seed;
use super::super::time::Timestamp;
use super::super::{Effect, Engine, Input, Progress, Refused};
use super::fairness::Used;

/// What happens in a pool.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// The configuration. The gate must be on.
    pub(super) config: String,
    /// Objectives and their priorities.
    pub(super) objectives: &'static [(&'static str, i32)],
    pub(super) sources: Vec<Source>,
    /// When how many endpoints are there, in seconds.
    pub(super) endpoints: Vec<(f64, u32)>,
    /// Mean seconds that a server takes for a request. Each takes from half of it to one and a half times as long.
    pub(super) service: f64,
    /// When the last request comes, in seconds.
    pub(super) until: f64,
    /// What the times of requests follow from.
    pub(super) seed: u64,
}

/// Requests that come at random times, at a steady rate.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) tenant: &'static str,
    pub(super) objective: &'static str,
    /// With how many fairness ids, of which each request takes one at random.
    pub(super) ids: u32,
    /// Requests a second.
    pub(super) rate: f64,
    pub(super) from: f64,
    pub(super) until: f64,
    /// The size of a request.
    pub(super) bytes: u64,
}

impl Source {
    pub(super) fn new(tenant: &'static str, rate: f64) -> Self {
        Self {
            tenant,
            objective: "",
            ids: 1,
            rate,
            from: 0.0,
            until: f64::INFINITY,
            bytes: 100,
        }
    }
}

/// A request, and how it fared.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) tenant: &'static str,
    pub(super) came: Timestamp,
    /// When it was sent to an endpoint or refused.
    pub(super) left: Option<Timestamp>,
    /// How it was refused, if it was.
    pub(super) refused: Option<Refused>,
    request: Request,
    service: Duration,
}

impl Fate {
    pub(super) fn waited(&self) -> Option<Duration> {
        let left = self.left.filter(|_| self.refused.is_none())?;
        Some(left - self.came)
    }

    pub(super) fn is_refused(&self, refusal: Refusal) -> bool {
        self.refused.as_ref().is_some_and(|refused| refused.refusal == refusal)
    }
}

fn moment(seconds: f64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs_f64(seconds)
}

impl Scenario {
    /// What became of each request, in the order in which they came.
    pub(super) fn run(&self) -> Vec<Fate> {
        let mut run = Run::new(self);
        while run.step() {}
        run.fates
    }

    /// How long the request at this place would have waited if it had been let in, and everybody after it as well.
    pub(super) fn had_it_been_let_in(&self, at: usize) -> Option<Duration> {
        let mut run = Run::new(self);
        run.opens_at = Some(at);
        while run.fates[at].left.is_none() && run.step() {}
        run.fates[at].waited()
    }

    fn requests(&self) -> Vec<Fate> {
        let mut fates = Vec::new();
        for (number, source) in (0..).zip(&self.sources) {
            let mut rng = Seed(100 * self.seed + number).stream("traffic");
            let mut at = source.from;
            loop {
                at -= (1.0 - rng.random::<f64>()).ln() / source.rate;
                if at >= source.until.min(self.until) {
                    break;
                }
                let fairness_id = match source.ids {
                    1 => source.tenant.into(),
                    ids => format!("{}-{}", source.tenant, rng.random_range(0..ids)).into(),
                };
                fates.push(Fate {
                    tenant: source.tenant,
                    came: moment(at),
                    left: None,
                    refused: None,
                    request: Request {
                        fairness_id,
                        objective: Some(source.objective.into()),
                        size_bytes: source.bytes,
                        received: moment(at),
                        ..Request::unknown(Kind::Inference)
                    },
                    service: Duration::from_secs_f64(self.service * (0.5 + rng.random::<f64>())),
                });
            }
        }
        fates.sort_by_key(|fate| fate.came);
        fates
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    engine: Engine,
    fates: Vec<Fate>,
    arrived: usize,
    pool_changes: usize,
    endpoints: u32,
    /// When which request ends at its server.
    ends: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The request from which on everybody is let in.
    opens_at: Option<usize>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let mut engine = Engine::new(plan(&scenario.config), Seed(1), Box::new(NoProbe), Explain::default());
        let objectives = scenario.objectives.iter();
        let objectives: BTreeMap<Arc<str>, i32> = objectives.map(|&(name, priority)| (name.into(), priority)).collect();
        let priorities = objectives;
        engine.apply(Timestamp::ZERO, Input::ObjectivesChanged { priorities });
        Self {
            scenario,
            engine,
            fates: scenario.requests(),
            arrived: 0,
            pool_changes: 0,
            endpoints: 0,
            ends: BinaryHeap::new(),
            opens_at: None,
        }
    }

    /// The next thing happens. False if there is none.
    fn step(&mut self) -> bool {
        let arrival = self.fates.get(self.arrived).map(|fate| fate.came);
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        let change = self
            .scenario
            .endpoints
            .get(self.pool_changes)
            .map(|&(at, _)| moment(at));
        let Some(now) = [arrival, end, change, self.engine.deadline()]
            .into_iter()
            .flatten()
            .min()
        else {
            return false;
        };
        if change == Some(now) {
            self.set_endpoints(now);
        } else if end == Some(now) {
            let Reverse((_, id)) = self.ends.pop().expect("it is the next to end");
            let progress = Progress::Ended(Outcome::Completed, Used::default());
            let id = RequestId(id);
            self.engine.apply(now, Input::Progress { id, progress });
        } else if arrival == Some(now) {
            if self.opens_at == Some(self.arrived) {
                self.engine.replan(now, plan(&without_limits(&self.scenario.config)));
                self.poll(now);
            }
            let request = self.fates[self.arrived].request.clone();
            let id = RequestId(self.arrived as u64);
            self.engine.apply(now, Input::Submit { id, request });
            self.arrived += 1;
        }
        self.poll(now);
        true
    }

    fn set_endpoints(&mut self, now: Timestamp) {
        let (_, count) = self.scenario.endpoints[self.pool_changes];
        self.pool_changes += 1;
        let id = |number: u32| EndpointId::new("default", &format!("e{number}"));
        let joins = (self.endpoints..count).map(|number| {
            PoolChange::Upsert(Arc::new(Endpoint {
                id: id(number),
                name: format!("e{number}").into(),
                address: [127, 0, 0, 1].into(),
                port: 8000,
                labels: BTreeMap::new(),
                rank: 0,
            }))
        });
        let leaves = (count..self.endpoints).map(|number| PoolChange::Remove(id(number)));
        let changes = joins.chain(leaves).collect();
        self.engine.apply(now, Input::PoolChanged { changes });
        self.endpoints = count;
    }

    fn poll(&mut self, now: Timestamp) {
        while let Some(effect) = self.engine.poll(now) {
            let fate = &mut self.fates[usize::try_from(effect.id().0).expect("ids are places in a list")];
            fate.left = Some(now);
            match effect {
                Effect::Route { id, .. } => self.ends.push(Reverse((now + fate.service, id.0))),
                Effect::Refuse { refused, .. } => fate.refused = Some(refused),
                Effect::Evict { .. } => panic!("eviction is off"),
            }
        }
    }
}

fn plan(config: &str) -> super::super::config::plan::EnginePlan {
    let loaded = load(config, &SourceName::Flag, &LoadOptions::default());
    loaded.unwrap_or_else(|errors| panic!("{errors}")).plan.engine
}

/// The same configuration with limits and times to live that nothing reaches.
fn without_limits(config: &str) -> String {
    let open = |line: &str| {
        let (field, _) = line.split_once(':')?;
        let open = match field.trim_start_matches([' ', '-']) {
            "maxRequests" => "1000000",
            "maxBytes" => "1000000000000",
            "defaultRequestTTL" | "requestTTL" => "0s",
            _ => return None,
        };
        Some(format!("{field}: {open}"))
    };
    let lines = config.lines().map(|line| open(line).unwrap_or_else(|| line.to_owned()));
    lines.collect::<Vec<_>>().join("\n")
}

/// The configuration of the guide on flow control: an endpoint takes fifteen requests at a time, and two hundred of
/// priority zero may wait.
pub(super) const GUIDE: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
metadata:
  name: default-config
featureGates:
- flowControl
plugins:
- type: round-robin-fairness-policy
- type: fcfs-ordering-policy
- type: concurrency-detector
  parameters:
    maxConcurrency: 15
    concurrencyMode: requests
    headroom: 0.0
saturationDetector:
  pluginRef: concurrency-detector
flowControl:
  maxBytes: 10Gi
  maxRequests: 1k
  defaultRequestTTL: 60s
  priorityBands:
  - priority: 100
    maxRequests: 500
    fairnessPolicyRef: round-robin-fairness-policy
    orderingPolicyRef: fcfs-ordering-policy
  - priority: 0
    maxRequests: 200
    fairnessPolicyRef: round-robin-fairness-policy
    orderingPolicyRef: fcfs-ordering-policy
  - priority: -10
    maxRequests: 50
    fairnessPolicyRef: round-robin-fairness-policy
    orderingPolicyRef: fcfs-ordering-policy
";
