//! An `InferenceObjective`: the priority of the requests that name it.
//!
//! Which pools it is for is checked for its form, and says nothing: a file has one pool.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::words::kind;
use crate::engine::config::yaml::Positions;

/// The `kind` of an objective.
pub(super) const KIND: &str = "InferenceObjective";

/// A version of it.
#[derive(Debug)]
pub(super) struct Version {
    /// How it is written.
    pub(super) name: &'static str,
    /// The fields of `spec`.
    fields: &'static [&'static str],
}

/// The versions that are read: the current one, the one before, which API servers store with the fields of both, and that
/// of the Gateway API Inference Extension.
pub(super) const VERSIONS: [Version; 3] = [
    Version {
        name: "llm-d.ai/v1",
        fields: &["poolRefs", "poolSelector", "priority"],
    },
    Version {
        name: "llm-d.ai/v1alpha2",
        fields: &["poolRef", "poolRefs", "poolSelector", "priority"],
    },
    Version {
        name: "inference.networking.x-k8s.io/v1alpha2",
        fields: &["poolRef", "priority"],
    },
];

/// What an objective says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objective {
    /// The name that requests give.
    pub(super) name: Arc<str>,
    /// Higher is more important; below zero can be shed.
    pub(super) priority: i32,
    /// Line of the name.
    pub(super) line: usize,
}

/// A field of an objective that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectiveError {
    /// Line of the field, or of the nearest thing around it that is there.
    pub line: usize,
    /// Name of the objective, if it has one.
    pub name: Option<String>,
    /// The field.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

impl fmt::Display for ObjectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {KIND}", self.line)?;
        if let Some(name) = &self.name {
            write!(f, " (`{name}`)")?;
        }
        write!(f, ": {}: {}", self.field, self.reason)
    }
}

/// Reads an objective, whose kind and version are right. Metadata other than the name, and the status, are passed over.
///
/// # Errors
///
/// Names everything that is wrong. A field that is not known is wrong, since a misspelt priority would be 0.
pub(super) fn read(
    document: &Map<String, Value>,
    version: &Version,
    positions: &Positions,
) -> Result<Objective, Vec<ObjectiveError>> {
    let empty = Map::new();
    let mut wrong = Vec::new();
    unknown(
        document,
        "",
        &["apiVersion", "kind", "metadata", "spec", "status"],
        &mut wrong,
    );
    let metadata = mapping(document, "metadata", "", &empty, &mut wrong);
    let name = name(metadata).unwrap_or_else(|reason| {
        wrong.push(("metadata.name".to_owned(), reason));
        ""
    });
    let spec = mapping(document, "spec", "", &empty, &mut wrong);
    unknown(spec, "spec.", version.fields, &mut wrong);
    pools(spec, version, &mut wrong);
    let priority = priority(spec).unwrap_or_else(|reason| {
        wrong.push(("spec.priority".to_owned(), reason));
        0
    });
    if wrong.is_empty() {
        return Ok(Objective {
            name: name.into(),
            priority,
            line: positions.line("metadata.name"),
        });
    }
    let error = |(field, reason): (String, String)| ObjectiveError {
        line: positions.line(&field),
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        field,
        reason,
    };
    Err(wrong.into_iter().map(error).collect())
}

/// The mapping `field`; an empty one if it is not there.
fn mapping<'v>(
    parent: &'v Map<String, Value>,
    field: &str,
    prefix: &str,
    empty: &'v Map<String, Value>,
    wrong: &mut Vec<(String, String)>,
) -> &'v Map<String, Value> {
    match parent.get(field) {
        Some(Value::Object(fields)) => fields,
        None | Some(Value::Null) => empty,
        Some(other) => {
            let reason = format!("{other} is {} where a mapping should be", kind(other));
            wrong.push((format!("{prefix}{field}"), reason));
            empty
        }
    }
}

fn unknown(fields: &Map<String, Value>, prefix: &str, known: &[&str], wrong: &mut Vec<(String, String)>) {
    for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
        let reason = format!("unknown field; known: `{}`", known.join("`, `"));
        wrong.push((format!("{prefix}{field}"), reason));
    }
}

/// Checks the fields that say which pools it is for.
fn pools(spec: &Map<String, Value>, version: &Version, wrong: &mut Vec<(String, String)>) {
    let empty = Map::new();
    let has = |field| version.fields.contains(&field);
    if has("poolRef") && spec.get("poolRef").is_some_and(|found| !found.is_null()) {
        let pool = mapping(spec, "poolRef", "spec.", &empty, wrong);
        if spec["poolRef"].is_object() {
            reference(pool, "spec.poolRef.", wrong);
        }
    }
    if has("poolRefs") {
        for (at, entry) in list(spec, "poolRefs", "spec.", wrong).iter().enumerate() {
            match entry {
                Value::Object(pool) => reference(pool, &format!("spec.poolRefs[{at}]."), wrong),
                other => wrong.push((
                    format!("spec.poolRefs[{at}]"),
                    format!("{other} is {} where a mapping should be", kind(other)),
                )),
            }
        }
    }
    if has("poolSelector") {
        let selector = mapping(spec, "poolSelector", "spec.", &empty, wrong);
        let prefix = "spec.poolSelector.";
        unknown(selector, prefix, &["matchLabels", "matchExpressions"], wrong);
        mapping(selector, "matchLabels", prefix, &empty, wrong);
        list(selector, "matchExpressions", prefix, wrong);
    }
}

/// Checks how a pool is named.
fn reference(pool: &Map<String, Value>, prefix: &str, wrong: &mut Vec<(String, String)>) {
    unknown(pool, prefix, &["group", "kind", "name"], wrong);
    if !pool.get("name").is_some_and(Value::is_string) {
        wrong.push((
            format!("{prefix}name"),
            "is missing, or is no text; give the name of the pool".to_owned(),
        ));
    }
}

/// The list `field`; an empty one if it is not there.
fn list<'v>(
    parent: &'v Map<String, Value>,
    field: &str,
    prefix: &str,
    wrong: &mut Vec<(String, String)>,
) -> &'v [Value] {
    match parent.get(field) {
        Some(Value::Array(entries)) => entries,
        None | Some(Value::Null) => &[],
        Some(other) => {
            let reason = format!("{other} is {} where a list should be", kind(other));
            wrong.push((format!("{prefix}{field}"), reason));
            &[]
        }
    }
}

fn name(metadata: &Map<String, Value>) -> Result<&str, String> {
    match metadata.get("name") {
        None | Some(Value::Null) => Err("is missing; give the name that requests say".to_owned()),
        Some(Value::String(text)) if text.is_empty() => Err("is empty; give the name that requests say".to_owned()),
        Some(Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text),
        Some(Value::String(text)) => Err(format!(
            "{text:?} has characters that a request cannot say in a header; use letters, digits, `-` and `.`"
        )),
        Some(other) => Err(format!(
            "{other} is {} where text should be; put it in quotes",
            kind(other)
        )),
    }
}

fn priority(spec: &Map<String, Value>) -> Result<i32, String> {
    let found = match spec.get("priority") {
        None | Some(Value::Null) => return Ok(0),
        Some(found) => found,
    };
    let priority = found.as_i64().and_then(|number| i32::try_from(number).ok());
    priority.ok_or_else(|| {
        format!(
            "{found} is not a whole number between {} and {}; write it without quotes",
            i32::MIN,
            i32::MAX
        )
    })
}
