//! Who should own the engine: whoever holds its lock, or one task that is asked through a channel?
//!
//! Threads with a runtime each, as the workers of the front are, ask for decisions among 100 endpoints from 16 tasks
//! each, as fast as they get them. Told are decisions per second, the time that one takes as its task sees it, and
//! the CPU time of the process for each.

#![expect(clippy::print_stdout, reason = "a measurement is printed")]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/pool.rs"]
mod pool;
#[path = "support/prompts.rs"]
mod prompts;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use forebay::engine::flow::fairness::Used;
use forebay::engine::outcome::Outcome;
use forebay::engine::request::{Request, RequestId};
use forebay::engine::scheduling::NoProbe;
use forebay::engine::{Effect, Engine, Input, Progress};
use forebay::serve::clock::Clock;
use forebay::serve::driver::{Driver, Picker, Routed, Verdict};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

const ROUNDS: usize = 5;
/// Decisions of a round, by all threads together.
const DECISIONS: usize = 200_000;
/// Tasks of each thread.
const TASKS: usize = 16;
const PROMPT_BYTES: usize = 4096;

fn main() {
    println!(
        "{:<10}{:<8}{:>14}{:>12}{:>12}{:>14}",
        "threads", "owner", "decisions/s", "p50, us", "p99, us", "CPU each, us"
    );
    for threads in [1, 2, 4] {
        let mut locked = Vec::new();
        let mut asked = Vec::new();
        for _ in 0..ROUNDS {
            let driver = Driver::new(pool::engine(100, 1, Box::new(NoProbe)), Clock::new());
            locked.push(measure(threads, &driver));
            asked.push(measure(threads, &Owner::start()));
        }
        for (owner, rounds) in [("lock", locked), ("task", asked)] {
            let median = |value: fn(&Measured) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "{threads:<10}{owner:<8}{:>14.0}{:>12.1}{:>12.1}{:>14.1}",
                median(|round| round.per_second),
                median(|round| round.p50.as_secs_f64() * 1e6),
                median(|round| round.p99.as_secs_f64() * 1e6),
                median(|round| round.cpu.as_secs_f64() * 1e6),
            );
        }
    }
}

/// A way to ask the engine.
trait Ask: Clone + Send + 'static {
    /// Has a request decided, and ended at once.
    fn decide(&self, request: &Arc<Request>) -> impl Future<Output = ()>;
}

impl Ask for Driver {
    async fn decide(&self, request: &Arc<Request>) {
        match self.submit(Request::clone(request)).await {
            Verdict::Routed(routed) => routed.end(Outcome::Completed, Used::default()),
            Verdict::Refused(refusal) => panic!("there are endpoints, and yet: {refusal:?}"),
        }
    }
}

/// The sending half of the task that owns the engine.
#[derive(Clone)]
struct Owner(mpsc::UnboundedSender<Message>);

enum Message {
    Submit(Arc<Request>, oneshot::Sender<Effect>),
    Progress(RequestId, Progress),
}

impl Owner {
    /// Starts a thread for the task. It ends with the last sender.
    fn start() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        thread::spawn(move || runtime().block_on(own(receiver)));
        Self(sender)
    }
}

async fn own(mut messages: mpsc::UnboundedReceiver<Message>) {
    let clock = Clock::new();
    let mut engine: Engine = pool::engine(100, 1, Box::new(NoProbe));
    let mut ids = 0..;
    while let Some(message) = messages.recv().await {
        let now = clock.now();
        match message {
            Message::Submit(request, reply) => {
                let id = RequestId(ids.next().expect("there are numbers enough"));
                let request = Request::clone(&request);
                engine.apply(now, Input::Submit { id, request });
                let effect = engine.poll(now).expect("nothing makes a request wait");
                // Who does not wait for the answer has ended with the round.
                let _ = reply.send(effect);
            }
            Message::Progress(id, progress) => engine.apply(now, Input::Progress { id, progress }),
        }
    }
}

impl Ask for Owner {
    async fn decide(&self, request: &Arc<Request>) {
        let (reply, answer) = oneshot::channel();
        let told = self.0.send(Message::Submit(Arc::clone(request), reply));
        told.expect("the owner runs");
        let effect = answer.await.expect("the owner answers");
        let ended = Progress::Ended(Outcome::Completed, Used::default());
        let told = self.0.send(Message::Progress(effect.id(), ended));
        told.expect("the owner runs");
    }
}

struct Measured {
    per_second: f64,
    p50: Duration,
    p99: Duration,
    cpu: Duration,
}

fn measure(threads: usize, ask: &impl Ask) -> Measured {
    let requests: Arc<[Arc<Request>]> = prompts::requests(64, PROMPT_BYTES).into_iter().map(Arc::new).collect();
    let each = DECISIONS / threads / TASKS;
    // All threads are there when the clock starts, and stay until their CPU time has been read.
    let (begin, end) = (Arc::new(Barrier::new(threads + 1)), Arc::new(Barrier::new(threads + 1)));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (ask, requests) = (ask.clone(), Arc::clone(&requests));
            let (begin, end) = (Arc::clone(&begin), Arc::clone(&end));
            thread::spawn(move || {
                let runtime = runtime();
                begin.wait();
                let spans = runtime.block_on(work(&ask, &requests, each));
                end.wait();
                end.wait();
                spans
            })
        })
        .collect();
    begin.wait();
    let (began, cpu) = (Instant::now(), cpu::time_of(std::process::id()));
    end.wait();
    let (took, cpu) = (began.elapsed(), cpu::time_of(std::process::id()) - cpu);
    end.wait();
    let spans = workers
        .into_iter()
        .flat_map(|worker| worker.join().expect("no worker fails"));
    let mut spans: Vec<Duration> = spans.collect();
    spans.sort_unstable();
    Measured {
        per_second: spans.len() as f64 / took.as_secs_f64(),
        p50: spans[spans.len() / 2],
        p99: spans[spans.len() * 99 / 100],
        cpu: cpu / u32::try_from(spans.len()).expect("counts are small"),
    }
}

/// Asks from all tasks of a thread, and gives the time that each answer took.
async fn work(ask: &impl Ask, requests: &[Arc<Request>], each: usize) -> Vec<Duration> {
    let tasks = (0..TASKS).map(|task| async move {
        let mut spans = Vec::with_capacity(each);
        for number in 0..each {
            let asked = Instant::now();
            ask.decide(&requests[(task + number) % requests.len()]).await;
            spans.push(asked.elapsed());
            tokio::task::yield_now().await;
        }
        spans
    });
    join_all(tasks).await.concat()
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made")
}
