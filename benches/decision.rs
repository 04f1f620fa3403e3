//! What a decision costs: a request is submitted to the engine, its endpoint is told, and it ends.
//!
//! The default profile decides. A long prompt is one whose first half some endpoints have served. Measured are
//! decisions that nobody watches, and decisions whose plugins are timed for the metrics page, as in the live service.
#![allow(missing_docs)]

#[path = "support/pool.rs"]
mod pool;
#[path = "support/prompts.rs"]
mod prompts;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use forebay::engine::flow::fairness::Used;
use forebay::engine::outcome::Outcome;
use forebay::engine::request::{Request, RequestId};
use forebay::engine::scheduling::{NoProbe, Probe};
use forebay::engine::{Effect, Engine, Input, Progress};
use forebay::serve::clock::Clock;
use forebay::serve::observe::metrics::{Limits, Metrics};
use pool::NOW;

/// Endpoints of a host, and hosts.
const POOLS: [(u8, u8); 3] = [(10, 1), (100, 1), (100, 10)];
const PROMPTS: [(&str, usize); 2] = [("400 B", 400), ("32 KiB", 32 << 10)];
/// Different prompts.
const CONVERSATIONS: u32 = 64;

fn decision(criterion: &mut Criterion) {
    for (watched, probe) in [("unwatched", no_probe as fn() -> _), ("timed", live_probe)] {
        let mut group = criterion.benchmark_group(format!("decision, {watched}"));
        for (prompt, bytes) in PROMPTS {
            let requests = prompts::requests(CONVERSATIONS, bytes);
            for (endpoints, hosts) in POOLS {
                let mut engine = pool::engine(endpoints, hosts, probe());
                let mut ids = 0..;
                let size = engine.pool().len();
                group.bench_function(BenchmarkId::new(format!("prompt of {prompt}"), size), |bencher| {
                    bencher.iter(|| {
                        let id = ids.next().expect("there are numbers enough");
                        let request = &requests[id as usize % requests.len()];
                        decide(&mut engine, RequestId(id), black_box(request))
                    });
                });
            }
        }
        group.finish();
    }
}

fn decide(engine: &mut Engine, id: RequestId, request: &Request) -> Effect {
    let request = request.clone();
    engine.apply(NOW, Input::Submit { id, request });
    let effect = engine.poll(NOW).expect("nothing makes a request wait");
    for progress in [
        Progress::AnswerBegan,
        Progress::Ended(Outcome::Completed, Used::default()),
    ] {
        engine.apply(NOW, Input::Progress { id, progress });
    }
    effect
}

fn no_probe() -> Box<dyn Probe> {
    Box::new(NoProbe)
}

fn live_probe() -> Box<dyn Probe> {
    let (_, probe) =
        Metrics::register(Clock::new(), Arc::default(), None, Limits::default()).expect("the families are sound");
    Box::new(probe)
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = decision
}
criterion_main!(benches);
