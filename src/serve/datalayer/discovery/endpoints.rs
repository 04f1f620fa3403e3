//! A list of endpoints: `endpoints[]` with name, namespace, address, port and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::Endpoints;
use super::words::{kind, listed};
use crate::engine::config::yaml::Positions;
use crate::engine::pool::{Endpoint, EndpointId};

/// Why a document is not a list of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// `endpoints` is something else.
    #[error("line {line}: {found} where the list `endpoints` should be")]
    NoList {
        /// Where the list should be.
        line: usize,
        /// What is there.
        found: &'static str,
    },
    /// Entries are wrong.
    #[error("{}", summary(errors, sound))]
    Entries {
        /// What is wrong, in the order of the file.
        errors: Vec<EntryError>,
        /// The entries that are right.
        sound: Vec<EndpointId>,
    },
}

/// A field of an entry that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryError {
    /// Line of the field, or of the entry.
    pub line: usize,
    /// Position of the entry, from 0.
    pub entry: usize,
    /// Name of the entry, if it has one.
    pub name: Option<String>,
    /// The field.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub reason: String,
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: endpoints[{}]", self.line, self.entry)?;
        if let Some(name) = &self.name {
            write!(f, " (`{name}`)")?;
        }
        write!(f, ": {}: {}", self.field, self.reason)
    }
}

/// Reads the list `endpoints` of a document. Fields that are not known are passed over.
///
/// # Errors
///
/// Names everything that is wrong, not only the first thing.
pub(super) fn read(endpoints: &Value, positions: &Positions) -> Result<Endpoints, ListError> {
    let entries = match endpoints {
        Value::Array(entries) => entries.as_slice(),
        Value::Null => &[],
        other => {
            return Err(ListError::NoList {
                line: positions.line("endpoints"),
                found: kind(other),
            });
        }
    };
    let mut list = List {
        positions,
        errors: Vec::new(),
        first_at: BTreeMap::new(),
        endpoints: Endpoints::new(),
    };
    for (index, entry) in entries.iter().enumerate() {
        list.add(index, entry);
    }
    if list.errors.is_empty() {
        return Ok(list.endpoints);
    }
    Err(ListError::Entries {
        errors: list.errors,
        sound: list.endpoints.into_keys().collect(),
    })
}

struct List<'a> {
    positions: &'a Positions,
    errors: Vec<EntryError>,
    /// Position of the entry that had an id first.
    first_at: BTreeMap<EndpointId, usize>,
    endpoints: Endpoints,
}

impl List<'_> {
    fn add(&mut self, index: usize, entry: &Value) {
        let name = text(entry, "name");
        let shown = name.as_ref().ok().copied().flatten().map(str::to_owned);
        let before = self.errors.len();
        let mut check = |field: &str, reason: String| {
            let line = self.positions.line(&format!("endpoints[{index}].{field}"));
            self.errors.push(EntryError {
                line,
                entry: index,
                name: shown.clone(),
                field: field.to_owned(),
                reason,
            });
        };
        if !entry.is_object() {
            check("entry", format!("{} where a mapping should be", kind(entry)));
            return;
        }
        let name = name
            .and_then(id_part)
            .map_err(|reason| check("name", reason))
            .unwrap_or_default();
        let namespace =
            text(entry, "namespace").map(|namespace| namespace.filter(|text| !text.is_empty()).or(Some("default")));
        let namespace = namespace
            .and_then(id_part)
            .map_err(|reason| check("namespace", reason))
            .unwrap_or_default();
        let address = address(entry).map_err(|reason| check("address", reason)).ok();
        let port = port(entry).map_err(|reason| check("port", reason)).ok();
        let labels = labels(entry).map_err(|(field, reason)| check(&field, reason)).ok();
        let id = EndpointId::new(namespace, name);
        if !name.is_empty()
            && !namespace.is_empty()
            && let Some(first) = self.first_at.get(&id)
        {
            check(
                "name",
                format!("endpoints[{first}] is `{id}` too; an id can be given once"),
            );
        } else {
            self.first_at.insert(id.clone(), index);
        }
        if self.errors.len() > before {
            return;
        }
        if let (Some(address), Some(port), Some(labels)) = (address, port, labels) {
            let endpoint = Endpoint {
                id: id.clone(),
                name: name.into(),
                address,
                port,
                labels,
                rank: 0,
            };
            self.endpoints.insert(id, Arc::new(endpoint));
        }
    }
}

/// A part of an id: some text without a slash.
fn id_part(text: Option<&str>) -> Result<&str, String> {
    match text {
        None | Some("") => Err("is missing; every endpoint needs one".to_owned()),
        Some(text) if text.contains('/') => Err(format!("`{text}` has a slash, which separates namespace and name")),
        Some(text) => Ok(text),
    }
}

fn text<'v>(entry: &'v Value, field: &str) -> Result<Option<&'v str>, String> {
    match entry.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!(
            "{other} is {} where text should be; put it in quotes",
            kind(other)
        )),
    }
}

fn address(entry: &Value) -> Result<IpAddr, String> {
    let text = text(entry, "address")?.ok_or("is missing; give an IPv4 or IPv6 address")?;
    let parsed = text
        .parse()
        .map_err(|_| format!("`{text}` is not an IPv4 or IPv6 address; names are not looked up"));
    match parsed {
        Ok(address) if IpAddr::is_unspecified(&address) => {
            Err(format!("`{text}` stands for any address; give the endpoint's own"))
        }
        parsed => parsed,
    }
}

fn port(entry: &Value) -> Result<u16, String> {
    let found = match entry.get("port") {
        None | Some(Value::Null) => return Err("is missing; give one between 1 and 65535".to_owned()),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => return Err(format!("{other} is {} where a port should be", kind(other))),
    };
    let digits = found.bytes().all(|b| b.is_ascii_digit());
    let port = found.parse().ok().filter(|&port: &u16| digits && port > 0);
    port.ok_or_else(|| format!("`{found}` is not a port between 1 and 65535"))
}

fn labels(entry: &Value) -> Result<BTreeMap<String, String>, (String, String)> {
    let fields = match entry.get("labels") {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(fields)) => fields,
        Some(other) => {
            return Err((
                "labels".to_owned(),
                format!("{other} is {} where a mapping should be", kind(other)),
            ));
        }
    };
    let label = |(key, value): (&String, &Value)| match value {
        Value::String(value) => Ok((key.clone(), value.clone())),
        other => {
            let reason = format!("{other} is {} where text should be; put it in quotes", kind(other));
            Err((format!("labels.{key}"), reason))
        }
    };
    fields.iter().map(label).collect()
}

/// The first errors, and the first entries that are right; the rest is counted.
fn summary(errors: &[EntryError], sound: &[EndpointId]) -> String {
    let errors = listed(errors, "; ");
    if sound.is_empty() {
        return format!("{errors}; no entry is valid");
    }
    format!("{errors}; valid entries: {}", listed(sound, ", "))
}
