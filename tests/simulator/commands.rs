//! What the commands promise: equal runs, clear refusals, and figures that agree with each other.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{Workplace, figure};

/// The examples of the guides, with `forebay simulate` for the program of the reference.
const TOKEN_BUCKET: &str = "simulate --model qwen/qwen3-14b \
    --num-instances 4 --rate 500 --num-requests 2000 \
    --admission-policy token-bucket \
    --token-bucket-capacity 10000 --token-bucket-refill-rate 1000";
const ROUTING: &str = "simulate --model qwen/qwen3-14b \
    --num-instances 4 --rate 100 --num-requests 500 \
    --routing-policy weighted --trace-level decisions --summarize-trace";

/// A small run.
const SMALL: &str = "simulate --model qwen/qwen3-14b --num-instances 2 --rate 40 --arrival poisson --num-requests 40 \
    --output-tokens 32 --output-tokens-stdev 8 --output-tokens-max 64";

#[test]
fn the_token_bucket_of_the_guide_lets_in_what_the_reference_does() {
    let text = Workplace::new().forebay(TOKEN_BUCKET);

    assert!(text.contains("Rejected Requests (Admission): 1882\n"), "{text}");
}

#[test]
fn the_routing_example_of_the_guide_is_the_same_three_times() {
    let workplace = Workplace::new();
    let first = workplace.forebay(ROUTING);

    assert!(
        first.contains("=== Trace Summary ===\nTotal Decisions: 500\n"),
        "{first}"
    );
    assert!(
        first.ends_with("Mean Regret: 0.000000\nMax Regret: 0.000000\n"),
        "{first}"
    );
    assert_eq!(first, workplace.forebay(ROUTING));
    assert_eq!(first, workplace.forebay(ROUTING));
}

#[test]
fn three_requests_take_the_time_that_can_be_worked_out_by_hand() {
    let run = Workplace::new().document(
        "simulate --model qwen/qwen3-14b --rate 10 --num-requests 3 \
         --prompt-tokens 32 --prompt-tokens-min 32 --prompt-tokens-max 32 \
         --output-tokens 3 --output-tokens-min 3 --output-tokens-max 3",
    );
    let figures = &run["metrics"];

    assert_eq!(figures["ttft"]["mean_ms"], 27.899);
    assert_eq!(figures["itl"]["max_ms"], 12.209);
    assert_eq!(figures["e2e"]["mean_ms"], 53.094);
    assert_eq!(figures["duration_s"], 0.352179);
}

#[test]
fn errors_in_a_workload_are_all_told_with_file_and_line() {
    let workplace = Workplace::new();
    workplace.write(
        "bad.yaml",
        "version: \"2\"\naggregate_rate: 5\nnum_requests: 10\nclients:\n- id: a\n  rate_fraction: 1\n  slo_class: urgent\n  \
         arrival: {process: often}\n",
    );
    workplace.write("wrong-key.yaml", "version: \"2\"\nagregate_rate: 5\n");
    let run = |file: &str| format!("simulate --model qwen/qwen3-14b --report out.html --workload-spec {file}");

    let process = workplace.refused(&run("bad.yaml"));
    let key = workplace.refused(&run("wrong-key.yaml"));

    assert!(
        process.contains("bad.yaml:8: error: clients[0].arrival.process"),
        "{process}"
    );
    assert!(key.contains("wrong-key.yaml:2: error"), "{key}");
    workplace.write(
        "bad.yaml",
        "version: \"2\"\naggregate_rate: 5\nnum_requests: 10\nclients:\n- id: a\n  rate_fraction: 1\n  slo_class: urgent\n",
    );
    let all = workplace.refused(&run("bad.yaml"));
    for place in [
        "bad.yaml:7: error: clients[0].slo_class: `urgent` is not known",
        "bad.yaml:5: error: clients[0]: `arrival` is missing",
    ] {
        assert!(all.contains(place), "{all}");
    }
    assert!(!workplace.path("out.html").exists(), "a report of nothing was made");
}

#[test]
fn servers_that_cannot_be_are_refused() {
    let workplace = Workplace::new();
    for (flags, complaint) in [
        ("", "`--model` is missing"),
        ("--model nobody/knows", "unknown model `nobody/knows`"),
        ("--model qwen/qwen3-14b --hardware X9", "unknown hardware `X9`"),
        (
            "--model meta-llama/llama-3.1-70b-instruct --hardware H100 --tp 1",
            "does not fit",
        ),
        ("--model qwen/qwen3-14b --total-kv-blocks 0", "--total-kv-blocks"),
        (
            "--model qwen/qwen3-14b --routing-policy best",
            "round-robin, least-loaded",
        ),
        (
            "--model qwen/qwen3-14b --routing-policy weighted --routing-scorers best:1",
            "`best` is no scorer; the scorers are prefix-affinity",
        ),
    ] {
        let told = workplace.refused(&format!("simulate {flags}"));
        assert!(told.contains(complaint), "`{flags}`: {told}");
    }
}

#[test]
fn a_configuration_takes_the_place_of_every_flag_for_policies() {
    let workplace = Workplace::new();
    for flag in [
        "--routing-policy weighted",
        "--flow-control",
        "--request-ttl 5s",
        "--max-concurrency 3",
    ] {
        let told = workplace.refused(&format!("{SMALL} --config examples/configs/flow-control.yaml {flag}"));
        let name = flag.split_whitespace().next().unwrap();
        assert!(told.contains(&format!("`{name}` and `--config` both say")), "{told}");
    }
}

#[test]
fn the_configuration_that_is_shown_does_what_the_flags_do() {
    let workplace = Workplace::new();
    let flags = "--routing-policy weighted --flow-control --saturation-detector concurrency --max-concurrency 4 \
                 --fairness-policy round-robin";
    workplace.write(
        "shown.yaml",
        &workplace.forebay(&format!("{SMALL} {flags} --show-config")),
    );
    let by_flags = workplace.document(&format!("{SMALL} {flags}"));
    let by_file = workplace.document(&format!("{SMALL} --config shown.yaml --allow-experimental-plugins"));

    assert_eq!(by_flags["per_instance"], by_file["per_instance"]);
    assert!(by_flags["metrics"]["gateway_delay"]["max_ms"].as_f64() > Some(0.0));
}

#[test]
fn a_report_lists_what_ran() {
    let workplace = Workplace::new();
    let run = workplace.document(
        "simulate --model qwen/qwen3-14b --rate 33 --num-requests 20 --admission-policy token-bucket --flow-control \
         --saturation-detector concurrency --max-concurrency 3 --request-ttl 2s --report run.html",
    );
    let page = workplace.read("run.html");

    for (part, name, value, shown) in [
        ("settings", "admission_policy", json!("token-bucket"), "token-bucket"),
        ("settings", "token_bucket_capacity", json!(10_000), "10000"),
        ("settings", "token_bucket_refill_rate", json!(1000), "1000"),
        ("settings", "flow_control", json!(true), "true"),
        ("settings", "saturation_detector", json!("concurrency"), "concurrency"),
        ("settings", "max_concurrency", json!(3), "3"),
        ("settings", "dispatch_order", json!("priority"), "priority"),
        ("settings", "fairness_policy", json!("global-strict"), "global-strict"),
        ("settings", "request_ttl_us", json!(2_000_000), "2000000"),
        ("settings", "queue_shedding", json!(false), "false"),
        ("workload", "rate", json!(33), "33"),
        ("workload", "arrival", json!("constant"), "constant"),
        ("workload", "output_tokens_stdev", json!(256), "256"),
    ] {
        assert_eq!(run[part][name], value, "`{name}`");
        let row = page.split_once(&format!("<dt>{name}</dt><dd>"));
        let (_, rest) = row.unwrap_or_else(|| panic!("the page has no `{name}`"));
        assert!(rest.starts_with(shown), "`{name}`");
    }

    workplace.write(
        "few.yaml",
        "version: \"2\"\naggregate_rate: 5\nnum_requests: 10\nclients:\n- id: a\n  rate_fraction: 1\n  \
         arrival: {process: poisson}\n  input_distribution: {type: constant, params: {value: 10}}\n  \
         output_distribution: {type: constant, params: {value: 10}}\n",
    );
    let by_files = workplace.document(
        "simulate --model qwen/qwen3-14b --workload-spec few.yaml --config examples/configs/flow-control.yaml",
    );
    assert_eq!(by_files["settings"]["config"], "examples/configs/flow-control.yaml");
    assert_eq!(by_files["settings"]["admission_policy"], Value::Null);
    assert_eq!(
        by_files["workload"],
        json!({"workload_spec": "few.yaml", "num_requests": 10})
    );
}

#[test]
fn a_report_that_is_there_is_not_written_over_unless_that_is_wanted() {
    let workplace = Workplace::new();
    workplace.write("run.html", "precious");

    let told = workplace.refused(&format!("{SMALL} --metrics-path run.json --report run.html"));

    assert!(told.contains("run.html is there already; give `--force`"), "{told}");
    assert_eq!(workplace.read("run.html"), "precious");
    assert!(!workplace.path("run.json").exists(), "half of the files were made");
    workplace.forebay(&format!("{SMALL} --report run.html --force"));
    assert!(workplace.read("run.html").starts_with("<!doctype html>"));
}

#[test]
fn a_command_that_is_refused_leaves_what_was_there_even_when_it_may_be_replaced() {
    let workplace = Workplace::new();
    workplace.write("run.html", "precious");

    let told = workplace.refused(&format!(
        "{SMALL} --report run.html --trace-output nowhere/trace --force"
    ));
    let twice = workplace.refused(&format!("{SMALL} --report run.html --metrics-path run.html --force"));

    assert!(told.contains("nowhere/trace.yaml cannot be written"), "{told}");
    assert!(twice.contains("run.html is named for two outputs"), "{twice}");
    assert_eq!(workplace.read("run.html"), "precious");
}

#[test]
fn a_command_that_is_refused_takes_nothing_away_that_it_has_not_made() {
    let workplace = Workplace::new();
    workplace.write("run.json", "precious");
    symlink("/dev/null", workplace.path("device")).unwrap();

    let told = workplace.refused(&format!("{SMALL} --report device --metrics-path run.json"));

    assert!(told.contains("run.json is there already"), "{told}");
    assert!(
        workplace.path("device").symlink_metadata().is_ok(),
        "the device is gone"
    );
}

#[test]
fn flags_that_could_change_nothing_are_refused() {
    let workplace = Workplace::new();
    workplace.write(
        "spec.yaml",
        "version: \"2\"\naggregate_rate: 5\nnum_requests: 10\nclients:\n- {id: a, rate_fraction: 1, arrival: {process: poisson},\n   \
         input_distribution: &length {type: constant, params: {value: 8}}, output_distribution: *length}\n",
    );
    let server = "simulate --model qwen/qwen3-14b";
    workplace.forebay(&format!("{server} --workload-spec spec.yaml"));
    workplace.forebay(&format!("{server} --num-requests 2 --think-time-ms 0"));
    for flags in [
        "--workload-spec spec.yaml --rate 4",
        "--workload-spec spec.yaml --workload chatbot",
        "--workload-spec spec.yaml --prompt-tokens 4",
        "--workload-spec spec.yaml --concurrency 3",
        "--think-time-ms 5",
        "--token-bucket-capacity 5",
        "--routing-scorers queue-depth:1",
    ] {
        let told = workplace.refused(&format!("{server} {flags}"));
        let flag = flags.split(' ').rfind(|word| word.starts_with("--")).unwrap();
        assert!(told.contains(flag), "{flags}: {told}");
    }
}

#[test]
fn flags_of_the_reference_are_taken_unless_they_ask_for_what_is_not_simulated() {
    let workplace = Workplace::new();
    let plain = workplace.forebay(SMALL);
    let neutral = "--log warn --enable-expert-parallel --kv-cpu-blocks 0 --kv-offload-threshold 0.9 --pd-decider never \
                   --prefill-instances 0 --model-autoscaler-interval-us 0";

    assert_eq!(workplace.forebay(&format!("{SMALL} {neutral}")), plain);
    for (flags, why) in [
        ("--kv-cpu-blocks 100", "a second tier of KV cache is not simulated"),
        (
            "--prefill-instances 2",
            "prefill, decode and encode on different servers",
        ),
        ("--model-autoscaler-interval-us 1000", "autoscaling is not simulated"),
    ] {
        let told = workplace.refused(&format!("{SMALL} {flags}"));
        let flag = flags.split(' ').next().unwrap();
        assert!(told.contains(flag) && told.contains(why), "{told}");
    }
}

#[test]
fn switches_may_be_given_with_their_value_as_in_the_reference() {
    let workplace = Workplace::new();
    let held = format!("{SMALL} --saturation-detector concurrency --max-concurrency 1");
    let off = "--flow-control=false --queue-shedding=false --in-flight-eviction=false --lazy-generation=false \
               --summarize-trace=false";

    let (with, without) = (
        workplace.forebay(&format!("{held} --flow-control")),
        workplace.forebay(SMALL),
    );

    assert_ne!(with, without);
    assert_eq!(workplace.forebay(&format!("{held} --flow-control=true")), with);
    assert_eq!(workplace.forebay(&format!("{SMALL} {off}")), without);
    let swept = workplace.document(&format!("{held} --sweep flow-control=true,false"));
    assert_eq!(swept["baseline"], "flow-control=true");
    assert_eq!(swept["others"][0]["name"], "flow-control=false");
}

#[test]
fn a_run_without_requests_and_a_promise_to_nobody_are_warned_of() {
    let workplace = Workplace::new();
    let warned = |flags: &str| {
        let output = workplace.try_forebay(&format!("{SMALL} {flags}"));
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).unwrap()
    };

    assert_eq!(warned("--slo-ttft default=1s"), "");
    assert_eq!(
        warned("--slo-ttft default=1s,ciritcal=1s"),
        "warning: latencies are promised to the SLO class `ciritcal`, of which there was no request\n"
    );
    let told = warned("--horizon 1us");
    assert!(
        told.starts_with("warning: no request came before the run ended"),
        "{told}"
    );
}

#[test]
fn workloads_that_cannot_be_one_are_not_composed() {
    let workplace = Workplace::new();
    let chats = workplace.forebay("convert preset --name chatbot --rate 5 --num-requests 10");
    workplace.write("chats.yaml", &chats);
    workplace.write(
        "urgent.yaml",
        &chats.replace("    arrival:", "    slo_class: critical\n    arrival:"),
    );

    workplace.forebay("compose --from chats.yaml --from chats.yaml");
    let told = workplace.refused("compose --from chats.yaml --from urgent.yaml");

    assert!(
        told.contains("do not go together:\nclients[0]: has no `slo_class` while others have one"),
        "{told}"
    );
}

#[test]
fn what_is_composed_or_converted_to_no_end_is_told_of() {
    let workplace = Workplace::new();
    let chats = workplace.forebay("convert preset --name chatbot --rate 5 --num-requests 10");
    workplace.write("chats.yaml", &chats);
    workplace.write("endless.yaml", &chats.replace("num_requests: 10\n", ""));
    workplace.write("odd.yaml", &chats.replace("rate_fraction: 1.0", "rate_fraction: -1.0"));
    workplace.write("misspelt.yaml", &chats.replace("num_requests", "num_request"));
    let warned = |words: &str| {
        let run = workplace.try_forebay(words);
        assert!(run.status.success(), "{words}: {run:?}");
        String::from_utf8(run.stderr).unwrap()
    };

    assert_eq!(warned("compose --from chats.yaml --from chats.yaml"), "");
    assert_eq!(
        warned("compose --from chats.yaml"),
        "warning: `--from` names one workload; it is printed as it was read. Give another `--from`\n"
    );
    let told = warned("compose --from chats.yaml --from endless.yaml");
    assert!(
        told.starts_with("warning: `num_requests` of workload 1 is left out: workload 2 has none"),
        "{told}"
    );
    assert_eq!(
        warned("convert inference-perf --spec chats.yaml"),
        "warning: chats.yaml has no `inference_perf`; it is printed as it was read\n"
    );
    for (file, word) in [
        ("odd.yaml", "clients[0].rate_fraction: is -1; it must be above zero"),
        (
            "misspelt.yaml",
            "unknown field \"num_request\"; did you mean `num_requests`?",
        ),
        ("nowhere.yaml", "`--from`: cannot read nowhere.yaml"),
    ] {
        let told = workplace.refused(&format!("compose --from chats.yaml --from {file}"));
        assert!(told.contains(word), "{file}: {told}");
    }
}

#[test]
fn requests_that_can_never_fit_are_told_of() {
    let run = Workplace::new().try_forebay(&format!("{SMALL} --total-kv-blocks 1 --output json"));

    let document: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(document["anomalies"]["dropped_unservable"], 40);
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(
        told.starts_with("warning: 40 of 40 requests can never fit into an instance: it has 1 KV blocks of 16 tokens"),
        "{told}"
    );
}

#[test]
fn files_that_are_wrong_are_named() {
    let workplace = Workplace::new();
    workplace.write("bundle.yaml", "admission: {policy: nope}\n");
    workplace.write(
        "bucket.yaml",
        "admission: {policy: token-bucket, token_bucket_capacity: 0}\n",
    );
    workplace.write("gpu.json", "{\"X\": 3}");
    workplace.write("model.json", "{\"hidden_size\": 3}");
    workplace.write("list.yaml", "# Clients\n- a\n- b\n");
    std::fs::write(workplace.path("latin.yaml"), b"version: \"2\"\n# caf\xe9\n").unwrap();
    let server = "simulate --model qwen/qwen3-14b";
    for (flags, words) in [
        (
            "--policy-config bundle.yaml",
            ["bundle.yaml", "`admission.policy`: found `nope`"],
        ),
        (
            "--policy-config bucket.yaml",
            ["bucket.yaml", "`admission.token_bucket_capacity` must be above 0"],
        ),
        (
            "--hardware-config gpu.json --hardware X",
            ["gpu.json", "expected the figures of a GPU"],
        ),
        ("--model-config model.json", ["model.json", "num_hidden_layers"]),
        (
            "--model-config-folder nofolder",
            ["--model-config-folder", "nofolder/config.json"],
        ),
        (
            "--token-bucket-capacity 0",
            ["--token-bucket-capacity", "a number above 0"],
        ),
        (
            "--workload-spec list.yaml",
            ["list.yaml:2", "expected a mapping, found a list"],
        ),
        ("--workload-spec latin.yaml", ["latin.yaml:2", "not in UTF-8"]),
        ("--rate 0", ["--rate", "a number above 0"]),
        ("--rate -1", ["--rate", "a number above 0"]),
        ("--total-kv-blocks -5", ["--total-kv-blocks", "'-5'"]),
        (
            "--kv-cache-util-threshold 2",
            ["--kv-cache-util-threshold", "at most 1"],
        ),
    ] {
        let told = workplace.refused(&format!("{server} {flags}"));
        assert!(words.iter().all(|word| told.contains(word)), "{flags}: {told}");
    }
}

#[test]
fn reject_all_rejects_all() {
    let run = Workplace::new().document(&format!("{SMALL} --admission-policy reject-all"));

    assert_eq!(run["metrics"]["requests"]["completed"], 0);
    assert_eq!(run["metrics"]["requests"]["rejected"], 40);
    assert_eq!(run["trace"]["rejected"], 40);
    assert_eq!(run["metrics"]["ttft"]["count"], 0);
    assert_eq!(run["conservation"]["holds"], true);
}

#[test]
fn how_many_cores_take_part_changes_nothing() {
    let workplace = Workplace::new();
    let sweep = format!("{SMALL} --seeds 1..3 --sweep routing-policy=round-robin,weighted --output json");

    assert_eq!(
        workplace.forebay(&format!("{sweep} --jobs 1")),
        workplace.forebay(&format!("{sweep} --jobs 4"))
    );
}

#[test]
fn sweeps_and_comparisons_have_the_figures_of_single_runs() {
    let workplace = Workplace::new();
    let common = SMALL.split_once(' ').unwrap().1;
    let sweep = workplace.document(&format!(
        "{SMALL} --seeds 3,4 --sweep routing-policy=round-robin,weighted"
    ));
    let comparison: Value = serde_json::from_str(&workplace.shell(&format!(
        "forebay compare --output json --seeds 3,4 --variant 'one: --routing-policy round-robin' \
         --variant 'two: --routing-policy weighted' -- {common}"
    )))
    .unwrap();

    for (variant, policy) in [("one", "round-robin"), ("two", "weighted")] {
        let swept = format!("routing-policy={policy}");
        let runs = [3, 4].map(|seed| workplace.document(&format!("{SMALL} --seed {seed} --routing-policy {policy}")));
        for (metric, pointer) in [
            ("ttft_mean_ms", "/metrics/ttft/mean_ms"),
            ("e2e_p99_ms", "/metrics/e2e/p99_ms"),
            ("tokens_per_sec", "/metrics/tokens_per_sec"),
        ] {
            let single = runs
                .each_ref()
                .map(|run| run.pointer(pointer).and_then(Value::as_f64).unwrap());
            let mean = single.iter().sum::<f64>() / 2.0;
            assert_ne!(single[0], single[1], "seeds make no difference");
            for (from, told) in [
                ("comparison", figure(&comparison, variant, metric)),
                ("sweep", figure(&sweep, &swept, metric)),
            ] {
                // What is printed may be the last bit beside what was added up.
                assert!(
                    (told / mean - 1.0).abs() < 1e-12,
                    "{metric} of {policy}: {from} {told}, runs {mean}"
                );
            }
        }
    }
}

/// A row of the baseline in the document of a comparison.
fn of_baseline<'d>(comparison: &'d Value, metric: &str) -> &'d Value {
    let rows = comparison["baseline_figures"].as_array().unwrap();
    let row = rows.iter().find(|row| row["metric"] == metric);
    row.unwrap_or_else(|| panic!("no `{metric}` in {comparison:#}"))
}

#[test]
fn seeds_of_one_configuration_have_the_spread_of_its_runs() {
    let workplace = Workplace::new();
    workplace.write(
        "two.yaml",
        "version: \"2\"\naggregate_rate: 40\nnum_requests: 40\nclients:\n\
         - {id: a, tenant_id: blue, rate_fraction: 0.5, slo_class: critical, arrival: {process: poisson}, \
            input_distribution: {type: constant, params: {value: 64}}, \
            output_distribution: {type: constant, params: {value: 16}}}\n\
         - {id: b, tenant_id: red, rate_fraction: 0.5, slo_class: batch, arrival: {process: poisson}, \
            input_distribution: {type: constant, params: {value: 64}}, \
            output_distribution: {type: constant, params: {value: 16}}}\n",
    );
    let run = "simulate --model qwen/qwen3-14b --workload-spec two.yaml";

    let document = workplace.document(&format!("{run} --seeds 1..3"));
    let text = workplace.forebay(&format!("{run} --seeds 1..3"));

    let singles = [1, 2, 3].map(|seed| {
        let single = workplace.document(&format!("{run} --seed {seed}"));
        single.pointer("/metrics/ttft/mean_ms").and_then(Value::as_f64).unwrap()
    });
    let row = of_baseline(&document, "ttft_mean_ms");
    let figure = |name: &str| row[name].as_f64().unwrap();
    let least = singles.iter().copied().fold(f64::INFINITY, f64::min);
    let most = singles.iter().copied().fold(0.0, f64::max);
    assert!(
        (figure("mean") - singles.iter().sum::<f64>() / 3.0).abs() < 1e-9,
        "{row}"
    );
    assert!(
        (figure("min") - least).abs() < 1e-9 && (figure("max") - most).abs() < 1e-9,
        "{row}"
    );
    let [low, high] = [0, 1].map(|end| row["mean_interval"][end].as_f64().unwrap());
    assert!(low < figure("mean") && figure("mean") < high, "{row}");
    assert_eq!(document["others"], Value::Array(Vec::new()));
    for metric in ["per_class.critical.ttft_p99_ms", "per_tenant.red.completed_share"] {
        of_baseline(&document, metric);
        assert!(text.contains(metric), "{text}");
    }
    assert!(text.starts_with("=== as given (3 seeds) ==="), "{text}");
}

#[test]
fn one_seed_or_one_value_has_figures_and_no_interval() {
    let workplace = Workplace::new();
    for several in ["--seeds 3", "--sweep rate=10"] {
        let document = workplace.document(&format!("{SMALL} {several}"));
        let row = of_baseline(&document, "ttft_mean_ms");

        assert!(
            row["mean"].as_f64() > Some(0.0) && row["mean_interval"].is_null(),
            "{row}"
        );
        let text = workplace.forebay(&format!("{SMALL} {several}"));
        assert!(text.contains("One seed: no intervals. Run more seeds."), "{text}");
    }
}

#[test]
fn what_is_told_of_one_run_is_refused_of_several() {
    let workplace = Workplace::new();
    for flag in [
        "--trace-level decisions",
        "--summarize-trace",
        "--detectors all",
        "--counterfactual-k 2",
        "--show-config",
        "--report run.html",
    ] {
        let name = flag.split_whitespace().next().unwrap();
        let expected = format!("`{name}` is for a single run, and these are several");
        let told = workplace.refused(&format!("{SMALL} --seeds 1..2 {flag}"));
        assert!(told.contains(&expected), "{told}");
        let flags = SMALL.split_once(' ').unwrap().1;
        let told = workplace.refused_comparison(&["a:", &format!("b: {flag}")], &format!("-- {flags}"));
        assert!(told.contains("configuration `b`") && told.contains(&expected), "{told}");
    }
}

#[test]
fn nobody_who_is_served_is_not_quick() {
    let comparison = "forebay compare --seeds 1..3 --variant 'open:' --variant 'shut: --admission-policy reject-all'";
    let common = "--model qwen/qwen3-14b --num-instances 4 --rate 40 --num-requests 40";
    let workplace = Workplace::new();

    let text = workplace.shell(&format!("{comparison} -- {common}"));
    let document: Value =
        serde_json::from_str(&workplace.shell(&format!("{comparison} --output json -- {common}"))).unwrap();

    let rows = document["others"][0]["differences"].as_array().unwrap();
    for row in rows {
        let metric = row["metric"].as_str().unwrap();
        let is_latency = metric.ends_with("_ms");
        for figure in ["mean", "difference", "percent", "p", "is_significant"] {
            assert_eq!(row[figure].is_null(), is_latency, "{metric}: {figure}");
        }
    }
    for line in text.lines().filter(|line| line.contains("_ms ")) {
        assert!(!line.contains('%') && !line.contains("better"), "{line}");
    }
    assert!(text.contains("a latency where no request was served"), "{text}");
}

#[test]
fn variants_that_make_no_sense_are_found_before_anything_runs() {
    let workplace = Workplace::new();
    let good = "version: \"2\"\naggregate_rate: 5\nnum_requests: 10\nclients:\n- {id: a, rate_fraction: 1, \
                arrival: {process: constant}, input_distribution: {type: constant, params: {value: 64}}, \
                output_distribution: {type: constant, params: {value: 16}}}\n";
    workplace.write("good.yaml", good);
    workplace.write("neg.yaml", &good.replace("rate: 5", "rate: -5"));
    let flags = SMALL.split_once(' ').unwrap().1;
    let common = format!("-- {flags}");
    for (variants, words, complaints) in [
        (
            &["a:", "b:"][..],
            "-- --model nope",
            &["configuration `a`", "unknown model `nope`"][..],
        ),
        (
            &[],
            &format!("no.yaml nor.yaml {common}"),
            &["configuration `no.yaml`", "No such file"],
        ),
        (
            &["a:", "b: --policy-config nofile"],
            &common,
            &["configuration `b`", "`--policy-config`: cannot read nofile"],
        ),
        (
            &["a:", "b: --fitness-weights x"],
            &common,
            &["configuration `b`", "`--fitness-weights`"],
        ),
        (&["a:", "b: --rat 3"], &common, &["configuration `b`", "--rat"]),
        (
            &["a:", "b: --seed 7"],
            &common,
            &["`a` has seed 42, and configuration `b` has 7", "`--seeds`"],
        ),
        (
            &["a:", "a: --rate 3"],
            &common,
            &["configuration `a` is given more than once"],
        ),
        (&["a:", ": --rate 3"], &common, &["has an empty name"]),
        (
            &["a:", "b:"],
            &format!("{common} --seeds 1..3"),
            &["`--seeds` holds for all", "before the `--`"],
        ),
        (
            &["a:", "b:"],
            &format!("{common} --sweep rate=1,2"),
            &["`--sweep` is for `forebay simulate`"],
        ),
        (
            &["a:", "b:"],
            &format!("--sweep rate=1,2 {common}"),
            &["unexpected argument '--sweep'"],
        ),
    ] {
        let told = workplace.refused_comparison(variants, words);
        for complaint in complaints {
            assert!(told.contains(complaint), "{variants:?} {words}: {told}");
        }
    }
    for (sweep, complaints) in [
        (
            "model=nope,nope2",
            &["configuration `model=nope`", "unknown model `nope`"][..],
        ),
        (
            "workload-spec=good.yaml,neg.yaml",
            &["`--sweep` with workload-spec=good.yaml", "cannot be used with"],
        ),
        ("seed=1,2", &["`--sweep seed=1,2`", "`--seeds`"]),
        ("rate=10,fast", &["`--sweep` with rate=fast"]),
        ("rate=10,10", &["`10` more than once"]),
        (
            "rate=10,20 --sweep rate=30",
            &["`--sweep` of `rate` is given more than once"],
        ),
        ("output=json,text", &["`--output` makes no difference to a run"]),
        ("report=a.html,b.html", &["`--report` makes no difference to a run"]),
    ] {
        let told = workplace.refused(&format!("{SMALL} --sweep {sweep}"));
        for complaint in complaints {
            assert!(told.contains(complaint), "{sweep}: {told}");
        }
    }
    let told = workplace.refused("simulate --model qwen/qwen3-14b --sweep workload-spec=good.yaml,neg.yaml");
    assert!(
        told.contains("configuration `workload-spec=neg.yaml`") && told.contains("neg.yaml:2"),
        "{told}"
    );
}

#[test]
fn several_runs_warn_once_and_say_which_of_them_is_meant() {
    let workplace = Workplace::new();
    let output = workplace.try_forebay(&format!(
        "{SMALL} --seeds 1..3 --routing-latency 1s --sweep horizon=500ms,5s"
    ));
    let warned = String::from_utf8(output.stderr).unwrap();

    assert_eq!(output.status.code(), Some(0), "{warned}");
    assert_eq!(warned.lines().count(), 2, "{warned}");
    assert!(
        warned.contains("warning: `horizon=500ms`, seed 1: no request was completed"),
        "{warned}"
    );
    assert!(
        warned.starts_with("warning: `horizon=500ms`: the horizon of 500000 µs is shorter than"),
        "{warned}"
    );
}

#[test]
fn lists_are_swept_with_semicolons_between_them() {
    let document = Workplace::new().document(&format!(
        "{SMALL} --routing-policy weighted --sweep routing-scorers=queue-depth:1;prefix-affinity:3,queue-depth:2"
    ));

    assert_eq!(document["baseline"], "routing-scorers=queue-depth:1");
    assert_eq!(
        document["others"][0]["name"],
        "routing-scorers=prefix-affinity:3,queue-depth:2"
    );
}

#[test]
fn the_help_of_compare_names_no_sweep() {
    let help = Workplace::new().forebay("compare --help");

    assert!(help.contains("--seeds") && help.contains("--jobs"), "{help}");
    assert!(!help.contains("--sweep"), "{help}");
}

#[test]
fn a_journal_is_agreed_with_by_its_own_configuration_and_not_by_another() {
    let workplace = Workplace::new();
    workplace.forebay(&format!("{SMALL} --routing-policy least-loaded --journal picks.jsonl"));
    let same = workplace.document("replay --from-journal picks.jsonl");
    let other = workplace.document("replay --from-journal picks.jsonl --config examples/configs/seed-routing.yaml");

    assert_eq!((&same["requests"], &same["agreement"]), (&40.into(), &1.0.into()));
    assert_eq!(other["requests"], 40);
    assert!(other["other_endpoint"].as_u64() > Some(0), "{other}");
    let told = workplace.forebay("replay --from-journal picks.jsonl");
    assert!(
        told.ends_with("agreement:                    100.00 % of 40 that were answered both times\n"),
        "{told}"
    );
}

#[test]
fn a_journal_tells_what_endpoints_had_cached() {
    let workplace = Workplace::new();
    workplace.forebay(&format!(
        "{SMALL} --prefix-tokens 256 --routing-policy weighted --routing-scorers precise-prefix-cache:3,queue-depth:2 \
         --cache-signal-delay 50000 --journal picks.jsonl"
    ));

    let again = workplace.document("replay --from-journal picks.jsonl");

    assert_eq!((&again["requests"], &again["agreement"]), (&40.into(), &1.0.into()));
}

#[test]
fn a_journal_of_another_format_is_refused_with_a_word_on_what_reads_it() {
    let workplace = Workplace::new();
    workplace.write(
        "old.jsonl",
        "{\"format\":1,\"seed\":7,\"config\":\"\"}\n{\"at\":0,\"call\":\"close\"}\n",
    );

    let told = workplace.refused("replay --from-journal old.jsonl");

    let expected = "old.jsonl:1: the journal has format 1, and this version reads format 2; replay it with the version of \
                    Forebay that wrote it";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_journal_may_lack_the_end_of_its_last_line_and_nothing_else() {
    let workplace = Workplace::new();
    workplace.forebay(&format!("{SMALL} --routing-policy least-loaded --journal picks.jsonl"));
    let journal = workplace.read("picks.jsonl");
    let lines: Vec<&str> = journal.lines().collect();

    workplace.write("cut.jsonl", &journal[..journal.len() - 10]);
    let told = workplace.forebay("replay --from-journal cut.jsonl");
    assert!(told.contains("that were answered both times"), "{told}");

    let with_another = [&lines[..4], &["{}"], &lines[5..]].concat();
    workplace.write("bad.jsonl", &with_another.join("\n"));
    let told = workplace.refused("replay --from-journal bad.jsonl");
    assert!(
        told.contains("bad.jsonl:5: the line is no entry of a journal, and others follow"),
        "{told}"
    );

    workplace.write("begun.jsonl", &lines[..2].join("\n"));
    let told = workplace.forebay("replay --from-journal begun.jsonl");
    assert!(
        told.ends_with("agreement:                    none was answered both times\n"),
        "{told}"
    );
    assert!(workplace.document("replay --from-journal begun.jsonl")["agreement"].is_null());
}

#[test]
fn a_journal_is_given_no_flags_of_simulated_clusters() {
    let workplace = Workplace::new();
    workplace.forebay(&format!("{SMALL} --journal picks.jsonl"));

    for (flag, name) in [
        ("--model qwen/qwen3-14b", "--model"),
        ("--num-instances 2", "--num-instances"),
        ("--report run.html", "--report"),
        ("--session-mode closed-loop", "--session-mode"),
        ("--flow-control", "--flow-control"),
    ] {
        let told = workplace.refused(&format!("replay --from-journal picks.jsonl {flag}"));
        assert!(told.contains(&format!("`{name}` is for a simulated cluster")), "{told}");
    }
    workplace.forebay("replay --from-journal picks.jsonl --seed 3 --output json");
}
