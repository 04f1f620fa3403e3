//! How much of a core does it take to scrape so many endpoints every 50 ms?
//!
//! The endpoints are servers in another process, each with the metrics page of a vLLM server. What is told is the CPU
//! time of this process (user and system) per second: for the scraper, which has a task for each endpoint, and for one
//! task that looks after all of them with the same client.

#![expect(clippy::print_stdout, reason = "a measurement is printed")]

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/vllm_page.rs"]
mod vllm_page;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::engine::config::data_layer::{CoreMetricsExtractorParams, MetricsSourceParams};
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange};
use forebay::engine::time::Timestamp;
use forebay::serve::datalayer::scrape::{Client, PageReader, SHORTEST_PERIOD, ScrapeStats, Scraper};
use forebay::serve::datalayer::{Objectives, PoolSink};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, interval_at, sleep};

/// What this program is told to be the servers instead.
const SERVE: &str = "serve-pages";

/// How long each case is measured, after as long a time to settle as a tenth of it.
const MEASURED: Duration = Duration::from_secs(10);

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(SERVE) {
        let count = args
            .next()
            .and_then(|count| count.parse().ok())
            .expect("the number of servers follows");
        return runtime(1).block_on(serve(count));
    }
    for count in [10, 100] {
        let (mut servers, addresses) = start_servers(count);
        for (case, threads) in [("a task each, 1 thread", 1), ("a task each, 2 threads", 2)] {
            runtime(threads).block_on(measure(count, case, with_scraper(&addresses)));
        }
        runtime(1).block_on(measure(count, "one task for all, 1 thread", with_one_task(&addresses)));
        servers.kill().expect("the servers still run");
        servers.wait().expect("a killed process ends");
    }
}

/// Lets `work` run, and tells what it costs. `work` counts the reports that it gave.
async fn measure(
    count: usize,
    case: &str,
    work: impl Future<Output = (Arc<AtomicU64>, Vec<tokio::task::AbortHandle>)>,
) {
    let (reports, tasks) = work.await;
    sleep(MEASURED / 10).await;
    let (cpu, seen) = (cpu_time(), reports.load(Ordering::Relaxed));
    sleep(MEASURED).await;
    let (cpu, seen) = ((cpu_time() - cpu).as_secs_f64(), reports.load(Ordering::Relaxed) - seen);
    let seconds = MEASURED.as_secs_f64();
    println!(
        "scrape_load/{count} endpoints/{case}: {:.3} cores, {:.0} scrapes/s, {:.1} us of CPU each",
        cpu / seconds,
        seen as f64 / seconds,
        cpu * 1e6 / seen.max(1) as f64
    );
    for task in tasks {
        task.abort();
    }
}

#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicU64>);

impl PoolSink for Count {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        let reports = changes
            .iter()
            .filter(|change| matches!(change, PoolChange::Report(..)))
            .count();
        self.0.fetch_add(reports as u64, Ordering::Relaxed);
    }

    fn objectives(&self, _: Objectives) {}
}

async fn with_scraper(addresses: &[SocketAddr]) -> (Arc<AtomicU64>, Vec<tokio::task::AbortHandle>) {
    let sink = Count::default();
    let source = MetricsSourceParams::default()
        .compile()
        .expect("the defaults are sound");
    let mapping = CoreMetricsExtractorParams::default()
        .compile()
        .expect("the defaults are sound");
    let stats = Arc::new(ScrapeStats::default());
    let scraper = Scraper::new(source, mapping, SHORTEST_PERIOD, stats, sink.clone()).expect("the defaults are sound");
    let endpoints = addresses
        .iter()
        .enumerate()
        .map(|(n, address)| PoolChange::Upsert(endpoint(n, *address)));
    scraper.changed(endpoints.collect());
    let keep = tokio::spawn(async move {
        let _scraper = scraper;
        std::future::pending::<()>().await;
    });
    (sink.0, vec![keep.abort_handle()])
}

async fn with_one_task(addresses: &[SocketAddr]) -> (Arc<AtomicU64>, Vec<tokio::task::AbortHandle>) {
    let reports = Arc::new(AtomicU64::new(0));
    let source = MetricsSourceParams::default()
        .compile()
        .expect("the defaults are sound");
    let mapping = CoreMetricsExtractorParams::default()
        .compile()
        .expect("the defaults are sound");
    let client = Client::new(&source.transport, SHORTEST_PERIOD).expect("plain HTTP needs no files");
    let looks: FuturesUnordered<_> = addresses
        .iter()
        .zip(0_u32..)
        .map(|(address, n)| {
            let (client, reports) = (client.clone(), Arc::clone(&reports));
            let uri = format!("http://{address}/metrics")
                .parse()
                .expect("an address makes a URL");
            let mut reader = PageReader::new(mapping.engine_of(&BTreeMap::new()));
            let phase = SHORTEST_PERIOD * n / addresses.len() as u32;
            async move {
                let mut turns = interval_at(Instant::now() + phase, SHORTEST_PERIOD);
                loop {
                    turns.tick().await;
                    if client.fetch(&uri, &mut reader, || Timestamp::ZERO).await.is_ok()
                        && !reader.finish().signals.is_empty()
                    {
                        reports.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        })
        .collect();
    let task = tokio::spawn(looks.for_each(|()| std::future::ready(())));
    (reports, vec![task.abort_handle()])
}

fn endpoint(number: usize, socket: SocketAddr) -> Arc<Endpoint> {
    let name = format!("vllm-{number}");
    Arc::new(Endpoint {
        id: EndpointId::new("default", &name),
        name: name.into(),
        address: socket.ip(),
        port: socket.port(),
        labels: BTreeMap::new(),
        rank: 0,
    })
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

fn start_servers(count: usize) -> (Child, Vec<SocketAddr>) {
    let program = std::env::current_exe().expect("this program has a file");
    let child = Command::new(program)
        .args([SERVE, &count.to_string()])
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("this program can be started again");
    let lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
    let addresses = lines
        .take(count)
        .map(|line| line.expect("the servers tell their addresses"));
    let addresses = addresses
        .map(|line| line.parse().expect("an address is told"))
        .collect();
    (child, addresses)
}

/// Serves so many ports, and tells each of them on a line.
async fn serve(count: usize) {
    let page = vllm_page::vllm_page(1);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{page}",
        page.len()
    );
    let answer: Arc<[u8]> = answer.into_bytes().into();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there are free ports");
        println!("{}", listener.local_addr().expect("a bound socket has an address"));
        let answer = Arc::clone(&answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer_all(stream, Arc::clone(&answer)));
            }
        });
    }
    std::future::pending::<()>().await;
}

/// Answers every request on a connection, until it ends.
async fn answer_all(mut stream: TcpStream, answer: Arc<[u8]>) {
    let mut request = Vec::new();
    while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}
