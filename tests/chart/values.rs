//! Values, their schema, and what is the same in several places.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{documents, files, repository, table, text_of};

/// Values that are given as a whole.
const WHOLE: [&str; 4] = ["resources", "podSecurityContext", "securityContext", "labels"];

/// All values with their paths.
fn leaves(value: &Value, path: &str, into: &mut BTreeMap<String, Value>) {
    let last = path.rsplit('.').next().unwrap();
    match value.as_object() {
        Some(fields) if !fields.is_empty() && !WHOLE.contains(&last) => {
            for (key, field) in fields {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(field, &path, into);
            }
        }
        _ => {
            into.insert(path.to_owned(), value.clone());
        }
    }
}

fn values() -> Value {
    documents(&repository("charts/forebay/values.yaml")).remove(0)
}

/// Every value, by its path, with its default.
pub(super) fn defaults() -> BTreeMap<String, Value> {
    let mut defaults = BTreeMap::new();
    leaves(&values(), "", &mut defaults);
    defaults
}

fn schema() -> Value {
    serde_json::from_str(&text_of("charts/forebay/values.schema.json")).unwrap()
}

#[test]
fn the_documentation_lists_the_values_with_their_defaults() {
    let documented: BTreeMap<_, _> = table(&text_of("docs/kubernetes.md"), "| Value | Default | Meaning |")
        .into_iter()
        .map(|row| {
            let cell = |at: usize| row[at].trim_matches('`').to_owned();
            let default = serde_json::from_str(&cell(1)).unwrap_or_else(|error| panic!("{}: {error}", row[1]));
            assert!(!row[2].is_empty(), "{} means nothing", row[0]);
            (cell(0), default)
        })
        .collect();

    assert_eq!(documented, defaults());
}

/// Compares values with the properties of a schema, both ways.
fn compare(value: &Value, schema: &Value, path: &str) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}: anything is taken");
    let fields = value.as_object().unwrap();
    for (key, field) in fields {
        let property = properties
            .get(key)
            .unwrap_or_else(|| panic!("{path}.{key} is not in the schema"));
        compare(field, property, &format!("{path}.{key}"));
    }
    for (key, property) in properties {
        // What is only there for the values of others says so.
        assert!(
            fields.contains_key(key) || property["description"].is_string(),
            "{path}.{key} is in the schema, and not in the values"
        );
    }
}

#[test]
fn the_schema_knows_the_values_and_no_others() {
    compare(&values(), &schema(), "values");
}

#[test]
fn each_example_has_its_manifests() {
    let names = |folder| -> BTreeSet<_> {
        let files = files(folder, ".yaml").into_iter();
        files.map(|path| path.file_name().unwrap().to_owned()).collect()
    };

    assert_eq!(names("charts/forebay/examples"), names("tests/golden/helm"));
}

#[test]
fn charts_and_image_are_of_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    for chart in ["charts/forebay", "charts/forebay-crds"] {
        let about = documents(&repository(&format!("{chart}/Chart.yaml"))).remove(0);
        assert_eq!(about["version"], version, "{chart}");
        assert_eq!(about["appVersion"], version, "{chart}");
    }
    let dockerfile = text_of("Dockerfile");
    assert!(dockerfile.contains(&format!("\nARG VERSION={version}\n")));
    assert!(dockerfile.contains(concat!("\nARG RUST_VERSION=", env!("CARGO_PKG_RUST_VERSION"), "\n")));
}

#[test]
fn the_program_of_the_image_is_built_with_its_commit() {
    let dockerfile = text_of("Dockerfile");
    let (_, build) = dockerfile.split_once(" AS build\n").unwrap();
    let (before, _) = build.split_once("cargo build").unwrap();

    assert!(before.contains("\nARG REVISION=unknown\nENV FOREBAY_COMMIT=${REVISION}\n"));
    assert!(text_of("src/version.rs").contains("option_env!(\"FOREBAY_COMMIT\")"));
}

#[test]
fn the_chart_of_definitions_has_those_of_the_repository() {
    let definitions = |folder: &str| -> BTreeMap<_, _> {
        let files = files(folder, ".yaml").into_iter();
        files
            .map(|path| {
                (
                    path.file_name().unwrap().to_owned(),
                    std::fs::read_to_string(&path).unwrap(),
                )
            })
            .collect()
    };

    assert!(!definitions("crds").is_empty());
    assert!(
        definitions("charts/forebay-crds/files") == definitions("crds"),
        "the chart has other definitions than crds/: run `make chart-crds`"
    );
}
