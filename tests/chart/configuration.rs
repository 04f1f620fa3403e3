//! Configurations in ConfigMaps.

use forebay::engine::config::{DEFAULT, LoadOptions, Loaded, SourceName, load, yaml};
use serde_json::Value;

use super::{example, examples, text_of, texts};

/// The configurations of the ConfigMap that Forebay's container mounts.
fn configurations(rendered: &super::Rendered) -> Vec<(String, String)> {
    let map = rendered.named("ConfigMap", "vllm-qwen3-32b-epp");
    let entries = map["data"].as_object().unwrap().iter();
    entries
        .map(|(name, text)| (name.clone(), text.as_str().unwrap().to_owned()))
        .collect()
}

#[test]
fn configurations_of_the_chart_can_run_and_are_without_remark() {
    for rendered in examples() {
        for (name, text) in configurations(&rendered) {
            match load(&text, &SourceName::Flag, &LoadOptions::default()) {
                Ok(Loaded { warnings, .. }) => assert!(warnings.is_empty(), "{} {name}: {warnings:?}", rendered.name),
                Err(errors) => panic!("{} {name}: {errors}", rendered.name),
            }
        }
    }
}

#[test]
fn the_file_that_is_named_is_mounted() {
    for rendered in examples() {
        let arguments = texts(&rendered.picker()["args"]);
        let flag = arguments
            .iter()
            .position(|argument| *argument == "--config-file")
            .unwrap();
        let name = arguments[flag + 1].strip_prefix("/config/").unwrap();

        let names: Vec<_> = configurations(&rendered).into_iter().map(|(name, _)| name).collect();

        assert!(
            names.iter().any(|key| key == name),
            "{}: {name} is not in {names:?}",
            rendered.name
        );
    }
}

#[test]
fn the_default_of_the_chart_is_the_built_in_one() {
    let (_, text) = configurations(&example("gateway")).remove(0);
    let (mut chart, _) = yaml::parse(&text).unwrap();
    let (built_in, _) = yaml::parse(DEFAULT).unwrap();
    let source = chart["plugins"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .find(|plugin| plugin["type"] == "metrics-data-source")
        .unwrap();

    // Told at length, so that the values have a place; they are the defaults.
    let parameters = source.as_object_mut().unwrap().remove("parameters").unwrap();

    assert_eq!(
        parameters,
        serde_json::json!({"scheme": "http", "path": "/metrics", "insecureSkipVerify": true})
    );
    assert_eq!(chart, built_in);
}

#[test]
fn another_engine_is_the_default_one_of_the_extractor() {
    let (_, text) = configurations(&example("gateway-active-active")).remove(0);

    let (chart, _) = yaml::parse(&text).unwrap();

    let plugins = chart["plugins"].as_array().unwrap();
    let engines: Vec<&Value> = plugins
        .iter()
        .map(|plugin| &plugin["parameters"]["defaultEngine"])
        .collect();
    assert!(engines.contains(&&Value::from("sglang")), "{engines:?}");
}

#[test]
fn the_example_of_flow_control_is_that_of_the_configurations() {
    let configurations = configurations(&example("flow-control"));

    let (_, text) = configurations
        .iter()
        .find(|(name, _)| name == "flow-control.yaml")
        .unwrap();

    assert_eq!(text.trim(), text_of("examples/configs/flow-control.yaml").trim());
}
