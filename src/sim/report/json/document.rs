//! One document with everything.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::super::anomaly::Anomalies;
use super::super::conservation::Conservation;
use super::super::distribution::Distribution;
use super::super::fitness::Fitness;
use super::super::goodput::ClassGoodput;
use super::super::metrics::{Block, GroupMetrics, KvMetrics, Metrics, SessionMetrics};
use super::super::options::{ReportOptions, TraceSummary};
use super::super::saturation::Level;
use super::{as_map, pretty};
use crate::sim::record::End;

/// Everything that is known of a run but the single requests: the document of `--output json`.
pub fn document(metrics: &Metrics, options: &ReportOptions, saturation: Option<&BTreeMap<String, Level>>) -> String {
    pretty(&Document::of(metrics, options, saturation))
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
    unfinished_output_tokens: u64,
    duration_s: f64,
    responses_per_sec: f64,
    tokens_per_sec: f64,
    ttft: Latencies,
    itl: Latencies,
    e2e: Latencies,
    scheduling_delay: Latencies,
    gateway_delay: Latencies,
    kv_allocations_refused: u64,
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
            unfinished_output_tokens: block.unfinished_output_tokens,
            duration_s: block.duration_s,
            responses_per_sec: block.responses_per_sec,
            tokens_per_sec: block.tokens_per_sec,
            ttft: Latencies::of(&block.ttft),
            itl: Latencies::of(&block.itl),
            e2e: Latencies::of(&block.e2e),
            scheduling_delay: Latencies::of(&block.scheduling_delay),
            gateway_delay: Latencies::of(&block.gateway_delay),
            kv_allocations_refused: block.kv_allocations_refused,
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
    use super::*;
    use crate::sim::report::testing::mixed_run;

    #[test]
    fn the_document_of_a_run_with_a_request_in_each_bucket() {
        let record = mixed_run();
        let options = ReportOptions {
            title: "everything".to_owned(),
            num_requests: 13,
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
}
