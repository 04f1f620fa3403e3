//! The Envoy of standalone mode.

use std::process::Command;

use serde_json::Value;

use super::{Rendered, example, examples, text_of};
use crate::support::envoy;

/// The name of the Envoy's objects.
const PROXY: &str = "vllm-qwen3-32b-proxy";

fn configuration(rendered: &Rendered) -> &str {
    rendered.named("ConfigMap", PROXY)["data"]["envoy.yaml"]
        .as_str()
        .unwrap()
}

fn parsed(rendered: &Rendered) -> Value {
    forebay::engine::config::yaml::parse(configuration(rendered)).unwrap().0
}

fn standalone() -> Vec<Rendered> {
    let all = examples().into_iter();
    let standalone: Vec<_> = all.filter(|rendered| rendered.name.starts_with("standalone")).collect();
    assert_eq!(standalone.len(), 2);
    standalone
}

fn cluster<'a>(configuration: &'a Value, name: &str) -> &'a Value {
    let clusters = configuration["static_resources"]["clusters"].as_array().unwrap();
    clusters.iter().find(|cluster| cluster["name"] == name).unwrap()
}

/// The cluster by which an Envoy of mode `service` reaches Forebay.
pub(crate) fn picker_of_mode_service() -> Value {
    cluster(&parsed(&example("standalone-service")), "picker").clone()
}

#[test]
fn envoy_takes_the_configuration_that_the_chart_makes() {
    for rendered in standalone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("envoy.yaml");
        std::fs::write(&path, configuration(&rendered)).unwrap();

        let output = Command::new(envoy::program())
            .args(["--mode", "validate", "--config-path"])
            .arg(&path)
            .output()
            .unwrap();

        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", rendered.name);
    }
}

#[test]
fn the_envoy_of_the_chart_is_the_one_of_the_tests() {
    let makefile = text_of("Makefile");
    let tested = makefile
        .lines()
        .find_map(|line| line.strip_prefix("ENVOY_VERSION := "))
        .unwrap();

    for rendered in standalone() {
        let image = format!("envoyproxy/envoy:distroless-v{tested}");
        let containers = rendered.of_kind("Deployment").flat_map(super::containers);
        let found = containers
            .filter(|container| container["image"] == image.as_str())
            .count();
        assert_eq!(found, 1, "{}: {image}", rendered.name);
    }
}

#[test]
fn a_client_cannot_name_the_destination() {
    for rendered in standalone() {
        let configuration = parsed(&rendered);
        let manager = manager(&configuration);
        let names: Vec<_> = super::list(&manager["http_filters"])
            .iter()
            .map(|filter| filter["name"].as_str().unwrap())
            .collect();

        assert_eq!(
            names,
            [
                "envoy.filters.http.header_mutation",
                "envoy.filters.http.ext_proc",
                "envoy.filters.http.router"
            ]
        );
        let mutations = &manager["http_filters"][0]["typed_config"]["mutations"]["request_mutations"];
        let removed: Vec<_> = super::list(mutations)
            .iter()
            .map(|mutation| mutation["remove"].as_str().unwrap())
            .collect();
        let only_for_pickers: Vec<_> = forebay::serve::ext_proc::only_for_pickers().collect();
        assert_eq!(removed, only_for_pickers);
    }
}

#[test]
fn an_envoy_that_fails_open_has_servers_to_choose_from() {
    let rendered = example("standalone-service");
    let configuration = parsed(&rendered);

    let servers = cluster(&configuration, "model-servers");

    assert_eq!(servers["type"], "STRICT_DNS");
    let address =
        &servers["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
    let (service, domain) = address["address"].as_str().unwrap().split_once('.').unwrap();
    assert_eq!(domain, "inference.svc.cluster.local");
    let service = rendered.named("Service", service);
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["ports"][0]["port"], address["port_value"]);
    // It has to know beforehand that Forebay is away.
    let picker = cluster(&configuration, "picker");
    assert_eq!(picker["health_checks"].as_array().unwrap().len(), 1);
    // Over a connection of its own each time: the Service's address leads to another pod when another one leads.
    assert_eq!(picker["health_checks"][0]["reuse_connection"], false);
    assert!(rendered.picker_has("--health-checking=true"));
}

/// An Envoy that fails closed never chooses by itself, so it may know pods that are not ready: it knows each of them by the
/// time that Forebay names it.
#[test]
fn an_envoy_that_does_not_fail_open_knows_servers_before_they_are_named() {
    let rendered = example("standalone");
    let configuration = parsed(&rendered);
    let published = |name: &str| {
        let rendered = example(name);
        let service = rendered.named("Service", "vllm-qwen3-32b-model-servers");
        service["spec"]["publishNotReadyAddresses"].clone()
    };

    assert_eq!(cluster(&configuration, "model-servers")["type"], "STRICT_DNS");
    assert_eq!(picker_filter(&configuration)["failure_mode_allow"], false);
    assert_eq!(published("standalone"), true);
    // One that fails open chooses among those that are ready.
    assert_eq!(published("standalone-service"), Value::Null);
}

/// The configuration of the ext_proc filter.
fn picker_filter(configuration: &Value) -> &Value {
    &manager(configuration)["http_filters"][1]["typed_config"]
}

/// The connection manager of the listener for clients.
fn manager(configuration: &Value) -> &Value {
    let listeners = configuration["static_resources"]["listeners"].as_array().unwrap();
    &listeners[1]["filter_chains"][0]["filters"][0]["typed_config"]
}

/// Only the chart's own Envoy is known to go down a list.
#[test]
fn forebay_names_several_endpoints_where_envoy_goes_down_the_list_and_only_there() {
    for (name, several) in [("standalone", true), ("standalone-service", true), ("gateway", false)] {
        let rendered = example(name);
        let plugins = rendered
            .of_kind("ConfigMap")
            .find_map(|map| map["data"]["default-plugins.yaml"].as_str());
        assert_eq!(plugins.unwrap().contains("maxNumOfEndpoints: 3"), several, "{name}");
    }

    for rendered in standalone() {
        let configuration = parsed(&rendered);
        let route = &manager(&configuration)["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
        // Nothing is sent twice of which a server had a byte.
        assert_eq!(
            route["retry_policy"]["retry_on"],
            "connect-failure,refused-stream,reset-before-request"
        );
        let servers = cluster(&configuration, "model-servers");
        let policy = &servers["load_balancing_policy"]["policies"][0]["typed_extension_config"]["typed_config"];
        let served = &policy["selected_host_key"]["path"][0]["key"];
        assert_eq!(served, "x-gateway-destination-endpoint-served");
    }
}

#[test]
fn both_sides_agree_on_tls() {
    for rendered in standalone() {
        let configuration = parsed(&rendered);
        let encrypts = !cluster(&configuration, "picker")["transport_socket"].is_null();

        assert_eq!(
            encrypts,
            !rendered.picker_has("--secure-serving=false"),
            "{}",
            rendered.name
        );
    }
}
