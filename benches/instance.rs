//! What a step of a simulated model server costs for each sequence in its batch.
#![allow(missing_docs)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay::engine::request::RequestId;
use forebay::engine::time::Timestamp;
use forebay::sim::instance::{
    Event, Instance, InstanceConfig, PreemptionPolicy, ScheduledTokens, Scheduler, SequenceRequest, StepTime,
};

const BATCHES: [u32; 5] = [1, 4, 16, 64, 256];
const PROMPT: u32 = 256;
const ANSWER: u32 = 512;

/// The cost of a step-time model is not part of the question.
#[derive(Debug)]
struct Fixed;

impl StepTime for Fixed {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        black_box(batch);
        Duration::from_millis(10)
    }
}

/// An instance, its clock and the next id.
struct Server {
    instance: Instance,
    now: Timestamp,
    next: u64,
}

impl Server {
    fn new(config: &InstanceConfig) -> Self {
        let config = InstanceConfig {
            max_num_batched_tokens: count(8192),
            max_waiting: NonZeroU32::MAX,
            ..config.clone()
        };
        Self {
            instance: Instance::new(config, Box::new(Fixed)),
            now: Timestamp::ZERO,
            next: 0,
        }
    }

    /// Serves so many sequences of which no two begin alike. Returns the tokens that came out.
    fn serve(&mut self, sequences: u32) -> u64 {
        for _ in 0..sequences {
            let names = (PROMPT + ANSWER) / self.instance.config().block_tokens;
            let first = self.next << 32;
            let request = SequenceRequest {
                id: RequestId(self.next),
                arrival: self.now,
                priority: i32::try_from(self.next % 5).expect("it is small"),
                adapter: None,
                prompt_tokens: PROMPT,
                output_tokens: ANSWER,
                max_output_tokens: Some(ANSWER),
                chain: (0..names).map(|block| first + u64::from(block)).collect::<Arc<[_]>>(),
            };
            self.instance.enqueue(self.now, request).expect("it may wait");
            self.next += 1;
        }
        let (mut tokens, mut others) = (0, 0);
        let mut sink = |event| match event {
            Event::Token { .. } => tokens += 1,
            _ => others += 1,
        };
        while let Some(ends) = self.instance.start_step(self.now, &mut sink) {
            self.now = ends;
            self.instance.finish_step(ends, &mut sink);
        }
        black_box(others);
        tokens
    }
}

fn count(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("it is not zero")
}

fn bench(c: &mut Criterion) {
    // A batch that stays together from the first token to the last.
    let mut group = c.benchmark_group("instance/decode");
    group
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    for batch in BATCHES {
        group.throughput(Throughput::Elements(u64::from(batch * ANSWER)));
        group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
            let mut server = Server::new(&InstanceConfig::default());
            bencher.iter(|| assert_eq!(server.serve(batch), u64::from(batch * ANSWER)));
        });
    }
    group.finish();

    // Eight times as many sequences as run, in a cache for two thirds of those: it is always full, somebody always waits
    // for blocks, and now and then one that runs loses its own.
    let mut group = c.benchmark_group("instance/overload");
    group
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(20);
    for batch in BATCHES {
        let sequences = batch * 8;
        group.throughput(Throughput::Elements(u64::from(sequences * ANSWER)));
        group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
            let mut server = Server::new(&InstanceConfig {
                scheduler: Scheduler::PriorityFcfs,
                preemption_policy: PreemptionPolicy::Priority,
                max_num_seqs: count(batch),
                kv_blocks: count((batch * 32).max(48)),
                ..InstanceConfig::default()
            });
            bencher.iter(|| assert_eq!(server.serve(sequences), u64::from(sequences * ANSWER)));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
