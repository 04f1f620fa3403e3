//! The series that a user means.

use std::fmt;
use std::str::FromStr;

/// A metric, and labels that a series of it must have: `name` or `name{label=value,label2="v2"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    name: String,
    labels: Vec<(String, String)>,
}

/// Why text is not a metric spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricSpecError {
    /// The whole is not written as a spec is.
    #[error("not a valid metric specification: \"{text}\"; write `name` or `name{{label=value}}`")]
    Malformed {
        /// The text.
        text: String,
    },
    /// A label is not written as a label is.
    #[error("invalid label pair \"{pair}\" in metric specification \"{text}\"; write `label=value`")]
    LabelPair {
        /// The part that is wrong.
        pair: String,
        /// The whole text.
        text: String,
    },
}

impl MetricSpec {
    /// Any series of the metric `name`.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: Vec::new(),
        }
    }

    /// The series of the metric `name` whose `label` is `value`.
    pub(super) fn labelled(name: &str, label: &str, value: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: vec![(label.to_owned(), value.to_owned())],
        }
    }

    /// Name of the metric.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Labels that a series must have, with their values.
    pub fn labels(&self) -> &[(String, String)] {
        &self.labels
    }
}

impl MetricSpecError {
    pub(super) fn malformed(text: &str) -> Self {
        Self::Malformed { text: text.to_owned() }
    }
}

impl FromStr for MetricSpec {
    type Err = MetricSpecError;

    fn from_str(text: &str) -> Result<Self, MetricSpecError> {
        let malformed = || MetricSpecError::malformed(text);
        let trimmed = text.trim();
        let (name, labels) = match trimmed.split_once('{') {
            None => (trimmed, ""),
            Some((name, rest)) => (name.trim_end(), rest.strip_suffix('}').ok_or_else(malformed)?.trim()),
        };
        if !is_name(name, ":") {
            return Err(malformed());
        }
        let pair = |pair: &str| {
            label_pair(pair).ok_or_else(|| MetricSpecError::LabelPair {
                pair: pair.trim().to_owned(),
                text: text.to_owned(),
            })
        };
        Ok(Self {
            name: name.to_owned(),
            labels: if labels.is_empty() {
                Vec::new()
            } else {
                pairs(labels).map(pair).collect::<Result<_, _>>()?
            },
        })
    }
}

impl fmt::Display for MetricSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.labels.is_empty() {
            return Ok(());
        }
        let pairs: Vec<_> = self
            .labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

/// The parts of `labels` between commas that are not within quotes.
fn pairs(labels: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    labels.split(move |c| {
        quoted ^= c == '"';
        c == ',' && !quoted
    })
}

fn label_pair(pair: &str) -> Option<(String, String)> {
    let (label, value) = pair.split_once('=')?;
    let (label, value) = (label.trim(), value.trim());
    let value = match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => value,
    };
    (is_name(label, "") && !value.contains(['"', '{', '}'])).then(|| (label.to_owned(), value.to_owned()))
}

/// True for a name of the classic Prometheus data model, in which `others` may stand beside letters and digits.
fn is_name(name: &str, others: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || others.contains(c);
    name.chars().all(allowed) && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
}
