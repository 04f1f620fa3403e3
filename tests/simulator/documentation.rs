//! What the documentation tells people to type.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use forebay::engine::Engine;
use forebay::engine::config::{LoadOptions, SourceName, load};
use forebay::engine::journal::{Answer, Call, Entry, FORMAT, Header};
use forebay::engine::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use forebay::engine::request::{Kind, Request, RequestId};
use forebay::engine::scheduling::{Explain, NoProbe};
use forebay::engine::seed::Seed;
use forebay::engine::time::Timestamp;

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
fn runnable<'d>(document: &'d str) -> Vec<&'d str> {
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
    for (name, least) in [("docs/simulator.md", 8), ("README.md", 1)] {
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
        workplace.write("picks.jsonl", &journal());
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
    let decisions = workplace.read("decisions.jsonl");
    let shown = blocks(&text, "json");

    assert_eq!(shown.len(), 2);
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

#[test]
fn a_journal_is_agreed_with_by_its_own_configuration() {
    let workplace = Workplace::new();
    workplace.write("picks.jsonl", &journal());
    let same = workplace.document("replay --journal picks.jsonl");
    let other = workplace.document("replay --journal picks.jsonl --config examples/configs/minimal.yaml");

    assert_eq!((&same["requests"], &same["agreement"]), (&20.into(), &1.0.into()));
    assert!(other["other_endpoint"].as_u64() > Some(0), "{other}");
}

/// The journal of a picker that gave twenty requests to three endpoints in turn.
fn journal() -> String {
    let config = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: round-robin-picker\n\
                  schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: round-robin-picker\n";
    let options = LoadOptions {
        allow_experimental_plugins: true,
        ..LoadOptions::default()
    };
    let plan = load(config, &SourceName::Flag, &options).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(7), Box::new(NoProbe), Explain::Best(0));
    let header = Header {
        format: FORMAT,
        seed: 7,
        config: config.to_owned(),
    };
    let mut text = serde_json::to_vec(&header).unwrap();
    let mut note = |at: Timestamp, call: Call| {
        text.push(b'\n');
        serde_json::to_writer(&mut text, &Entry { at, call }).unwrap();
    };
    let changes: Vec<PoolChange> = (0..3).flat_map(endpoint).collect();
    engine.pool_changed(Timestamp::ZERO, changes.clone());
    note(Timestamp::ZERO, Call::Pool { changes });
    for number in 0..20 {
        let at = Timestamp::from_nanos(number * 1_000_000);
        let (id, request) = (RequestId(number), Request::unknown(Kind::Inference));
        engine.submit(at, id, request.clone());
        note(
            at,
            Call::Submit {
                id,
                request: Box::new(request),
            },
        );
        let answers = std::iter::from_fn(|| engine.poll(at))
            .map(|effect| Answer::from(&effect))
            .collect();
        note(at, Call::Poll { answers });
    }
    text.flush().unwrap();
    String::from_utf8(text).unwrap() + "\n"
}

fn endpoint(number: u8) -> [PoolChange; 2] {
    let id = EndpointId::new("default", &format!("pod-{number}"));
    let endpoint = Endpoint {
        id: id.clone(),
        name: format!("pod-{number}").into(),
        address: [10, 0, 0, number].into(),
        port: 8000,
        labels: Default::default(),
        rank: 0,
    };
    let update = SignalUpdate::default();
    [PoolChange::Upsert(Arc::new(endpoint)), PoolChange::Report(id, update)]
}
