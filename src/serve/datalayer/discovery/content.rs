//! What the files hold: streams of YAML documents, each a list of endpoints or an `InferenceObjective`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::endpoints::{self, ListError};
use super::objective::{self, KIND, Objective, ObjectiveError, VERSIONS};
use super::words::{kind, listed};
use super::{Endpoints, FileOf};
use crate::engine::config::yaml::{self, Positions, YamlError};

/// Objectives by name, with where they stand.
pub(super) type Stated = BTreeMap<Arc<str>, Objective>;

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) endpoints: Endpoints,
    pub(super) objectives: Stated,
}

/// Why text is not what a file should hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// It is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// There is nothing in it.
    #[error("line 1: nothing where {possible} should be")]
    Empty {
        /// What is possible.
        possible: String,
    },
    /// It has objectives, and no list of endpoints.
    #[error("line 1: no document has a list `endpoints`; write `endpoints: []` if there are none")]
    NoEndpoints,
    /// Documents are wrong.
    #[error("{}", listed(.0, "; "))]
    Documents(Vec<DocumentError>),
}

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The list of endpoints is wrong.
    #[error(transparent)]
    List(#[from] ListError),
    /// There is a list of endpoints already.
    #[error("line {line}: a second list `endpoints`; the first is on line {first}, and a file can have one")]
    SecondList {
        /// Line of the second one.
        line: usize,
        /// Line of the first one.
        first: usize,
    },
    /// A field of an objective is wrong.
    #[error("{0}")]
    Objective(ObjectiveError),
    /// An objective has the name of another one.
    #[error("line {line}: objective `{name}` is already there on line {first}; a name can be given once")]
    SecondObjective {
        /// Line of the second one.
        line: usize,
        /// The name.
        name: Arc<str>,
        /// Line of the first one.
        first: usize,
    },
    /// It is something else.
    #[error("line {line}: {found} where {possible} should be")]
    Unknown {
        /// Where it is seen.
        line: usize,
        /// What it is.
        found: String,
        /// What is possible.
        possible: String,
    },
}

/// Reads the text of a file. Documents that are empty are passed over.
///
/// A file of endpoints has a list of them. A file of objectives has any number, and none of them only if it says so by a
/// comment or an empty document: a file of white space alone is one that somebody has yet to write.
///
/// # Errors
///
/// Names everything that is wrong, in every document.
pub(super) fn parse(text: &str, file: FileOf) -> Result<Content, ContentError> {
    let documents = yaml::parse_all(text)?;
    let mut stream = Stream::new(file);
    for (document, positions) in &documents {
        stream.add(document, positions);
    }
    let empty = match file {
        FileOf::Endpoints => documents.iter().all(|(document, _)| document.is_null()),
        FileOf::Objectives => text.trim_start_matches('\u{feff}').trim().is_empty(),
    };
    if empty {
        return Err(ContentError::Empty {
            possible: possible(file),
        });
    }
    if !stream.wrong.is_empty() {
        return Err(ContentError::Documents(stream.wrong));
    }
    if file == FileOf::Endpoints && stream.list_on.is_none() {
        return Err(ContentError::NoEndpoints);
    }
    Ok(stream.content)
}

/// The documents of a file so far.
struct Stream {
    file: FileOf,
    content: Content,
    /// Line of the list of endpoints.
    list_on: Option<usize>,
    wrong: Vec<DocumentError>,
}

impl Stream {
    fn new(file: FileOf) -> Self {
        Self {
            file,
            content: Content::default(),
            list_on: None,
            wrong: Vec::new(),
        }
    }

    fn add(&mut self, document: &Value, positions: &Positions) {
        let fields = match document {
            Value::Null => return,
            Value::Object(fields) => fields,
            other => return self.unknown(positions.line(""), kind(other).to_owned()),
        };
        let text = |field| fields.get(field).and_then(Value::as_str);
        let version = VERSIONS.iter().find(|version| text("apiVersion") == Some(version.name));
        match (fields.get("endpoints"), fields.get("kind"), version) {
            (Some(list), _, _) => self.list(list, positions),
            (None, None, _) => {
                let found = match self.file {
                    FileOf::Endpoints => "a mapping without either",
                    FileOf::Objectives => "a mapping without `kind`",
                };
                self.unknown(positions.line(""), found.to_owned());
            }
            (None, Some(_), Some(version)) if text("kind") == Some(KIND) => {
                match objective::read(fields, version, positions) {
                    Ok(objective) => self.objective(objective),
                    Err(errors) => self.wrong.extend(errors.into_iter().map(DocumentError::Objective)),
                }
            }
            (None, Some(kind), _) => {
                // The line that has to change: the kind if that is another one, else the version.
                let line = if kind == KIND { "apiVersion" } else { "kind" };
                let kind = kind.as_str().map_or_else(|| kind.to_string(), str::to_owned);
                let found = match fields.get("apiVersion") {
                    None => format!("kind `{kind}` without `apiVersion`"),
                    Some(Value::String(version)) => format!("kind `{kind}` of `{version}`"),
                    Some(version) => format!("kind `{kind}` of `{version}`"),
                };
                self.unknown(positions.line(line), found);
            }
        }
    }

    fn list(&mut self, list: &Value, positions: &Positions) {
        let line = positions.line("endpoints");
        if self.file == FileOf::Objectives {
            return self.unknown(line, "a list `endpoints`".to_owned());
        }
        if let Some(first) = self.list_on {
            return self.wrong.push(DocumentError::SecondList { line, first });
        }
        self.list_on = Some(line);
        match endpoints::read(list, positions) {
            Ok(endpoints) => self.content.endpoints = endpoints,
            Err(error) => self.wrong.push(error.into()),
        }
    }

    fn objective(&mut self, objective: Objective) {
        if let Some(first) = self.content.objectives.get(&objective.name) {
            return self.wrong.push(DocumentError::SecondObjective {
                line: objective.line,
                name: objective.name,
                first: first.line,
            });
        }
        self.content.objectives.insert(Arc::clone(&objective.name), objective);
    }

    fn unknown(&mut self, line: usize, found: String) {
        self.wrong.push(DocumentError::Unknown {
            line,
            found,
            possible: possible(self.file),
        });
    }
}

/// What a document of a file can be.
fn possible(file: FileOf) -> String {
    let versions = VERSIONS.map(|version| format!("`{}`", version.name));
    let objective = format!("an `{KIND}` of {}", versions.join(" or "));
    match file {
        FileOf::Endpoints => format!("a mapping with a list `endpoints`, or {objective},"),
        FileOf::Objectives => objective,
    }
}
