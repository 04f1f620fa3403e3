//! The figures of a run: of the whole cluster, and by instance, class, model, adapter, tenant and conversation.

use std::collections::BTreeMap;

use super::anomaly::Anomalies;
use super::conservation::{self, Conservation, Violation};
use super::distribution::Distribution;
use super::fairness::jain;
use super::fitness::Fitness;
use super::goodput::Goodput;
use super::options::ReportOptions;
use super::tally::Tally;
use crate::sim::record::{Counts, End, RequestRecord, RunRecord};

/// What the aggregate over all instances is called.
const CLUSTER: &str = "cluster";
/// What the SLO class without a name is called.
const DEFAULT_CLASS: &str = "default";

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Of all instances together.
    pub cluster: Block,
    /// Of each instance, by index.
    pub instances: Vec<Block>,
    /// Things that a run should have few of.
    pub anomalies: Anomalies,
    /// How the KV cache fared.
    pub kv: KvMetrics,
    /// By SLO class. The one without a name is `default`.
    pub classes: BTreeMap<String, GroupMetrics>,
    /// By model, requests that name none left out.
    pub models: BTreeMap<String, GroupMetrics>,
    /// By LoRA adapter, requests that name none left out.
    pub adapters: BTreeMap<String, GroupMetrics>,
    /// By tenant, requests that name none left out.
    pub tenants: BTreeMap<String, GroupMetrics>,
    /// How evenly tokens were served to the tenants. `None` if there are no tenants.
    pub jain: Option<f64>,
    /// Conversations, if there are any.
    pub sessions: Option<SessionMetrics>,
    /// The score, if weights were given.
    pub fitness: Option<Fitness>,
    /// How far promises were kept, if any were made.
    pub goodput: Option<Goodput>,
    /// Whether no request was lost. A run of which this is an error should fail.
    pub conservation: Result<Conservation, Violation>,
}

/// The figures of one instance, or of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// What it is called.
    pub name: String,
    /// Requests by where they ended.
    pub tally: Tally,
    /// Prompt tokens that were taken in.
    pub input_tokens: u64,
    /// Tokens of the answers of completed requests.
    pub output_tokens: u64,
    /// Tokens of answers that were not completed: nobody was served by them, so that they are no throughput.
    pub unfinished_output_tokens: u64,
    /// How long the run was, in seconds.
    pub duration_s: f64,
    /// Completed requests per second.
    pub responses_per_sec: f64,
    /// Tokens of completed requests per second.
    pub tokens_per_sec: f64,
    /// From arrival to completion, of completed requests.
    pub e2e: Distribution,
    /// From arrival to the first token, of requests that have one.
    pub ttft: Distribution,
    /// Between tokens, of completed requests.
    pub itl: Distribution,
    /// From arrival into a batch, of requests that entered one.
    pub scheduling_delay: Distribution,
    /// From arrival at the gateway to leaving it, of requests that waited there.
    pub gateway_delay: Distribution,
    /// How often a request was refused KV blocks because too few were free: it had to wait, or another was preempted.
    pub kv_allocations_refused: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Share of KV blocks that were found; of the cluster, the mean over its instances.
    pub cache_hit_rate: f64,
    /// The most KV blocks that one instance used at once.
    pub peak_kv_blocks: u32,
    /// Steps.
    pub steps: u64,
    /// Requests that waited, on average over the steps; of the cluster, the mean over its instances.
    pub mean_waiting: f64,
    /// Answers that the context length cut short.
    pub length_capped: u64,
}

/// How the KV cache fared.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct KvMetrics {
    /// Preemptions per completed request.
    pub preemption_rate: f64,
    /// The mean over the instances of the share of blocks that were found.
    pub cache_hit_rate: f64,
    /// Blocks that moved to a second tier and soon back. There is no second tier, so this is zero.
    pub thrashing_rate: f64,
}

/// The figures of the requests that have something in common.
#[derive(Clone, Debug, Default)]
pub struct GroupMetrics {
    /// Requests by where they ended.
    pub tally: Tally,
    /// Tokens of the answers of completed requests.
    pub tokens_served: u64,
    /// Completed requests per second.
    pub responses_per_sec: f64,
    /// Tokens of completed requests per second.
    pub tokens_per_sec: f64,
    /// From arrival to the first token.
    pub ttft: Distribution,
    /// From arrival to completion.
    pub e2e: Distribution,
    /// Between tokens. Known of SLO classes alone.
    pub itl: Option<Distribution>,
    /// The mean time between the tokens of an answer, over completed requests: each counts once, however long its answer.
    pub mean_itl: Distribution,
    /// From arrival into a batch.
    pub scheduling_delay: Distribution,
    /// The wait at the gateway.
    pub gateway_delay: Distribution,
}

/// The figures of conversations.
#[derive(Clone, Debug, Default)]
pub struct SessionMetrics {
    /// How many there are.
    pub sessions: u64,
    /// To the first token in the first round.
    pub ttft_cold: Distribution,
    /// To the first token in later rounds.
    pub ttft_warm: Distribution,
    /// From the arrival of the first round to the last completion. Conversations without either are left out.
    pub duration: Distribution,
}

/// The name under which an SLO class is reported.
pub(super) fn class_name(class: &str) -> &str {
    if class.is_empty() { DEFAULT_CLASS } else { class }
}

impl Metrics {
    /// Works a record out.
    pub fn of(record: &RunRecord, options: &ReportOptions) -> Self {
        let instances: Vec<Block> = instances(record, options);
        let cluster = cluster(record, &instances);
        let group = |key: fn(&RequestRecord) -> &str| groups(record, key);
        let mut classes = group(|request| class_name(&request.client.slo_class));
        for (class, metrics) in &mut classes {
            let mut itl = Counts::default();
            let of_class = record.itl.iter().filter(|(name, _)| class_name(name) == class);
            of_class.for_each(|(_, counts)| itl.merge(counts));
            metrics.itl = Some(Distribution::of_counts(&itl));
        }
        let tenants = group(|request| &request.client.tenant);
        let served: Vec<_> = tenants.values().map(|tenant| tenant.tokens_served).collect();
        Self {
            anomalies: Anomalies::of(record, &cluster.tally, options),
            kv: KvMetrics {
                preemption_rate: ratio(cluster.preemptions as f64, cluster.tally[End::Completed] as f64),
                cache_hit_rate: cluster.cache_hit_rate,
                thrashing_rate: 0.0,
            },
            classes,
            models: group(|request| &request.client.model),
            adapters: group(|request| &request.client.adapter),
            jain: (!tenants.is_empty()).then(|| jain(&served)),
            tenants,
            sessions: SessionMetrics::of(record),
            fitness: options.fitness.as_ref().map(|weights| Fitness::of(&cluster, weights)),
            goodput: Goodput::of(record, &options.goodput),
            conservation: conservation::check(record, options.num_requests),
            cluster,
            instances,
        }
    }
}

/// `a / b`, and zero where nothing is divided.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    ratio(values.sum(), count)
}

fn instances(record: &RunRecord, options: &ReportOptions) -> Vec<Block> {
    let mut served = vec![Vec::new(); record.instances.len()];
    for request in &record.requests {
        if let Some(served) = request.instance.and_then(|instance| served.get_mut(instance as usize)) {
            served.push(request);
        }
    }
    let nothing = Counts::default();
    let instances = record.instances.iter().zip(served).enumerate();
    instances
        .map(|(index, (totals, served))| Block {
            name: options.instance_name(index),
            input_tokens: totals.input_tokens,
            kv_allocations_refused: totals.kv_allocations_refused,
            preemptions: totals.preemptions,
            cache_hit_rate: totals.cache_hit_rate(),
            peak_kv_blocks: totals.peak_kv_blocks,
            steps: totals.steps,
            mean_waiting: totals.mean_waiting(),
            ..latencies(
                &served,
                record.instance_itl.get(index).unwrap_or(&nothing),
                record.end_us,
            )
        })
        .collect()
}

fn cluster(record: &RunRecord, instances: &[Block]) -> Block {
    let mut itl = Counts::default();
    record.itl.iter().for_each(|(_, counts)| itl.merge(counts));
    let requests: Vec<_> = record.requests.iter().collect();
    let sum = |value: fn(&Block) -> u64| instances.iter().map(value).sum();
    Block {
        name: CLUSTER.to_owned(),
        input_tokens: sum(|block| block.input_tokens),
        kv_allocations_refused: sum(|block| block.kv_allocations_refused),
        preemptions: sum(|block| block.preemptions),
        cache_hit_rate: mean(instances.iter().map(|block| block.cache_hit_rate)),
        peak_kv_blocks: instances.iter().map(|block| block.peak_kv_blocks).max().unwrap_or(0),
        steps: sum(|block| block.steps),
        mean_waiting: mean(instances.iter().map(|block| block.mean_waiting)),
        ..latencies(&requests, &itl, record.end_us)
    }
}

/// The part of a block that comes from requests. If none is completed, no latency is told.
fn latencies(requests: &[&RequestRecord], itl: &Counts, end_us: u64) -> Block {
    let tally = Tally::of(requests.iter().copied());
    let (mut output_tokens, mut unfinished_output_tokens) = (0, 0);
    for request in requests {
        let tokens = match request.end {
            End::Completed => &mut output_tokens,
            _ => &mut unfinished_output_tokens,
        };
        *tokens += u64::from(request.output_tokens);
    }
    let block = Block {
        duration_s: end_us as f64 / 1e6,
        output_tokens,
        unfinished_output_tokens,
        length_capped: requests.iter().filter(|request| request.length_capped).count() as u64,
        tally,
        ..Block::default()
    };
    if block.tally[End::Completed] == 0 {
        return block;
    }
    let of = |value: fn(&RequestRecord) -> Option<u64>| {
        Distribution::of(requests.iter().filter_map(|request| value(request)).collect())
    };
    Block {
        responses_per_sec: ratio(block.tally[End::Completed] as f64, block.duration_s),
        tokens_per_sec: ratio(output_tokens as f64, block.duration_s),
        e2e: of(|request| request.e2e_us),
        ttft: of(|request| request.ttft_us),
        itl: Distribution::of_counts(itl),
        scheduling_delay: of(|request| request.scheduling_delay_us),
        gateway_delay: of(|request| request.gateway_delay_us),
        ..block
    }
}

/// Requests by what `key` says of them; those of which it says nothing are left out.
fn groups(record: &RunRecord, key: fn(&RequestRecord) -> &str) -> BTreeMap<String, GroupMetrics> {
    let mut members: BTreeMap<&str, Vec<&RequestRecord>> = BTreeMap::new();
    for request in &record.requests {
        let key = key(request);
        if !key.is_empty() {
            members.entry(key).or_default().push(request);
        }
    }
    let seconds = record.end_us as f64 / 1e6;
    let measured = members.into_iter().map(|(key, requests)| {
        let of = |value: fn(&RequestRecord) -> Option<u64>| {
            Distribution::of(requests.iter().filter_map(|request| value(request)).collect())
        };
        let tally = Tally::of(requests.iter().copied());
        let completed = || requests.iter().filter(|request| request.end == End::Completed);
        let tokens_served = completed().map(|request| u64::from(request.output_tokens)).sum();
        let metrics = GroupMetrics {
            responses_per_sec: ratio(tally[End::Completed] as f64, seconds),
            tokens_per_sec: ratio(tokens_served as f64, seconds),
            tally,
            tokens_served,
            ttft: of(|request| request.ttft_us),
            e2e: of(|request| request.e2e_us),
            itl: None,
            mean_itl: Distribution::of_fractions(completed().map(|request| request.itl_mean_us()).collect()),
            scheduling_delay: of(|request| request.scheduling_delay_us),
            gateway_delay: of(|request| request.gateway_delay_us),
        };
        (key.to_owned(), metrics)
    });
    measured.collect()
}

impl SessionMetrics {
    fn of(record: &RunRecord) -> Option<Self> {
        let mut spans: BTreeMap<&str, (Option<u64>, Option<u64>)> = BTreeMap::new();
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for request in &record.requests {
            let Some(place) = &request.session else { continue };
            let (first_arrival, last_completion) = spans.entry(&place.session).or_default();
            if place.round == 0 {
                *first_arrival = Some(request.arrival_us);
            }
            let completion = request.e2e_us.map(|e2e| request.arrival_us + e2e);
            *last_completion = completion.max(*last_completion);
            let by_round = if place.round == 0 { &mut cold } else { &mut warm };
            by_round.extend(request.ttft_us);
        }
        if spans.is_empty() {
            return None;
        }
        let durations = spans.values().filter_map(|(first, last)| last.zip(*first));
        Some(Self {
            sessions: spans.len() as u64,
            ttft_cold: Distribution::of(cold),
            ttft_warm: Distribution::of(warm),
            duration: Distribution::of(durations.map(|(last, first)| last.saturating_sub(first)).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::report::testing::{completed, hand_checkable_run, mixed_run, of_tenant, request};
    use crate::sim::request::SessionRound;

    #[test]
    fn the_hand_checkable_run_has_the_figures_of_the_specification() {
        let (record, options) = hand_checkable_run();
        let metrics = Metrics::of(&record, &options);
        let cluster = &metrics.cluster;

        assert_eq!(cluster.duration_s, 0.352_179);
        assert_eq!(cluster.responses_per_sec, 8.518395475028322);
        assert_eq!(cluster.tokens_per_sec, 25.55518642508497);
        assert_eq!(cluster.ttft.mean.ms(), 27.899);
        assert_eq!(cluster.itl.p99.ms(), 12.209);
        assert_eq!(cluster.e2e.p90.ms(), 53.094);
        assert_eq!(cluster.scheduling_delay.p99.ms(), 15.563);
        assert!(metrics.conservation.is_ok());
    }

    #[test]
    fn a_run_in_which_nothing_completed_has_no_latencies() {
        let mut running = request(0);
        running.end = End::StillRunning;
        running.instance = Some(0);
        running.ttft_us = Some(5_000);
        let record = RunRecord {
            requests: vec![running],
            instances: vec![Default::default()],
            end_us: 9_000,
            ..RunRecord::default()
        };
        let metrics = Metrics::of(&record, &ReportOptions::default());

        assert_eq!(metrics.cluster.ttft, Distribution::default());
        assert_eq!(
            (metrics.cluster.responses_per_sec, metrics.kv.preemption_rate),
            (0.0, 0.0)
        );
    }

    #[test]
    fn tokens_of_answers_that_were_not_completed_are_no_throughput() {
        let mut given_up = completed(1, 20_000, 60_000);
        given_up.end = End::TimedOut;
        given_up.e2e_us = None;
        given_up.output_tokens = 1000;
        let done = completed(0, 20_000, 60_000);
        let tokens = u64::from(done.output_tokens);
        let record = RunRecord {
            requests: vec![done, given_up],
            instances: vec![Default::default()],
            end_us: 2_000_000,
            ..RunRecord::default()
        };
        let Metrics { cluster, instances, .. } = Metrics::of(&record, &ReportOptions::default());

        for block in [&cluster, &instances[0]] {
            assert_eq!((block.output_tokens, block.unfinished_output_tokens), (tokens, 1000));
            assert_eq!(block.tokens_per_sec, tokens as f64 / 2.0);
        }
    }

    #[test]
    fn of_a_class_every_completed_request_counts_once_for_the_mean_time_between_tokens() {
        let with_gaps = |number, gaps: u64, each_us: u64| {
            let mut request = completed(number, 20_000, 20_000 + gaps * each_us);
            request.output_tokens = u32::try_from(gaps).unwrap() + 1;
            request
        };
        let record = RunRecord {
            requests: vec![with_gaps(0, 99, 10_000), with_gaps(1, 1, 40_000)],
            end_us: 2_000_000,
            ..RunRecord::default()
        };
        let metrics = Metrics::of(&record, &ReportOptions::default());

        let itl = &metrics.classes["default"].mean_itl;
        assert_eq!((itl.count, itl.mean.ms(), itl.max.ms()), (2, 25.0, 40.0));
    }

    #[test]
    fn instances_share_the_requests_of_the_cluster() {
        let record = mixed_run();
        let metrics = Metrics::of(&record, &ReportOptions::default());
        let completed: u64 = metrics.instances.iter().map(|block| block.tally[End::Completed]).sum();
        let gaps: u64 = metrics.instances.iter().map(|block| block.itl.count).sum();

        assert_eq!(completed, metrics.cluster.tally[End::Completed]);
        assert_eq!(gaps, metrics.cluster.itl.count);
        assert_eq!(metrics.instances[1].name, "instance_1");
    }

    #[test]
    fn a_tenant_that_was_served_nothing_counts_for_fairness() {
        let mut starved = of_tenant(request(1), "b");
        starved.end = End::GatewayExpired;
        let record = RunRecord {
            requests: vec![of_tenant(completed(0, 1, 2), "a"), starved],
            ..RunRecord::default()
        };
        let metrics = Metrics::of(&record, &ReportOptions::default());

        assert_eq!(metrics.jain, Some(0.5));
    }

    #[test]
    fn a_conversation_lasts_from_its_first_round_to_its_last_completion() {
        let round = |number, name: &str, round, arrival_us| {
            let mut request = completed(number, 100, 1_000);
            request.arrival_us = arrival_us;
            request.session = Some(SessionRound {
                session: Arc::from(name),
                round,
                context_tokens: 0,
                think_us: 0,
            });
            request
        };
        let record = RunRecord {
            requests: vec![
                round(0, "a", 0, 0),
                round(1, "a", 1, 5_000),
                // Its first round is not in the record.
                round(2, "b", 1, 6_000),
            ],
            ..RunRecord::default()
        };
        let sessions = Metrics::of(&record, &ReportOptions::default()).sessions.unwrap();

        assert_eq!((sessions.sessions, sessions.duration.count), (2, 1));
        assert_eq!(sessions.duration.max.ms(), 6.0);
        assert_eq!((sessions.ttft_cold.count, sessions.ttft_warm.count), (1, 2));
    }
}
