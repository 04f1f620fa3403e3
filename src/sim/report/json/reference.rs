//! What the reference simulator writes, with its keys in its order (spec, simulator 28.2).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::super::goodput::ClassGoodput;
use super::super::metrics::{Block, Metrics};
use super::super::options::ReportOptions;
use super::super::saturation::Level;
use super::{as_map, pretty};
use crate::sim::record::{End, RequestRecord, RunRecord};

/// The block of one instance.
pub(in crate::sim::report) fn instance_block(block: &Block) -> String {
    pretty(&ReferenceBlock::of(block))
}

/// The block of the cluster. `saturation` is what the detectors said in the end, if any looked.
pub(in crate::sim::report) fn cluster_block(metrics: &Metrics, saturation: Option<&BTreeMap<String, Level>>) -> String {
    pretty(&ReferenceBlock::of_cluster(metrics, saturation))
}

/// The file of `--metrics-path`: the block of the cluster with its hit rate and the requests that reached an instance,
/// in order of arrival. Last, where the reference has nothing, are the settings.
pub fn metrics_file(
    record: &RunRecord,
    metrics: &Metrics,
    options: &ReportOptions,
    saturation: Option<&BTreeMap<String, Level>>,
) -> String {
    let mut requests: Vec<_> = record.requests.iter().filter(|r| r.instance.is_some()).collect();
    requests.sort_by_key(|request| request.arrival_us);
    let mut block = ReferenceBlock::of_cluster(metrics, saturation);
    block.cache_hit_rate = Some(metrics.cluster.cache_hit_rate);
    block.settings = &options.settings;
    block.requests = requests.into_iter().map(|r| ReferenceRequest::of(r, options)).collect();
    pretty(&block)
}

#[derive(Serialize)]
struct ReferenceBlock<'a> {
    instance_id: &'a str,
    completed_requests: u64,
    still_queued: u64,
    still_running: u64,
    injected_requests: u64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    vllm_estimated_duration_s: f64,
    responses_per_sec: f64,
    tokens_per_sec: f64,
    e2e_mean_ms: f64,
    e2e_p90_ms: f64,
    e2e_p95_ms: f64,
    e2e_p99_ms: f64,
    ttft_mean_ms: f64,
    ttft_p90_ms: f64,
    ttft_p95_ms: f64,
    ttft_p99_ms: f64,
    itl_mean_ms: f64,
    itl_p90_ms: f64,
    itl_p95_ms: f64,
    itl_p99_ms: f64,
    scheduling_delay_p99_ms: f64,
    preemption_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_hit_rate: Option<f64>,
    dropped_unservable: u64,
    length_capped_requests: u64,
    timed_out_requests: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requests: Vec<ReferenceRequest<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saturation: Option<&'a BTreeMap<String, Level>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput_rps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slo_attainment: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_class: Option<&'a BTreeMap<String, ClassGoodput>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    adapters: BTreeMap<&'a str, Adapter>,
    #[serde(serialize_with = "as_map", skip_serializing_if = "<[_]>::is_empty")]
    settings: &'a [(String, Value)],
}

impl<'a> ReferenceBlock<'a> {
    fn of(block: &'a Block) -> Self {
        let [e2e, ttft, itl] = [&block.e2e, &block.ttft, &block.itl];
        Self {
            instance_id: &block.name,
            completed_requests: block.tally[End::Completed],
            still_queued: block.tally[End::StillQueued],
            still_running: block.tally[End::StillRunning],
            injected_requests: block.tally.injected(),
            total_input_tokens: block.input_tokens,
            total_output_tokens: block.output_tokens,
            vllm_estimated_duration_s: block.duration_s,
            responses_per_sec: block.responses_per_sec,
            tokens_per_sec: block.tokens_per_sec,
            e2e_mean_ms: e2e.mean.ms(),
            e2e_p90_ms: e2e.p90.ms(),
            e2e_p95_ms: e2e.p95.ms(),
            e2e_p99_ms: e2e.p99.ms(),
            ttft_mean_ms: ttft.mean.ms(),
            ttft_p90_ms: ttft.p90.ms(),
            ttft_p95_ms: ttft.p95.ms(),
            ttft_p99_ms: ttft.p99.ms(),
            itl_mean_ms: itl.mean.ms(),
            itl_p90_ms: itl.p90.ms(),
            itl_p95_ms: itl.p95.ms(),
            itl_p99_ms: itl.p99.ms(),
            scheduling_delay_p99_ms: block.scheduling_delay.p99.ms(),
            preemption_count: block.preemptions,
            cache_hit_rate: None,
            dropped_unservable: block.tally[End::Dropped],
            length_capped_requests: block.length_capped,
            timed_out_requests: block.tally[End::TimedOut],
            requests: Vec::new(),
            saturation: None,
            goodput_rps: None,
            slo_attainment: None,
            per_class: None,
            adapters: BTreeMap::new(),
            settings: &[],
        }
    }

    fn of_cluster(metrics: &'a Metrics, saturation: Option<&'a BTreeMap<String, Level>>) -> Self {
        let goodput = metrics.goodput.as_ref();
        Self {
            saturation,
            goodput_rps: goodput.map(|goodput| goodput.rps),
            slo_attainment: goodput.map(|goodput| goodput.attainment),
            per_class: goodput.map(|goodput| &goodput.per_class),
            adapters: adapters(metrics),
            ..Self::of(&metrics.cluster)
        }
    }
}

/// What a LoRA adapter did. How often it was loaded is not in the record.
#[derive(Serialize)]
struct Adapter {
    ttft_p50_us: f64,
    ttft_p99_us: f64,
    throughput_tok_per_s: f64,
}

fn adapters(metrics: &Metrics) -> BTreeMap<&str, Adapter> {
    let adapters = metrics.adapters.iter().map(|(name, adapter)| {
        let figures = Adapter {
            ttft_p50_us: adapter.ttft.p50.us(),
            ttft_p99_us: adapter.ttft.p99.us(),
            throughput_tok_per_s: adapter.tokens_per_sec,
        };
        (name.as_str(), figures)
    });
    adapters.collect()
}

#[derive(Serialize)]
struct ReferenceRequest<'a> {
    arrived_at: f64,
    #[serde(rename = "requestID")]
    request_id: String,
    num_prefill_tokens: u32,
    num_decode_tokens: u32,
    ttft_ms: f64,
    itl_ms: f64,
    e2e_ms: f64,
    scheduling_delay_ms: f64,
    #[serde(skip_serializing_if = "str::is_empty")]
    slo_class: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    handled_by: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    adapter: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    length_capped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway_queue_delay_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    round_index: u32,
}

impl<'a> ReferenceRequest<'a> {
    fn of(request: &'a RequestRecord, options: &ReportOptions) -> Self {
        let ms = |us: Option<u64>| us.unwrap_or(0) as f64 / 1000.0;
        let client = &request.client;
        let session = request.session.as_ref();
        Self {
            arrived_at: request.arrival_us as f64 / 1e6,
            request_id: request.name.to_string(),
            num_prefill_tokens: request.prompt_tokens,
            num_decode_tokens: request.output_tokens,
            ttft_ms: ms(request.ttft_us),
            itl_ms: request.itl_mean_us() / 1000.0,
            e2e_ms: ms(request.e2e_us),
            scheduling_delay_ms: ms(request.scheduling_delay_us),
            slo_class: &client.slo_class,
            tenant_id: &client.tenant,
            handled_by: request.instance.map(|index| options.instance_name(index as usize)),
            model: &client.model,
            adapter: &client.adapter,
            length_capped: request.length_capped,
            gateway_queue_delay_ms: request.gateway_delay_us.filter(|&us| us > 0).map(|us| ms(Some(us))),
            session_id: session.map(|place| &*place.session),
            round_index: session.map_or(0, |place| place.round),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::testing::hand_checkable_run;

    #[test]
    fn the_file_of_the_hand_checkable_run() {
        let (record, options) = hand_checkable_run();
        let metrics = Metrics::of(&record, &options);

        insta::assert_snapshot!(metrics_file(&record, &metrics, &options, None));
    }
}
