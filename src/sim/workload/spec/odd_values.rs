//! What becomes of odd values in a workload file: every field of every part is given some of each kind, and a snapshot says
//! what was found. A line that ends in `ok` takes the value as it is written.
//!
//! The fields are those that serde knows, so that none is forgotten.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::engine::config::{Finding, SourceName};

/// Of each kind of value, some that nobody ought to write.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(0.5),
        json!(80),
        json!(9_000_000_000_000_000_000_u64),
        json!(""),
        json!("80%"),
        json!("nobody"),
        json!("10s"),
        json!([]),
        json!([5]),
        json!({}),
        json!({"nobody": 5}),
    ]
}

/// The fields of a part, as serde names them where it finds another one.
fn fields_of<T: DeserializeOwned>() -> Vec<String> {
    let error = serde_json::from_value::<T>(json!({"?": 0}))
        .err()
        .expect("no part has such a field");
    let error = error.to_string();
    let names = error.split('`').skip(3).step_by(2);
    let names: Vec<_> = names.map(str::to_owned).collect();
    assert!(!names.is_empty(), "{error}");
    names
}

/// A part of a file: where it stands, its fields, what else it needs, and the file around it.
struct Part {
    name: &'static str,
    fields: Vec<String>,
    required: Value,
    around: fn(Value) -> Value,
}

fn part<T: DeserializeOwned>(name: &'static str, required: Value, around: fn(Value) -> Value) -> Part {
    Part {
        name,
        fields: fields_of::<T>(),
        required,
        around,
    }
}

fn lengths() -> Value {
    json!({"type": "constant", "params": {"value": 10}})
}

/// A client that is complete, with more fields.
fn client_with(more: Value) -> Value {
    let mut client = json!({
        "rate_fraction": 1,
        "arrival": {"process": "poisson"},
        "input_distribution": lengths(),
        "output_distribution": lengths(),
    });
    extend(&mut client, more);
    client
}

fn extend(object: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("{more}") };
    object.as_object_mut().expect("it is an object").extend(more);
}

fn of_client(client: Value) -> Value {
    let mut whole = json!({"version": "2", "aggregate_rate": 1});
    whole["clients"] = Value::Array(vec![client]);
    whole
}

fn of_cohort(cohort: Value) -> Value {
    let mut whole = json!({"version": "2", "aggregate_rate": 1});
    whole["cohorts"] = Value::Array(vec![cohort]);
    whole
}

fn parts() -> Vec<Part> {
    let cohort = || client_with(json!({"population": 2}));
    let perf = || json!({"stages": [{"rate": 1, "duration": 1}], "shared_prefix": shared()});
    fn shared() -> Value {
        json!({"num_unique_system_prompts": 1, "num_users_per_system_prompt": 1, "system_prompt_len": 1, "question_len": 1,
            "output_len": 1})
    }
    vec![
        part::<WorkloadSpec>("", of_client(client_with(json!({}))), |whole| whole),
        part::<GoodputTarget>("goodput_slo_targets.batch", json!({}), |target| {
            let mut whole = of_client(client_with(json!({})));
            extend(&mut whole, json!({"goodput_slo_targets": {"batch": target}}));
            whole
        }),
        part::<ClientSpec>("clients[]", client_with(json!({})), of_client),
        part::<ClientSpec>(
            "clients[] of users",
            json!({"concurrency": 2, "input_distribution": lengths(), "output_distribution": lengths()}),
            of_client,
        ),
        part::<ArrivalSpec>("clients[].arrival", json!({"process": "gamma"}), |arrival| {
            of_client(client_with(json!({"arrival": arrival})))
        }),
        part::<DistributionSpec>("clients[].input_distribution", lengths(), |lengths| {
            of_client(client_with(json!({"input_distribution": lengths})))
        }),
        part::<NetworkSpec>("clients[].network", json!({}), |network| {
            of_client(client_with(json!({"network": network})))
        }),
        part::<LifecycleSpec>("clients[].lifecycle", json!({}), |lifecycle| {
            of_client(client_with(json!({"lifecycle": lifecycle})))
        }),
        part::<WindowSpec>(
            "clients[].lifecycle.windows[]",
            json!({"start_us": 0, "end_us": 9}),
            |window| of_client(client_with(json!({"lifecycle": {"windows": [window]}}))),
        ),
        part::<MultimodalSpec>(
            "clients[].multimodal",
            json!({"image_distribution": lengths()}),
            |media| of_client(client_with(json!({"multimodal": media}))),
        ),
        part::<ReasoningSpec>("clients[].reasoning", json!({}), |reasoning| {
            of_client(client_with(json!({"reasoning": reasoning})))
        }),
        part::<MultiTurnSpec>("clients[].reasoning.multi_turn", json!({"max_rounds": 3}), |turns| {
            of_client(client_with(json!({"reasoning": {"multi_turn": turns}})))
        }),
        part::<CohortSpec>("cohorts[]", cohort(), of_cohort),
        part::<DiurnalSpec>(
            "cohorts[].diurnal",
            json!({"peak_hour": 1, "peak_to_trough_ratio": 2}),
            |diurnal| of_cohort(client_with(json!({"population": 2, "diurnal": diurnal}))),
        ),
        part::<SpikeSpec>(
            "cohorts[].spike",
            json!({"start_time_us": 0, "duration_us": 9}),
            |spike| of_cohort(client_with(json!({"population": 2, "spike": spike}))),
        ),
        part::<DrainSpec>(
            "cohorts[].drain",
            json!({"start_time_us": 0, "ramp_duration_us": 9}),
            |drain| of_cohort(client_with(json!({"population": 2, "drain": drain}))),
        ),
        part::<InferencePerf>(
            "inference_perf",
            perf(),
            |perf| json!({"version": "2", "inference_perf": perf}),
        ),
        part::<StageSpec>(
            "inference_perf.stages[]",
            json!({"rate": 1, "duration": 1}),
            |stage| json!({"version": "2", "inference_perf": {"stages": [stage], "shared_prefix": shared()}}),
        ),
        part::<SharedPrefixSpec>(
            "inference_perf.shared_prefix",
            shared(),
            |prefix| json!({"version": "2", "inference_perf": {"stages": [{"rate": 1, "duration": 1}], "shared_prefix": prefix}}),
        ),
    ]
}

/// What is found in a file, without its name and line, which are the same for all.
fn found(whole: &Value) -> String {
    let told = |findings: &[Finding]| {
        let told = findings.iter().map(|finding| {
            let text = finding.to_string();
            text.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or(text)
        });
        told.collect::<Vec<_>>().join(" | ")
    };
    match load(&whole.to_string(), &SourceName::Flag) {
        Ok(loaded) if loaded.warnings.is_empty() => "ok".to_owned(),
        Ok(loaded) => told(&loaded.warnings),
        Err(errors) => told(errors.findings()),
    }
}

#[test]
fn every_field_of_a_workload_has_an_answer_to_odd_values() {
    let mut text = String::new();
    for part in parts() {
        let usual = found(&(part.around)(part.required.clone()));
        assert!(!usual.contains("error"), "{}: {usual}", part.name);
        writeln!(text, "{}\n  as it is: {usual}", part.name).unwrap();
        for field in &part.fields {
            writeln!(text, "{}.{field}", part.name).unwrap();
            let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for value in odd_values() {
                let mut fields = part.required.clone();
                fields[field] = value.clone();
                let answer = found(&(part.around)(fields));
                values.entry(answer).or_default().push(value.to_string());
            }
            let mut lines: Vec<_> = values.into_iter().collect();
            lines.sort_by(|(a, _), (b, _)| (a != "ok", a).cmp(&(b != "ok", b)));
            for (answer, values) in lines {
                writeln!(text, "  {}: {answer}", values.join(", ")).unwrap();
            }
        }
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root.join("tests/fixtures/workload"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("odd-values", text));
}
