use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::testing::{Recorded, recorder};
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

fn list(text: &str) -> Vec<String> {
    let endpoints = document::parse(text).expect("the list is sound");
    endpoints
        .values()
        .map(|endpoint| format!("{} {} {:?}", endpoint.id, endpoint.socket(), endpoint.labels))
        .collect()
}

fn refusal(text: &str) -> String {
    document::parse(text).expect_err("the list is refused").to_string()
}

fn with_entry(fields: &str) -> String {
    refusal(&format!(
        "endpoints:\n- {{name: x, address: 10.0.0.1, port: '80'}}\n- {{{fields}}}\n"
    ))
}

/// A directory with an endpoints file in it.
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
            watch_file: true,
        }
    }

    fn load_error(&self) -> String {
        describe(&FileDiscovery::load(&self.params()).unwrap_err())
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
    assert_eq!(
        refusal(""),
        "line 1: nothing where a mapping with a list `endpoints` should be"
    );
    assert_eq!(
        refusal("\nendpoint: []"),
        "line 2: a mapping without one where a mapping with a list `endpoints` should be"
    );
    assert!(refusal("a: 1\nendpoints: 5").starts_with("line 2: a number where"));
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

#[tokio::test]
async fn a_file_that_is_not_watched_is_not_followed() {
    let folder = Folder::with(ONE);
    let params = FileDiscoveryParams {
        watch_file: false,
        ..folder.params()
    };
    let (sink, mut recorded) = recorder();

    FileDiscovery::load(&params).unwrap().run(sink).await;

    assert!(recorded.try_next().is_none());
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
        let changes = discovery.reload().await;

        assert!(changes.is_empty(), "{text:?} changes nothing");
        assert_eq!(discovery.endpoints().len(), 1);
        assert!(discovery.trouble.is_some(), "{text:?} is said to be wrong");
    }
    fs::write(folder.file(), "endpoints: []").unwrap();
    let changes = discovery.reload().await;

    assert!(matches!(&changes[..], [PoolChange::Remove(id)] if id.as_str() == "default/a"));
    assert_eq!(discovery.trouble, None);
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

fn some_endpoints() -> impl Strategy<Value = Endpoints> {
    proptest::collection::btree_map("[a-e]", 1_u16..4, 0..5).prop_map(|ports| {
        let endpoint = |(name, port): (String, u16)| {
            let entry = format!("endpoints: [{{name: {name}, address: 10.0.0.1, port: {port}}}]");
            document::parse(&entry).unwrap()
        };
        ports.into_iter().flat_map(endpoint).collect()
    })
}

proptest! {
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
                PoolChange::Report(..) => prop_assert!(false, "files report nothing"),
            }
        }

        prop_assert_eq!(list, new);
    }
}
