//! Examples for gateways and for what stands around.

use forebay::engine::config::yaml;
use serde_json::{Value, json};

use super::metrics::Known;
use super::monitoring::promtool;
use super::{documents, example, files, list, name_of, repository, text_of};

#[test]
fn examples_are_objects_of_one_namespace() {
    let paths = [
        files("examples/gateways", ".yaml"),
        files("examples/kubernetes", ".yaml"),
    ]
    .concat();
    assert!(paths.len() >= 7);
    for path in paths {
        if path.ends_with("envoy-gateway-values.yaml") {
            continue;
        }
        for object in documents(&path) {
            assert!(
                object["apiVersion"].is_string() && object["kind"].is_string(),
                "{}",
                path.display()
            );
            if object["kind"] != "GatewayClass" {
                assert_eq!(object["metadata"]["namespace"], "inference", "{}", path.display());
            }
        }
    }
}

#[test]
fn routes_lead_from_a_gateway_of_the_example_to_the_pool_of_the_chart() {
    let chart = example("gateway");
    let pool = name_of(chart.of_kind("InferencePool").next().unwrap());
    let mut routes = 0;
    for path in files("examples/gateways", ".yaml") {
        let objects = documents(&path);
        let named = |kind: &str, name: &Value| {
            let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
            assert!(
                of_kind.any(|object| object["metadata"]["name"] == *name),
                "{}: no {kind} {name}",
                path.display()
            );
        };
        for object in &objects {
            if object["kind"] == "HTTPRoute" {
                routes += 1;
                named("Gateway", &object["spec"]["parentRefs"][0]["name"]);
                assert_eq!(object["spec"]["rules"][0]["backendRefs"][0]["name"], pool);
                assert_eq!(object["spec"]["rules"][0]["backendRefs"][0]["kind"], "InferencePool");
            }
            for target in list(&object["spec"]["targetRefs"]) {
                named(target["kind"].as_str().unwrap(), &target["name"]);
            }
        }
    }
    assert_eq!(routes, 4);
}

#[test]
fn the_documentation_leads_to_each_example() {
    let page = text_of("docs/kubernetes.md");
    for folder in ["examples/gateways", "examples/kubernetes"] {
        for path in files(folder, ".yaml") {
            let name = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
            assert!(page.contains(&name), "docs/kubernetes.md does not name {name}");
        }
    }
}

#[test]
fn stand_in_servers_are_those_of_the_pool() {
    let servers = documents(&repository("examples/kubernetes/model-servers.yaml")).remove(0);
    let chart = example("gateway");
    let pool = chart.of_kind("InferencePool").next().unwrap();

    let labels = &servers["spec"]["template"]["metadata"]["labels"];

    assert!(super::selects(&pool["spec"]["selector"]["matchLabels"], labels));
    let port = &super::containers(&servers)[0]["ports"][0]["containerPort"];
    assert_eq!(port, &pool["spec"]["targetPorts"][0]["number"]);
}

/// What the examples of autoscaling ask Prometheus for, as each asks for the release of the examples.
fn demand() -> [(&'static str, String); 2] {
    let scaled = documents(&repository("examples/kubernetes/autoscaling-keda.yaml")).remove(0);
    let keda = scaled["spec"]["triggers"][0]["metadata"]["query"].as_str().unwrap();
    let page = text_of("examples/kubernetes/autoscaling-hpa.yaml");
    // The values of the adapter are a paragraph of the comment.
    let values: String = page
        .lines()
        .skip_while(|line| *line != "#   rules:")
        .take_while(|line| *line != "#")
        .map(|line| format!("{}\n", line.trim_start_matches('#')))
        .collect();
    let (values, _) = yaml::parse(&values).unwrap();
    let adapter = values["rules"]["external"][0]["metricsQuery"].as_str().unwrap();
    let labels = r#"namespace="inference", job="vllm-qwen3-32b-epp""#;
    [
        ("keda", keda.to_owned()),
        ("adapter", adapter.replace("<<.LabelMatchers>>", labels)),
    ]
}

#[test]
fn autoscaling_goes_by_metrics_that_there_are() {
    for (name, query) in demand() {
        assert_eq!(Known::new().complaints(&query), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn demand_is_zero_when_nothing_was_asked_and_unknown_when_forebay_is_away() {
    let of = |metric: &str, values: &str| json!({"series": format!(r#"{metric}{{namespace="inference", job="vllm-qwen3-32b-epp"}}"#), "values": values});
    let ready = of("llm_d_epp_ready_endpoints", "4x5");
    let running = of("llm_d_epp_request_running", "7x5");
    let waiting = of("llm_d_epp_flow_control_queue_size", "3x5");
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| std::fs::write(directory.path().join(name), value.to_string()).unwrap();
    write("rules.yaml", &json!({"groups": []}));
    let mut tests = Vec::new();
    for (name, query) in demand() {
        for (series, expected) in [
            (json!([ready]), Some(0)),
            (json!([ready, running]), Some(7)),
            (json!([ready, running, waiting]), Some(10)),
            (json!([]), None),
        ] {
            let samples: Vec<_> = expected
                .iter()
                .map(|value| json!({"labels": "{}", "value": value}))
                .collect();
            tests.push(json!({
                "name": name,
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{"expr": query, "eval_time": "3m", "exp_samples": samples}],
            }));
        }
    }
    write("test.yaml", &json!({"rule_files": ["rules.yaml"], "tests": tests}));

    promtool(&["test", "rules", "test.yaml"], directory.path());
}
