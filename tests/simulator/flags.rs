//! Values of flags that cannot be, and flags that can change nothing: each gets a word.

use std::process::Output;

use super::Workplace;

/// A small run.
const SMALL: &str = "simulate --model qwen/qwen3-14b --num-instances 2 --rate 40 --num-requests 12 --output-tokens 8 \
    --output-tokens-stdev 2";

fn warnings(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_flag_that_can_change_nothing_is_told_of_with_the_reason() {
    let workplace = Workplace::new();
    let held = "--flow-control --saturation-detector concurrency --max-concurrency 2";
    let queue = "without `--flow-control`";
    for (flags, flag, why) in [
        ("--max-concurrency 1", "max-concurrency", queue),
        ("--saturation-detector concurrency", "saturation-detector", queue),
        ("--queue-depth-threshold 1", "queue-depth-threshold", queue),
        ("--kv-cache-util-threshold 0.1", "kv-cache-util-threshold", queue),
        ("--dispatch-order fifo", "dispatch-order", queue),
        ("--fairness-policy round-robin", "fairness-policy", queue),
        ("--max-gateway-queue-depth 1", "max-gateway-queue-depth", queue),
        ("--per-band-capacity 1", "per-band-capacity", queue),
        ("--request-ttl 1s", "request-ttl", queue),
        ("--usage-limit-threshold 0.5", "usage-limit-threshold", queue),
        ("--queue-shedding", "queue-shedding", queue),
        ("--log warn", "log", "because a simulation writes no log"),
        (
            "--enable-expert-parallel",
            "enable-expert-parallel",
            "no latency model here",
        ),
        (
            "--kv-transfer-bandwidth 5",
            "kv-transfer-bandwidth",
            "because a second tier of KV cache is not simulated",
        ),
        (
            "--pd-prefix-threshold 5",
            "pd-prefix-threshold",
            "because prefill and decode on different servers are not simulated",
        ),
        ("--in-flight-eviction", "in-flight-eviction", queue),
        ("--slo-targets critical=5", "slo-targets", queue),
        (
            "--flow-control --max-concurrency 1",
            "max-concurrency",
            "without `--saturation-detector concurrency`",
        ),
        (
            "--flow-control --saturation-detector never --request-ttl 5s",
            "request-ttl",
            "finds room for every request",
        ),
        (
            &format!("{held} --queue-depth-threshold 1"),
            "queue-depth-threshold",
            "with `--saturation-detector",
        ),
        (
            &format!("{held} --queue-shedding"),
            "queue-shedding",
            "a queue without a limit is never full",
        ),
        (
            &format!("{held} --slo-targets critical=5"),
            "slo-targets",
            "without `--dispatch-order slo-deadline`",
        ),
        (
            &format!("{held} --fairness-policy round-robin"),
            "fairness-policy round-robin",
            "of one tenant",
        ),
        (
            &format!("{held} --in-flight-eviction"),
            "in-flight-eviction",
            "below priority 0",
        ),
        ("--dispatch-tick-interval 5s", "dispatch-tick-interval", "not at ticks"),
        (
            "--cache-signal-delay 5s",
            "cache-signal-delay",
            "no policy asks what is in the KV caches",
        ),
        (
            "--allow-experimental-plugins",
            "allow-experimental-plugins",
            "without `--config`",
        ),
        ("--moe-comm-backend pplx", "moe-comm-backend", "without `--dp` above 1"),
        (
            "--total-kv-blocks 5000 --gpu-memory-utilization 0.5",
            "gpu-memory-utilization",
            "beside `--total-kv-blocks`",
        ),
        (
            "--latency-model linear --total-kv-blocks 5000 --tp 2",
            "tp",
            "with `--latency-model linear` and `--total-kv-blocks`",
        ),
        (
            "--long-prefill-token-threshold 9000",
            "long-prefill-token-threshold",
            "below `--max-num-batched-tokens`",
        ),
        ("--trace-level decisions", "trace-level", "by itself"),
        (
            "--trace-level none --summarize-trace",
            "trace-level",
            "asks for the decisions",
        ),
        ("--counterfactual-k 3", "counterfactual-k", "without `--decision-trace`"),
        ("--jobs 2", "jobs", "on a single run"),
        ("--prompt-tokens 9000", "prompt-tokens", "most will have 7000 tokens"),
    ] {
        let output = workplace.try_forebay(&format!("{SMALL} {flags}"));

        let told = warnings(&output);
        assert_eq!(output.status.code(), Some(0), "{flags}: {told}");
        let line = told
            .lines()
            .find(|line| line.starts_with(&format!("warning: `--{flag}`")));
        assert!(line.is_some_and(|line| line.contains(why)), "{flags}: {told}");
    }
}

#[test]
fn values_that_ask_for_nothing_are_taken_without_a_word() {
    let workplace = Workplace::new();
    for flags in [
        "",
        "--saturation-detector never --max-gateway-queue-depth 0 --per-band-capacity 0 --request-ttl 0",
        "--usage-limit-threshold 1 --dispatch-tick-interval 1000 --queue-shedding=false",
        "--tp 0 --long-prefill-token-threshold 0 --cache-signal-delay 0 --counterfactual-k 0",
        "--flow-control --saturation-detector concurrency --max-concurrency 2 --max-gateway-queue-depth 90",
    ] {
        let output = workplace.try_forebay(&format!("{SMALL} {flags}"));

        assert_eq!(
            (output.status.code(), warnings(&output)),
            (Some(0), String::new()),
            "{flags}"
        );
    }
}

#[test]
fn values_out_of_range_are_refused_by_the_name_of_their_flag() {
    let workplace = Workplace::new();
    for (flags, words) in [
        ("--rate 1e30", ["--rate", "at most 1000000"]),
        ("--horizon 0", ["--horizon", "a time above 0"]),
        ("--dp 0", ["--dp", "1 or more"]),
        ("--num-instances 0", ["--num-instances", "1 or more"]),
        (
            "--gpu-memory-utilization -1",
            ["--gpu-memory-utilization", "above 0 and up to 1"],
        ),
        ("--prompt-tokens-stdev -5", ["--prompt-tokens-stdev", "0 or more"]),
        ("--prompt-tokens NaN", ["--prompt-tokens", "0 or more"]),
        (
            "--output-tokens-min 90 --output-tokens-max 5",
            ["--output-tokens-min", "above `--output-tokens-max`"],
        ),
        (
            "--workload chatbot --prompt-tokens-max 5",
            ["--prompt-tokens-max", "`--workload distribution`"],
        ),
        (
            "--detectors all --saturation-final-window 0",
            ["--saturation-final-window", "above 0"],
        ),
        (
            "--detectors all --saturation-final-window -4",
            ["--saturation-final-window", "above 0"],
        ),
        (
            "--saturation-final-window 10s",
            ["--saturation-final-window", "needs `--detectors`"],
        ),
        (
            "--total-kv-blocks 4000000000",
            ["--total-kv-blocks", "at most can be simulated"],
        ),
        (
            "--show-config --report run.html",
            ["--show-config", "`--report` would not be written"],
        ),
        (
            "--instance-labels role=decode",
            ["--instance-labels", "`0..3: key=value"],
        ),
        ("--fault 7:dead", ["--fault", "`1: dead 10s..30s`"]),
    ] {
        let told = workplace.refused(&format!("{SMALL} {flags}"));
        assert!(words.iter().all(|word| told.contains(word)), "{flags}: {told}");
    }
    for (words, parts) in [
        (
            "simulate --model qwen/qwen3-14b --concurrency 2 --arrival poisson",
            ["--arrival", "--concurrency"],
        ),
        ("convert preset --name chatbot --rate 0", ["--rate", "above 0"]),
        ("convert preset --name chatbot --rate -3", ["--rate", "above 0"]),
        (
            "convert preset --name chatbot --num-requests 0",
            ["--num-requests", "1 or more"],
        ),
        (
            "calibrate --trace-header h --trace-data d --sim-results s --report r --ttft-mape-threshold 15",
            ["--ttft-mape-threshold", "0.15 stands for 15 %"],
        ),
        (
            "calibrate --trace-header h --trace-data d --sim-results s --report r --network-bandwidth-mbps -4",
            ["--network-bandwidth-mbps", "0 or more"],
        ),
        ("model-server --max-num-seqs 0", ["--max-num-seqs", "1 or more"]),
        (
            "observe --server-url http://127.0.0.1:1 --model m --trace-header h --trace-data d --rate 1 --rtt-ms -5",
            ["--rtt-ms", "0 or more"],
        ),
        (
            "observe --server-url http://127.0.0.1:1 --model m --trace-header h --trace-data d --rate 9 --num-requests 5 \
             --warmup-requests 5",
            ["--warmup-requests", "none would be recorded"],
        ),
    ] {
        let told = workplace.refused(words);
        assert!(parts.iter().all(|part| told.contains(part)), "{words}: {told}");
    }
    for (words, part) in [
        (
            "model-server --port 0 --kv-blocks 4000000000",
            "`--kv-blocks` is 4000000000",
        ),
        ("demo --overload --load-time 0s", "`--load-time` is 0ns"),
    ] {
        let output = workplace.try_forebay(words);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(warnings(&output).contains(part), "{words}: {}", warnings(&output));
    }
}

/// Only endpoints that have the labels are left by the filters of this configuration.
#[test]
fn filters_by_label_find_the_labels_of_simulated_instances() {
    let workplace = Workplace::new();
    let run = "simulate --model qwen/qwen3-14b --rate 20 --num-requests 20 --config examples/configs/decode-pool.yaml";
    let served_by = |document: &serde_json::Value| -> Vec<u64> {
        let instances = document["per_instance"].as_array().unwrap().iter();
        let completed = instances.map(|instance| instance["requests"]["completed"].as_u64().unwrap());
        completed.collect()
    };

    let labels = [
        "0: example.com/gpu=h100,llm-d.ai/role=prefill",
        "1..2: example.com/gpu=h100",
    ];
    let mut command = workplace.command(super::FOREBAY);
    command
        .args(run.split_whitespace())
        .args(["--num-instances", "4", "--output", "json"]);
    labels.iter().for_each(|labels| {
        command.args(["--instance-labels", labels]);
    });
    let labelled = super::said(run, command.output().unwrap());
    let served = served_by(&serde_json::from_str(&labelled).unwrap());

    assert_eq!((served[0], served[3], served[1] + served[2]), (0, 0, 20), "{served:?}");

    workplace.write(
        "endpoints.yaml",
        "endpoints:\n- {name: a, address: 127.0.0.1, port: \"8001\", labels: {example.com/gpu: l4}}\n\
         - {name: b, address: 127.0.0.1, port: \"8002\", labels: {example.com/gpu: h200}}\n",
    );
    let served = served_by(&workplace.document(&format!("{run} --endpoints-file endpoints.yaml")));

    assert_eq!(served, [0, 20]);
}

/// What a live picker would know after 50 ms, the gateway of the simulation knows then, too.
#[test]
fn instances_that_fail_are_seen_in_the_figures_of_a_run() {
    let workplace = Workplace::new();
    let run = |faults: &[&str]| -> serde_json::Value {
        let mut command = workplace.command(super::FOREBAY);
        command.args("simulate --model qwen/qwen3-14b --num-instances 4 --rate 40 --num-requests 400".split(' '));
        command
            .args("--snapshot-refresh-interval 50ms --output json --config examples/configs/default.yaml".split(' '));
        faults.iter().for_each(|fault| {
            command.args(["--fault", fault]);
        });
        serde_json::from_str(&super::said("simulate", command.output().unwrap())).unwrap()
    };
    let failed = |document: &serde_json::Value| document["anomalies"]["failed"].as_u64().unwrap();

    let well = run(&[]);
    let dead = run(&["1: dead 2s..5s"]);
    let failing = run(&["0..1: failing 2s.."]);

    assert_eq!(failed(&well), 0);
    assert!((1..100).contains(&failed(&dead)), "{}", failed(&dead));
    // Five of each that is ejected, and those that try it again.
    assert!((5..40).contains(&failed(&failing)), "{}", failed(&failing));
    for document in [&well, &dead, &failing] {
        let requests = document["metrics"]["requests"].as_object().unwrap();
        assert_eq!(requests.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 400);
    }
    assert_eq!(dead["settings"]["faults"][0]["kind"], "dead");
}

#[test]
fn a_run_that_can_serve_nothing_fails_and_says_why() {
    let workplace = Workplace::new();
    let run = "--model qwen/qwen3-14b --rate 20 --num-requests 20 --num-instances 2";
    let filtered = format!("{run} --config examples/configs/decode-pool.yaml");

    let output = workplace.try_forebay(&format!("simulate {filtered}"));
    let told = warnings(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("no endpoint was left for 20 of 20 requests"), "{told}");
    assert!(
        told.contains("need `--instance-labels` or `--endpoints-file`"),
        "{told}"
    );
    assert!(
        told.contains("error: no request could be served: 20 routing-rejected"),
        "{told}"
    );

    let compared = workplace.try_forebay(&format!("simulate {filtered} --seeds 1..2"));
    assert_eq!(compared.status.code(), Some(1), "{}", warnings(&compared));

    // That nothing was completed may be what was asked.
    let rejected = workplace.try_forebay(&format!("simulate {run} --admission-policy reject-all"));
    assert_eq!(rejected.status.code(), Some(0));
    assert_eq!(warnings(&rejected), "warning: no request was completed: 20 rejected\n");
}

/// Figures of the reference simulator's own golden experiments.
#[test]
fn golden_experiments_of_the_reference_come_out_the_same() {
    let workplace = Workplace::new();
    workplace.write(
        "17.yaml",
        "version: \"2\"\nseed: 42\nnum_requests: 5100\ninference_perf:\n  \
         stages: [{rate: 2.5, duration: 600}, {rate: 6, duration: 600}]\n  \
         shared_prefix: {num_unique_system_prompts: 9, num_users_per_system_prompt: 5, system_prompt_len: 100,\n    \
         question_len: 447, output_len: 248, enable_multi_turn_chat: true}\n",
    );
    let told = workplace.forebay(
        "simulate --model llama-4-scout-17b-16e-instruct-fp8-dynamic --hardware H100 --tp 2 --max-num-seqs 128 \
         --total-kv-blocks 8253 --workload-spec 17.yaml",
    );

    for figure in [
        "\"completed_requests\": 5100,",
        "\"total_input_tokens\": 2789700,",
        "\"total_output_tokens\": 1264800,",
        "\"ttft_mean_ms\": 55.44748529411765,",
        "\"ttft_p99_ms\": 67.75814,",
        "\"e2e_mean_ms\": 6467.512167254902,",
        "\"itl_mean_ms\": 25.956630291339206,",
    ] {
        assert!(told.contains(figure), "{figure}\n{told}");
    }
}
