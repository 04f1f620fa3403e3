//! What it costs to hold a request and to release it, with few flows and bands and with many.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use forebay::engine::config::plan::EnginePlan;
use forebay::engine::config::{LoadOptions, SourceName, load};
use forebay::engine::flow::FlowControl;
use forebay::engine::flow::fairness::Used;
use forebay::engine::outcome::Outcome;
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange};
use forebay::engine::request::{Kind, Request, RequestId};
use forebay::engine::scheduling::{Explain, NoProbe};
use forebay::engine::seed::Seed;
use forebay::engine::time::Timestamp;
use forebay::engine::{Effect, Engine, Input, Progress};

const POLICIES: [(&str, &str); 2] = [
    ("strict", "global-strict-fairness-policy"),
    ("turns", "round-robin-fairness-policy"),
];
const FLOWS: [usize; 3] = [1, 100, 10_000];
const BANDS: [usize; 3] = [1, 3, 100];

/// Requests that wait while pairs of a release and an arrival are measured.
const BACKLOG: usize = 10_000;

fn plan(policy: &str, bands: usize, concurrency: usize) -> EnginePlan {
    let mut text = format!(
        "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: {policy}}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: {concurrency}}}}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  priorityBands:
"
    );
    for priority in 0..bands {
        let band = format!("{{priority: {priority}, maxRequests: 2M, fairnessPolicyRef: {policy}}}");
        writeln!(text, "  - {band}").expect("a string takes whatever is written");
    }
    let loaded = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
    loaded.plan.engine
}

/// Requests of so many flows and priorities, in turn.
fn requests(count: usize, flows: usize, bands: usize) -> Vec<Request> {
    let ids: Vec<Arc<str>> = (0..flows).map(|flow| format!("tenant-{flow}").into()).collect();
    let request = |n: usize| Request {
        fairness_id: ids[n % flows].clone(),
        priority: i32::try_from(n % flows % bands).expect("there are few bands"),
        size_bytes: 1000,
        ..Request::unknown(Kind::Inference)
    };
    (0..count).map(request).collect()
}

/// Queues with a clock that goes on by a microsecond with every call.
struct Queues {
    flow: FlowControl,
    now: Timestamp,
    last_id: u64,
}

impl Queues {
    fn new(policy: &str, bands: usize) -> Self {
        let plan = plan(policy, bands, 1).flow.expect("flow control is on");
        Self {
            flow: FlowControl::new(plan),
            now: Timestamp::ZERO,
            last_id: 0,
        }
    }

    fn tick(&mut self) -> Timestamp {
        self.now = self.now + Duration::from_micros(1);
        self.now
    }

    fn enqueue(&mut self, request: Request) -> RequestId {
        let now = self.tick();
        self.last_id += 1;
        let id = RequestId(self.last_id);
        self.flow.enqueue(now, id, request);
        id
    }

    fn release(&mut self) -> Option<Request> {
        let now = self.tick();
        self.flow.release(now, 0.0).map(|left| left.request)
    }
}

fn each_shape(mut measure: impl FnMut(&str, &str, usize, usize)) {
    for (name, policy) in POLICIES {
        for flows in FLOWS {
            for bands in BANDS {
                measure(&format!("{name}/{flows} flows/{bands} bands"), policy, flows, bands);
            }
        }
    }
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(10);
    group
}

/// A backlog of which the next one goes and comes again.
fn turnover(criterion: &mut Criterion) {
    let mut group = group(criterion, "turnover of the queues");
    group.throughput(Throughput::Elements(1));
    each_shape(|name, policy, flows, bands| {
        let mut queues = Queues::new(policy, bands);
        for request in requests(BACKLOG, flows, bands) {
            queues.enqueue(request);
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let request = queues.release().expect("requests wait");
                queues.enqueue(request)
            });
        });
    });
}

/// Queues that fill and run dry, so that flows come and go.
fn fill_and_drain(criterion: &mut Criterion) {
    let mut group = group(criterion, "filling and draining the queues");
    group.throughput(Throughput::Elements(BACKLOG as u64));
    each_shape(|name, policy, flows, bands| {
        let mut queues = Queues::new(policy, bands);
        let mut outside = requests(BACKLOG, flows, bands);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for request in outside.drain(..) {
                    queues.enqueue(request);
                }
                while let Some(request) = queues.release() {
                    outside.push(request);
                }
            });
        });
    });
}

/// A backlog in the engine: a request comes, one in flight ends, and the next one is routed.
fn engine_turnover(criterion: &mut Criterion) {
    let mut group = group(criterion, "turnover of the engine");
    group.throughput(Throughput::Elements(1));
    each_shape(|name, policy, flows, bands| {
        let mut engine = Engine::new(plan(policy, bands, 100), Seed(1), Box::new(NoProbe), Explain::Best(3));
        let objectives = (0..bands).map(|band| (band.to_string().into(), i32::try_from(band).expect("few bands")));
        let priorities = objectives.collect();
        engine.apply(Timestamp::ZERO, Input::ObjectivesChanged { priorities });
        let changes = (0..8).map(join).collect();
        engine.apply(Timestamp::ZERO, Input::PoolChanged { changes });
        let templates = requests(BACKLOG, flows, bands);
        let (mut now, mut last_id, mut running) = (Timestamp::ZERO, 0, Vec::new());
        let mut turn = |engine: &mut Engine| {
            now = now + Duration::from_micros(1);
            last_id += 1;
            let request = templates[last_id as usize % BACKLOG].clone();
            let id = RequestId(last_id);
            engine.apply(now, Input::Submit { id, request });
            if engine
                .flow()
                .is_some_and(|flow| flow.held().requests as usize > BACKLOG)
            {
                let id = running.pop().expect("a full pool serves somebody");
                let progress = Progress::Ended(Outcome::Completed, Used::default());
                engine.apply(now, Input::Progress { id, progress });
            }
            while let Some(effect) = engine.poll(now) {
                match effect {
                    Effect::Evict { .. } => panic!("nobody asked for eviction"),
                    Effect::Route { id, decision, .. } => {
                        black_box(decision);
                        running.push(id);
                    }
                    Effect::Refuse { refused, .. } => panic!("refused: {}", refused.refusal.name()),
                }
            }
        };
        (0..2 * BACKLOG).for_each(|_| turn(&mut engine));
        group.bench_function(name, |bencher| bencher.iter(|| turn(&mut engine)));
    });
}

fn join(n: u16) -> PoolChange {
    let name = format!("e{n}");
    PoolChange::Upsert(Arc::new(Endpoint {
        id: EndpointId::new("default", &name),
        name: name.into(),
        address: [127, 0, 0, 1].into(),
        port: 8000 + n,
        labels: BTreeMap::new(),
        rank: 0,
    }))
}

/// A client that leaves from the middle of a very long queue, and comes again.
fn cancel(criterion: &mut Criterion) {
    const WAITING: usize = 1_000_000;
    let mut group = group(criterion, "cancel and come again among a million");
    group.throughput(Throughput::Elements(1));
    for (name, policy) in POLICIES {
        for flows in [1, 10_000] {
            let mut queues = Queues::new(policy, 1);
            let requests = requests(WAITING, flows, 1).into_iter();
            let mut ids: Vec<RequestId> = requests.map(|request| queues.enqueue(request)).collect();
            let mut at = 0;
            group.bench_function(format!("{name}/{flows} flows"), |bencher| {
                bencher.iter(|| {
                    at = (at + 7919) % WAITING;
                    let now = queues.tick();
                    let left = queues.flow.cancel(now, ids[at]).expect("it waits");
                    ids[at] = queues.enqueue(left.request);
                });
            });
        }
    }
}

criterion_group!(benches, turnover, fill_and_drain, engine_turnover, cancel);
criterion_main!(benches);
