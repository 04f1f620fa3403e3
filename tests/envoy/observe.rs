//! `forebay observe`, before a pool and before single servers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use forebay::engine::config::SourceName;
use forebay::serve::demo::children::{Child, Signal};
use forebay::sim::trace::{Header, Row, Status, read_itl, read_rows};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cluster::{ADAPTER, MODEL, ModelServer, Plan};
use crate::support::gate::Gate;
use crate::support::soon;
use crate::support::upstream::Upstream;

/// Two tenants, a class and a shared prefix each.
const TENANTS: &str = "
version: 2
aggregate_rate: 100
num_requests: 40
clients:
- {id: red, tenant_id: red, slo_class: critical, slo_target_us: 70500, rate_fraction: 1, adapter: lora-a,
   prefix_group: r, prefix_length: 160, arrival: &even {process: constant},
   input_distribution: &in {type: constant, params: {value: 32}},
   output_distribution: &out {type: constant, params: {value: 8}}}
- {id: blue, tenant_id: blue, slo_class: batch, rate_fraction: 1, prefix_group: b, prefix_length: 160,
   arrival: *even, input_distribution: *in, output_distribution: *out}
";

/// Conversations of which each turn begins with what was said before.
const CONVERSATIONS: &str = "
version: 2
aggregate_rate: 50
num_requests: 12
clients:
- {id: a, rate_fraction: 1, arrival: {process: constant},
   input_distribution: &length {type: constant, params: {value: 64}}, output_distribution: *length,
   reasoning: {multi_turn: {max_rounds: 4, think_time_us: 1000, context_growth: accumulate}}}
";

/// The objectives that are named after classes.
const OBJECTIVES: [(&str, i32); 2] = [("critical", 4), ("batch", -1)];

/// A run of the program, in a directory of its own.
struct Observation {
    directory: TempDir,
    status: i32,
    printed: String,
    errors: String,
}

impl Observation {
    async fn of(url: &str, flags: &[&str]) -> Self {
        Self::with(TempDir::with_prefix("forebay-test-").unwrap(), url, flags).await
    }

    async fn of_workload(url: &str, workload: &str, flags: &[&str]) -> Self {
        let directory = TempDir::with_prefix("forebay-test-").unwrap();
        std::fs::write(directory.path().join("workload.yaml"), workload).unwrap();
        Self::with(directory, url, &[&["--workload-spec=workload.yaml"], flags].concat()).await
    }

    async fn with(directory: TempDir, url: &str, flags: &[&str]) -> Self {
        let run = tokio::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(arguments(url))
            .args(flags)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(std::time::Duration::from_secs(60), run).await;
        let output = output.expect("the run ends").unwrap();
        Self {
            directory,
            status: output.status.code().unwrap(),
            printed: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn ended_well(self) -> Self {
        assert_eq!(self.status, 0, "{}\n{}", self.printed, self.errors);
        self
    }

    fn rows(&self) -> Vec<Row> {
        rows(self.directory.path())
    }

    fn header(&self) -> Header {
        let text = std::fs::read_to_string(self.directory.path().join("trace.yaml")).unwrap();
        Header::read(&text, &SourceName::Flag).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.printed).unwrap_or_else(|error| panic!("{error} in: {}", self.printed))
    }

    /// What the program says there.
    fn forebay(&self, arguments: &[&str]) -> String {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command
            .args(arguments)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What is in the directory, sorted.
    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn arguments(url: &str) -> [String; 5] {
    [
        "observe".to_owned(),
        format!("--server-url={url}"),
        format!("--model={MODEL}"),
        "--trace-header=trace.yaml".to_owned(),
        "--trace-data=trace.csv".to_owned(),
    ]
}

fn rows(directory: &Path) -> Vec<Row> {
    read_rows(File::open(directory.join("trace.csv")).unwrap(), "trace.csv").unwrap()
}

fn url(server: &ModelServer) -> String {
    format!("http://{}", server.address)
}

/// Short requests at a rate.
const SHORT: [&str; 6] = [
    "--rate=100",
    "--num-requests=5",
    "--prompt-tokens=20",
    "--prompt-tokens-stdev=0",
    "--output-tokens=3",
    "--output-tokens-stdev=0",
];

// === Before a pool ===

/// A pool that is never full, however old a loaded machine lets its metrics get: what may be shed is not.
const NEVER_FULL: &str = "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}, \
    {type: utilization-detector, parameters: {queueDepthThreshold: 1000, metricsStalenessThreshold: 1h}}]\n\
    flowControl: {saturationDetector: {pluginRef: utilization-detector}}";

#[tokio::test]
async fn a_workload_goes_through_envoy_and_is_recorded() {
    let cluster = Plan::new().objectives(&OBJECTIVES).config(NEVER_FULL).start().await;
    let pages: Vec<_> = cluster
        .servers
        .iter()
        .map(|server| format!("--kv-metrics-url={}/metrics", url(server)))
        .collect();
    let pages: Vec<&str> = pages.iter().map(String::as_str).collect();
    let flags = [&["--scrape-kv-metrics", "--record-itl", "--output=json"], &*pages].concat();

    let run = Observation::of_workload(&cluster.url(""), TENANTS, &flags)
        .await
        .ended_well();

    let rows = run.rows();
    assert_eq!(
        rows.iter().map(|row| row.request_id).collect::<Vec<_>>(),
        (0..40).collect::<Vec<_>>()
    );
    for row in &rows {
        assert_eq!((row.status, &*row.error_message), (Status::Ok, ""));
        assert_eq!(
            (row.server_input_tokens, row.output_tokens, row.num_chunks),
            (192, 8, 8)
        );
        assert!(row.arrival_time_us <= row.send_time_us && row.send_time_us < row.first_chunk_time_us);
        assert!(row.first_chunk_time_us < row.last_chunk_time_us);
        assert_eq!(&*row.adapter, if &*row.tenant_id == "red" { ADAPTER } else { "" });
    }
    let ids: BTreeMap<_, _> = rows.iter().map(|row| (&*row.tenant_id, &*row.x_request_id)).collect();
    for (tenant, priority) in [("red", 4), ("blue", -1)] {
        let decision = cluster.explanation(ids[tenant]).await;
        assert_eq!(
            (&decision["fairnessId"], &decision["priority"]),
            (&tenant.into(), &priority.into()),
            "{decision}"
        );
    }

    let header = run.header();
    let hit_rate = header.observed_kv_metrics.unwrap().hit_rate.unwrap();
    // A prefix is found by all but the first of each tenant on each server.
    assert!((0.5..0.9).contains(&hit_rate), "{hit_rate}");
    let itl = read_itl(
        File::open(run.directory.path().join("trace.itl.csv")).unwrap(),
        "trace.itl.csv",
    )
    .unwrap();
    assert_eq!(itl.len(), 40 * 8);
    let document = run.json();
    assert_eq!(document["conservation"]["holds"], true);
    assert_eq!(document["settings"]["observed"]["ok"], 40);
    assert_eq!(document["workload"]["workload_spec"], "workload.yaml");
    assert_eq!(document["per_tenant"]["red"]["tokens_served"], 160, "{document}");
}

#[tokio::test]
async fn users_chat_through_envoy_and_wait_for_their_answers() {
    let cluster = Plan::new().start().await;
    let flags = [
        "--concurrency=3",
        "--num-requests=12",
        "--api-format=chat",
        "--no-streaming",
        "--output-tokens=5",
        "--output-tokens-stdev=0",
    ];

    let run = Observation::of(&cluster.url(""), &flags).await.ended_well();

    let rows = run.rows();
    assert_eq!(
        rows.iter()
            .filter(|row| row.status == Status::Ok && row.output_tokens == 5)
            .count(),
        12
    );
    let mut ends: BTreeMap<_, u64> = BTreeMap::new();
    for row in &rows {
        let before = ends.insert(&row.session_id, row.last_chunk_time_us);
        assert!(before.unwrap_or(0) <= row.send_time_us, "a user was sent two at once");
        assert_eq!((row.num_chunks, row.first_chunk_time_us), (1, row.last_chunk_time_us));
    }
    assert_eq!(ends.len(), 3);
}

#[tokio::test]
async fn what_a_pool_did_the_simulator_does_again() {
    let directory = TempDir::with_prefix("forebay-test-").unwrap();
    let journal = directory.path().join("picks.jsonl");
    let names = ["a", "b", "c", "d"];
    let plan = Plan::new().servers(&names).objectives(&OBJECTIVES).config(NEVER_FULL);
    let mut cluster = plan.flag(format!("--journal={}", journal.display())).start().await;
    let run = Observation::of_workload(&cluster.url(""), TENANTS, &[])
        .await
        .ended_well();
    cluster.picker.child.signal(Signal::TERM);
    let ended = soon("the picker ends", cluster.picker.child.wait()).await.unwrap();
    assert!(ended.success(), "{}", cluster.picker.child.printed());

    // By the journal: arrivals and signals are those of the pool, and so is each pick.
    let again = run.forebay(&["replay", "--output=json", "--from-journal", journal.to_str().unwrap()]);
    let again: Value = serde_json::from_str(&again).unwrap();
    // One more than the workload has: that which finds out how many tokens a word is.
    assert_eq!((&again["requests"], &again["agreement"]), (&41.into(), &1.0.into()));

    // By the trace: arrivals are those of the pool, and the simulator's instances take the stand-in's time.
    let trace = ["--trace-header=trace.yaml", "--trace-data=trace.csv"];
    let simulation = [
        "replay",
        "--latency-model=linear",
        "--beta-coeffs=400,2,2.5",
        "--num-instances=4",
    ];
    run.forebay(&[&simulation, &trace[..], &["--results-path=simulated.json"]].concat());
    let calibration = ["calibrate", "--sim-results=simulated.json", "--report=agreement.json"];
    run.forebay(&[&calibration, &trace[..]].concat());
    let report = std::fs::read(run.directory.path().join("agreement.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["metrics"]["ttft"]["count"], 40, "{report:#}");
}

#[tokio::test]
async fn refusals_are_counted_by_what_the_picker_says() {
    let cluster = Plan::new().servers(&[]).start().await;

    let run = Observation::of(&cluster.url(""), &[&SHORT[..], &["--output=json"]].concat()).await;

    assert_eq!(run.status, 1);
    assert!(
        run.errors
            .contains("error: not one request was answered: 503 Service Unavailable: "),
        "{}",
        run.errors
    );
    let document = run.json();
    assert_eq!(document["conservation"]["buckets"]["routing-rejected"], 5, "{document}");
    assert!(
        run.rows()
            .iter()
            .all(|row| row.status == Status::Error && row.error_message.starts_with("503 "))
    );
}

// === Before one server ===

#[tokio::test]
async fn headers_and_bodies_are_those_of_the_workload() {
    let upstream = Upstream::start().await;
    let url = format!("http://{}", upstream.address);

    let run = Observation::of_workload(&url, TENANTS, &["--num-requests=4", "--api-key=secret"]).await;
    let workload = run.header().workload_spec.unwrap();
    assert!(workload.as_str().unwrap().contains("\nnum_requests: 4\n"), "{workload}");

    // It answers, but not with an answer.
    assert_eq!(run.status, 1);
    assert!(run.printed.contains("4 x an answer without choices"), "{}", run.printed);
    let seen = upstream.seen();
    let (probe, requests) = seen.split_first().unwrap();
    let body: Value = serde_json::from_slice(&probe.body).unwrap();
    assert_eq!(
        (&body["max_tokens"], body["prompt"].as_str().unwrap().split(' ').count()),
        (&1.into(), 101)
    );
    assert_eq!(requests.len(), 4);
    let red = requests
        .iter()
        .find(|request| request.headers["x-gateway-inference-fairness-id"] == "red");
    let red = red.expect("a request of that tenant came");
    assert_eq!(red.headers["x-gateway-inference-objective"], "critical");
    assert_eq!(red.headers["x-slo-ttft-ms"], "71");
    assert_eq!(red.headers["authorization"], "Bearer secret");
    let body: Value = serde_json::from_slice(&red.body).unwrap();
    assert_eq!(
        (&body["model"], &body["max_tokens"], &body["min_tokens"]),
        (&ADAPTER.into(), &8.into(), &8.into())
    );
    assert_eq!(
        (&body["priority"], &body["stream_options"]["include_usage"]),
        (&0.into(), &true.into())
    );
    let id = red.headers["x-request-id"].to_str().unwrap();
    let rows = run.rows();
    let row = rows.iter().find(|row| &*row.x_request_id == id).unwrap();
    assert_eq!(
        (&*row.tenant_id, row.vllm_priority, row.slo_target_us),
        ("red", Some(0), Some(70_500))
    );
}

#[tokio::test]
async fn a_conversation_finds_in_the_cache_what_was_said_before() {
    let server = ModelServer::start("a", 20.0).await;
    for api in ["--api-format=completions", "--api-format=chat"] {
        let flags = [
            api,
            "--scrape-kv-metrics",
            "--seed",
            if api.ends_with("chat") { "2" } else { "1" },
        ];

        let run = Observation::of_workload(&url(&server), CONVERSATIONS, &flags)
            .await
            .ended_well();

        let rows = run.rows();
        assert_eq!(rows.iter().filter(|row| row.status == Status::Ok).count(), 12);
        let said: u32 = rows.iter().filter_map(|row| row.context_tokens).sum();
        let found = run.header().observed_kv_metrics.unwrap().block_hits.unwrap();
        // Whole blocks are found, and the last one of an answer may lack its last token.
        let least = f64::from(said) - 9.0 * 2.0 * 16.0;
        assert!(found >= least, "{api}: {found} tokens of {said} were found");
    }
}

#[tokio::test]
async fn files_are_only_written_over_when_asked() {
    let server = ModelServer::start("a", 20.0).await;
    let first = Observation::of(&url(&server), &SHORT).await.ended_well();
    assert_eq!(first.files(), ["trace.csv", "trace.yaml"]);
    let kept = first.rows();

    let again = Observation::with(first.directory, &url(&server), &SHORT).await;
    assert_eq!(again.status, 2);
    assert!(again.errors.contains("trace.yaml is there already"), "{}", again.errors);
    assert_eq!(again.rows(), kept);

    let forced = Observation::with(again.directory, &url(&server), &[&SHORT[..], &["--force"]].concat()).await;
    assert_ne!(forced.ended_well().rows(), kept);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let server = ModelServer::start("a", 20.0).await;
    let url = url(&server);
    let cases: [(&str, &[&str], &str); 5] = [
        ("http://127.0.0.1:9", &SHORT, "the server cannot be reached"),
        ("localhost", &SHORT, "`localhost` is no URL of a server"),
        (&url, &[], "there is nothing to send"),
        (&url, &["--rate=1", "--timeout=90000"], "it must be 86400 at most"),
        (
            &url,
            &["--rate=1", "--itl-output=trace.csv"],
            "trace.csv is named for two outputs",
        ),
    ];
    for (url, flags, message) in cases {
        let run = Observation::of(url, flags).await;

        assert_eq!(run.status, 2, "{}", run.errors);
        assert!(
            run.errors.starts_with("error: ") && run.errors.contains(message),
            "{}",
            run.errors
        );
        assert!(run.files().is_empty(), "{:?}", run.files());
    }
}

#[tokio::test]
async fn a_run_that_is_interrupted_keeps_what_was_seen() {
    let mut gate = Gate::start().await;
    let directory = TempDir::with_prefix("forebay-test-").unwrap();
    let flags = ["--rate=100", "--num-requests=1000", "--max-concurrency=2"].map(str::to_owned);
    let arguments = [&arguments(&format!("http://{}", gate.address)), &flags[..]].concat();
    let arguments = arguments.into_iter().map(|argument| {
        let directory = directory.path().display();
        argument.replace("=trace", &format!("={directory}/trace"))
    });
    let mut run = Child::start(
        "the run",
        Path::new(env!("CARGO_BIN_EXE_forebay")),
        arguments,
        directory.path(),
    )
    .unwrap();
    gate.next().await.answer();
    let first = gate.next().await;
    let held = gate.next().await;

    let told = first.id().to_owned();
    first.answer();
    let next = gate.next().await;
    run.signal(Signal::INT);
    let status = soon("the run ends", run.wait()).await.unwrap();

    let printed = run.printed();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("Cut short: the run was stopped before its end"),
        "{printed}"
    );
    let rows = rows(directory.path());
    let statuses: BTreeMap<_, _> = rows.iter().map(|row| (&*row.x_request_id, row.status)).collect();
    let expected = [
        (&*told, Status::Error),
        (held.id(), Status::Incomplete),
        (next.id(), Status::Incomplete),
    ];
    assert_eq!(statuses, expected.into());
}
