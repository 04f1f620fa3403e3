//! What the documentation tells people to type.

use std::path::Path;

use super::{ROOT, Workplace};

/// The commands that need nothing but files.
const COMMANDS: [&str; 6] = ["simulate", "replay", "compare", "convert", "compose", "calibrate"];

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(name)).unwrap()
}

/// The blocks of a document in a language.
fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let opening = format!("```{language}\n");
    let parts = document.split(&*opening).skip(1);
    parts.map(|part| part.split("```").next().unwrap()).collect()
}

fn is_of_the_simulator(line: &str) -> bool {
    line.strip_prefix("forebay ")
        .is_some_and(|rest| COMMANDS.contains(&rest.split_whitespace().next().unwrap_or("")))
}

/// Blocks of nothing but commands of the simulator, and `cmp`.
fn runnable(document: &str) -> Vec<&str> {
    let runnable = |block: &&str| {
        let lines = block.lines().filter(|line| !line.starts_with(' '));
        lines.clone().any(is_of_the_simulator)
            && lines
                .clone()
                .all(|line| is_of_the_simulator(line) || line.starts_with("cmp "))
    };
    blocks(document, "sh").into_iter().filter(runnable).collect()
}

#[test]
fn every_command_of_the_simulator_that_is_told_in_documents_runs() {
    for (name, least) in [("docs/simulator.md", 8), ("docs/observing.md", 2), ("README.md", 1)] {
        let text = document(name);
        let runnable = runnable(&text);
        let told = blocks(&text, "sh")
            .into_iter()
            .flat_map(str::lines)
            .filter(|line| is_of_the_simulator(line));
        let run = runnable
            .iter()
            .flat_map(|block| block.lines())
            .filter(|line| is_of_the_simulator(line));
        assert_eq!(told.count(), run.count(), "{name} has commands in blocks with others");
        assert!(runnable.len() >= least, "{name}");

        let workplace = Workplace::new();
        // In the place of real servers and a live picker.
        for trace in ["real", "trace", "live"] {
            workplace.forebay(&format!(
                "simulate --latency-model linear --num-requests 20 --rate 10 --trace-output {trace} --journal \
                 {trace}.jsonl"
            ));
        }
        for block in runnable {
            workplace.shell(block);
        }
    }
}

#[test]
fn the_workload_of_the_documentation_runs() {
    let text = document("docs/simulator.md");
    let workplace = Workplace::new();
    workplace.write("workload.yaml", blocks(&text, "yaml")[0]);

    let run = workplace.document("simulate --model qwen/qwen3-14b --num-instances 2 --workload-spec workload.yaml");

    assert_eq!(run["metrics"]["requests"]["completed"], 200);
    assert!(run["sessions"]["sessions"].as_u64() > Some(0));
    assert!(run["per_class"]["batch"]["requests"]["completed"].as_u64() > Some(0));
}

#[test]
fn the_decisions_of_the_documentation_are_those_of_a_run() {
    let text = document("docs/simulator.md");
    let workplace = Workplace::new();
    workplace.forebay(
        "simulate --model qwen/qwen3-14b --num-instances 4 --rate 100 --num-requests 100 --routing-policy weighted \
         --counterfactual-k 1 --decision-trace decisions.jsonl",
    );
    workplace.forebay(
        "simulate --model qwen/qwen3-14b --rate 100 --num-requests 100 --flow-control --saturation-detector concurrency \
         --max-concurrency 10 --request-ttl 500ms --decision-trace refusals.jsonl",
    );
    let decisions = workplace.read("decisions.jsonl") + &workplace.read("refusals.jsonl");
    let shown = blocks(&text, "json");

    assert_eq!(shown.len(), 3);
    for line in shown {
        assert!(decisions.contains(line), "{line}");
    }
}

#[test]
fn every_key_of_the_document_of_a_run_is_explained() {
    let text = document("docs/simulator.md");
    let workplace = Workplace::new();
    workplace.write("workload.yaml", blocks(&text, "yaml")[0]);
    let run = workplace.document(
        "simulate --model qwen/qwen3-14b --num-requests 20 --workload-spec workload.yaml --detectors all \
         --fitness-weights throughput:1 --slo-ttft critical=1s",
    );

    let keys: Vec<&String> = run.as_object().unwrap().keys().collect();
    assert!(keys.len() >= 15, "{keys:?}");
    for key in keys {
        assert!(text.contains(&format!("`{key}`")), "`{key}` is not explained");
    }
}
