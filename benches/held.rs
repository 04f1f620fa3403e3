//! What ten thousand requests cost that wait in the live driver: memory, processor time while nothing changes, and the
//! time in which they are let go; and how soon a request that waits learns that there is room.
#![allow(missing_docs)]
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

#[path = "support/cpu.rs"]
mod cpu;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::engine::Engine;
use forebay::engine::config::{LoadOptions, SourceName, load};
use forebay::engine::flow::fairness::Used;
use forebay::engine::outcome::Outcome;
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange};
use forebay::engine::prefix::{BlockHasher, BlockLayout};
use forebay::engine::request::{Kind, Request};
use forebay::engine::scheduling::{Explain, NoProbe};
use forebay::engine::seed::Seed;
use forebay::serve::clock::Clock;
use forebay::serve::driver::{Driver, InFlight, Picker, Routed, Verdict};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

const HELD: usize = 10_000;

/// How long the processor is watched while nothing changes.
const IDLE: Duration = Duration::from_secs(2);

/// Bytes of each prompt, whose block hashes are among what is known of a request.
const PROMPT_BYTES: usize = 4 << 10;

/// Rounds of the wake-up.
const ROUNDS: usize = 20_000;

fn main() {
    runtime(2).block_on(hold_and_drain());
    wake_up();
}

async fn hold_and_drain() {
    let driver = driver(HELD);
    let keep_time = tokio::spawn({
        let driver = driver.clone();
        async move { driver.keep_time().await }
    });

    let before = resident_bytes();
    let tickets: Vec<_> = (0..HELD).map(|n| driver.submit(request(n))).collect();
    let with_tickets = resident_bytes();
    let tasks: Vec<_> = tickets.into_iter().map(|ticket| tokio::spawn(routed(ticket))).collect();
    sleep(IDLE / 10).await;
    let with_tasks = resident_bytes();
    let each = |bytes: u64| (bytes - before) / HELD as u64;
    println!(
        "held/memory: {} bytes for each of {HELD} requests that wait, {} with a task that waits for it; of that {} are \
         the hashes of its prompt of {PROMPT_BYTES} bytes",
        each(with_tickets),
        each(with_tasks),
        size_of_val(request(0).prompt_blocks.hashes())
    );

    let cpu = cpu_time();
    sleep(IDLE).await;
    println!(
        "held/idle: {:.3} s of processor time in {} s while nothing changes",
        (cpu_time() - cpu).as_secs_f64(),
        IDLE.as_secs()
    );

    let began = Instant::now();
    driver.pool_changed(vec![join()]);
    let opened = began.elapsed();
    let mut in_flight = Vec::with_capacity(HELD);
    for task in tasks {
        in_flight.push(task.await.expect("a task that waits for a ticket ends"));
    }
    let all = began.elapsed();
    println!(
        "held/drain: {HELD} requests let go in {:.1} ms, and seen by their tasks after {:.1} ms: {:.0} requests/s",
        opened.as_secs_f64() * 1e3,
        all.as_secs_f64() * 1e3,
        HELD as f64 / all.as_secs_f64()
    );
    drop(in_flight);
    keep_time.abort();
}

/// One thread waits for its turn, another one ends the request that is in its way.
fn wake_up() {
    let driver = driver(1);
    driver.pool_changed(vec![join()]);
    let (to_waiter, tickets) = std::sync::mpsc::channel();
    let (to_ender, woken) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let runtime = runtime(1);
        for ticket in tickets {
            let in_flight = runtime.block_on(routed(ticket));
            to_ender
                .send((Instant::now(), in_flight))
                .expect("the other thread listens");
        }
    });

    let mut in_flight = runtime(1).block_on(routed(driver.submit(request(0))));
    let mut spans = Vec::with_capacity(ROUNDS);
    let mut calls = Vec::with_capacity(ROUNDS);
    for n in 0..ROUNDS {
        to_waiter
            .send(driver.submit(request(n)))
            .expect("the other thread listens");
        // The other thread comes to rest.
        std::thread::sleep(Duration::from_micros(50));
        let ended = Instant::now();
        in_flight.end(Outcome::Completed, Used::default());
        calls.push(ended.elapsed());
        let (at, next) = woken.recv().expect("the other thread answers");
        spans.push(at - ended);
        in_flight = next;
    }
    drop(to_waiter);
    waiter.join().expect("the other thread ends");
    for (what, mut spans) in [
        ("release by the thread that ends a request", calls),
        ("wake-up of the one that waits", spans),
    ] {
        spans.sort_unstable();
        let at = |share: f64| spans[((spans.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        println!("held/{what}: p50 {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
    }
}

async fn routed<T: Future<Output = Verdict<InFlight>>>(ticket: T) -> InFlight {
    match ticket.await {
        Verdict::Routed(routed) => routed,
        Verdict::Refused(refused) => panic!("refused: {}", refused.refusal.name()),
    }
}

fn driver(concurrency: usize) -> Driver {
    let text = format!(
        "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: round-robin-fairness-policy}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: {concurrency}}}}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  defaultPriorityBand: {{maxRequests: {HELD}, fairnessPolicyRef: round-robin-fairness-policy}}
"
    );
    let loaded = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let engine = Engine::new(loaded.plan.engine, Seed(1), Box::new(NoProbe), Explain::Best(3));
    Driver::new(engine, Clock::new())
}

/// A request as it comes from a parser: nothing in it is shared with others.
fn request(n: usize) -> Request {
    let mut prompt = format!("{n} ");
    prompt.push_str(&"x".repeat(PROMPT_BYTES - prompt.len()));
    let mut hasher = BlockHasher::new("llama", "", BlockLayout::default());
    hasher.text(prompt.as_bytes());
    hasher.end_prompt();
    let (prompt_tokens, prompt_blocks) = hasher.finish();
    Request {
        model: "meta-llama/Llama-3.1-8B-Instruct".into(),
        target_model: "meta-llama/Llama-3.1-8B-Instruct".into(),
        fairness_id: format!("tenant-{}", n % 100).into(),
        objective: Some("interactive".into()),
        prompt_tokens,
        prompt_blocks,
        size_bytes: PROMPT_BYTES as u64,
        ..Request::unknown(Kind::Inference)
    }
}

fn join() -> PoolChange {
    PoolChange::Upsert(Arc::new(Endpoint {
        id: EndpointId::new("default", "a"),
        name: "a".into(),
        address: [127, 0, 0, 1].into(),
        port: 8000,
        labels: BTreeMap::new(),
        rank: 0,
    }))
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("threads can be started")
}

/// CPU time of this process so far, user and system.
fn cpu_time() -> Duration {
    cpu::time_of(std::process::id())
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("the kernel tells what is resident")
        * 1024
}
