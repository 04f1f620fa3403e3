//! Examples for gateways and for what stands around.

use serde_json::Value;

use super::metrics::Known;
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

#[test]
fn autoscaling_goes_by_metrics_that_there_are() {
    let object = documents(&repository("examples/kubernetes/autoscaling-keda.yaml")).remove(0);
    let query = object["spec"]["triggers"][0]["metadata"]["query"].as_str().unwrap();

    assert_eq!(Known::new().complaints(query), Vec::<String>::new());
}
