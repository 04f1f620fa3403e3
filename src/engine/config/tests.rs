//! Fixtures, examples and documents, through the door that everything goes through.

mod odd_values;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::Value;

use super::super::scheduling::{InstanceRef, Named};
use super::plan::PrefixSource;
use super::*;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The YAML files in a folder of the repository, in order of their names.
fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut files: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned()
}

fn loaded(text: &str, name: &str) -> Result<Loaded, ConfigErrors> {
    load(text, &SourceName::File(name.into()), &LoadOptions::default())
}

fn plan(text: &str) -> Plan {
    match loaded(text, "test.yaml") {
        Ok(loaded) => loaded.plan,
        Err(errors) => panic!("{errors}"),
    }
}

fn names<T: ?Sized>(list: &[Named<T>], refs: impl IntoIterator<Item = InstanceRef>) -> Vec<String> {
    refs.into_iter().map(|at| list[at.0].name.name.to_string()).collect()
}

/// Scorers and weights, and the picker, of each profile.
fn profiles(plan: &Plan) -> Vec<(Vec<(String, f64)>, String)> {
    let instances = &plan.engine.scheduling.instances;
    let profiles = plan.engine.scheduling.profiles.iter().map(|profile| {
        let scorers = names(&instances.scorers, profile.scorers().iter().map(|scorer| scorer.scorer));
        let weights = profile.scorers().iter().map(|scorer| scorer.weight);
        let picker = names(&instances.pickers, [profile.picker()]).remove(0);
        (scorers.into_iter().zip(weights).collect(), picker)
    });
    profiles.collect()
}

fn added(plan: &Plan) -> Vec<&str> {
    plan.added.iter().map(|plugin| &*plugin.name).collect()
}

#[test]
fn every_fixture_is_answered_as_its_snapshot_says() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("tests/fixtures/config"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let fixtures = yaml_files("tests/fixtures/config");

    assert!(!fixtures.is_empty());
    for path in fixtures {
        let name = file_name(&path);
        let text = fs::read_to_string(&path).expect("a fixture can be read");
        let answer = match loaded(&text, &name) {
            Ok(loaded) => ConfigErrors::new(loaded.warnings).to_string(),
            Err(errors) => errors.to_string(),
        };
        settings.bind(|| insta::assert_snapshot!(name.trim_end_matches(".yaml"), answer));
    }
}

#[test]
fn configurations_in_the_shape_of_llm_ds_guides_load_unless_they_need_what_is_not_there() {
    let guides = yaml_files("tests/fixtures/config").into_iter();
    let guides = guides.filter(|path| file_name(path).starts_with("guide-"));
    let (loading, refused): (Vec<_>, Vec<_>) = guides.partition(|path| {
        let text = fs::read_to_string(path).expect("a fixture can be read");
        loaded(&text, "guide.yaml").is_ok()
    });

    let refused: Vec<_> = refused.iter().map(|path| file_name(path)).collect();
    assert_eq!(
        refused,
        [
            "guide-agentic-serving-by-identity.yaml",
            "guide-predicted-latency.yaml",
            "guide-prefill-decode.yaml",
        ]
    );
    assert_eq!(loading.len(), 9);
}

#[test]
fn the_page_on_configurations_has_every_older_name_that_is_taken() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).expect("the page is there");
    let gates = gates::RETIRED.iter().map(|(name, _)| *name);
    let types = catalog::ALIASES.iter().map(|(old, _)| *old);
    let sources = elsewhere::UNNEEDED_SOURCES.iter().map(|(name, _)| *name);

    for name in gates.chain(types).chain(sources) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn every_example_is_loaded_without_a_word() {
    let examples = yaml_files("examples/configs");

    assert!(!examples.is_empty());
    for path in examples {
        let text = fs::read_to_string(&path).expect("an example can be read");
        match loaded(&text, &file_name(&path)) {
            Ok(loaded) => assert_eq!(loaded.warnings, [], "{}", path.display()),
            Err(errors) => panic!("{errors}"),
        }
    }
}

#[test]
fn every_configuration_in_the_documentation_is_loaded_without_a_word() {
    for page in ["docs/configuration.md", "docs/flow-control.md"] {
        let text = fs::read_to_string(root().join(page)).expect("the page is there");
        let mut snippets = text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .filter(|snippet| snippet.contains("kind: EndpointPickerConfig"))
            .peekable();

        assert!(snippets.peek().is_some(), "{page}");
        for snippet in snippets {
            match loaded(snippet, page) {
                Ok(loaded) => assert_eq!(loaded.warnings, [], "{snippet}"),
                Err(errors) => panic!("{errors}\n{snippet}"),
            }
        }
    }
}

#[test]
fn names_of_parameters_may_be_written_in_any_case() {
    let with = |name: &str| {
        let text = format!("plugins:\n- type: file-discovery\n  parameters: {{{name}: /x, WATCHFILE: true}}\n");
        plan(&format!(
            "{text}dataLayer: {{discovery: {{pluginRef: file-discovery}}}}\n"
        ))
        .data_layer
        .discovery
    };

    assert!(with("path").is_some_and(|file| file.path == "/x" && file.watch_file));
    assert_eq!(with("Path"), with("path"));
}

#[test]
fn nothing_given_is_the_default_of_the_reference() {
    let plan = plan("");

    let weighted = |name: &str, weight| (name.to_owned(), weight);
    let scorers = vec![
        weighted("queue-scorer", 2.0),
        weighted("kv-cache-utilization-scorer", 2.0),
        weighted("prefix-cache-scorer", 3.0),
    ];
    assert_eq!(profiles(&plan), [(scorers, "max-score-picker".to_owned())]);
    assert_eq!(&*plan.engine.scheduling.handler.name.name, "single-profile-handler");
    assert_eq!(
        plan.parsers,
        [
            settings::ParserKind::OpenAi,
            settings::ParserKind::Anthropic,
            settings::ParserKind::VllmHttp,
            settings::ParserKind::Passthrough
        ]
    );
    assert_eq!(
        &*plan.engine.scheduling.prefix[0].name.name,
        "approx-prefix-cache-producer"
    );
    assert_eq!(plan.data_layer.sources.len(), 1);
    assert!(plan.gates.ha_populate_non_leader_datastore);
}

#[test]
fn white_space_is_not_nothing_but_a_configuration_without_plugins() {
    for text in [
        "\n",
        "---\n",
        "# nothing\n",
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n",
    ] {
        let plan = plan(text);

        assert_eq!(profiles(&plan), [(vec![], "max-score-picker".to_owned())]);
        assert!(plan.engine.scheduling.prefix.is_empty());
        assert_eq!(plan.data_layer.sources[0].extractors.len(), 1);
    }
}

#[test]
fn json_is_as_good_as_yaml() {
    let plan = plan(r#"{"plugins": [{"type": "queue-scorer"}], "featureGates": ["haPopulateNonLeaderDatastore=0"]}"#);

    assert_eq!(
        profiles(&plan),
        [(vec![("queue-scorer".to_owned(), 1.0)], "max-score-picker".to_owned())]
    );
    assert!(!plan.gates.ha_populate_non_leader_datastore);
}

#[test]
fn without_profiles_everything_declared_takes_part_in_the_order_of_declaration() {
    let plan = plan("plugins: [{type: random-picker}, {type: prefix-cache-scorer}, {type: queue-scorer}]");

    let scorers = vec![
        ("prefix-cache-scorer".to_owned(), 1.0),
        ("queue-scorer".to_owned(), 1.0),
    ];
    assert_eq!(profiles(&plan), [(scorers, "random-picker".to_owned())]);
}

#[test]
fn a_profile_without_a_picker_gets_the_first_that_is_declared() {
    let plan = plan(
        "plugins: [{type: queue-scorer}, {type: random-picker}, {type: max-score-picker}]\n\
         schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer, weight: -2}]}]",
    );

    assert_eq!(
        profiles(&plan),
        [(vec![("queue-scorer".to_owned(), -2.0)], "random-picker".to_owned())]
    );
}

#[test]
fn a_plugin_that_is_added_may_be_referred_to() {
    let text = "schedulingProfiles: [{name: p, plugins: [{pluginRef: max-score-picker}, \
                {pluginRef: fcfs-ordering-policy}, {pluginRef: metrics-data-source}, {pluginRef: openai-parser}]}]";

    assert_eq!(profiles(&plan(text)), [(vec![], "max-score-picker".to_owned())]);
}

#[test]
fn a_detector_is_a_filter_where_a_profile_names_it_and_nowhere_else() {
    let filters = |text: &str| {
        let scheduling = plan(text).engine.scheduling;
        names(
            &scheduling.instances.filters,
            scheduling.profiles[0].filters().iter().copied(),
        )
    };
    let profile = "schedulingProfiles: [{name: p, plugins: [{pluginRef: utilization-detector}]}]";
    let other = "schedulingProfiles: [{name: p, plugins: [{pluginRef: max-score-picker}]}]";
    let declared = "plugins: [{type: queue-scorer}, {name: busy, type: concurrency-detector}]";

    assert_eq!(filters(profile), ["utilization-detector"]);
    assert_eq!(filters(declared), [] as [String; 0]);
    assert_eq!(filters(&format!("{declared}\n{other}")), [] as [String; 0]);
    assert_eq!(filters(""), [] as [String; 0]);
}

#[test]
fn producers_are_added_for_those_who_read_them_only() {
    let usual = ["single-profile-handler", "max-score-picker"];
    let prefix = ["approx-prefix-cache-producer", "token-producer"];
    let without = plan("plugins: [{type: queue-scorer}]");
    let with = plan("plugins: [{type: prefix-cache-scorer}]");
    let named = plan("plugins: [{type: prefix-cache-scorer}, {name: mine, type: token-producer}]");

    assert!(usual.iter().all(|name| added(&without).contains(name)));
    assert!(prefix.iter().all(|name| !added(&without).contains(name)));
    assert!(prefix.iter().all(|name| added(&with).contains(name)));
    assert!(
        !added(&named).contains(&"token-producer"),
        "one of another name will do"
    );
}

#[test]
fn two_scorers_read_the_producers_that_they_name() {
    let plan = plan(
        "plugins:\n\
         - {name: near, type: prefix-cache-scorer}\n\
         - {name: far, type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: big}}\n\
         - {name: again, type: prefix-cache-scorer}\n\
         - {name: big, type: approx-prefix-cache-producer, parameters: {lruCapacityPerServer: 9}}\n",
    );

    let producers = &plan.engine.scheduling.prefix;
    let seen: Vec<_> = producers
        .iter()
        .map(|producer| match &producer.source {
            PrefixSource::Approx(params) => (&*producer.name.name, params.capacity),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, [("approx-prefix-cache-producer", 31_250), ("big", 9)]);
}

#[test]
fn scorers_of_different_kinds_read_different_producers_and_bring_them_along() {
    let options = LoadOptions {
        cache_source: true,
        ..LoadOptions::default()
    };
    let text = "plugins:\n\
                - type: prefix-affinity-scorer\n\
                - type: precise-prefix-cache-scorer\n\
                - {name: mine, type: precise-prefix-cache-producer}\n";
    let loaded = load(text, &SourceName::Flag, &options).unwrap();

    let producers = &loaded.plan.engine.scheduling.prefix;
    let sources: Vec<_> = producers.iter().map(|p| (&*p.name.name, p.source.clone())).collect();
    assert_eq!(loaded.warnings, [], "somebody tells what is cached");
    assert_eq!(
        sources,
        [
            (
                "prefix-affinity-producer",
                PrefixSource::Affinity(settings::PrefixAffinityParams::default())
            ),
            (
                "mine",
                PrefixSource::Caches {
                    params: settings::PrecisePrefixParams::default(),
                    is_fed: true
                }
            ),
        ]
    );
    assert!(added(&loaded.plan).contains(&"prefix-affinity-producer"));
}

#[test]
fn a_scorer_that_names_no_prefix_producer_reads_the_best_that_the_configuration_has() {
    let producers = |others: &str| {
        let plan = plan(&format!("plugins: [{{type: no-hit-lru-scorer}}, {others}]"));
        let names = plan.engine.scheduling.prefix.iter().map(|p| p.name.name.to_string());
        names.collect::<Vec<_>>()
    };

    assert_eq!(producers("{type: queue-scorer}"), ["approx-prefix-cache-producer"]);
    assert_eq!(
        producers("{type: prefix-affinity-scorer}"),
        ["prefix-affinity-producer"]
    );
    assert_eq!(producers("{name: p, type: prefix-affinity-producer}"), ["p"]);
    assert_eq!(
        producers("{type: precise-prefix-cache-scorer}, {name: p, type: precise-prefix-cache-producer}"),
        ["p"]
    );
}

#[test]
fn the_usual_source_is_added_unless_one_has_its_name_or_none_is_wanted() {
    let sources = |text: &str| {
        let plan = plan(text);
        let names = plan.data_layer.sources.iter().map(|source| source.name.to_string());
        names.collect::<Vec<_>>()
    };
    let mine = "plugins: [{name: mine, type: metrics-data-source}, {type: core-metrics-extractor}]\n\
                dataLayer: {sources: [{pluginRef: mine, extractors: [{pluginRef: core-metrics-extractor}]}]";

    assert_eq!(sources(&format!("{mine}}}")), ["mine", "metrics-data-source"]);
    assert_eq!(sources(&format!("{mine}, injectDefaults: false}}")), ["mine"]);
    assert_eq!(sources(DEFAULT), ["metrics-data-source"]);
}

#[test]
fn names_and_types_of_nothing_are_as_if_they_were_not_there() {
    let plan = plan("plugins:\nschedulingProfiles:\ndataLayer:\nflowControl:\nrequestHandler:\n");

    assert_eq!(profiles(&plan).len(), 1);
}

/// Changes the value that the steps lead to.
fn mutate(value: &mut Value, steps: &[prop::sample::Index], new: &Value) {
    let (Some((step, rest)), true) = (steps.split_first(), has_parts(value)) else {
        *value = new.clone();
        return;
    };
    match value {
        Value::Array(items) => {
            let at = step.index(items.len());
            mutate(&mut items[at], rest, new);
        }
        Value::Object(fields) => {
            let at = step.index(fields.len());
            let part = fields.values_mut().nth(at).expect("the index is within");
            mutate(part, rest, new);
        }
        _ => unreachable!("only collections have parts"),
    }
}

fn has_parts(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let names = catalog::catalog().into_iter().map(|entry| Value::from(entry.type_name));
    let name = prop::sample::select(names.collect::<Vec<_>>());
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[-a-z0-9:=.]{0,8}".prop_map(Value::from),
        name,
    ];
    scalar.prop_recursive(2, 8, 3, |inner| {
        let key = prop::sample::select(vec![
            "type",
            "name",
            "pluginRef",
            "parameters",
            "path",
            "weight",
            "maxRequests",
            "defaultRequestTTL",
            "endpoints",
            "priority",
            "a.b",
            "[0]",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..3)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_stands_in_a_document_there_is_a_plan_or_an_error_with_a_line(
        example: prop::sample::Index,
        changes in prop::collection::vec((prop::collection::vec(any::<prop::sample::Index>(), 0..7), any_value()), 0..4),
    ) {
        let examples = [yaml_files("examples/configs"), yaml_files("tests/fixtures/config")].concat();
        let text = fs::read_to_string(example.get(&examples)).expect("an example can be read");
        let mut value = yaml::parse(&text).map_or(Value::Null, |(value, _)| value);
        for (steps, new) in &changes {
            mutate(&mut value, steps, new);
        }

        match loaded(&value.to_string(), "mutated.yaml") {
            Ok(loaded) => {
                let scheduling = &loaded.plan.engine.scheduling;
                let profiles = scheduling.profiles.len();
                prop_assert!(scheduling.handler.plugin.profiles_allowed().contains(&profiles));
                prop_assert_eq!(loaded.plan.engine.flow.is_some(), loaded.plan.gates.flow_control);
            }
            Err(errors) => {
                let findings = errors.findings();
                prop_assert!(findings.iter().any(|finding| finding.severity == Severity::Error));
                prop_assert!(findings.iter().all(|finding| finding.line >= 1));
                prop_assert!(findings.len() < 200);
            }
        }
    }

    #[test]
    fn no_text_brings_loading_down(text in "[-a-zA-Z0-9:{}\\[\\] \n'\"&*!|>#,.]{0,200}") {
        let _ = loaded(&text, "noise.yaml");
    }
}
