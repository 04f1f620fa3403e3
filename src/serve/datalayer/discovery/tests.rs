use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::super::testing::{Recorded, in_words, recorder};
use super::*;

const TWO: &str = "
endpoints:
- name: a
  address: 10.0.0.1
  port: '8000'
- name: b
  namespace: pool1
  address: 'fd00::2'
  port: 8001
  labels: {llm-d.ai/role: decode}
  note: not known, and passed over
";

const ONE: &str = "{\"endpoints\": [{\"name\": \"a\", \"address\": \"10.0.0.1\", \"port\": \"8000\"}]}";

/// Objectives as they are written.
fn objective(name: &str, priority: i32) -> String {
    format!(
        "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata:\n  name: {name}\nspec:\n  priority: {priority}\n"
    )
}

fn sound(text: &str, file: FileOf) -> Content {
    content::parse(text, file).expect("the text is sound")
}

fn list(text: &str) -> Vec<String> {
    let endpoints = sound(text, FileOf::Endpoints).endpoints;
    endpoints
        .values()
        .map(|endpoint| format!("{} {} {:?}", endpoint.id, endpoint.socket(), endpoint.labels))
        .collect()
}

fn priorities(text: &str, file: FileOf) -> Vec<(String, i32, usize)> {
    let objectives = sound(text, file).objectives.into_values();
    objectives
        .map(|objective| (objective.name.to_string(), objective.priority, objective.line))
        .collect()
}

fn refusal_of(text: &str, file: FileOf) -> String {
    content::parse(text, file).expect_err("the text is refused").to_string()
}

fn refusal(text: &str) -> String {
    refusal_of(text, FileOf::Endpoints)
}

fn with_entry(fields: &str) -> String {
    refusal(&format!(
        "endpoints:\n- {{name: x, address: 10.0.0.1, port: '80'}}\n- {{{fields}}}\n"
    ))
}

/// A directory with an endpoints file in it, and perhaps an objectives file.
struct Folder(TempDir);

impl Folder {
    fn with(text: &str) -> Self {
        let folder = Self(TempDir::new().unwrap());
        fs::write(folder.file(), text).unwrap();
        folder
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("endpoints.yaml")
    }

    fn params(&self) -> FileDiscoveryParams {
        FileDiscoveryParams {
            path: self.file().to_str().unwrap().to_owned(),
            objectives_path: String::new(),
            watch_file: true,
        }
    }

    fn unwatched(&self) -> FileDiscoveryParams {
        FileDiscoveryParams {
            watch_file: false,
            ..self.params()
        }
    }

    fn objectives_file(&self) -> PathBuf {
        self.0.path().join("objectives.yaml")
    }

    /// With the objectives file, which is written before.
    fn params_of_both(&self, objectives: &str) -> FileDiscoveryParams {
        fs::write(self.objectives_file(), objectives).unwrap();
        FileDiscoveryParams {
            objectives_path: self.objectives_file().to_str().unwrap().to_owned(),
            ..self.params()
        }
    }

    fn load_error(&self) -> String {
        FileDiscovery::load(&self.params()).unwrap_err().in_full()
    }

    /// Tells of the first list and follows the file from there.
    async fn discover(&self, first: &[&str]) -> (Recorded, tokio::task::JoinHandle<()>) {
        let discovery = FileDiscovery::load(&self.params()).unwrap();
        let (sink, mut recorded) = recorder();
        sink.changed(discovery.arrivals());
        let task = tokio::spawn(discovery.run(sink));
        for expected in first {
            assert_eq!(recorded.next().await, *expected);
        }
        (recorded, task)
    }
}

#[test]
fn a_list_has_entries_with_defaults_in_yaml_and_in_json() {
    assert_eq!(
        list(TWO),
        [
            "default/a 10.0.0.1:8000 {}",
            "pool1/b [fd00::2]:8001 {\"llm-d.ai/role\": \"decode\"}"
        ]
    );
    assert_eq!(list(ONE), ["default/a 10.0.0.1:8000 {}"]);
}

#[test]
fn a_list_may_be_empty_and_fields_may_be_null() {
    assert!(list("endpoints: []").is_empty());
    assert!(list("endpoints:\n").is_empty());
    assert_eq!(
        list("endpoints: [{name: a, namespace: ~, address: 10.0.0.1, port: 80, labels: ~}]"),
        ["default/a 10.0.0.1:80 {}"]
    );
}

#[test]
fn a_document_without_the_list_is_refused() {
    let possible = "a mapping with a list `endpoints`, or an `InferenceObjective` of `llm-d.ai/v1` or `llm-d.ai/v1alpha2` or \
                    `inference.networking.x-k8s.io/v1alpha2`, should be";
    for text in ["", "# nothing\n", "---\n---\n"] {
        assert_eq!(refusal(text), format!("line 1: nothing where {possible}"), "{text:?}");
    }
    assert_eq!(
        refusal("\nendpoint: []"),
        format!("line 2: a mapping without either where {possible}")
    );
    assert_eq!(refusal("[]"), format!("line 1: a list where {possible}"));
    assert_eq!(
        refusal("a: 1\nendpoints: 5"),
        "line 2: a number where the list `endpoints` should be"
    );
    assert!(refusal("endpoints: [\n- x").starts_with("line 2, column 1:"));
}

#[test]
fn an_entry_that_is_wrong_is_named_by_line_entry_and_field() {
    let prefix = "line 3: endpoints[1] (`n`): ";
    let cases = [
        (
            "name: n, address: a.b, port: '1'",
            "address: `a.b` is not an IPv4 or IPv6 address; names are not looked up",
        ),
        (
            "name: n, address: 0.0.0.0, port: '1'",
            "address: `0.0.0.0` stands for any address; give the endpoint's own",
        ),
        (
            "name: n, port: '1'",
            "address: is missing; give an IPv4 or IPv6 address",
        ),
        (
            "name: n, address: '::1', port: '0'",
            "port: `0` is not a port between 1 and 65535",
        ),
        (
            "name: n, address: '::1', port: 65536",
            "port: `65536` is not a port between 1 and 65535",
        ),
        (
            "name: n, address: '::1', port: +80x",
            "port: `+80x` is not a port between 1 and 65535",
        ),
        (
            "name: n, address: '::1', port: 80.5",
            "port: `80.5` is not a port between 1 and 65535",
        ),
        (
            "name: n, address: '::1', port: [80]",
            "port: [80] is a list where a port should be",
        ),
        (
            "name: n, address: '::1'",
            "port: is missing; give one between 1 and 65535",
        ),
        (
            "name: n, namespace: a/b, address: '::1', port: 1",
            "namespace: `a/b` has a slash, which separates namespace and name",
        ),
        (
            "name: n, address: '::1', port: 1, labels: x",
            "labels: \"x\" is text where a mapping should be",
        ),
        (
            "name: n, address: '::1', port: 1, labels: {k: 1}",
            "labels.k: 1 is a number where text should be; put it in quotes",
        ),
    ];

    for (fields, expected) in cases {
        assert_eq!(
            with_entry(fields),
            format!("{prefix}{expected}; valid entries: default/x"),
            "{fields}"
        );
    }
    assert!(with_entry("address: '::1', port: 1").starts_with("line 3: endpoints[1]: name: is missing"));
    assert!(with_entry("name: 5, address: '::1', port: 1").contains("name: 5 is a number where text should be"));
    assert!(refusal("endpoints: [5]").starts_with("line 1: endpoints[0]: entry: a number where a mapping should be"));
}

#[test]
fn everything_that_is_wrong_is_named_at_once_on_its_own_line() {
    let text = "endpoints:\n- name: a\n  address: x\n  port: 0\n- name: b\n  address: 10.0.0.1\n  port: 80\n";

    let expected = "line 3: endpoints[0] (`a`): address: `x` is not an IPv4 or IPv6 address; names are not looked up; \
                    line 4: endpoints[0] (`a`): port: `0` is not a port between 1 and 65535; valid entries: default/b";
    assert_eq!(refusal(text), expected);
}

#[test]
fn an_id_that_is_given_twice_is_refused() {
    let entry = |namespace| format!("- {{name: a, namespace: {namespace}, address: 10.0.0.1, port: 80}}\n");
    let text = format!("endpoints:\n{}{}{}", entry("~"), entry("other"), entry("default"));

    let expected = "line 4: endpoints[2] (`a`): name: endpoints[0] is `default/a` too; an id can be given once; \
                    valid entries: default/a, other/a";
    assert_eq!(refusal(&text), expected);
}

#[test]
fn a_long_list_of_errors_has_an_end() {
    let text = format!("endpoints:\n{}", "- {}\n".repeat(1000));

    assert!(
        refusal(&text).contains("; and 2980 more; no entry is valid"),
        "{}",
        refusal(&text)
    );
}

#[test]
fn a_file_that_cannot_be_loaded_is_an_error_with_its_name() {
    let folder = Folder::with("endpoints:\n- name: a\n");
    let name = folder.file().display().to_string();
    let expected = format!("endpoints file `{name}`: line 2: endpoints[0] (`a`): address: is missing");
    assert!(folder.load_error().starts_with(&expected), "{}", folder.load_error());

    fs::write(folder.file(), " ".repeat(MAX_FILE_BYTES + 1)).unwrap();
    assert_eq!(
        folder.load_error(),
        format!("endpoints file `{name}`: longer than 1048576 bytes")
    );

    fs::write(folder.file(), [0xff]).unwrap();
    assert!(folder.load_error().starts_with(&format!(
        "cannot read the endpoints file `{name}`: stream did not contain"
    )));

    fs::remove_file(folder.file()).unwrap();
    assert!(
        folder
            .load_error()
            .starts_with(&format!("cannot read the endpoints file `{name}`: No such file"))
    );
}

#[test]
fn a_file_of_the_greatest_size_is_read() {
    let padding = "#".repeat(MAX_FILE_BYTES - ONE.len() - 1);
    let folder = Folder::with(&format!("{ONE}\n{padding}"));

    assert_eq!(FileDiscovery::load(&folder.params()).unwrap().endpoints().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_not_watched_is_not_followed() {
    let folder = Folder::with(ONE);
    let discovery = FileDiscovery::load(&folder.unwatched()).unwrap();
    let (sink, mut recorded) = recorder();
    fs::write(folder.file(), TWO).unwrap();

    let run = tokio::time::timeout(3 * REREAD, discovery.run(sink));

    assert!(run.await.is_err());
    assert!(recorded.try_next().is_none());
}

#[tokio::test]
async fn a_file_that_is_not_watched_is_read_again_after_sighup() {
    let folder = Folder::with(ONE);
    let discovery = FileDiscovery::load(&folder.unwatched()).unwrap();
    let (sink, mut recorded) = recorder();
    let task = AbortOnDropHandle::new(tokio::spawn(discovery.run(sink)));
    // It listens to the signal from here on.
    tokio::task::yield_now().await;
    fs::write(folder.file(), TWO).unwrap();

    kill_process(rustix::process::getpid(), Signal::HUP).unwrap();

    assert_eq!(recorded.next().await, "+ pool1/b [fd00::2]:8001");
    drop(task);
}

#[tokio::test]
async fn a_file_that_is_written_again_is_told_as_what_changed() {
    let folder = Folder::with(TWO);
    let (mut recorded, task) = folder
        .discover(&["+ default/a 10.0.0.1:8000", "+ pool1/b [fd00::2]:8001"])
        .await;

    fs::write(
        folder.file(),
        "endpoints: [{name: a, address: 10.0.0.9, port: 80}, {name: c, address: 10.0.0.3, port: 80}]",
    )
    .unwrap();

    assert_eq!(recorded.next().await, "- pool1/b");
    assert_eq!(recorded.next().await, "+ default/a 10.0.0.9:80");
    assert_eq!(recorded.next().await, "+ default/c 10.0.0.3:80");
    task.abort();
}

#[tokio::test]
async fn a_file_that_takes_the_place_of_the_old_one_is_read() {
    let folder = Folder::with(ONE);
    let (mut recorded, task) = folder.discover(&["+ default/a 10.0.0.1:8000"]).await;

    let other = folder.0.path().join("other");
    fs::write(&other, "endpoints: []").unwrap();
    fs::rename(&other, folder.file()).unwrap();

    assert_eq!(recorded.next().await, "- default/a");
    task.abort();
}

#[tokio::test]
async fn a_config_map_that_is_swapped_is_read() {
    let folder = Folder(TempDir::new().unwrap());
    let at = |name: &str| folder.0.path().join(name);
    for (version, text) in [("v1", ONE), ("v2", "endpoints: []")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("endpoints.yaml"), text).unwrap();
    }
    symlink("v1", at("..data")).unwrap();
    symlink("..data/endpoints.yaml", folder.file()).unwrap();
    let (mut recorded, task) = folder.discover(&["+ default/a 10.0.0.1:8000"]).await;

    symlink("v2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();

    assert_eq!(recorded.next().await, "- default/a");
    task.abort();
}

#[tokio::test]
async fn a_file_that_is_missing_or_wrong_for_a_while_loses_nothing() {
    let folder = Folder::with(ONE);
    let mut discovery = FileDiscovery::load(&folder.params()).unwrap();

    for text in [None, Some(""), Some("endpoints: ["), Some("endpoints: [{name: b}]")] {
        match text {
            None => fs::remove_file(folder.file()).unwrap(),
            Some(text) => fs::write(folder.file(), text).unwrap(),
        }
        let news = discovery.reload().await;

        assert!(news.changes.is_empty(), "{text:?} changes nothing");
        assert_eq!(discovery.endpoints().len(), 1);
        let trouble = discovery.endpoints_file.trouble.words();
        assert!(trouble.is_some(), "{text:?} is said to be wrong");
    }
    fs::write(folder.file(), "endpoints: []").unwrap();
    let news = discovery.reload().await;

    assert!(matches!(&news.changes[..], [PoolChange::Remove(id)] if id.as_str() == "default/a"));
    assert_eq!(discovery.endpoints_file.trouble.words(), None);
}

#[tokio::test]
async fn a_file_that_comes_back_is_read() {
    let folder = Folder::with(ONE);
    let (mut recorded, task) = folder.discover(&["+ default/a 10.0.0.1:8000"]).await;

    fs::remove_file(folder.file()).unwrap();
    fs::write(folder.file(), "endpoints: []").unwrap();

    assert_eq!(recorded.next().await, "- default/a");
    task.abort();
}

#[test]
fn the_list_in_the_readme_is_sound() {
    let readme = include_str!("../../../../README.md");
    let (_, list_on) = readme.split_once("<<'YAML'\n").expect("the readme has a list");
    let (text, _) = list_on.split_once("YAML\n").expect("the list has an end");

    assert_eq!(list(text).len(), 2);
}

#[test]
fn objectives_stand_beside_the_list_in_any_order() {
    let text = format!(
        "# of the team\n{}---\n{ONE}\n---\n---\napiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferenceObjective\n\
         metadata: {{name: batch, namespace: x, labels: {{a: b}}}}\nspec: {{poolRef: {{name: p}}, priority: -1}}\nstatus: {{}}\n",
        objective("urgent", 10)
    );

    assert_eq!(list(&text), ["default/a 10.0.0.1:8000 {}"]);
    assert_eq!(
        priorities(&text, FileOf::Endpoints),
        [("batch".to_owned(), -1, 15), ("urgent".to_owned(), 10, 6)]
    );
}

#[test]
fn an_objective_without_a_priority_has_zero() {
    for spec in ["", "spec:", "spec: {poolRef: {name: p}}", "spec: {priority: ~}"] {
        let text =
            format!("{{apiVersion: llm-d.ai/v1alpha2, kind: InferenceObjective, metadata: {{name: a}}, {spec}}}");

        assert_eq!(
            priorities(&text, FileOf::Objectives),
            [("a".to_owned(), 0, 1)],
            "{text}"
        );
    }
}

#[test]
fn an_objective_names_its_pools_as_its_version_does() {
    let objective = |version: &str, spec: &str| {
        format!("{{apiVersion: {version}, kind: InferenceObjective, metadata: {{name: a}}, spec: {{{spec}}}}}")
    };
    let (v1, v1_alpha2, old) = (
        "llm-d.ai/v1",
        "llm-d.ai/v1alpha2",
        "inference.networking.x-k8s.io/v1alpha2",
    );
    let selector = "poolSelector: {matchLabels: {tier: gold}, matchExpressions: [{key: a, operator: Exists}]}";
    for (version, spec) in [
        (
            v1,
            "poolRefs: [{name: p}, {name: q, group: inference.networking.k8s.io, kind: InferencePool}]",
        ),
        (v1, selector),
        (v1, "priority: 0"),
        (v1_alpha2, "poolRef: {name: p}"),
        (v1_alpha2, "poolRefs: [{name: p}]"),
        (v1_alpha2, selector),
        (old, "poolRef: {name: p}"),
    ] {
        let found = priorities(&objective(version, spec), FileOf::Objectives);

        assert_eq!(found, [("a".to_owned(), 0, 1)], "{version}: {spec}");
    }
    for (version, spec, word) in [
        (
            v1,
            "poolRef: {name: p}",
            "spec.poolRef: unknown field; known: `poolRefs`",
        ),
        (
            v1,
            "poolRefs: {name: p}",
            "spec.poolRefs: {\"name\":\"p\"} is a mapping where a list should be",
        ),
        (
            v1,
            "poolRefs: [p]",
            "spec.poolRefs[0]: \"p\" is text where a mapping should be",
        ),
        (v1, "poolRefs: [{}]", "spec.poolRefs[0].name: is missing"),
        (
            v1,
            "poolRefs: [{name: p, nmae: q}]",
            "spec.poolRefs[0].nmae: unknown field",
        ),
        (
            v1,
            "poolSelector: {app: x}",
            "spec.poolSelector.app: unknown field; known: `matchLabels`",
        ),
        (v1_alpha2, "poolRef: {}", "spec.poolRef.name: is missing"),
        (
            old,
            "poolRefs: [{name: p}]",
            "spec.poolRefs: unknown field; known: `poolRef`",
        ),
    ] {
        let refusal = refusal_of(&objective(version, spec), FileOf::Objectives);

        assert!(refusal.contains(word), "{version}: {spec}: {refusal}");
    }
}

#[test]
fn priorities_are_all_that_32_bits_hold() {
    for priority in [i32::MIN, -1, 0, i32::MAX] {
        let found = priorities(&objective("a", priority), FileOf::Objectives);

        assert_eq!(found[0].1, priority);
    }
}

#[test]
fn an_objective_that_is_wrong_is_named_by_line_name_and_field() {
    let with = |metadata: &str, spec: &str| {
        format!(
            "{ONE}\n---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
        )
    };
    let range = "is not a whole number between -2147483648 and 2147483647; write it without quotes";
    let cases = [
        (
            "name: a",
            "priority: '5'",
            format!("6: InferenceObjective (`a`): spec.priority: \"5\" {range}"),
        ),
        (
            "name: a",
            "priority: 1.5",
            format!("6: InferenceObjective (`a`): spec.priority: 1.5 {range}"),
        ),
        (
            "name: a",
            "priority: 2147483648",
            format!("6: InferenceObjective (`a`): spec.priority: 2147483648 {range}"),
        ),
        (
            "name: a",
            "priorty: 5",
            "6: InferenceObjective (`a`): spec.priorty: unknown field; known: `poolRef`, `poolRefs`, `poolSelector`, \
             `priority`"
                .to_owned(),
        ),
        (
            "name: a",
            "poolRef: p",
            "6: InferenceObjective (`a`): spec.poolRef: \"p\" is text where a mapping should be".to_owned(),
        ),
        (
            "",
            "priority: 1",
            "5: InferenceObjective: metadata.name: is missing; give the name that requests say".to_owned(),
        ),
        (
            "name: ''",
            "priority: 1",
            "5: InferenceObjective: metadata.name: is empty; give the name that requests say".to_owned(),
        ),
        (
            "name: 5",
            "priority: 1",
            "5: InferenceObjective: metadata.name: 5 is a number where text should be; put it in quotes".to_owned(),
        ),
        (
            "name: a b",
            "priority: 1",
            "5: InferenceObjective: metadata.name: \"a b\" has characters that a request cannot say in a header; use \
             letters, digits, `-` and `.`"
                .to_owned(),
        ),
    ];

    for (metadata, spec, expected) in cases {
        assert_eq!(refusal(&with(metadata, spec)), format!("line {expected}"));
    }
    let text = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: x\npriority: 3\n";
    assert_eq!(
        refusal_of(text, FileOf::Objectives),
        "line 4: InferenceObjective: priority: unknown field; known: `apiVersion`, `kind`, `metadata`, `spec`, `status`; \
         line 3: InferenceObjective: metadata: \"x\" is text where a mapping should be; \
         line 3: InferenceObjective: metadata.name: is missing; give the name that requests say"
    );
}

#[test]
fn another_kind_or_version_is_refused_with_what_is_possible() {
    let possible = "where a mapping with a list `endpoints`, or an `InferenceObjective` of `llm-d.ai/v1` or `llm-d.ai/v1alpha2` or \
                    `inference.networking.x-k8s.io/v1alpha2`, should be";
    let cases = [
        (
            "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceModelRewrite",
            "line 4: kind `InferenceModelRewrite` of `llm-d.ai/v1alpha2`",
        ),
        (
            "apiVersion: llm-d.ai/v2\nkind: InferenceObjective",
            "line 3: kind `InferenceObjective` of `llm-d.ai/v2`",
        ),
        (
            "kind: InferenceObjective",
            "line 3: kind `InferenceObjective` without `apiVersion`",
        ),
        (
            "apiVersion: 1\nkind: InferenceObjective",
            "line 3: kind `InferenceObjective` of `1`",
        ),
        ("kind: [5]", "line 3: kind `[5]` without `apiVersion`"),
        ("spec: {}", "line 3: a mapping without either"),
        ("5", "line 3: a number"),
    ];

    for (document, found) in cases {
        assert_eq!(
            refusal(&format!("{ONE}\n---\n{document}\n")),
            format!("{found} {possible}")
        );
    }
    let elsewhere = "where an `InferenceObjective` of `llm-d.ai/v1` or `llm-d.ai/v1alpha2` or `inference.networking.x-k8s.io/v1alpha2` \
                     should be";
    let refused = |text| refusal_of(text, FileOf::Objectives);
    assert_eq!(
        refused("\nendpoints: []"),
        format!("line 2: a list `endpoints` {elsewhere}")
    );
    assert_eq!(
        refused("spec: {}"),
        format!("line 1: a mapping without `kind` {elsewhere}")
    );
}

#[test]
fn a_file_of_endpoints_has_one_list() {
    assert_eq!(
        refusal("endpoints: []\n---\nendpoints: []\n"),
        "line 3: a second list `endpoints`; the first is on line 1, and a file can have one"
    );
    assert_eq!(
        refusal(&objective("a", 1)),
        "line 1: no document has a list `endpoints`; write `endpoints: []` if there are none"
    );
}

#[test]
fn an_objective_that_is_given_twice_is_refused_with_both_lines() {
    let text = [objective("a", 1), objective("b", 1), objective("a", 1)].concat();

    for (text, file) in [
        (text.clone(), FileOf::Objectives),
        (format!("{ONE}\n{text}"), FileOf::Endpoints),
    ] {
        let shift = usize::from(file == FileOf::Endpoints);
        assert_eq!(
            refusal_of(&text, file),
            format!(
                "line {}: objective `a` is already there on line {}; a name can be given once",
                19 + shift,
                5 + shift
            )
        );
    }
}

#[test]
fn everything_that_is_wrong_in_any_document_is_named_at_once() {
    let text = format!(
        "kind: Pod\n---\nendpoints: [{{name: a}}]\n{}{}",
        objective("b", 1),
        objective("b", 1)
    );

    let refused = refusal(&text);

    for part in [
        "line 1: kind `Pod` without `apiVersion` where",
        "; line 3: endpoints[0] (`a`): address: is missing",
        "; line 15: objective `b` is already there on line 8",
    ] {
        assert!(refused.contains(part), "{part} is in: {refused}");
    }
}

#[test]
fn an_objectives_file_may_be_without_objectives_but_not_without_a_word() {
    for text in ["# none yet\n", "---\n", "---\n---\n"] {
        assert!(priorities(text, FileOf::Objectives).is_empty(), "{text:?}");
    }
    for text in ["", "\n \n", "\u{feff}"] {
        assert!(refusal_of(text, FileOf::Objectives).starts_with("line 1: nothing where an `InferenceObjective`"));
    }
}

#[test]
fn objectives_of_both_files_are_used_together() {
    let folder = Folder::with(&format!("{ONE}\n{}", objective("urgent", 10)));
    let params = folder.params_of_both(&objective("batch", -1));

    let discovery = FileDiscovery::load(&params).unwrap();

    assert_eq!(in_words(discovery.objectives()), "batch=-1 urgent=10");
}

#[test]
fn an_objective_in_both_files_is_refused_with_both_lines() {
    let folder = Folder::with(&format!("{ONE}\n{}", objective("urgent", 10)));
    let params = folder.params_of_both(&objective("urgent", 10));

    let error = FileDiscovery::load(&params).unwrap_err();

    let (endpoints, objectives) = (folder.file(), folder.objectives_file());
    assert_eq!(
        error.in_full(),
        format!(
            "objective `urgent` is in both files: on line 6 of `{}` and on line 5 of `{}`; a name can be given once",
            endpoints.display(),
            objectives.display()
        )
    );
}

#[test]
fn an_objectives_file_that_cannot_be_loaded_is_an_error_with_its_name() {
    let folder = Folder::with(ONE);
    let params = folder.params_of_both("kind: Pod\n");
    let name = folder.objectives_file().display().to_string();
    let refused = || FileDiscovery::load(&params).unwrap_err().in_full();

    let expected = format!("objectives file `{name}`: line 1: kind `Pod` without `apiVersion` where");
    assert!(refused().starts_with(&expected), "{}", refused());
    let error = FileDiscovery::load(&params).unwrap_err();
    assert!(
        std::error::Error::source(&error).is_none(),
        "what is wrong is not said twice"
    );

    fs::write(folder.objectives_file(), " ".repeat(MAX_FILE_BYTES + 1)).unwrap();
    assert_eq!(
        refused(),
        format!("objectives file `{name}`: longer than 1048576 bytes")
    );

    fs::remove_file(folder.objectives_file()).unwrap();
    assert!(refused().starts_with(&format!("cannot read the objectives file `{name}`: No such file")));
}

#[tokio::test]
async fn objectives_that_change_in_either_file_are_told_whole() {
    let folder = Folder::with(&format!("{ONE}\n{}", objective("urgent", 10)));
    let params = folder.params_of_both(&objective("batch", -1));
    let (sink, mut recorded) = recorder();
    let task = tokio::spawn(FileDiscovery::load(&params).unwrap().run(sink));

    fs::write(folder.objectives_file(), objective("batch", -5)).unwrap();
    assert_eq!(recorded.next_objectives().await, "batch=-5 urgent=10");
    fs::write(folder.file(), ONE).unwrap();
    assert_eq!(recorded.next_objectives().await, "batch=-5");
    fs::write(folder.objectives_file(), "# none\n").unwrap();
    assert_eq!(recorded.next_objectives().await, "");

    assert!(recorded.try_next().is_none(), "the endpoints are as they were");
    task.abort();
}

#[tokio::test]
async fn an_objectives_file_in_another_directory_is_followed_too() {
    let (folder, other) = (Folder::with(ONE), TempDir::new().unwrap());
    let path = other.path().join("objectives.yaml");
    fs::write(&path, objective("a", 1)).unwrap();
    let params = FileDiscoveryParams {
        objectives_path: path.to_str().unwrap().to_owned(),
        ..folder.params()
    };
    let (sink, mut recorded) = recorder();
    let task = tokio::spawn(FileDiscovery::load(&params).unwrap().run(sink));

    fs::write(&path, objective("a", 2)).unwrap();
    assert_eq!(recorded.next_objectives().await, "a=2");
    fs::write(folder.file(), "endpoints: []").unwrap();
    assert_eq!(recorded.next().await, "- default/a");
    task.abort();
}

#[tokio::test]
async fn objectives_that_are_missing_or_wrong_for_a_while_lose_nothing() {
    let folder = Folder::with(ONE);
    let params = folder.params_of_both(&objective("a", 1));
    let mut discovery = FileDiscovery::load(&params).unwrap();

    for text in [None, Some(""), Some("kind: ["), Some("kind: Pod")] {
        match text {
            None => fs::remove_file(folder.objectives_file()).unwrap(),
            Some(text) => fs::write(folder.objectives_file(), text).unwrap(),
        }
        let news = discovery.reload().await;

        assert_eq!(news.objectives, None, "{text:?} changes nothing");
        assert_eq!(in_words(discovery.objectives()), "a=1");
        let trouble = discovery.objectives_file.as_ref().unwrap().trouble.words();
        assert!(trouble.is_some(), "{text:?} is said to be wrong");
    }
    fs::write(folder.objectives_file(), objective("a", 2)).unwrap();
    let news = discovery.reload().await;

    assert_eq!(in_words(&news.objectives.unwrap()), "a=2");
    assert_eq!(discovery.objectives_file.unwrap().trouble.words(), None);
}

#[tokio::test]
async fn a_wrong_objectives_file_does_not_keep_endpoints_back() {
    let folder = Folder::with(ONE);
    let params = folder.params_of_both(&objective("a", 1));
    let mut discovery = FileDiscovery::load(&params).unwrap();

    fs::write(folder.objectives_file(), "kind: Pod").unwrap();
    fs::write(folder.file(), format!("endpoints: []\n{}", objective("b", 2))).unwrap();
    let news = discovery.reload().await;

    assert_eq!(news.changes.len(), 1);
    assert_eq!(in_words(&news.objectives.unwrap()), "a=1 b=2");
}

#[tokio::test]
async fn an_objective_that_comes_to_be_in_both_files_changes_nothing_until_it_is_in_one() {
    let folder = Folder::with(ONE);
    let params = folder.params_of_both(&objective("a", 1));
    let mut discovery = FileDiscovery::load(&params).unwrap();

    fs::write(folder.file(), format!("endpoints: []\n{}", objective("a", 2))).unwrap();
    let news = discovery.reload().await;

    assert_eq!(news.objectives, None);
    assert_eq!(news.changes.len(), 1, "the endpoints are right");
    let trouble = discovery.clash.words().expect("the clash is said");
    assert!(trouble.starts_with("objective `a` is in both files: on line 6 of "));

    fs::write(folder.objectives_file(), "# moved\n").unwrap();
    let news = discovery.reload().await;

    assert_eq!(in_words(&news.objectives.unwrap()), "a=2");
    assert_eq!(discovery.clash.words(), None);
}

#[test]
fn the_example_with_objectives_is_sound() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/endpoints");

    let params = FileDiscoveryParams {
        path: format!("{root}/with-objectives.yaml"),
        ..FileDiscoveryParams::default()
    };
    let discovery = FileDiscovery::load(&params).unwrap();

    assert_eq!(discovery.endpoints().len(), 2);
    assert_eq!(in_words(discovery.objectives()), "batch=-10 interactive=100");
}

#[test]
fn the_objectives_in_the_documentation_are_sound() {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, section) = page
        .split_once("## Objectives from a file\n")
        .expect("there is the section");
    let (_, rest) = section
        .split_once("```yaml\n# endpoints.yaml\n")
        .expect("it has the file");
    let (text, _) = rest.split_once("```").expect("the file has an end");

    assert_eq!(list(text).len(), 1);
    let found: Vec<_> = priorities(text, FileOf::Endpoints)
        .into_iter()
        .map(|(name, priority, _)| (name, priority))
        .collect();
    assert_eq!(found, [("batch".to_owned(), -10), ("interactive".to_owned(), 100)]);
}

#[test]
fn the_objectives_of_the_page_on_flow_control_are_sound() {
    let page = include_str!("../../../../docs/flow-control.md");
    let mut snippets = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let text = snippets.find(|text| text.contains("kind: InferenceObjective"));

    let found: Vec<_> = priorities(text.expect("it has objectives"), FileOf::Objectives)
        .into_iter()
        .map(|(name, priority, _)| (name, priority))
        .collect();
    assert_eq!(found, [("best-effort".to_owned(), -10), ("premium".to_owned(), 100)]);
}

fn some_endpoints() -> impl Strategy<Value = Endpoints> {
    proptest::collection::btree_map("[a-e]", 1_u16..4, 0..5).prop_map(|ports| {
        let endpoint = |(name, port): (String, u16)| {
            let entry = format!("endpoints: [{{name: {name}, address: 10.0.0.1, port: {port}}}]");
            sound(&entry, FileOf::Endpoints).endpoints
        };
        ports.into_iter().flat_map(endpoint).collect()
    })
}

proptest! {
    #[test]
    fn objectives_are_the_same_in_any_order_of_documents(
        priorities in proptest::collection::btree_map("[a-d]{1,6}", any::<i32>(), 0..6),
        list_at in 0_usize..7,
    ) {
        let mut documents: Vec<_> = priorities.iter().map(|(name, priority)| objective(name, *priority)).collect();
        documents.insert(list_at.min(documents.len()), format!("---\n{ONE}\n"));

        let content = sound(&documents.concat(), FileOf::Endpoints);

        let found = content.objectives.values().map(|found| (found.name.to_string(), found.priority));
        prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), priorities);
        prop_assert_eq!(content.endpoints.len(), 1);
    }

    #[test]
    fn the_difference_leads_from_one_list_to_the_other_and_is_empty_between_equals(
        old in some_endpoints(),
        new in some_endpoints(),
    ) {
        let mut list = old.clone();

        for change in difference(&old, &new) {
            match change {
                PoolChange::Upsert(endpoint) => prop_assert_ne!(list.insert(endpoint.id.clone(), Arc::clone(&endpoint)), Some(endpoint)),
                PoolChange::Remove(id) => prop_assert!(list.remove(&id).is_some()),
                PoolChange::Report(..) | PoolChange::Scrape(..) => prop_assert!(false, "files report nothing"),
            }
        }

        prop_assert_eq!(list, new);
    }
}
