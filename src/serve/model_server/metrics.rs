//! The metrics page, with vLLM's names, types and labels.
//!
//! vLLM renamed some of its metrics over time. A value is counted once, under its newer name, and shown under the older
//! one as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use super::ModelServerConfig;
use crate::sim::instance::Stats;

/// `(older name, newer name)` of what is shown twice.
const OLDER_NAMES: [(&str, &str); 2] = [
    ("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"),
    ("vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"),
];

const FIRST_TOKEN_BUCKETS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const INTER_TOKEN_BUCKETS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const REQUEST_BUCKETS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// How a request left the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum FinishedReason {
    /// The answer has as many tokens as the client allows.
    Length,
    /// The client went away.
    Abort,
}

impl FinishedReason {
    fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Abort => "abort",
        }
    }
}

/// Everything on the page.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    waiting: IntGauge,
    running: IntGauge,
    kv_usage: Gauge,
    /// Only of a server with adapters, as in vLLM.
    lora: Option<Lora>,
    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    preemptions: IntCounter,
    prompt_tokens: IntCounter,
    generation_tokens: IntCounter,
    finished: IntCounterVec,
    first_token: Histogram,
    inter_token: Histogram,
    queue_time: Histogram,
    request: Histogram,
}

#[derive(Debug)]
struct Lora {
    info: GaugeVec,
    max: String,
}

impl Metrics {
    pub(super) fn new(config: &ModelServerConfig) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let page = Page {
            registry: &registry,
            model: &config.model,
        };
        let info = IntGaugeVec::new(
            Opts::new(
                "vllm:cache_config_info",
                "The configuration of the KV cache, in the labels",
            ),
            &[
                "block_size",
                "cache_dtype",
                "enable_prefix_caching",
                "engine",
                "num_gpu_blocks",
            ],
        )?;
        registry.register(Box::new(info.clone()))?;
        let block_tokens = config.instance.block_tokens.to_string();
        let blocks = config.instance.kv_blocks.to_string();
        info.with_label_values(&[block_tokens.as_str(), "auto", "True", "0", blocks.as_str()])
            .set(1);

        let finished = IntCounterVec::new(
            page.opts(
                "vllm:request_success_total",
                "Requests that left the server, by why they ended",
            ),
            &["finished_reason"],
        )?;
        registry.register(Box::new(finished.clone()))?;
        for reason in ["stop", "length", "abort"] {
            finished.with_label_values(&[reason]);
        }
        let lora = if config.adapters.is_empty() {
            None
        } else {
            let info = GaugeVec::new(
                Opts::new(
                    "vllm:lora_requests_info",
                    "Adapters in use, in the labels; the value is when that was so",
                ),
                &["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
            )?;
            registry.register(Box::new(info.clone()))?;
            let max = config.instance.max_loras.to_string();
            Some(Lora { info, max })
        };
        Ok(Self {
            waiting: page.gauge(
                "vllm:num_requests_waiting",
                "Requests that wait for a place in the batch",
            )?,
            running: page.gauge("vllm:num_requests_running", "Requests in the batch")?,
            kv_usage: {
                let opts = page.opts("vllm:kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1");
                page.registered(Gauge::with_opts(opts)?)?
            },
            lora,
            prefix_queries: page.counter(
                "vllm:prefix_cache_queries_total",
                "Tokens looked up in the prefix cache",
            )?,
            prefix_hits: page.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache")?,
            preemptions: page.counter(
                "vllm:num_preemptions_total",
                "Requests put back to the queue for want of room",
            )?,
            prompt_tokens: page.counter(
                "vllm:prompt_tokens_total",
                "Tokens of prompts that were computed or found",
            )?,
            generation_tokens: page.counter("vllm:generation_tokens_total", "Tokens of answers")?,
            finished,
            first_token: page.histogram(
                "vllm:time_to_first_token_seconds",
                "Time from arrival to the first token",
                &FIRST_TOKEN_BUCKETS,
            )?,
            inter_token: page.histogram(
                "vllm:inter_token_latency_seconds",
                "Time between two tokens of an answer",
                &INTER_TOKEN_BUCKETS,
            )?,
            queue_time: page.histogram(
                "vllm:request_queue_time_seconds",
                "Time from arrival to the first place in the batch",
                &REQUEST_BUCKETS,
            )?,
            request: page.histogram(
                "vllm:e2e_request_latency_seconds",
                "Time from arrival to the last token",
                &REQUEST_BUCKETS,
            )?,
            registry,
        })
    }

    pub(super) fn admitted(&self, waited: Duration) {
        self.queue_time.observe(waited.as_secs_f64());
    }

    pub(super) fn first_token(&self, prompt_tokens: u32, since_arrival: Duration) {
        self.prompt_tokens.inc_by(prompt_tokens.into());
        self.generation_tokens.inc();
        self.first_token.observe(since_arrival.as_secs_f64());
    }

    pub(super) fn next_token(&self, since_last: Duration) {
        self.generation_tokens.inc();
        self.inter_token.observe(since_last.as_secs_f64());
    }

    pub(super) fn finished(&self, reason: FinishedReason, since_arrival: Duration) {
        self.finished.with_label_values(&[reason.name()]).inc();
        self.request.observe(since_arrival.as_secs_f64());
    }

    /// The page, with `stats` for all that has an owner elsewhere. `unix_time` is the date of the adapters' line.
    pub(super) fn page(&self, stats: &Stats, unix_time: Duration) -> String {
        self.waiting.set(stats.load.waiting.into());
        self.running.set(stats.load.running.into());
        self.kv_usage.set(stats.load.kv_usage());
        raise(&self.prefix_queries, stats.prefix_queried_tokens);
        raise(&self.prefix_hits, stats.prefix_cached_tokens);
        raise(&self.preemptions, stats.load.preemptions);
        if let Some(Lora { info, max }) = &self.lora {
            let (running, waiting) = (names(&stats.running_adapters), names(&stats.waiting_adapters));
            info.reset();
            info.with_label_values(&[max, &running, &waiting])
                .set(unix_time.as_secs_f64());
        }
        let mut families = self.registry.gather();
        let older: Vec<_> = OLDER_NAMES
            .iter()
            .filter_map(|&(older, newer)| renamed(&families, newer, older))
            .collect();
        families.extend(older);
        let mut page = Vec::new();
        TextEncoder::new()
            .encode(&families, &mut page)
            .expect("families of one registry have values and memory takes all");
        String::from_utf8(page).expect("the text format is UTF-8")
    }
}

/// Makes metrics that carry the labels of all.
struct Page<'a> {
    registry: &'a Registry,
    model: &'a str,
}

impl Page<'_> {
    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help)
            .const_label("model_name", self.model)
            .const_label("engine", "0")
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.registered(IntGauge::with_opts(self.opts(name, help))?)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.registered(IntCounter::with_opts(self.opts(name, help))?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
        let opts = HistogramOpts::from(self.opts(name, help)).buckets(buckets.to_vec());
        self.registered(Histogram::with_opts(opts)?)
    }

    fn registered<M: prometheus::core::Collector + Clone + 'static>(&self, metric: M) -> prometheus::Result<M> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// Brings a counter up to a total that is counted elsewhere.
fn raise(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

fn names(adapters: &BTreeMap<Arc<str>, u32>) -> String {
    let names: Vec<&str> = adapters.keys().map(AsRef::as_ref).collect();
    names.join(",")
}

fn renamed(families: &[MetricFamily], from: &str, to: &str) -> Option<MetricFamily> {
    let mut family = families.iter().find(|family| family.name() == from)?.clone();
    family.set_name(to.to_owned());
    Some(family)
}
