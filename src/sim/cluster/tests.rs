use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::instance::{BlockChain, InstanceConfig};
use super::super::latency::{self, LatencyModel, Linear};
use super::super::policy::{Admission, Detector, DispatchOrder, Fairness, Flow, PolicySettings, Routing};
use super::super::record::{End, Judge, RequestRecord, RunRecord};
use super::super::request::{Arrivals, Client, Ended, Media, RequestName, SimRequest};
use super::*;
use crate::engine::config::{LoadOptions, SourceName, load};

/// Requests that come whatever happens.
#[derive(Debug, Default)]
pub(super) struct Given(pub(super) VecDeque<SimRequest>);

impl Arrivals for Given {
    fn next_arrival(&self) -> Option<u64> {
        self.0.front().map(|request| request.arrival_us)
    }

    fn take(&mut self) -> Option<SimRequest> {
        self.0.pop_front()
    }

    fn ended(&mut self, _: &SimRequest, _: u64, _: Ended) {}
}

pub(super) fn request(number: u64, arrival_us: u64, prompt: u32, output: u32) -> SimRequest {
    let mut chain = BlockChain::new("", InstanceConfig::default().block_tokens);
    (0..prompt + output).for_each(|token| chain.token(token + u32::try_from(number).unwrap() * 100_000));
    SimRequest {
        name: RequestName::Numbered(number),
        client: Arc::default(),
        arrival_us,
        prompt_tokens: prompt,
        output_tokens: output,
        max_output_tokens: Some(output),
        deadline_us: None,
        slo_target_us: None,
        session: None,
        media: Media::default(),
        reason_ratio: 0.0,
        chain: chain.into_hashes().into(),
    }
}

pub(super) fn of_class(class: &str, tenant: &str, request: SimRequest) -> SimRequest {
    SimRequest {
        client: Arc::new(Client {
            tenant: tenant.into(),
            slo_class: class.into(),
            ..Client::default()
        }),
        ..request
    }
}

/// Steps of 1 ms, and 10 µs for each token of a prompt.
fn simple_latency() -> Arc<dyn LatencyModel> {
    Arc::new(Linear::new(None, Some(&[1000.0, 10.0, 0.0])).unwrap())
}

pub(super) fn scenario(instances: u32) -> Scenario {
    Scenario {
        instances,
        labels: Vec::new(),
        instance: InstanceConfig {
            max_waiting: NonZeroU32::MAX,
            ..InstanceConfig::default()
        },
        latency: simple_latency(),
        model: "m".into(),
        classes: Classes::default(),
        slo_targets_us: BTreeMap::new(),
        one_queue: false,
        seed: 42,
        admission_latency_us: 0,
        routing_latency_us: 0,
        snapshot_refresh_us: 0,
        cache_signal_delay_us: 0,
        faults: Vec::new(),
        horizon_us: None,
    }
}

fn policies(routing: Routing) -> PolicySettings {
    PolicySettings {
        admission: Admission::Always,
        tenant_budgets: BTreeMap::new(),
        routing,
        flow: None,
    }
}

fn flow(detector: Detector) -> Flow {
    Flow {
        detector,
        order: DispatchOrder::Priority,
        fairness: Fairness::GlobalStrict,
        max_requests: 0,
        max_band_requests: 0,
        ttl_us: 0,
        usage_limit: 1.0,
        shedding: false,
        eviction: false,
        priorities: vec![4, 3, -1, -2, -3],
    }
}

fn ran(scenario: &Scenario, policies: &PolicySettings, requests: Vec<SimRequest>) -> RunRecord {
    let text = policies.document(16, 256).to_string();
    let options = LoadOptions {
        allow_experimental_plugins: true,
        ..LoadOptions::default()
    };
    let loaded = load(&text, &SourceName::Flag, &options).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let mut arrivals = Given(requests.into());
    run(scenario, loaded.plan.engine, &mut arrivals, TraceOptions::default())
}

fn ends(record: &RunRecord) -> Vec<End> {
    record.requests.iter().map(|request| request.end).collect()
}

#[test]
fn a_run_that_can_be_computed_by_hand_comes_out_to_the_microsecond() {
    let resolved = latency::resolve(&latency::Spec {
        model: "qwen/qwen3-14b",
        ..latency::Spec::default()
    })
    .unwrap();
    let scenario = Scenario {
        latency: resolved.latency,
        ..scenario(1)
    };
    let requests = [99_999, 199_998, 299_997].iter().zip(0..);
    let requests = requests.map(|(&at, number)| request(number, at, 32, 3)).collect();

    let record = ran(&scenario, &policies(Routing::RoundRobin), requests);

    for request in &record.requests {
        assert_eq!(request.scheduling_delay_us, Some(15_563));
        assert_eq!(request.ttft_us, Some(27_899));
        assert_eq!(request.itl_sum_us, 2 * 12_209);
        assert_eq!(request.e2e_us, Some(53_094));
        assert_eq!(request.end, End::Completed);
    }
    assert_eq!(record.itl[0].1.iter().collect::<Vec<_>>(), [(12_209, 6)]);
    assert_eq!(record.end_us, 352_179);
}

#[test]
fn what_takes_longer_than_time_can_tell_does_not_happen() {
    for (admission_latency_us, routing_latency_us) in [(u64::MAX, 0), (0, u64::MAX), (1 << 54, 1 << 54)] {
        let scenario = Scenario {
            admission_latency_us,
            routing_latency_us,
            ..scenario(1)
        };

        let record = ran(&scenario, &policies(Routing::RoundRobin), vec![request(0, 7, 8, 1)]);

        assert_eq!(ends(&record), [End::StillQueued]);
    }
}

#[test]
fn round_robin_sends_request_n_to_instance_n_modulo_their_number() {
    let requests = (0..25).map(|n| request(n, n * 100, 32, 2)).collect();

    let record = ran(&scenario(12), &policies(Routing::RoundRobin), requests);

    let targets: Vec<_> = record
        .requests
        .iter()
        .map(|request| request.instance.unwrap())
        .collect();
    assert_eq!(targets, (0..25).map(|n| n % 12).collect::<Vec<_>>());
}

#[test]
fn what_nobody_admits_is_rejected_with_one_instance_too() {
    let settings = PolicySettings {
        admission: Admission::RejectAll,
        ..policies(Routing::RoundRobin)
    };

    let record = ran(&scenario(1), &settings, (0..4).map(|n| request(n, n, 8, 1)).collect());

    assert_eq!(ends(&record), [End::Rejected; 4]);
}

#[test]
fn a_token_bucket_lets_in_what_the_seed_computes() {
    let settings = PolicySettings {
        admission: Admission::TokenBucket {
            capacity: 10_000.0,
            refill_rate: 1000.0,
        },
        ..policies(Routing::RoundRobin)
    };
    let burst = (0..40).map(|n| request(n, 0, 512, 1)).collect();

    let record = ran(&scenario(4), &settings, burst);

    let admitted = record.requests.iter().filter(|request| request.end == End::Completed);
    assert_eq!(admitted.count(), 19);
}

#[test]
fn latencies_of_the_pipeline_add_to_the_first_token_and_the_end() {
    let slow = Scenario {
        admission_latency_us: 300,
        routing_latency_us: 50,
        ..scenario(1)
    };
    let run = |scenario| ran(scenario, &policies(Routing::RoundRobin), vec![request(0, 7, 16, 3)]);

    let (direct, delayed) = (run(&scenario(1)), run(&slow));

    let times = |record: &RunRecord| (record.requests[0].ttft_us.unwrap(), record.requests[0].e2e_us.unwrap());
    let (ttft, e2e) = times(&direct);
    assert_eq!(times(&delayed), (ttft + 350, e2e + 350));
}

#[test]
fn a_client_that_gives_up_is_counted_once_wherever_its_request_is() {
    let deadline = |at, request| SimRequest {
        deadline_us: Some(at),
        ..request
    };
    let settings = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 1 })),
        ..policies(Routing::RoundRobin)
    };
    let requests = vec![
        deadline(5000, request(0, 0, 16, 100)),
        deadline(2000, request(1, 0, 16, 100)),
        request(2, 1, 16, 2),
    ];

    let record = ran(&scenario(1), &settings, requests);

    assert_eq!(ends(&record), [End::TimedOut, End::TimedOut, End::Completed]);
    assert_eq!(record.requests[2].gateway_delay_us, Some(4999));
}

#[test]
fn what_waits_at_the_gateway_goes_by_priority_when_a_request_completes() {
    let settings = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 1 })),
        ..policies(Routing::RoundRobin)
    };
    let requests = vec![
        of_class("batch", "", request(0, 0, 16, 10)),
        of_class("batch", "", request(1, 1, 16, 1)),
        of_class("critical", "", request(2, 2, 16, 1)),
        of_class("standard", "", request(3, 3, 16, 1)),
    ];

    let record = ran(&scenario(1), &settings, requests);

    let mut order: Vec<_> = (0..4).collect();
    order.sort_by_key(|&at: &usize| record.requests[at].arrival_us + record.requests[at].e2e_us.unwrap());
    assert_eq!(order, [0, 2, 3, 1]);
}

#[test]
fn one_queue_for_all_is_first_come_first_served_whatever_the_priority() {
    let settings = PolicySettings {
        flow: Some(Flow {
            order: DispatchOrder::Fifo,
            ..flow(Detector::Concurrency { max: 1 })
        }),
        ..policies(Routing::RoundRobin)
    };
    let requests = vec![
        of_class("batch", "", request(0, 0, 16, 10)),
        of_class("batch", "", request(1, 1, 16, 1)),
        of_class("critical", "", request(2, 2, 16, 1)),
    ];
    let scenario = Scenario {
        one_queue: true,
        ..scenario(1)
    };

    let record = ran(&scenario, &settings, requests);

    let delay = |at: usize| record.requests[at].gateway_delay_us.unwrap();
    assert!(delay(1) < delay(2), "{} {}", delay(1), delay(2));
}

#[test]
fn steps_that_take_longer_than_time_can_tell_end_at_its_end() {
    let scenario = Scenario {
        latency: Arc::new(Linear::new(None, Some(&[1e30, 0.0, 0.0])).unwrap()),
        ..scenario(1)
    };

    let record = ran(&scenario, &policies(Routing::RoundRobin), vec![request(0, 5, 10, 3)]);

    assert_eq!(ends(&record), [End::Completed]);
    assert_eq!(record.end_us, u64::MAX.div_ceil(1000));
}

#[test]
fn the_run_ends_at_the_horizon_and_everyone_is_somewhere() {
    let settings = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 2 })),
        ..policies(Routing::RoundRobin)
    };
    let scenario = Scenario {
        horizon_us: Some(3500),
        instance: InstanceConfig {
            max_num_seqs: NonZeroU32::MIN,
            ..scenario(1).instance
        },
        ..scenario(1)
    };

    let record = ran(&scenario, &settings, (0..4).map(|n| request(n, n, 16, 100)).collect());

    let expected = [End::StillRunning, End::StillQueued, End::InGateway, End::InGateway];
    assert_eq!(ends(&record), expected);
    assert_eq!(record.end_us, 3500);
}

#[test]
fn a_request_for_another_model_has_no_instance() {
    let other = SimRequest {
        client: Arc::new(Client {
            model: "other".into(),
            ..Client::default()
        }),
        ..request(0, 0, 16, 1)
    };

    let record = ran(&scenario(2), &policies(Routing::RoundRobin), vec![other]);

    assert_eq!(ends(&record), [End::RoutingRejected]);
}

#[test]
fn signals_that_are_never_refreshed_send_everybody_to_the_instance_that_looked_idle() {
    let by_queue = Routing::Weighted("running-requests:1".parse().unwrap());
    let targets = |refresh| {
        let scenario = Scenario {
            snapshot_refresh_us: refresh,
            ..scenario(3)
        };
        // The first one makes its instance busy, and nobody hears of it.
        let requests = (0..30).map(|n| request(n, n * 2000, 16, 5000)).collect();
        let record = ran(&scenario, &policies(by_queue.clone()), requests);
        let mut counts = [0; 3];
        for request in &record.requests {
            counts[request.instance.unwrap() as usize] += 1;
        }
        counts
    };

    assert_eq!(targets(0), [10, 10, 10]);
    let stale = targets(1 << 40);
    assert_ne!(stale, [10, 10, 10], "all look alike, and chance decides");
}

#[test]
fn an_overload_shows_in_the_samples_of_a_run_in_which_nothing_waits_at_the_gateway() {
    let requests = || {
        (0..400)
            .map(|number| request(number, 100 * number, 1000, 200))
            .collect()
    };
    let held = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 1000 })),
        ..policies(Routing::RoundRobin)
    };
    let highest = |record: &RunRecord| {
        let samples = record.series.samples.iter();
        let fullness = samples.flat_map(|sample| sample.instances.iter().map(|instance| instance.saturation));
        fullness.fold(0.0, f64::max)
    };

    let passed_on = ran(&scenario(2), &policies(Routing::RoundRobin), requests());
    let held = ran(&scenario(2), &held, requests());

    assert_eq!(passed_on.series.judge, Judge::Onlooker);
    assert!(highest(&passed_on) > 1.0, "{}", highest(&passed_on));
    assert!(passed_on.series.samples.iter().any(|sample| sample.saturation > 1.0));
    assert_eq!(held.series.judge, Judge::Detector);
    assert!(highest(&held) < 1.0, "{}", highest(&held));
}

#[test]
fn decisions_are_told_with_candidates_and_regret() {
    #[derive(Debug, Default)]
    struct Kept(Vec<DecisionRecord>);
    impl DecisionSink for Kept {
        fn take(&mut self, record: &DecisionRecord) {
            self.0.push(record.clone());
        }
    }
    let text = policies(Routing::RoundRobin).document(16, 256).to_string();
    let loaded = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap();
    let mut arrivals = Given((0..5).map(|n| request(n, n, 16, 50)).collect());
    let (mut kept, mut summary) = (Kept::default(), Summary::default());

    let trace = TraceOptions {
        sink: Some(&mut kept),
        summary: Some(&mut summary),
        candidates: Some(2),
        ..TraceOptions::default()
    };
    run(&scenario(4), loaded.plan.engine, &mut arrivals, trace);

    assert_eq!((summary.decisions, summary.admitted, summary.rejected), (5, 5, 0));
    assert_eq!(summary.targets.len(), 4);
    let DecisionRecord::Routing(last) = kept.0.last().unwrap() else {
        panic!("the last record is one of routing")
    };
    assert_eq!(last.instance, "instance_0");
    assert_eq!(last.candidates.len(), 2);
    // Every instance has one request: in flight, and in its batch.
    assert_eq!((last.candidates[0].in_flight, last.candidates[0].batch_size), (1, 1));
    assert_eq!(last.regret, 0.0);
}

#[test]
fn a_wait_is_shared_out_among_its_causes() {
    #[derive(Debug, Default)]
    struct Waits(Vec<(String, WaitRecord)>);
    impl DecisionSink for Waits {
        fn take(&mut self, record: &DecisionRecord) {
            if let DecisionRecord::Routing(routing) = record {
                self.0.push((routing.request.clone(), routing.wait));
            }
        }
    }
    let settings = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 1 })),
        ..policies(Routing::RoundRobin)
    };
    let text = settings.document(16, 256).to_string();
    let loaded = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap();
    let requests = vec![
        of_class("standard", "a", request(0, 0, 16, 3)),
        of_class("standard", "a", request(1, 0, 16, 1)),
        of_class("standard", "b", request(2, 0, 16, 1)),
        of_class("critical", "b", request(3, 0, 16, 1)),
    ];
    let mut arrivals = Given(requests.into());
    let mut waits = Waits::default();
    let trace = TraceOptions {
        sink: Some(&mut waits),
        ..TraceOptions::default()
    };
    run(&scenario(1), loaded.plan.engine, &mut arrivals, trace);

    let of = |name: &str| waits.0.iter().find(|(request, _)| request == name).unwrap().1;
    let (critical, first, second) = (of("request_3"), of("request_1"), of("request_2"));
    assert_eq!(critical.total_us, critical.saturation_us);
    assert_eq!(first.higher_priority_us, critical.total_us);
    assert_eq!(second.higher_priority_us, critical.total_us);
    assert_eq!(second.other_flow_us, first.total_us - critical.total_us);
    let parts =
        |w: WaitRecord| w.saturation_us + w.higher_priority_us + w.other_flow_us + w.own_flow_us + w.lower_priority_us;
    assert!(
        [critical, first, second]
            .iter()
            .all(|&wait| parts(wait) == wait.total_us)
    );
}

/// Refusals are kept; with them, who was let in.
#[derive(Debug, Default)]
struct Refusals {
    refused: Vec<RefusalRecord>,
    let_in: Vec<String>,
}

impl DecisionSink for Refusals {
    fn take(&mut self, record: &DecisionRecord) {
        match record {
            DecisionRecord::Refusal(refusal) => self.refused.push(refusal.clone()),
            DecisionRecord::Admission(admission) if admission.admitted => self.let_in.push(admission.request.clone()),
            _ => {}
        }
    }
}

#[test]
fn what_the_gateway_lets_in_and_does_not_serve_is_told_with_its_wait() {
    let of = |flow: Flow, requests: Vec<SimRequest>| {
        let settings = PolicySettings {
            flow: Some(flow),
            ..policies(Routing::RoundRobin)
        };
        let options = LoadOptions {
            allow_experimental_plugins: true,
            ..LoadOptions::default()
        };
        let loaded = load(&settings.document(16, 256).to_string(), &SourceName::Flag, &options).unwrap();
        let mut refusals = Refusals::default();
        let trace = TraceOptions {
            sink: Some(&mut refusals),
            ..TraceOptions::default()
        };
        let count = requests.len();
        run(&scenario(1), loaded.plan.engine, &mut Given(requests.into()), trace);
        assert_eq!(refusals.let_in.len(), count, "the queue is behind admission");
        refusals.refused
    };
    let busy = flow(Detector::Concurrency { max: 1 });

    let full = of(
        Flow {
            max_requests: 1,
            ..busy.clone()
        },
        (0..3).map(|n| request(n, n, 16, 5)).collect(),
    );
    let expired = of(
        Flow {
            ttl_us: 2000,
            ..busy.clone()
        },
        vec![
            of_class("standard", "a", request(0, 0, 16, 50)),
            of_class("critical", "b", request(1, 1000, 16, 5)),
        ],
    );
    let shed = of(
        Flow {
            max_requests: 1,
            shedding: true,
            ..busy.clone()
        },
        vec![
            request(0, 0, 16, 5),
            of_class("batch", "", request(1, 100, 16, 5)),
            request(2, 400, 16, 5),
        ],
    );
    let evicted = of(
        Flow { eviction: true, ..busy },
        vec![
            of_class("batch", "", request(0, 0, 16, 50)),
            of_class("critical", "", request(1, 5000, 16, 5)),
        ],
    );

    let told = |refusals: &[RefusalRecord]| {
        let [refusal] = refusals else { panic!("{refusals:?}") };
        serde_json::to_string(&DecisionRecord::Refusal(refusal.clone())).unwrap()
    };
    insta::assert_snapshot!([&full, &expired, &shed, &evicted].map(|one| told(one)).join("\n"));
}

fn fault(instance: u32, kind: FaultKind, from_us: u64, until_us: Option<u64>) -> Fault {
    Fault {
        instance,
        kind,
        from_us,
        until_us,
    }
}

/// A run by a whole configuration.
fn configured(scenario: &Scenario, config: &str, requests: Vec<SimRequest>) -> RunRecord {
    let loaded = load(config, &SourceName::Flag, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let mut arrivals = Given(requests.into());
    run(scenario, loaded.plan.engine, &mut arrivals, TraceOptions::default())
}

#[test]
fn what_a_dead_instance_has_fails_and_nothing_goes_there_until_it_is_back() {
    let scenario = Scenario {
        faults: vec![fault(1, FaultKind::Dead, 5500, Some(50_000))],
        ..scenario(2)
    };

    let requests = (0..100).map(|n| request(n, n * 1000, 16, 3)).collect();
    let record = ran(&scenario, &policies(Routing::RoundRobin), requests);

    let failed: Vec<_> = record
        .requests
        .iter()
        .filter(|request| request.end == End::Failed)
        .collect();
    assert!(!failed.is_empty());
    for request in &failed {
        assert!(request.arrival_us <= 5500 && request.instance == Some(1), "{request:?}");
    }
    let sent_there = |from, until| {
        let came = |request: &&RequestRecord| (from..until).contains(&request.arrival_us);
        let requests = record.requests.iter().filter(came);
        requests.filter(|request| request.instance == Some(1)).count()
    };
    assert_eq!(sent_there(5501, 50_000), 0);
    assert!(sent_there(50_001, 100_000) >= 24);
    let completed = record.requests.iter().filter(|request| request.end == End::Completed);
    assert_eq!(completed.count(), 100 - failed.len());
}

#[test]
fn until_its_signals_are_read_a_dead_instance_is_sent_requests_which_fail() {
    let scenario = Scenario {
        faults: vec![fault(1, FaultKind::Dead, 5500, None)],
        snapshot_refresh_us: 50_000,
        ..scenario(2)
    };

    let requests = (0..100).map(|n| request(n, n * 1000, 16, 3)).collect();
    let record = ran(&scenario, &policies(Routing::RoundRobin), requests);

    let failed = record.requests.iter().filter(|request| request.end == End::Failed);
    let last = failed.map(|request| request.arrival_us).max().unwrap();
    assert!((48_000..50_000).contains(&last), "{last}");
}

#[test]
fn what_a_dead_instance_had_cached_is_gone() {
    let run = |faults| {
        let scenario = Scenario { faults, ..scenario(1) };
        let again = SimRequest {
            arrival_us: 900_000,
            name: RequestName::Numbered(1),
            ..request(0, 0, 256, 3)
        };
        let record = ran(
            &scenario,
            &policies(Routing::RoundRobin),
            vec![request(0, 0, 256, 3), again],
        );
        record.requests[1].cached_tokens
    };

    assert!(run(Vec::new()) > 200);
    assert_eq!(run(vec![fault(0, FaultKind::Dead, 500_000, Some(500_001))]), 0);
}

#[test]
fn an_instance_that_hangs_goes_on_where_it_was() {
    let run = |faults| {
        let scenario = Scenario { faults, ..scenario(1) };
        let requests = (0..20).map(|n| request(n, n * 900, 16, 40)).collect();
        ran(&scenario, &policies(Routing::RoundRobin), requests)
    };

    let (well, hung) = (
        run(Vec::new()),
        run(vec![fault(0, FaultKind::Hung, 25_300, Some(4_025_300))]),
    );

    for (well, hung) in well.requests.iter().zip(&hung.requests) {
        assert_eq!((well.end, hung.end), (End::Completed, End::Completed));
        let [well, hung] = [well, hung].map(|request| request.arrival_us + request.e2e_us.unwrap());
        let later = if well > 25_300 { 4_000_000 } else { 0 };
        assert_eq!(hung, well + later);
    }
}

#[test]
fn a_hung_instance_gets_nothing_once_a_scrape_of_it_has_timed_out() {
    let scenario = Scenario {
        faults: vec![fault(0, FaultKind::Hung, 500_000, Some(3_000_000))],
        ..scenario(2)
    };

    let requests = (0..400).map(|n| request(n, n * 10_000, 16, 2)).collect();
    let record = ran(&scenario, &policies(Routing::RoundRobin), requests);

    assert!(record.requests.iter().all(|request| request.end == End::Completed));
    let sent_there = |from, until| {
        let came = |request: &&RequestRecord| (from..until).contains(&request.arrival_us);
        let requests = record.requests.iter().filter(came);
        requests.filter(|request| request.instance == Some(0)).count()
    };
    assert!(sent_there(500_000, 1_500_000) > 40);
    assert_eq!(sent_there(1_500_000, 3_000_000), 0);
    assert!(sent_there(3_000_000, 4_000_000) > 40);
}

#[test]
fn an_instance_that_fails_requests_is_ejected_if_the_configuration_says_so() {
    let scenario = Scenario {
        faults: vec![fault(0, FaultKind::Failing, 0, None)],
        ..scenario(2)
    };
    let run = |outliers: &str| {
        let config = format!("plugins: [{{type: queue-scorer}}]\noutlierDetection: {outliers}\n");
        let requests = (1..400).map(|n| request(n, n * 10_000, 16, 2)).collect();
        let record = configured(&scenario, &config, requests);
        record
            .requests
            .iter()
            .filter(|request| request.end == End::Failed)
            .count()
    };

    assert_eq!(run("{}"), 5, "as many as it takes");
    assert!(run("{consecutiveFailures: 0}") > 100);
}

#[test]
fn while_every_instance_is_dead_requests_wait_and_none_is_lost() {
    let scenario = Scenario {
        faults: vec![
            fault(0, FaultKind::Dead, 1000, Some(2_000_000)),
            fault(1, FaultKind::Dead, 1000, Some(3_000_000)),
        ],
        ..scenario(2)
    };
    let settings = PolicySettings {
        flow: Some(flow(Detector::Concurrency { max: 8 })),
        ..policies(Routing::LeastLoaded)
    };

    let requests = (1..101).map(|n| request(n, n * 10_000, 16, 2)).collect();
    let record = ran(&scenario, &settings, requests);

    assert_eq!(ends(&record), [End::Completed; 100]);
    assert!(record.requests.iter().all(|request| request.instance == Some(0)));
}

#[test]
fn a_run_ends_though_requests_wait_for_instances_that_never_come_back() {
    for kind in [FaultKind::Dead, FaultKind::Hung] {
        let scenario = Scenario {
            faults: vec![fault(0, kind, 1000, None)],
            snapshot_refresh_us: 50_000,
            ..scenario(1)
        };
        let settings = PolicySettings {
            flow: Some(flow(Detector::Concurrency { max: 2 })),
            ..policies(Routing::LeastLoaded)
        };

        let record = ran(
            &scenario,
            &settings,
            (1..20).map(|n| request(n, n * 10_000, 16, 2)).collect(),
        );

        assert_eq!(record.requests.last().unwrap().end, End::InGateway, "{kind:?}");
        assert!(record.end_us < 10_000_000, "{}", record.end_us);
    }
}

#[test]
fn a_fault_after_the_last_request_changes_nothing() {
    let requests = || (0..9).map(|n| request(n, n * 1000, 16, 2)).collect();
    let late = Scenario {
        faults: vec![fault(0, FaultKind::Dead, 90_000_000, Some(95_000_000))],
        ..scenario(2)
    };

    let with = ran(&late, &policies(Routing::RoundRobin), requests());
    let without = ran(&scenario(2), &policies(Routing::RoundRobin), requests());

    assert_eq!(format!("{with:?}"), format!("{without:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn with_faults_too_every_request_is_counted_once_and_equal_runs_are_equal(
        faults in proptest::collection::vec((0_u64..60_000, 1_u64..40_000, 0_usize..3, proptest::bool::ANY), 1..4),
        waits in proptest::bool::ANY,
        refresh in prop_oneof![Just(0_u64), Just(5000)],
        latency in 0_u64..800,
    ) {
        let faults = faults.into_iter().zip(0..).map(|((from, lasts, kind, ends), instance)| {
            fault(instance, FaultKind::ALL[kind], from, ends.then_some(from + lasts))
        });
        let scenario = Scenario {
            faults: faults.collect(),
            snapshot_refresh_us: refresh,
            routing_latency_us: latency,
            ..scenario(3)
        };
        let settings = PolicySettings {
            flow: waits.then(|| flow(Detector::Concurrency { max: 4 })),
            ..policies(Routing::LeastLoaded)
        };
        let requests = || (0..60).map(|n| SimRequest {
            deadline_us: (n % 7 == 3).then_some(n * 1000 + 9000),
            ..request(n, n * 1000, 64, 12)
        }).collect::<Vec<_>>();

        let one = ran(&scenario, &settings, requests());
        let other = ran(&scenario, &settings, requests());

        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
        let books = crate::sim::report::check(&one, 60);
        prop_assert!(books.is_ok(), "{:?}", books);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equal_inputs_give_equal_runs_and_every_request_is_in_one_place(
        seeds in proptest::collection::vec((0_u64..40_000, 1_u32..400, 1_u32..60, 0_usize..6, 0_usize..3), 1..60),
        instances in 1_u32..5,
        routing in 0_usize..4,
        limit in 1_u32..6,
        waits in proptest::bool::ANY,
        refresh in prop_oneof![Just(0_u64), Just(5000)],
        latency in 0_u64..800,
    ) {
        let classes = ["critical", "standard", "batch", "sheddable", "background", ""];
        let mut requests: Vec<SimRequest> = seeds.iter().zip(0..).map(|(&(at, prompt, output, class, tenant), n)| {
            let mut request = of_class(classes[class], ["", "a", "b"][tenant], request(n, at, prompt, output));
            request.deadline_us = (n % 7 == 3).then_some(at + 9000);
            request
        }).collect();
        requests.sort_by_key(|request| request.arrival_us);
        let routing = [
            Routing::RoundRobin,
            Routing::LeastLoaded,
            Routing::Weighted(Default::default()),
            Routing::AlwaysBusiest,
        ][routing].clone();
        let settings = PolicySettings {
            flow: waits.then(|| Flow {
                ttl_us: 20_000,
                max_requests: 20,
                fairness: Fairness::RoundRobin,
                eviction: true,
                ..flow(Detector::Concurrency { max: limit })
            }),
            ..policies(routing)
        };
        let scenario = Scenario {
            snapshot_refresh_us: refresh,
            admission_latency_us: latency,
            routing_latency_us: latency / 2,
            ..scenario(instances)
        };

        let one = ran(&scenario, &settings, requests.clone());
        let other = ran(&scenario, &settings, requests.clone());

        prop_assert_eq!(format!("{one:?}"), format!("{other:?}"));
        prop_assert_eq!(one.requests.len(), requests.len());
        for record in &one.requests {
            prop_assert!(!matches!(record.end, End::StillQueued | End::StillRunning | End::InGateway), "{:?}", record);
            prop_assert_eq!(record.end == End::Completed, record.e2e_us.is_some());
            if record.end == End::Completed {
                prop_assert!(record.scheduling_delay_us <= record.ttft_us);
                prop_assert!(record.ttft_us <= record.e2e_us);
            }
        }
        let completed = one.requests.iter().filter(|record| record.end == End::Completed);
        let gaps: u64 = completed.map(|record| u64::from(record.output_tokens) - 1).sum();
        prop_assert_eq!(one.itl.iter().map(|(_, counts)| counts.total()).sum::<u64>(), gaps);
    }

    #[test]
    fn weights_count_only_in_proportion(factor in 1_u32..50) {
        let run = |scorers: &str| {
            let requests = (0..80).map(|n| request(n % 5, n * 700, 64, 20)).collect();
            let record = ran(&scenario(3), &policies(Routing::Weighted(scorers.parse().unwrap())), requests);
            record.requests.iter().map(|request| request.instance).collect::<Vec<_>>()
        };
        let scaled = format!("prefix-affinity:{},queue-depth:{},kv-utilization:{}", 3 * factor, 2 * factor, 2 * factor);

        prop_assert_eq!(run("prefix-affinity:3,queue-depth:2,kv-utilization:2"), run(&scaled));
    }
}
