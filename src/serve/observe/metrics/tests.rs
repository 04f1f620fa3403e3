use std::collections::{BTreeMap, BTreeSet};

use smallvec::smallvec;

use super::family::FAMILIES;
use super::*;
use crate::engine::Progress;
use crate::engine::config::{LoadOptions, SourceName, load};
use crate::engine::flow::fairness::Used;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::pool::health::{Scrape, ScrapeFailure};
use crate::engine::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::scheduling::{Explain, NoProbe, PluginName, PrefixHit, Why};
use crate::engine::seed::Seed;
use crate::engine::time::Timestamp;
use crate::engine::{Engine, Input};
use crate::serve::connections::Connections;
use crate::serve::memory::Budget;
use crate::serve::observe::record::ErrorCode;
use crate::serve::parse::{Usage, UsageSource};

fn metrics() -> Metrics {
    Metrics::register(Clock::new(), Arc::default(), Some("epp".to_owned()), Limits::default())
        .unwrap()
        .0
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn endpoint(name: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        id: EndpointId::new("pool1", name),
        name: name.into(),
        address: [10, 0, 0, 1].into(),
        port: 8000,
        labels: BTreeMap::new(),
        rank: 0,
    })
}

fn decision() -> Decision {
    Decision {
        endpoints: smallvec![endpoint("a")],
        profile: "default".into(),
        prefix: smallvec![PrefixHit {
            producer: PluginName {
                name: "approx-prefix-cache-producer".into(),
                type_name: "approx-prefix-cache-producer",
            },
            matched: 2,
            total: 8,
            block_tokens: 64,
        }],
        why: Arc::new(Why::default()),
    }
}

/// A request of tenant `tenant` that was received at 0 ms.
fn request(tenant: &str) -> RequestRecord {
    let mut record = RequestRecord::new(at(0));
    record.model = "base".into();
    record.target_model = "tuned".into();
    record.fairness_id = tenant.into();
    record.request_bytes = 100;
    record
}

fn routed(metrics: &Metrics, mut record: RequestRecord) -> RequestRecord {
    record.decided = Some(at(1));
    record.endpoint = Some(endpoint("a"));
    metrics.request_routed(&record, &decision());
    record
}

fn ended(metrics: &Metrics, mut record: RequestRecord, outcome: Outcome) {
    record.outcome = Some(outcome);
    record.ended = Some(at(1000));
    metrics.request_ended(&record);
}

fn labels() -> PoolLabels {
    PoolLabels {
        name: "epp".to_owned(),
        staleness: Duration::from_secs(2),
    }
}

/// A process that does nothing, with one port and no memory.
fn process() -> Process {
    Process {
        memory: Arc::new(Budget::new(0)),
        ports: vec![("ext_proc", Connections::new(1))],
        ..Process::default()
    }
}

/// The text of the page, with the engine as it is at `now`.
fn text_of(metrics: &Metrics, engine: &Engine, now: Timestamp) -> String {
    all_of(
        metrics
            .page(&labels(), || PoolView::of(engine, now), &process())
            .unwrap(),
    )
}

fn all_of(page: Page) -> String {
    let pieces: Vec<Vec<u8>> = page.map(Result::unwrap).collect();
    String::from_utf8(pieces.concat()).unwrap()
}

/// The values of the page, by series.
fn page(metrics: &Metrics) -> BTreeMap<String, f64> {
    let page = all_of(metrics.page(&labels(), PoolView::default, &process()).unwrap());
    let series = page.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    };
    series.map(pair).collect()
}

const FLOW: &str = r#"fairness_id="t",model_name="base",priority="0",target_model_name="tuned""#;

#[test]
fn a_streamed_response_is_told_in_full() {
    let metrics = metrics();
    let mut record = routed(&metrics, request("t"));
    record.streaming = true;
    record.status = Some(200);
    record.first_byte = Some(at(200));
    record.response_bytes = 5000;
    record.usage = Usage {
        prompt: 30,
        completion: 5,
        total: 35,
        cached: Some(16),
    };
    metrics.response_chunks(&record, &[Duration::from_millis(50)]);
    ended(&metrics, record, Outcome::Completed);

    let page = page(&metrics);
    let of = |name: &str| page[&format!("llm_d_epp_{name}{{{FLOW}}}")];
    assert_eq!(of("request_total"), 1.0);
    assert_eq!(of("request_running"), 0.0);
    assert_eq!(of("request_size_bytes_sum"), 100.0);
    assert_eq!(of("response_size_bytes_sum"), 5000.0);
    assert_eq!(of("request_duration_seconds_sum"), 1.0);
    assert_eq!(of("request_input_tokens_sum"), 30.0);
    assert_eq!(of("request_output_tokens_sum"), 5.0);
    assert_eq!(of("request_cached_tokens_sum"), 16.0);
    assert_eq!(of("request_ntpot_seconds_sum"), 0.2);
    assert_eq!(of("request_streaming_tpot_seconds_sum"), 0.2);
    assert_eq!(of("request_streaming_itl_seconds_sum"), 0.05);
    let ttft = format!("llm_d_epp_request_ttft_seconds_sum{{{FLOW}}}")
        .replace(r#"priority="0","#, r#"priority="0",streaming="true","#);
    assert_eq!(page[&ttft], 0.2);
    assert_eq!(page[r#"forebay_requests_ended_total{outcome="completed"}"#], 1.0);
}

#[test]
fn tokens_that_were_estimated_are_counted_apart_too() {
    let metrics = metrics();
    for (source, outcome) in [
        (UsageSource::Server, Outcome::Completed),
        (UsageSource::Estimate, Outcome::Completed),
        (UsageSource::Estimate, Outcome::Disconnected),
    ] {
        let mut record = routed(&metrics, request("t"));
        record.streaming = true;
        record.status = Some(200);
        record.first_byte = Some(at(200));
        record.usage = Usage {
            prompt: 30,
            completion: 5,
            total: 35,
            cached: None,
        };
        record.usage_source = source;
        ended(&metrics, record, outcome);
    }

    let page = page(&metrics);
    let of = |name: &str| page[&format!("llm_d_epp_{name}{{{FLOW}}}")];
    assert_eq!(of("request_output_tokens_sum"), 10.0);
    assert_eq!(of("request_streaming_tpot_seconds_count"), 2.0);
    for (direction, tokens) in [("input", 60.0), ("output", 10.0)] {
        let series = format!("forebay_request_estimated_tokens_total{{direction=\"{direction}\",{FLOW}}}");
        assert_eq!(page[&series], tokens, "{direction}");
    }
}

#[test]
fn a_response_that_is_not_streamed_has_its_first_token_at_its_end() {
    let metrics = metrics();
    let mut record = routed(&metrics, request("t"));
    record.status = Some(200);
    record.first_byte = Some(at(200));
    ended(&metrics, record, Outcome::Completed);

    let ttft = format!("llm_d_epp_request_ttft_seconds_sum{{{FLOW}}}")
        .replace(r#"priority="0","#, r#"priority="0",streaming="false","#);
    assert_eq!(page(&metrics)[&ttft], 1.0);
}

#[test]
fn the_older_name_shows_the_sum_over_the_labels_that_it_lacks() {
    let metrics = metrics();
    for tenant in ["t", "t", "other-tenant"] {
        routed(&metrics, request(tenant));
    }

    let page = page(&metrics);
    let old = r#"model_name="base",priority="0",target_model_name="tuned""#;
    assert_eq!(page[&format!("llm_d_epp_request_total{{{FLOW}}}")], 2.0);
    assert_eq!(page[&format!("inference_objective_request_total{{{old}}}")], 3.0);
    assert_eq!(page[r#"inference_objective_running_requests{model_name="base"}"#], 3.0);
    let sizes = r#"inference_objective_request_sizes_bucket{model_name="base",target_model_name="tuned",le="128"}"#;
    assert_eq!(page[sizes], 3.0);
}

#[test]
fn a_client_that_leaves_is_no_longer_running_and_gives_no_latency() {
    let metrics = metrics();
    let record = routed(&metrics, request("t"));
    ended(&metrics, record, Outcome::Disconnected);

    let page = page(&metrics);
    assert_eq!(page[&format!("llm_d_epp_request_running{{{FLOW}}}")], 0.0);
    assert!(!page.contains_key(&format!("llm_d_epp_request_duration_seconds_count{{{FLOW}}}")));
    assert_eq!(page[r#"forebay_requests_ended_total{outcome="disconnected"}"#], 1.0);
}

#[test]
fn a_refusal_is_an_error_and_never_ran() {
    let metrics = metrics();
    let mut record = request("t");
    record.error = Some(ErrorCode::ResourceExhausted);
    ended(&metrics, record, Outcome::Refused(Refusal::FilteredOut));

    let page = page(&metrics);
    let errors = format!("llm_d_epp_request_error_total{{error_code=\"ResourceExhausted\",{FLOW}}}");
    let failed = r#"llm_d_epp_scheduler_attempts_total{endpoint_name="",namespace="",port="",status="failure",target_model_name="tuned"}"#;
    assert_eq!(page[&errors], 1.0);
    assert_eq!(page[failed], 1.0);
    assert!(!page.contains_key(&format!("llm_d_epp_request_running{{{FLOW}}}")));
}

#[test]
fn of_a_response_that_is_not_to_be_measured_only_its_end_is_counted() {
    let metrics = metrics();
    let mut record = routed(&metrics, request("t"));
    record.is_measured = false;
    ended(&metrics, record, Outcome::Completed);

    let page = page(&metrics);
    let of = |name: &str| page[&format!("llm_d_epp_{name}{{{FLOW}}}")];
    assert_eq!(of("request_total"), 1.0);
    assert_eq!(of("request_running"), 0.0);
    for never_observed in ["request_duration_seconds_count", "response_size_bytes_count"] {
        assert!(!page.contains_key(&format!("llm_d_epp_{never_observed}{{{FLOW}}}")));
    }
}

#[test]
fn a_request_without_a_body_only_has_an_outcome() {
    let metrics = metrics();
    let mut record = RequestRecord::new(at(0));
    record.kind = Kind::Bodiless;
    let record = routed(&metrics, record);
    ended(&metrics, record, Outcome::Completed);

    let page = page(&metrics);
    assert_eq!(page[r#"forebay_requests_ended_total{outcome="completed"}"#], 1.0);
    assert!(!page.keys().any(|series| series.starts_with("llm_d_epp_request_total")));
}

#[test]
fn a_refused_request_without_a_body_is_an_error() {
    let metrics = metrics();
    let mut record = RequestRecord::new(at(0));
    record.kind = Kind::Bodiless;
    record.error = Some(ErrorCode::ServiceUnavailable);
    ended(&metrics, record, Outcome::Refused(Refusal::NoEndpoints));

    let page = page(&metrics);
    let flow = r#"fairness_id="default-flow",model_name="",priority="0",target_model_name="""#;
    let errors = format!("llm_d_epp_request_error_total{{error_code=\"ServiceUnavailable\",{flow}}}");
    assert_eq!(page[&errors], 1.0);
}

#[test]
fn an_answer_of_the_gateway_is_counted_by_its_status_and_as_no_request() {
    let metrics = metrics();
    for status in [Some(403), Some(403), Some(7), None] {
        let mut record = RequestRecord::new(at(0));
        record.status = status;
        metrics.local_reply(&record);
    }

    let page = page(&metrics);
    assert_eq!(page[r#"forebay_local_replies_total{status="403"}"#], 2.0);
    assert_eq!(page[r#"forebay_local_replies_total{status=""}"#], 2.0);
    let requests: f64 = page
        .iter()
        .filter(|(series, _)| series.contains("_request"))
        .map(|(_, value)| value)
        .sum();
    assert_eq!(requests, 0.0);
}

#[test]
fn a_decision_tells_its_endpoint_and_its_share_of_the_prefix() {
    let metrics = metrics();
    routed(&metrics, request("t"));

    let page = page(&metrics);
    let attempt = r#"llm_d_epp_scheduler_attempts_total{endpoint_name="a",namespace="pool1",port="8000",status="success",target_model_name="tuned"}"#;
    assert_eq!(page[attempt], 1.0);
    assert_eq!(page["inference_extension_prefix_indexer_hit_ratio_sum"], 0.25);
    assert_eq!(page["inference_extension_prefix_indexer_hit_bytes_sum"], 512.0);
}

/// One request each of so many pairs of a model and a tenant.
fn flood(metrics: &Metrics, pairs: u32) {
    for n in 0..pairs {
        // Models and tenants in no order, and each pair once.
        let record = RequestRecord {
            model: format!("model-{}", n.wrapping_mul(2_654_435_761) % 1000).into(),
            target_model: format!("model-{}", n.wrapping_mul(2_654_435_761) % 1000).into(),
            fairness_id: format!("tenant-{n}").into(),
            status: Some(200),
            first_byte: Some(at(200)),
            streaming: true,
            usage: Usage {
                prompt: 30,
                completion: 5,
                total: 35,
                cached: Some(16),
            },
            ..request("")
        };
        let record = routed(metrics, record);
        metrics.response_chunks(&record, &[Duration::from_millis(50)]);
        ended(metrics, record, Outcome::Completed);
    }
}

#[test]
fn any_number_of_pairs_of_models_and_tenants_is_a_page_of_ten_megabytes_and_all_sums_are_right() {
    let metrics = metrics();

    for round in 1..=2_u32 {
        flood(&metrics, 10_000);
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        let mut bytes = 0;
        let text = all_of(metrics.page(&labels(), PoolView::default, &process()).unwrap());
        for line in text.lines() {
            bytes += line.len() + 1;
            if let Some((name, _)) = line.split_once('{')
                && !line.starts_with('#')
            {
                let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
                *sums.entry(name.to_owned()).or_default() += value;
            }
        }

        assert!(bytes <= 10_000_000, "{bytes}");
        let all = f64::from(round) * 10_000.0;
        for name in [
            "llm_d_epp_request_total",
            "inference_objective_request_total",
            "llm_d_epp_request_duration_seconds_count",
            "inference_objective_request_duration_seconds_count",
            "llm_d_epp_request_streaming_itl_seconds_count",
            "llm_d_epp_scheduler_attempts_total",
        ] {
            assert_eq!(sums[name], all, "{name}");
        }
        assert_eq!(sums["llm_d_epp_request_output_tokens_sum"], all * 5.0);
        assert_eq!(sums["llm_d_epp_request_running"], 0.0);
        assert!(sums["forebay_metrics_overflows_total"] > 0.0);
    }
}

#[test]
fn what_runs_is_told_by_model_under_its_older_name() {
    let metrics = metrics();
    for tenant in ["t", "u"] {
        routed(&metrics, request(tenant));
    }

    let page = page(&metrics);
    assert_eq!(page[&format!("llm_d_epp_request_running{{{FLOW}}}")], 1.0);
    assert_eq!(page[r#"inference_objective_running_requests{model_name="base"}"#], 2.0);
}

#[test]
fn without_older_names_each_value_is_shown_once() {
    let limits = Limits {
        older_names: false,
        ..Limits::default()
    };
    let (metrics, _) = Metrics::register(Clock::new(), Arc::default(), Some("epp".to_owned()), limits).unwrap();
    let mut record = routed(&metrics, request("t"));
    record.status = Some(200);
    ended(&metrics, record, Outcome::Completed);

    let older: Vec<&str> = FAMILIES
        .iter()
        .filter_map(|family| Some(family.old.as_ref()?.name))
        .collect();
    let page = page(&metrics);
    assert_eq!(
        page[&format!("llm_d_epp_request_duration_seconds_count{{{FLOW}}}")],
        1.0
    );
    for series in page.keys() {
        assert!(!older.iter().any(|name| series.starts_with(name)), "{series}");
    }
}

#[test]
fn label_values_are_escaped() {
    let metrics = metrics();
    routed(&metrics, request("a\"b\\c\nd"));

    let flow = FLOW.replace("\"t\"", r#""a\"b\\c\nd""#);
    assert_eq!(page(&metrics)[&format!("llm_d_epp_request_total{{{flow}}}")], 1.0);
}

#[test]
fn the_pool_is_shown_as_far_as_its_metrics_are_fresh() {
    let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::default());
    let report = |name: &str, millis, waiting| {
        let update = SignalUpdate {
            at: at(millis),
            waiting: Some(waiting),
            ..SignalUpdate::default()
        };
        PoolChange::Report(EndpointId::new("pool1", name), update)
    };
    let join = |name: &str| PoolChange::Upsert(endpoint(name));
    let changes = vec![join("a"), join("b"), join("old"), join("never"), report("a", 5000, 2)];
    engine.apply(at(5000), Input::PoolChanged { changes });
    let changes = vec![report("b", 5000, 4), report("old", 1000, 90)];
    engine.apply(at(5000), Input::PoolChanged { changes });
    let metrics = metrics();

    let text = |now| text_of(&metrics, &engine, at(now));
    let fresh = text(5000);
    for line in [
        r#"llm_d_epp_ready_endpoints{name="epp"} 2"#,
        r#"inference_pool_ready_pods{name="epp"} 2"#,
        r#"inference_pool_average_queue_size{name="epp"} 3"#,
        r#"inference_pool_per_pod_queue_size{model_server_pod="old",name="epp"} 90"#,
        r#"llm_d_epp_per_endpoint_queue_size{model_server_endpoint="b",name="epp"} 4"#,
        r#"forebay_pool_endpoints{name="epp",state="healthy"} 3"#,
        r#"forebay_pool_endpoints{name="epp",state="unscraped"} 1"#,
        r#"forebay_pool_endpoints{name="epp",state="unreachable"} 0"#,
        r#"forebay_endpoint_state_seconds{model_server_endpoint="never",name="epp",reason="",state="unscraped"} 0"#,
        r#"forebay_endpoint_ejections_total{name="epp",reason="connect-failure"} 0"#,
    ] {
        assert!(fresh.lines().any(|shown| shown == line), "{line} is not in\n{fresh}");
    }
    let stale = text(60_000);
    assert!(stale.contains(r#"llm_d_epp_ready_endpoints{name="epp"} 0"#));
    assert!(!stale.contains("average_queue_size"));
}

/// The reference page is made from the table; this holds the table and the page of the service together.
#[test]
fn every_family_on_the_page_is_in_the_table_and_the_other_way_round() {
    let text = "{featureGates: [flowControl], flowControl: {enableEviction: true, maxBytes: 1Gi, maxRequests: 10, \
                saturationDetector: {pluginRef: concurrency-detector}, \
                priorityBands: [{priority: -1, fairnessPolicyRef: program-aware-fairness}]}, \
                plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}, {type: prefix-cache-scorer}, \
                {type: program-aware-fairness}]}";
    let plan = load(text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    let (metrics, probe) =
        Metrics::register(Clock::new(), Arc::default(), Some("epp".to_owned()), Limits::default()).unwrap();
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(probe), Explain::default());
    let signals = SignalUpdate {
        waiting: Some(1),
        ..SignalUpdate::default()
    };
    let report = PoolChange::Report(EndpointId::new("pool1", "a"), signals);
    let changes = vec![PoolChange::Upsert(endpoint("a")), report];
    engine.apply(at(0), Input::PoolChanged { changes });
    // Both endpoints have one each. The third one waits, and one of these is cut off for it.
    for (id, priority) in [(1, -1), (2, -1), (3, 0)] {
        let request = Request {
            priority,
            ..Request::unknown(Kind::Inference)
        };
        let id = RequestId(id);
        engine.apply(at(0), Input::Submit { id, request });
        engine.poll(at(0));
    }
    let scrape = Scrape::Failed {
        failure: ScrapeFailure::Refused,
        began: at(0),
    };
    let changes = vec![PoolChange::Scrape(EndpointId::new("pool1", "a"), scrape)];
    engine.apply(at(0), Input::PoolChanged { changes });
    let mut record = request("t");
    record.waited = Some(Duration::from_millis(1));
    let mut record = routed(&metrics, record);
    record.error = Some(ErrorCode::ModelServerError);
    record.rewrite = Some("canary".into());
    record.streaming = true;
    record.first_byte = Some(at(200));
    record.usage = Usage {
        prompt: 30,
        completion: 5,
        total: 35,
        cached: Some(16),
    };
    record.usage_source = UsageSource::Estimate;
    metrics.response_chunks(&record, &[Duration::from_millis(50)]);
    ended(&metrics, record, Outcome::Completed);
    let mut local = request("t");
    local.status = Some(403);
    metrics.local_reply(&local);

    let page = text_of(&metrics, &engine, at(0));
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let shown: BTreeSet<_> = types
        .filter(|line| !line.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    let names = |family: &&family::Family| {
        let old = family.old.as_ref().map(|old| old.name);
        let kind = family.kind.name();
        let named = move |name| format!("{name} {kind}");
        [Some(family.name), old]
            .into_iter()
            .flatten()
            .map(named)
            .collect::<Vec<_>>()
    };
    let told: BTreeSet<_> = FAMILIES.iter().flat_map(names).collect();
    assert_eq!(shown, told);
}

/// The page of a picker that has this configuration and no endpoints.
fn page_without_endpoints(config: &str) -> String {
    let plan = load(config, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    let (metrics, probe) =
        Metrics::register(Clock::new(), Arc::default(), Some("epp".to_owned()), Limits::default()).unwrap();
    let engine = Engine::new(plan.engine, Seed(1), Box::new(probe), Explain::default());
    text_of(&metrics, &engine, at(0))
}

#[test]
fn the_saturation_has_one_series_under_its_old_name_with_flow_control_and_without() {
    for config in ["plugins: [{type: queue-scorer}]", "featureGates: [flowControl]"] {
        let page = page_without_endpoints(config);

        let series = |name: &str| -> Vec<_> { page.lines().filter(|line| line.starts_with(name)).collect() };
        assert_eq!(
            series("inference_extension_flow_control_pool_saturation"),
            ["inference_extension_flow_control_pool_saturation{inference_pool=\"epp\"} 1"],
            "{config}"
        );
        let new = series("llm_d_epp_flow_control_pool_saturation");
        assert!(
            new.iter().any(|series| series.contains("stage=\"effective\"")),
            "{new:?}"
        );
    }
}

#[test]
fn what_is_in_flight_is_told_by_endpoint_tenant_and_priority() {
    let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::default());
    let changes = vec![PoolChange::Upsert(endpoint("a"))];
    engine.apply(at(0), Input::PoolChanged { changes });
    let metrics = metrics();
    let shown = |engine: &Engine, wanted: &str| -> Vec<String> {
        let page = text_of(&metrics, engine, at(0));
        let lines = page.lines().filter_map(|line| line.strip_prefix(wanted));
        lines.map(str::to_owned).collect()
    };
    const WHERE: &str = "{endpoint_name=\"a\",fairness_id=";

    assert_eq!(
        shown(&engine, "llm_d_epp_inflight_requests"),
        [format!(
            "{WHERE}\"default-flow\",namespace=\"pool1\",priority=\"0\",producer_name=\"inflight-load-producer\"}} 0"
        )]
    );
    for (id, tenant, tokens) in [(1, "t", 10), (2, "t", 5), (3, "u", 1)] {
        let request = Request {
            fairness_id: tenant.into(),
            prompt_tokens: tokens,
            ..Request::unknown(Kind::Inference)
        };
        engine.apply(
            at(0),
            Input::Submit {
                id: RequestId(id),
                request,
            },
        );
        engine.poll(at(0));
    }
    let (id, progress) = (RequestId(2), Progress::AnswerBegan);
    engine.apply(at(0), Input::Progress { id, progress });

    let series = |tenant: &str, value: u32| {
        format!(
            "{WHERE}\"{tenant}\",namespace=\"pool1\",priority=\"0\",producer_name=\"inflight-load-producer\"}} {value}"
        )
    };
    assert_eq!(
        shown(&engine, "llm_d_epp_inflight_requests"),
        [series("t", 2), series("u", 1)]
    );
    assert_eq!(
        shown(&engine, "llm_d_epp_inflight_tokens"),
        [series("t", 10), series("u", 1)]
    );
    for id in 1..=3 {
        engine.apply(at(0), Input::Cancel { id: RequestId(id) });
    }
    assert_eq!(
        shown(&engine, "llm_d_epp_inflight_requests"),
        [series("default-flow", 0)]
    );
}

#[test]
fn programs_are_told_with_their_waits_and_what_they_got() {
    let text = "{featureGates: [flowControl], plugins: [{type: never-saturated}, {type: program-aware-fairness, parameters: \
                {lasHalfLifeSeconds: 0}}], flowControl: {priorityBands: [{priority: 0, \
                fairnessPolicyRef: program-aware-fairness}], saturationDetector: {pluginRef: never-saturated}}}";
    let plan = load(text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::default());
    let changes = vec![PoolChange::Upsert(endpoint("a"))];
    engine.apply(at(0), Input::PoolChanged { changes });
    let request = Request {
        fairness_id: "t".into(),
        ..Request::unknown(Kind::Inference)
    };
    engine.apply(
        at(0),
        Input::Submit {
            id: RequestId(1),
            request,
        },
    );
    engine.poll(at(0));
    let used = Used {
        prompt_tokens: 10,
        completion_tokens: 20,
    };
    let (id, progress) = (RequestId(1), Progress::Ended(Outcome::Completed, used));
    engine.apply(at(5), Input::Progress { id, progress });
    let metrics = metrics();

    let page = text_of(&metrics, &engine, at(5));

    for line in [
        "llm_d_epp_program_aware_jains_fairness_index 1",
        "llm_d_epp_program_aware_avg_wait_time_milliseconds{program_id=\"t\"} 0",
        "llm_d_epp_program_aware_attained_service_tokens{program_id=\"t\"} 50",
    ] {
        assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
    }
}

#[test]
fn there_is_a_page_without_endpoints_and_without_a_prefix_producer() {
    let page = page_without_endpoints("plugins: [{type: queue-scorer}]");

    assert!(page.contains("llm_d_epp_ready_endpoints{name=\"epp\"} 0\n"), "{page}");
}

#[test]
fn a_band_in_which_nothing_waits_is_shown_with_0() {
    let page = page_without_endpoints("featureGates: [flowControl]\nflowControl: {priorityBands: [{priority: 7}]}");

    for name in [
        "llm_d_epp_flow_control_queue_size",
        "inference_extension_flow_control_queue_bytes",
    ] {
        for priority in [0, 7] {
            let series = format!(
                "{name}{{fairness_id=\"default-flow\",inference_pool=\"epp\",model_name=\"\",priority=\"{priority}\",\
                 target_model_name=\"\"}} 0\n"
            );
            assert!(page.contains(&series), "{series} in:\n{page}");
        }
    }
}

#[test]
fn flow_control_counts_those_whom_it_took_in() {
    let metrics = metrics();
    let waited = |waited, refusal| {
        let mut record = request("t");
        record.waited = waited;
        ended(&metrics, record, Outcome::Refused(refusal));
    };
    let a_while = Some(Duration::from_secs(1));
    waited(None, Refusal::Cancelled);
    waited(a_while, Refusal::Cancelled);
    waited(None, Refusal::ShuttingDown);
    waited(a_while, Refusal::ShuttingDown);
    waited(None, Refusal::Malformed);

    let page = page(&metrics);
    let outcomes: Vec<_> = page
        .iter()
        .filter_map(|(series, count)| Some((series.strip_prefix("llm_d_epp_flow_control_requests_total{")?, *count)))
        .collect();
    let labels = |outcome| format!("inference_pool=\"epp\",outcome=\"{outcome}\",priority=\"0\"}}");
    let expected = ["EvictedContextCancelled", "EvictedOther", "RejectedOther"].map(labels);
    assert_eq!(outcomes, expected.each_ref().map(|labels| (&**labels, 1.0)));
}
