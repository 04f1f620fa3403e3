//! What a request costs Forebay, beside what the wire alone costs.
//!
//! Forebay and a processor that does nothing run in a process each, with one worker. A gateway in this process sends
//! both the same exchanges in turn, mostly with 32 of them open at a time on two connections, and the CPU time of the
//! servers is read before and after. Told are medians over the rounds; a ratio is taken within each round, so that
//! what else the machine does weighs on both sides of it.
//!
//! `cargo bench --bench end_to_end -- 32` runs only the cases that have `32` in their names.

#![expect(clippy::print_stdout, reason = "a measurement is printed")]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/exchange.rs"]
mod exchange;
#[path = "support/noop.rs"]
mod noop;
#[path = "support/pool.rs"]
mod pool;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use exchange::{Pace, Scenario};
use forebay::serve::clock::Clock;
use forebay::serve::driver::Driver;
use forebay::serve::ext_proc::Settings;
use forebay::serve::ext_proc::server::{Server, ServerOptions};
use forebay::serve::ext_proc::service::Front;
use forebay::serve::ext_proc::wire::external_processor_client::ExternalProcessorClient;
use forebay::serve::observe::Telemetry;
use forebay::serve::observe::metrics::{Limits, Metrics};
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Endpoint};

/// What this program is told to be a server instead.
const SERVE_FOREBAY: &str = "serve-forebay";
const SERVE_NOTHING: &str = "serve-nothing";

const ENDPOINTS: u8 = 10;
const CONNECTIONS: usize = 2;
const STREAMS: usize = 32;
const ROUNDS: usize = 7;

/// Each case, its exchanges in a round (about half a second), and how many of them are open at a time.
fn cases() -> Vec<(Scenario, usize, usize)> {
    let one_by_one = Scenario::streamed("1000 chunks, one by one", 1000, Pace::OneByOne);
    let at_once = Scenario::streamed("1000 chunks, at once", 1000, Pace::AtOnce);
    vec![
        (Scenario::plain("1 KiB", 1 << 10), 4096, STREAMS),
        (Scenario::plain("1 KiB, one at a time", 1 << 10), 2048, 1),
        (Scenario::plain("32 KiB", 32 << 10), 2048, STREAMS),
        (Scenario::plain("400 KiB", 400 << 10), 320, STREAMS),
        (one_by_one, 64, STREAMS),
        (at_once, 128, STREAMS),
    ]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match args.first().map(String::as_str) {
        Some(SERVE_FOREBAY) => runtime().block_on(serve_forebay()),
        Some(SERVE_NOTHING) => runtime().block_on(serve_nothing()),
        filter => runtime().block_on(measure(filter.unwrap_or_default())),
    }
}

async fn measure(filter: &str) {
    let mut servers = [SERVE_FOREBAY, SERVE_NOTHING].map(Measured::start);
    println!("CPU time per request, us (medians of {ROUNDS} rounds)");
    println!(
        "{:<26}{:>10}{:>10}{:>8}   ratios of the rounds",
        "case", "forebay", "no-op", "ratio"
    );
    for (scenario, count, streams) in cases() {
        if !scenario.name.contains(filter) {
            continue;
        }
        let mut costs: [Vec<f64>; 2] = Default::default();
        // The first round is to warm up.
        for round in 0..=ROUNDS {
            for (server, costs) in servers.iter_mut().zip(&mut costs) {
                let cost = server.cost(&scenario, count, streams).await;
                if round > 0 {
                    costs.push(cost.as_secs_f64() * 1e6);
                }
            }
        }
        let [forebay, nothing] = costs;
        let ratios: Vec<f64> = forebay.iter().zip(&nothing).map(|(a, b)| a / b).collect();
        println!(
            "{:<26}{:>10.1}{:>10.1}{:>8.2}   {:.2} to {:.2}",
            scenario.name,
            median(&forebay),
            median(&nothing),
            median(&ratios),
            ratios.iter().copied().fold(f64::INFINITY, f64::min),
            ratios.iter().copied().fold(0.0, f64::max),
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A server in a process of its own, and the connections to it.
struct Measured {
    process: Child,
    connections: Vec<Channel>,
}

impl Measured {
    fn start(what: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let child = Command::new(program).arg(what).stdout(Stdio::piped()).spawn();
        let mut process = child.expect("this program can be started again");
        let output = process.stdout.take().expect("the output is piped");
        let line = BufReader::new(output).lines().next();
        let address = line.and_then(Result::ok).expect("the server tells its address");
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .expect("an address makes a URL")
            .tcp_nodelay(true);
        Self {
            process,
            connections: (0..CONNECTIONS).map(|_| endpoint.connect_lazy()).collect(),
        }
    }

    /// The CPU time that the server takes for one of so many exchanges.
    async fn cost(&mut self, scenario: &Scenario, count: usize, streams: usize) -> Duration {
        let before = cpu::time_of(self.process.id());
        let exchanges = (0..streams).map(|stream| {
            let connection = self.connections[stream % CONNECTIONS].clone();
            async move {
                let mut client = ExternalProcessorClient::new(connection);
                for number in (stream..count).step_by(streams) {
                    scenario.exchange(number, &mut client).await;
                }
            }
        });
        join_all(exchanges).await;
        (cpu::time_of(self.process.id()) - before) / u32::try_from(count).expect("counts are small")
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // A server that has ended by itself was noticed before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn serve_forebay() {
    let options = ServerOptions {
        workers: NonZeroUsize::MIN,
        ..ServerOptions::default()
    };
    let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options).await;
    let server = server.expect("there are free ports");
    println!("{}", server.local_addr().expect("a bound socket has an address"));

    let clock = Clock::new();
    let (metrics, probe) =
        Metrics::register(clock, Arc::default(), None, Limits::default()).expect("the families are sound");
    let front = Front {
        settings: Arc::new(ArcSwap::from_pointee(Settings::default())),
        picker: Driver::new(pool::engine(ENDPOINTS, 1, Box::new(probe)), clock),
        observer: Arc::new(Telemetry::new(metrics)),
        streams: TaskTracker::new(),
        panics: Arc::default(),
    };
    let ended = server.serve(front, CancellationToken::new()).await;
    ended.expect("nothing goes wrong on loopback");
}

async fn serve_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("there are free ports");
    println!("{}", listener.local_addr().expect("a bound socket has an address"));
    noop::serve(listener).await;
}

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made")
}
