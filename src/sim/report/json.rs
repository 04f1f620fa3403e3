//! The figures as JSON: the blocks and the file that the reference simulator writes, with its keys in its order (spec,
//! simulator 28.2), and one document with everything.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter};

use super::anomaly::Anomalies;
use super::conservation::Conservation;
use super::distribution::Distribution;
use super::fitness::Fitness;
use super::goodput::ClassGoodput;
use super::metrics::{Block, GroupMetrics, KvMetrics, Metrics, SessionMetrics};
use super::options::{ReportOptions, TraceSummary};
use super::saturation::Level;
use crate::sim::record::{End, RequestRecord, RunRecord};

/// Text of a value, indented by two spaces, with each number in its shortest form that reads back as the same.
pub fn pretty(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Shortest::default());
    value
        .serialize(&mut serializer)
        .expect("the keys of reports are texts, and memory takes every byte");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Pretty, with numbers as the reference writes them: `1` and not `1.0`, an exponent only below `1e-6` and from `1e21`.
#[derive(Debug, Default)]
struct Shortest(PrettyFormatter<'static>);

impl Formatter for Shortest {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        writer.write_all(if size < 1.0 { text } else { text.replace('e', "e+") }.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

/// Pairs, in their order, as an object.
pub(super) fn as_map<S: Serializer>(pairs: &[(String, impl Serialize)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// The block of one instance.
pub(super) fn instance_block(block: &Block) -> String {
    pretty(&ReferenceBlock::of(block))
}

/// The block of the cluster. `saturation` is what the detectors said in the end, if any looked.
pub(super) fn cluster_block(metrics: &Metrics, saturation: Option<&BTreeMap<String, Level>>) -> String {
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

/// Everything that is known of a run but the single requests: the document of `--output json`.
pub fn document(metrics: &Metrics, options: &ReportOptions, saturation: Option<&BTreeMap<String, Level>>) -> String {
    pretty(&Document::of(metrics, options, saturation))
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
    #[serde(skip_serializing_if = "is_zero")]
    kv_allocation_failures: u64,
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
            kv_allocation_failures: block.kv_allocation_failures,
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

fn is_zero(count: &u64) -> bool {
    *count == 0
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

#[derive(Serialize)]
struct Document<'a> {
    title: &'a str,
    #[serde(serialize_with = "as_map")]
    settings: &'a [(String, Value)],
    #[serde(serialize_with = "as_map", skip_serializing_if = "<[_]>::is_empty")]
    workload: &'a [(String, Value)],
    metrics: FullBlock<'a>,
    per_instance: Vec<FullBlock<'a>>,
    anomalies: &'a Anomalies,
    kv_cache: &'a KvMetrics,
    per_class: BTreeMap<&'a str, Group>,
    per_model: BTreeMap<&'a str, Group>,
    per_adapter: BTreeMap<&'a str, Group>,
    per_tenant: BTreeMap<&'a str, Group>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jain_fairness_index: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Sessions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fitness: Option<&'a Fitness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    goodput: Option<GoodputEntry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saturation: Option<&'a BTreeMap<String, Level>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a TraceSummary>,
    conservation: ConservationEntry,
}

#[derive(Serialize)]
struct GoodputEntry<'a> {
    goodput_rps: f64,
    slo_attainment: f64,
    per_class: &'a BTreeMap<String, ClassGoodput>,
}

impl<'a> Document<'a> {
    fn of(metrics: &'a Metrics, options: &'a ReportOptions, saturation: Option<&'a BTreeMap<String, Level>>) -> Self {
        Self {
            title: &options.title,
            settings: &options.settings,
            workload: &options.workload,
            metrics: FullBlock::of(&metrics.cluster),
            per_instance: metrics.instances.iter().map(FullBlock::of).collect(),
            anomalies: &metrics.anomalies,
            kv_cache: &metrics.kv,
            per_class: groups(&metrics.classes),
            per_model: groups(&metrics.models),
            per_adapter: groups(&metrics.adapters),
            per_tenant: groups(&metrics.tenants),
            jain_fairness_index: metrics.jain,
            sessions: metrics.sessions.as_ref().map(Sessions::of),
            fitness: metrics.fitness.as_ref(),
            goodput: metrics.goodput.as_ref().map(|goodput| GoodputEntry {
                goodput_rps: goodput.rps,
                slo_attainment: goodput.attainment,
                per_class: &goodput.per_class,
            }),
            saturation,
            trace: options.trace.as_ref(),
            conservation: match &metrics.conservation {
                Ok(books) => ConservationEntry::of(books),
                Err(violation) => ConservationEntry::Violated {
                    holds: false,
                    violation: violation.to_string(),
                },
            },
        }
    }
}

/// A latency in milliseconds.
#[derive(Serialize)]
struct Latencies {
    count: u64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    min_ms: f64,
    max_ms: f64,
}

impl Latencies {
    fn of(distribution: &Distribution) -> Self {
        Self {
            count: distribution.count,
            mean_ms: distribution.mean.ms(),
            p50_ms: distribution.p50.ms(),
            p90_ms: distribution.p90.ms(),
            p95_ms: distribution.p95.ms(),
            p99_ms: distribution.p99.ms(),
            min_ms: distribution.min.ms(),
            max_ms: distribution.max.ms(),
        }
    }
}

/// Requests by where they ended.
type Buckets = BTreeMap<&'static str, u64>;

#[derive(Serialize)]
struct FullBlock<'a> {
    instance_id: &'a str,
    requests: Buckets,
    total_input_tokens: u64,
    total_output_tokens: u64,
    duration_s: f64,
    responses_per_sec: f64,
    tokens_per_sec: f64,
    ttft: Latencies,
    itl: Latencies,
    e2e: Latencies,
    scheduling_delay: Latencies,
    gateway_delay: Latencies,
    kv_allocation_failures: u64,
    preemption_count: u64,
    cache_hit_rate: f64,
    peak_kv_blocks: u32,
    steps: u64,
    mean_waiting: f64,
    length_capped_requests: u64,
}

impl<'a> FullBlock<'a> {
    fn of(block: &'a Block) -> Self {
        Self {
            instance_id: &block.name,
            requests: buckets(block.tally.iter()),
            total_input_tokens: block.input_tokens,
            total_output_tokens: block.output_tokens,
            duration_s: block.duration_s,
            responses_per_sec: block.responses_per_sec,
            tokens_per_sec: block.tokens_per_sec,
            ttft: Latencies::of(&block.ttft),
            itl: Latencies::of(&block.itl),
            e2e: Latencies::of(&block.e2e),
            scheduling_delay: Latencies::of(&block.scheduling_delay),
            gateway_delay: Latencies::of(&block.gateway_delay),
            kv_allocation_failures: block.kv_allocation_failures,
            preemption_count: block.preemptions,
            cache_hit_rate: block.cache_hit_rate,
            peak_kv_blocks: block.peak_kv_blocks,
            steps: block.steps,
            mean_waiting: block.mean_waiting,
            length_capped_requests: block.length_capped,
        }
    }
}

fn buckets(tally: impl Iterator<Item = (End, u64)>) -> Buckets {
    tally.map(|(end, count)| (end.name(), count)).collect()
}

#[derive(Serialize)]
struct Group {
    requests: Buckets,
    tokens_served: u64,
    responses_per_sec: f64,
    tokens_per_sec: f64,
    ttft: Latencies,
    #[serde(skip_serializing_if = "Option::is_none")]
    itl: Option<Latencies>,
    e2e: Latencies,
    scheduling_delay: Latencies,
    gateway_delay: Latencies,
}

fn groups(groups: &BTreeMap<String, GroupMetrics>) -> BTreeMap<&str, Group> {
    let groups = groups.iter().map(|(name, group)| {
        let entry = Group {
            requests: buckets(group.tally.iter().filter(|&(_, count)| count > 0)),
            tokens_served: group.tokens_served,
            responses_per_sec: group.responses_per_sec,
            tokens_per_sec: group.tokens_per_sec,
            ttft: Latencies::of(&group.ttft),
            itl: group.itl.as_ref().map(Latencies::of),
            e2e: Latencies::of(&group.e2e),
            scheduling_delay: Latencies::of(&group.scheduling_delay),
            gateway_delay: Latencies::of(&group.gateway_delay),
        };
        (name.as_str(), entry)
    });
    groups.collect()
}

#[derive(Serialize)]
struct Sessions {
    sessions: u64,
    ttft_cold: Latencies,
    ttft_warm: Latencies,
    duration: Latencies,
}

impl Sessions {
    fn of(sessions: &SessionMetrics) -> Self {
        Self {
            sessions: sessions.sessions,
            ttft_cold: Latencies::of(&sessions.ttft_cold),
            ttft_warm: Latencies::of(&sessions.ttft_warm),
            duration: Latencies::of(&sessions.duration),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ConservationEntry {
    Holds {
        holds: bool,
        num_requests: u64,
        injected: u64,
        buckets: Buckets,
    },
    Violated {
        holds: bool,
        violation: String,
    },
}

impl ConservationEntry {
    fn of(books: &Conservation) -> Self {
        Self::Holds {
            holds: true,
            num_requests: books.num_requests,
            injected: books.injected,
            buckets: buckets(books.tally.iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::report::testing::{hand_checkable_run, mixed_run};

    #[test]
    fn numbers_are_written_as_the_reference_writes_them() {
        let numbers = [0.0, 1.0, 0.1, 8.518395475028322, 1e-6, 2.5e-7, 1e20, 1e21, -3.0];

        assert_eq!(
            pretty(&numbers).split_whitespace().collect::<String>(),
            "[0,1,0.1,8.518395475028322,0.000001,2.5e-7,100000000000000000000,1e+21,-3]"
        );
    }

    #[test]
    fn the_file_of_the_hand_checkable_run() {
        let (record, options) = hand_checkable_run();
        let metrics = Metrics::of(&record, &options);

        insta::assert_snapshot!(metrics_file(&record, &metrics, &options, None));
    }

    #[test]
    fn the_document_of_a_run_with_a_request_in_each_bucket() {
        let record = mixed_run();
        let options = ReportOptions {
            title: "everything".to_owned(),
            num_requests: 12,
            scheduler: "priority-fcfs".to_owned(),
            fitness: Some("p99_ttft:1".parse().unwrap()),
            trace: Some(TraceSummary {
                decisions: 12,
                admitted: 11,
                rejected: 1,
                unique_targets: 1,
                distribution: vec![("instance_0".to_owned(), 2)],
                ..TraceSummary::default()
            }),
            settings: vec![
                ("seed".to_owned(), 42.into()),
                ("admission".to_owned(), "token-bucket".into()),
            ],
            ..ReportOptions::default()
        };

        insta::assert_snapshot!(document(&Metrics::of(&record, &options), &options, None));
    }

    #[test]
    fn a_document_of_unbalanced_books_says_so() {
        let metrics = Metrics::of(&mixed_run(), &ReportOptions::default());
        let document = document(&metrics, &ReportOptions::default(), None);
        let read: Value = serde_json::from_str(&document).unwrap();

        assert_eq!(read["conservation"]["holds"], false);
    }

    proptest! {
        #[test]
        fn every_number_reads_back_as_itself(value in prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL) {
            let read: f64 = pretty(&value).parse().unwrap();

            prop_assert_eq!(read, value);
        }
    }
}
