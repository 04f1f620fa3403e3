//! What becomes of odd values: every parameter of every plugin, and every field of a document, is given some of each
//! kind, and a snapshot says what was found. A line that ends in `ok` takes the value as it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::catalog::{CatalogEntry, PluginKind, catalog};
use super::super::document::Document;
use super::super::{Finding, LoadOptions, SourceName, load};
use super::root;

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
        json!("0s"),
        json!("-1s"),
        json!([]),
        json!([5]),
        json!({}),
        json!({"nobody": 5}),
    ]
}

/// What a plugin cannot do without, beside what is tried.
fn required(plugin: &CatalogEntry) -> Value {
    match plugin.type_name {
        "file-discovery" => json!({"path": "/etc/endpoints.yaml"}),
        "priority-holdback-policy" => json!({"minCeiling": 0.5}),
        _ => json!({}),
    }
}

/// A configuration in which this plugin is at work.
fn at_work(plugin: &CatalogEntry, parameters: &Value) -> Value {
    let tried = json!({"name": "tried", "type": plugin.type_name, "parameters": parameters});
    let scorer = json!({"type": "active-request-scorer"});
    let reference = json!({"pluginRef": "tried"});
    let profile = json!([{"name": "p", "plugins": [{"pluginRef": "active-request-scorer"}, {"pluginRef": "tried"}]}]);
    let mut document = json!({"featureGates": ["flowControl"], "plugins": [scorer, tried]});
    match plugin.kind {
        PluginKind::ProfileHandler => {}
        PluginKind::Filter | PluginKind::Scorer | PluginKind::Picker => document["schedulingProfiles"] = profile,
        PluginKind::DataProducer => {
            document["plugins"].as_array_mut().unwrap().extend([
                json!({"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "tried"}}),
                json!({"type": "token-load-scorer", "parameters": {"inFlightLoadProducerName": "tried"}}),
            ]);
            let keep = match plugin.type_name {
                "inflight-load-producer" => "token-load-scorer",
                _ => "prefix-cache-scorer",
            };
            document["plugins"].as_array_mut().unwrap().retain(|entry| {
                let of_type = entry["type"].as_str().unwrap();
                !["prefix-cache-scorer", "token-load-scorer"].contains(&of_type) || of_type == keep
            });
            if plugin.type_name == "token-producer" {
                document["plugins"][2]["parameters"] = json!({});
            }
        }
        PluginKind::Parser => document["requestHandler"] = json!({"parsers": [reference]}),
        PluginKind::DataSource => {
            document["plugins"]
                .as_array_mut()
                .unwrap()
                .push(json!({"type": "core-metrics-extractor"}));
            let extractors = json!([{"pluginRef": "core-metrics-extractor"}]);
            document["dataLayer"] =
                json!({"injectDefaults": false, "sources": [{"pluginRef": "tried", "extractors": extractors}]});
        }
        PluginKind::Extractor => {
            document["plugins"]
                .as_array_mut()
                .unwrap()
                .push(json!({"type": "metrics-data-source"}));
            document["dataLayer"] =
                json!({"sources": [{"pluginRef": "metrics-data-source", "extractors": [reference]}]});
        }
        PluginKind::Discovery => document["dataLayer"] = json!({"discovery": {"endpoints": reference}}),
        PluginKind::AdmissionPolicy => document["admission"] = reference,
        PluginKind::SaturationDetector => document["flowControl"] = json!({"saturationDetector": reference}),
        PluginKind::FairnessPolicy => {
            document["flowControl"] = json!({"priorityBands": [{"fairnessPolicyRef": "tried"}]});
        }
        PluginKind::OrderingPolicy => {
            document["flowControl"] = json!({"priorityBands": [{"orderingPolicyRef": "tried"}]});
        }
        PluginKind::UsageLimitPolicy => document["flowControl"] = json!({"usageLimitPolicyPluginRef": "tried"}),
    }
    document
}

/// What is found in a document, without the place, which is the same for all.
fn found(document: &Value) -> String {
    let options = LoadOptions {
        allow_experimental_plugins: true,
        ..LoadOptions::default()
    };
    let told = |findings: &[Finding]| {
        let told = findings.iter().map(|finding| {
            let text = finding.to_string();
            text.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap_or(text)
        });
        told.collect::<Vec<_>>().join(" | ")
    };
    match load(&document.to_string(), &SourceName::Flag, &options) {
        Ok(loaded) if loaded.warnings.is_empty() => "ok".to_owned(),
        Ok(loaded) => told(&loaded.warnings),
        Err(errors) => told(errors.findings()),
    }
}

/// One line for each answer, with the values that get it.
fn grouped(answers: Vec<(Value, String)>) -> String {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (value, answer) in answers {
        // What quotes the value back is the same answer.
        let shown = value.to_string();
        values.entry(answer).or_default().push(shown);
    }
    let mut lines: Vec<_> = values.into_iter().collect();
    lines.sort_by(|(a, _), (b, _)| (a != "ok", a).cmp(&(b != "ok", b)));
    let mut text = String::new();
    for (answer, values) in lines {
        writeln!(text, "  {}: {answer}", values.join(", ")).expect("text can always be written to a string");
    }
    text
}

fn assert_is_kept(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("tests/fixtures/config/odd-values"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_parameter_of_every_plugin_has_an_answer_to_odd_values() {
    for kind in PluginKind::ALL {
        let mut text = String::new();
        for plugin in catalog().iter().filter(|plugin| plugin.kind == kind) {
            let usual = found(&at_work(plugin, &required(plugin)));
            assert!(!usual.contains("error"), "{}: {usual}", plugin.type_name);
            writeln!(text, "{}\n  as it is: {usual}", plugin.type_name).unwrap();
            let whole = [json!([]), json!([5]), json!("nobody"), json!(5), json!({"nobody": 5})];
            let answers = whole.map(|parameters| (parameters.clone(), found(&at_work(plugin, &parameters))));
            text.push_str(&grouped(answers.into()));
            for parameter in plugin.parameters {
                writeln!(text, "{}.{}", plugin.type_name, parameter.name).unwrap();
                let answers = odd_values().into_iter().map(|value| {
                    let mut parameters = required(plugin);
                    parameters[parameter.name] = value.clone();
                    (value, found(&at_work(plugin, &parameters)))
                });
                text.push_str(&grouped(answers.collect()));
            }
        }
        assert_is_kept(&kind.name().replace(' ', "-"), &text);
    }
}

/// Each field of a document, as a document in which `"HERE"` is its value.
fn fields() -> Vec<(&'static str, Value)> {
    let base = |fields: Value| {
        let mut document = json!({"plugins": [{"type": "active-request-scorer"}]});
        document
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        document
    };
    let gated = |fields: Value| base(json!({"featureGates": ["flowControl"], "flowControl": fields}));
    let band = |fields: Value| gated(json!({"priorityBands": [fields]}));
    let profile = |fields: Value| base(json!({"schedulingProfiles": [fields]}));
    let here = || json!("HERE");
    vec![
        ("apiVersion", base(json!({"apiVersion": here()}))),
        ("kind", base(json!({"kind": here()}))),
        ("metadata", base(json!({"metadata": here()}))),
        ("featureGates", base(json!({"featureGates": here()}))),
        ("featureGates[]", base(json!({"featureGates": [here()]}))),
        ("plugins", json!({"plugins": here()})),
        (
            "plugins[]",
            json!({"plugins": [{"type": "active-request-scorer"}, here()]}),
        ),
        ("plugins[].type", base(json!({"plugins": [{"type": here()}]}))),
        (
            "plugins[].name",
            base(json!({"plugins": [{"type": "active-request-scorer", "name": here()}]})),
        ),
        (
            "plugins[].parameters",
            base(json!({"plugins": [{"type": "load-aware-scorer", "parameters": here()}]})),
        ),
        ("schedulingProfiles", base(json!({"schedulingProfiles": here()}))),
        ("schedulingProfiles[]", base(json!({"schedulingProfiles": [here()]}))),
        (
            "schedulingProfiles[].name",
            profile(json!({"name": here(), "plugins": [{"pluginRef": "active-request-scorer"}]})),
        ),
        (
            "schedulingProfiles[].plugins",
            profile(json!({"name": "p", "plugins": here()})),
        ),
        (
            "schedulingProfiles[].plugins[]",
            profile(json!({"name": "p", "plugins": [here()]})),
        ),
        (
            "schedulingProfiles[].plugins[].pluginRef",
            profile(json!({"name": "p", "plugins": [{"pluginRef": here()}, {"pluginRef": "active-request-scorer"}]})),
        ),
        (
            "schedulingProfiles[].plugins[].weight",
            profile(json!({"name": "p", "plugins": [{"pluginRef": "active-request-scorer", "weight": here()}]})),
        ),
        ("requestHandler", base(json!({"requestHandler": here()}))),
        (
            "requestHandler.parsers",
            base(json!({"requestHandler": {"parsers": here()}})),
        ),
        (
            "requestHandler.parsers[].pluginRef",
            base(json!({"requestHandler": {"parsers": [{"pluginRef": here()}]}})),
        ),
        (
            "requestHandler.propagatePriority",
            base(json!({"requestHandler": {"propagatePriority": here()}})),
        ),
        ("parser", base(json!({"parser": here()}))),
        ("parser.pluginRef", base(json!({"parser": {"pluginRef": here()}}))),
        ("admission", base(json!({"admission": here()}))),
        ("admission.pluginRef", base(json!({"admission": {"pluginRef": here()}}))),
        ("dataLayer", base(json!({"dataLayer": here()}))),
        (
            "dataLayer.injectDefaults",
            base(json!({"dataLayer": {"injectDefaults": here()}})),
        ),
        ("dataLayer.sources", base(json!({"dataLayer": {"sources": here()}}))),
        (
            "dataLayer.sources[].pluginRef",
            base(json!({"dataLayer": {"sources": [{"pluginRef": here()}]}})),
        ),
        (
            "dataLayer.sources[].extractors",
            base(json!({"dataLayer": {"sources": [{"pluginRef": "metrics-data-source", "extractors": here()}]}})),
        ),
        ("dataLayer.discovery", base(json!({"dataLayer": {"discovery": here()}}))),
        (
            "dataLayer.discovery.pluginRef",
            base(json!({"dataLayer": {"discovery": {"pluginRef": here()}}})),
        ),
        (
            "dataLayer.discovery.endpoints",
            base(json!({"dataLayer": {"discovery": {"endpoints": here()}}})),
        ),
        (
            "dataLayer.discovery.endpoints.pluginRef",
            base(json!({"dataLayer": {"discovery": {"endpoints": {"pluginRef": here()}}}})),
        ),
        (
            "dataLayer.discovery.peers",
            base(json!({"dataLayer": {"discovery": {"peers": here()}}})),
        ),
        (
            "dataLayer.peerDiscovery",
            base(json!({"dataLayer": {"peerDiscovery": here()}})),
        ),
        (
            "dataLayer.crossReplica",
            base(json!({"dataLayer": {"crossReplica": here()}})),
        ),
        (
            "dataLayer.crossReplica.syncerPluginRef",
            base(json!({"dataLayer": {"crossReplica": {"syncerPluginRef": here()}}})),
        ),
        (
            "dataLayer.crossReplica.syncInterval",
            base(json!({"dataLayer": {"crossReplica": {"syncInterval": here()}}})),
        ),
        (
            "dataLayer.crossReplica.publishTimeout",
            base(json!({"dataLayer": {"crossReplica": {"publishTimeout": here()}}})),
        ),
        (
            "dataLayer.crossReplicaSyncerPluginRef",
            base(json!({"dataLayer": {"crossReplicaSyncerPluginRef": here()}})),
        ),
        (
            "dataLayer.crossReplicaSyncInterval",
            base(json!({"dataLayer": {"crossReplicaSyncInterval": here()}})),
        ),
        (
            "dataLayer.crossReplicaPublishTimeout",
            base(json!({"dataLayer": {"crossReplicaPublishTimeout": here()}})),
        ),
        ("outlierDetection", base(json!({"outlierDetection": here()}))),
        (
            "outlierDetection.consecutiveFailures",
            base(json!({"outlierDetection": {"consecutiveFailures": here()}})),
        ),
        (
            "outlierDetection.baseEjectionTime",
            base(json!({"outlierDetection": {"baseEjectionTime": here()}})),
        ),
        (
            "outlierDetection.maxEjectionTime",
            base(json!({"outlierDetection": {"maxEjectionTime": here()}})),
        ),
        (
            "outlierDetection.maxEjectionPercent",
            base(json!({"outlierDetection": {"maxEjectionPercent": here()}})),
        ),
        ("responses", base(json!({"responses": here()}))),
        (
            "responses.errorFormat",
            base(json!({"responses": {"errorFormat": here()}})),
        ),
        ("responses.headers", base(json!({"responses": {"headers": here()}}))),
        (
            "responses.headers.requestId",
            base(json!({"responses": {"headers": {"requestId": here()}}})),
        ),
        (
            "responses.headers.queueWait",
            base(json!({"responses": {"headers": {"queueWait": here()}}})),
        ),
        ("data", base(json!({"data": here()}))),
        ("saturationDetector", base(json!({"saturationDetector": here()}))),
        (
            "saturationDetector.pluginRef",
            base(json!({"saturationDetector": {"pluginRef": here()}})),
        ),
        (
            "saturationDetector.queueDepthThreshold",
            base(json!({"saturationDetector": {"queueDepthThreshold": here()}})),
        ),
        (
            "saturationDetector.kvCacheUtilThreshold",
            base(json!({"saturationDetector": {"kvCacheUtilThreshold": here()}})),
        ),
        (
            "saturationDetector.metricsStalenessThreshold",
            base(json!({"saturationDetector": {"metricsStalenessThreshold": here()}})),
        ),
        (
            "flowControl",
            base(json!({"featureGates": ["flowControl"], "flowControl": here()})),
        ),
        (
            "flowControl without the gate",
            base(json!({"flowControl": {"enableEviction": here()}})),
        ),
        ("flowControl.maxBytes", gated(json!({"maxBytes": here()}))),
        ("flowControl.maxRequests", gated(json!({"maxRequests": here()}))),
        ("flowControl.shedWhenFull", gated(json!({"shedWhenFull": here()}))),
        (
            "flowControl.defaultRequestTTL",
            gated(json!({"defaultRequestTTL": here()})),
        ),
        (
            "flowControl.noEndpointRequestTTL",
            gated(json!({"noEndpointRequestTTL": here()})),
        ),
        ("flowControl.routeTimeout", gated(json!({"routeTimeout": here()}))),
        ("flowControl.enableEviction", gated(json!({"enableEviction": here()}))),
        (
            "flowControl.usageLimitPolicyPluginRef",
            gated(json!({"usageLimitPolicyPluginRef": here()})),
        ),
        (
            "flowControl.saturationDetector",
            gated(json!({"saturationDetector": here()})),
        ),
        (
            "flowControl.saturationDetector.pluginRef",
            gated(json!({"saturationDetector": {"pluginRef": here()}})),
        ),
        (
            "flowControl.defaultPriorityBand",
            gated(json!({"defaultPriorityBand": here()})),
        ),
        (
            "flowControl.defaultNegativePriorityBand",
            gated(json!({"defaultNegativePriorityBand": here()})),
        ),
        ("flowControl.priorityBands", gated(json!({"priorityBands": here()}))),
        ("flowControl.priorityBands[]", gated(json!({"priorityBands": [here()]}))),
        (
            "flowControl.priorityBands[].priority",
            band(json!({"priority": here()})),
        ),
        (
            "flowControl.priorityBands[].maxBytes",
            band(json!({"maxBytes": here()})),
        ),
        (
            "flowControl.priorityBands[].maxRequests",
            band(json!({"maxRequests": here()})),
        ),
        (
            "flowControl.priorityBands[].defaultRequestTTL",
            band(json!({"defaultRequestTTL": here()})),
        ),
        (
            "flowControl.priorityBands[].requestTTL",
            band(json!({"requestTTL": here()})),
        ),
        (
            "flowControl.priorityBands[].fairnessPolicyRef",
            band(json!({"fairnessPolicyRef": here()})),
        ),
        (
            "flowControl.priorityBands[].orderingPolicyRef",
            band(json!({"orderingPolicyRef": here()})),
        ),
    ]
}

#[test]
fn every_field_at_the_top_of_a_document_is_tried() {
    let error = serde_json::from_value::<Document>(json!({"nobody": 0}))
        .unwrap_err()
        .to_string();
    let known = error.split('`').skip(3).step_by(2);
    let tried: BTreeSet<_> = fields().into_iter().map(|(name, _)| name).collect();

    // `kind` and the version are read before the rest.
    let untried: Vec<_> = known.filter(|name| !tried.contains(name)).collect();
    assert_eq!(untried, [""; 0], "{error}");
}

/// The document with `value` in the place that is marked.
fn with(document: &Value, value: &Value) -> Value {
    match document {
        Value::String(text) if text == "HERE" => value.clone(),
        Value::Array(items) => items.iter().map(|item| with(item, value)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, field)| (name.clone(), with(field, value)))
            .collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn every_field_of_a_document_has_an_answer_to_odd_values() {
    let mut text = String::new();
    for (name, document) in fields() {
        writeln!(text, "{name}").unwrap();
        let mut values = odd_values();
        values.extend([json!("10m"), json!("1e30"), json!("-1"), json!("active-request-scorer")]);
        let answers = values
            .into_iter()
            .map(|value| (value.clone(), found(&with(&document, &value))));
        text.push_str(&grouped(answers.collect()));
    }
    assert_is_kept("fields", &text);
}
