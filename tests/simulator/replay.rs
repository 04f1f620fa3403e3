//! What was sent once can be sent again, and gives the same figures.

use std::fs::File;

use forebay::engine::config::SourceName;
use forebay::sim::trace::{Header, ServerNote, Status, read_rows, write_rows};
use serde_json::{Value, json};

use super::Workplace;

const SERVERS: &str = "--model qwen/qwen3-14b --num-instances 3 --max-num-seqs 8 --total-kv-blocks 1200";

/// Prompts that begin alike, and conversations that grow, from two tenants.
const TALKS: &str = r#"
version: "2"
aggregate_rate: 8
num_requests: 60
clients:
- id: talk
  tenant_id: blue
  rate_fraction: 1
  arrival: {process: poisson}
  prefix_group: assistant
  prefix_length: 200
  input_distribution: {type: gaussian, params: {mean: 150, std_dev: 40, min: 10, max: 300}}
  output_distribution: {type: gaussian, params: {mean: 60, std_dev: 20, min: 5, max: 120}}
  reasoning:
    multi_turn: {max_rounds: 4, think_time_us: 300000, context_growth: accumulate}
- id: ask
  tenant_id: red
  rate_fraction: 3
  arrival: {process: gamma, cv: 2}
  input_distribution: {type: gaussian, params: {mean: 400, std_dev: 100, min: 10, max: 900}}
  output_distribution: {type: gaussian, params: {mean: 60, std_dev: 20, min: 5, max: 120}}
"#;

/// Runs, writes a trace, replays it, and compares every figure and every request.
fn replays(workload: &str, policies: &str) {
    let workplace = Workplace::new();
    workplace.write("talks.yaml", TALKS);
    let run = workplace.document(&format!(
        "simulate {SERVERS} {workload} {policies} --trace-output trace --metrics-path run.json"
    ));
    let again = workplace.document(&format!(
        "replay {SERVERS} {policies} --trace-header trace.yaml --trace-data trace.csv --trace-output again \
         --metrics-path again.json"
    ));

    assert_eq!(run["metrics"]["requests"]["completed"], 60);
    for part in [
        "settings",
        "metrics",
        "per_instance",
        "per_tenant",
        "anomalies",
        "kv_cache",
        "trace",
        "sessions",
    ] {
        assert_eq!(run[part], again[part], "`{part}`, with {policies}");
    }
    // Requests are called otherwise: a replay numbers them as the trace does.
    let requests = |name: &str| {
        let mut file: Value = serde_json::from_str(&workplace.read(name)).unwrap();
        let requests = file["requests"].as_array_mut().unwrap();
        requests
            .iter_mut()
            .for_each(|request| drop(request["requestID"].take()));
        requests.clone()
    };
    assert_eq!(requests("run.json"), requests("again.json"), "with {policies}");
    assert_eq!(
        workplace.read("trace.csv"),
        workplace.read("again.csv"),
        "with {policies}"
    );
}

#[test]
fn a_replay_of_single_requests_gives_every_figure_again() {
    replays(
        "--rate 30 --arrival poisson --num-requests 60 --prefix-tokens 300 --output-tokens 64 --output-tokens-max 128",
        "--routing-policy round-robin",
    );
}

#[test]
fn a_replay_of_conversations_gives_every_figure_again() {
    replays("--workload-spec talks.yaml", "--routing-policy round-robin");
}

#[test]
fn a_replay_under_policies_with_memory_and_chance_gives_every_figure_again() {
    replays(
        "--workload-spec talks.yaml",
        "--routing-policy weighted --routing-scorers prefix-affinity:3,precise-prefix-cache:1,no-hit-lru:1,queue-depth:1",
    );
}

#[test]
fn a_replay_of_what_waited_at_the_gateway_gives_every_figure_again() {
    replays(
        "--workload-spec talks.yaml",
        "--routing-policy least-loaded --flow-control --saturation-detector concurrency --max-concurrency 4 \
         --fairness-policy round-robin --admission-latency 200us --routing-latency 1ms",
    );
}

#[test]
fn the_model_of_a_recorded_server_is_the_one_that_is_simulated() {
    let workplace = Workplace::new();
    workplace.forebay("simulate --latency-model linear --num-requests 5 --rate 10 --trace-output trace");
    let header = workplace.read("trace.yaml");
    assert!(!header.contains("model:"), "a server without a name has one: {header}");
    let named = header.replace("type: simulated\n", "type: simulated\n  model: Served/Name\n");
    workplace.write("trace.yaml", &named);
    let mut rows = read_rows(workplace.read("trace.csv").as_bytes(), "trace.csv").unwrap();
    rows.iter_mut().for_each(|row| row.model = "Served/Name".into());
    rows[4].model = "other".into();
    write_rows(File::create(workplace.path("trace.csv")).unwrap(), &rows).unwrap();
    let replay = "replay --trace-header trace.yaml --trace-data trace.csv";

    let unnamed = workplace.document(&format!("{replay} --latency-model linear"));
    assert_eq!(unnamed["metrics"]["requests"]["completed"], 5);

    let named = workplace.try_forebay(&format!("{replay} --model qwen/qwen3-14b --output json"));
    let document: Value = serde_json::from_slice(&named.stdout).unwrap();
    assert_eq!(document["metrics"]["requests"]["completed"], 4);
    assert_eq!(
        String::from_utf8(named.stderr).unwrap(),
        "warning: no instance served 1 requests, which name another model (such as `other`) than `qwen/qwen3-14b`\n"
    );
}

#[test]
fn a_trace_of_the_simulator_is_as_far_from_its_replay_as_the_end_of_a_request_takes() {
    let workplace = Workplace::new();
    workplace.forebay(&format!(
        "simulate {SERVERS} --rate 30 --num-requests 30 --output-tokens 64 --trace-output trace"
    ));
    workplace.forebay(&format!(
        "replay {SERVERS} --trace-header trace.yaml --trace-data trace.csv --results-path simulated.json"
    ));
    workplace.forebay(
        "calibrate --trace-header trace.yaml --trace-data trace.csv --sim-results simulated.json --report report.json",
    );
    let report: Value = serde_json::from_str(&workplace.read("report.json")).unwrap();
    let error = |metric: &str| {
        report["metrics"][metric]["workload_level"]["mean_error"]
            .as_f64()
            .unwrap()
    };

    assert_eq!(error("ttft"), 0.0);
    assert!((error("e2e") - 777.0).abs() < 1e-6, "{}", error("e2e"));
}

/// Conversations that go on when they are answered, with prompts that grow.
const CLOSED: &str = r#"
version: "2"
aggregate_rate: 8
num_requests: 80
clients:
- id: talk
  rate_fraction: 1
  arrival: {process: poisson}
  input_distribution: {type: gaussian, params: {mean: 150, std_dev: 40, min: 10, max: 300}}
  output_distribution: {type: gaussian, params: {mean: 60, std_dev: 20, min: 5, max: 120}}
  closed_loop: true
  reasoning:
    multi_turn: {max_rounds: 4, think_time_us: 300000, context_growth: accumulate}
"#;

/// Every request of a trace is among the results, and its first token came when the trace says.
fn agree(workplace: &Workplace, trace: &str, results: &str) {
    let told = workplace.forebay(&format!(
        "calibrate --trace-header trace.yaml --trace-data {trace} --sim-results {results} --report report.json --force"
    ));
    let report: Value = serde_json::from_str(&workplace.read("report.json")).unwrap();

    assert!(told.starts_with("matched requests: 80 of 80\n"), "{results}: {told}");
    assert_eq!(report["trace_info"]["token_mismatches"], 0, "{results}");
    assert_eq!(report["metrics"]["ttft"]["request_level"]["mape"], 0, "{results}");
}

#[test]
fn run_replay_and_calibrate_call_every_turn_of_a_conversation_alike() {
    let workplace = Workplace::new();
    workplace.write("closed.yaml", CLOSED);
    workplace.forebay(&format!(
        "simulate {SERVERS} --workload-spec closed.yaml --trace-output trace --results-path run.json"
    ));
    agree(&workplace, "trace.csv", "run.json");

    // A recorded trace may have any numbers.
    let mut rows = read_rows(workplace.read("trace.csv").as_bytes(), "trace.csv").unwrap();
    assert!(rows.iter().any(|row| row.round_index > 0), "no conversation goes on");
    rows.iter_mut()
        .for_each(|row| row.request_id = 1000 - 7 * row.request_id);
    write_rows(File::create(workplace.path("other.csv")).unwrap(), &rows).unwrap();
    for mode in ["fixed", "closed-loop"] {
        workplace.forebay(&format!(
            "replay {SERVERS} --trace-header trace.yaml --trace-data other.csv --session-mode {mode} \
             --results-path {mode}.json --trace-output {mode}"
        ));
        agree(&workplace, "other.csv", &format!("{mode}.json"));
        agree(&workplace, &format!("{mode}.csv"), &format!("{mode}.json"));
    }
}

#[test]
fn calibrate_says_how_many_of_the_requests_it_could_compare() {
    let workplace = Workplace::new();
    workplace.forebay(&format!(
        "simulate {SERVERS} --rate 30 --num-requests 30 --trace-output trace --results-path run.json"
    ));
    let results: Vec<Value> = serde_json::from_str(&workplace.read("run.json")).unwrap();
    workplace.write("run.json", &serde_json::to_string(&results[..8]).unwrap());
    let mut rows = read_rows(workplace.read("trace.csv").as_bytes(), "trace.csv").unwrap();
    rows[29].status = Status::Error;
    write_rows(File::create(workplace.path("trace.csv")).unwrap(), &rows).unwrap();

    let told = workplace.forebay(
        "calibrate --trace-header trace.yaml --trace-data trace.csv --sim-results run.json --report report.json \
         --warmup-requests 3",
    );

    assert!(
        told.starts_with("matched requests: 5 of 30; 3 were sent to warm up; 1 had no answer\n"),
        "{told}"
    );
}

#[test]
fn calibrate_says_why_there_is_nothing_to_compare() {
    let workplace = Workplace::new();
    workplace.forebay(&format!(
        "simulate {SERVERS} --rate 30 --num-requests 5 --trace-output trace --results-path run.json"
    ));
    let mut rows = read_rows(workplace.read("trace.csv").as_bytes(), "trace.csv").unwrap();
    rows.iter_mut().for_each(|row| row.status = Status::Error);
    write_rows(File::create(workplace.path("failed.csv")).unwrap(), &rows).unwrap();
    workplace.write("none.json", "[]");
    let calibrate = "calibrate --trace-header trace.yaml --report report.json";

    for (flags, why) in [
        (
            "--trace-data failed.csv --sim-results run.json",
            "no request of failed.csv was answered",
        ),
        (
            "--trace-data trace.csv --sim-results run.json --warmup-requests 5",
            "every request of trace.csv that was answered was one of the 5 to warm up",
        ),
        (
            "--trace-data trace.csv --sim-results none.json",
            "trace.csv and none.json do not belong together",
        ),
        (
            "--trace-data trace.csv --sim-results run.json --sim-metrics run.json",
            "`--sim-metrics`: run.json has neither `settings` nor `cache_hit_rate`",
        ),
    ] {
        let told = workplace.refused(&format!("{calibrate} {flags}"));
        assert!(told.contains(why), "{told}");
    }
    assert!(!workplace.path("report.json").exists());
}

#[test]
fn a_trace_that_cannot_be_replayed_is_refused_with_its_line() {
    let workplace = Workplace::new();
    workplace.forebay(&format!("simulate {SERVERS} --num-requests 5 --trace-output trace"));
    let csv = workplace.read("trace.csv");
    let lines: Vec<&str> = csv.lines().collect();
    let replay = format!("replay {SERVERS} --trace-header trace.yaml --trace-data bad.csv");

    workplace.write("bad.csv", &[lines[0], lines[1], lines[2], lines[1]].join("\n"));
    let told = workplace.refused(&replay);
    assert!(
        told.contains("bad.csv:4: column `request_id` is `0`; line 2 has that number already"),
        "{told}"
    );

    workplace.write("bad.csv", lines[0]);
    let told = workplace.refused(&replay);
    assert!(told.contains("bad.csv:1: no request follows"), "{told}");
}

#[test]
fn a_trace_tells_what_it_was_made_with_and_calibrate_compares_it() {
    let workplace = Workplace::new();
    workplace.forebay(&format!(
        "simulate {SERVERS} --rate 30 --num-requests 30 --trace-output trace --results-path run.json --metrics-path \
         metrics.json"
    ));
    let compared = |results: &str, metrics: &str| {
        workplace.forebay(&format!(
            "calibrate --trace-header trace.yaml --trace-data trace.csv --sim-results {results} --sim-metrics {metrics} \
             --report report.json --force"
        ));
        let report: Value = serde_json::from_str(&workplace.read("report.json")).unwrap();
        report["config_match"].clone()
    };
    let header = workplace.read("trace.yaml");
    let header = Header::read(&header, &SourceName::Flag).unwrap();

    let spec = header.workload_spec.unwrap();
    workplace.write("again.yaml", spec.as_str().unwrap());
    workplace.forebay(&format!(
        "simulate {SERVERS} --workload-spec again.yaml --results-path again.json"
    ));
    assert_eq!(workplace.read("again.json"), workplace.read("run.json"));
    assert_eq!(
        header.server.unwrap(),
        ServerNote {
            kind: Some("simulated".to_owned()),
            model: Some("qwen/qwen3-14b".to_owned()),
            tensor_parallel: Some(1),
            max_num_seqs: Some(8),
            block_size: Some(16),
            gpu_memory_utilization: Some(0.9),
            max_model_len: Some(19_200),
        }
    );
    let all = [
        "model=qwen/qwen3-14b",
        "tp=1",
        "max_num_seqs=8",
        "block_size_in_tokens=16",
        "gpu_memory_utilization=0.9",
        "max_model_len=19200",
    ];
    assert_eq!(compared("run.json", "metrics.json"), json!({ "matched": all }));

    let other = workplace.document(
        "replay --model qwen/qwen3-14b --num-instances 3 --max-num-seqs 4 --total-kv-blocks 1200 --trace-header trace.yaml \
         --trace-data trace.csv --results-path other.json --trace-output other",
    );
    workplace.write("document.json", &other.to_string());
    assert_eq!(
        compared("other.json", "document.json")["mismatched"],
        json!(["max_num_seqs=4 (the trace says 8)"])
    );
    let other = Header::read(&workplace.read("other.yaml"), &SourceName::Flag).unwrap();
    assert_eq!(other.server.unwrap().max_num_seqs, Some(4));
    assert_eq!(other.workload_spec, Some(spec));
}
