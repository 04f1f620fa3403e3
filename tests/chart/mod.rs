//! The charts and the examples for Kubernetes.
//!
//! Read here is what the examples render to, in tests/golden/helm; `make chart` holds that to what Helm makes of the
//! chart. So all but that comparison and [`effects`] need no Helm.

mod arguments;
mod configuration;
mod effects;
pub(crate) mod envoy;
mod examples;
mod manifests;
mod metrics;
mod monitoring;
mod permissions;
mod values;

use std::path::{Path, PathBuf};

use forebay::engine::config::yaml;
use serde_json::Value;

/// What one file of values renders to.
struct Rendered {
    /// The name of the example.
    name: String,
    objects: Vec<Value>,
}

impl Rendered {
    fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let found: Vec<_> = self.objects.iter().filter(|object| object["kind"] == kind).collect();
        found.into_iter()
    }

    /// The one object of that kind and name.
    fn named(&self, kind: &str, name: &str) -> &Value {
        let mut found = self.of_kind(kind).filter(|object| name_of(object) == name);
        let object = found
            .next()
            .unwrap_or_else(|| panic!("{}: there is no {kind} `{name}`", self.name));
        assert!(found.next().is_none(), "{}: two of {kind} `{name}`", self.name);
        object
    }

    /// The container of Forebay.
    fn picker(&self) -> &Value {
        self.of_kind("Deployment")
            .flat_map(containers)
            .find(|container| container["name"] == "epp")
            .unwrap()
    }

    fn picker_has(&self, argument: &str) -> bool {
        texts(&self.picker()["args"]).contains(&argument)
    }
}

/// A file or a folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    let path = repository(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of a folder that end so, in the order of their names.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(repository(folder))
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    files.sort();
    files
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let documents = yaml::parse_all(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let objects = documents.into_iter().map(|(value, _)| value);
    objects.filter(|value| !value.is_null()).collect()
}

/// All examples, as they render.
fn examples() -> Vec<Rendered> {
    let rendered: Vec<_> = files("tests/golden/helm", ".yaml")
        .iter()
        .map(|path| Rendered {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            objects: documents(path),
        })
        .collect();
    assert!(!rendered.is_empty());
    rendered
}

fn example(name: &str) -> Rendered {
    let found = examples().into_iter().find(|rendered| rendered.name == name);
    found.unwrap_or_else(|| panic!("there is no example `{name}`"))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Elements of a list; none if there is no list.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().map(|text| text.as_str().unwrap()).collect()
}

fn containers(deployment: &Value) -> &[Value] {
    list(&deployment["spec"]["template"]["spec"]["containers"])
}

/// True if an object with these labels is selected. An empty selector selects nothing here, so that none slips through.
fn selects(selector: &Value, labels: &Value) -> bool {
    let pairs = selector.as_object().unwrap();
    !pairs.is_empty() && pairs.iter().all(|(key, value)| &labels[key] == value)
}

/// The rows below the headings of the table that begins with `first`, as cells without the backticks around them.
fn table(page: &str, first: &str) -> Vec<Vec<String>> {
    let (_, rest) = page
        .split_once(&format!("\n{first}"))
        .unwrap_or_else(|| panic!("no table begins with `{first}`"));
    rest.lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}
