//! Strict reading of whatever users write: every unknown field and every value that does not fit is found at once.

use serde::de::DeserializeOwned;

use super::document;
use super::finding::{ConfigErrors, Finding, Severity, SourceName};
use super::report::Report;
use super::yaml::{self, YamlError};

/// Reads the first document of `text` as a `T`, and begins a report on it. What does not fit is noted there and left
/// out; nothing is left if there is too much of that.
///
/// # Errors
///
/// If the text is not YAML.
pub fn read_strictly<T: DeserializeOwned>(
    text: &str,
    source: &SourceName,
) -> Result<(Option<T>, Report), ConfigErrors> {
    let (value, positions) = yaml::parse(text).map_err(|error| ConfigErrors::new(vec![unreadable(&error, source)]))?;
    let mut report = Report::new(source.clone(), positions);
    let (document, misfits) = document::read(value);
    for misfit in misfits {
        report.unread(&misfit.path, misfit.message);
    }
    Ok((document, report))
}

fn unreadable(error: &YamlError, source: &SourceName) -> Finding {
    let line = error.line();
    let reason = error.to_string();
    let without_line = reason
        .strip_prefix(&format!("line {line}"))
        .map_or(reason.as_str(), |rest| rest.trim_start_matches([':', ',', ' ']));
    Finding {
        source: source.clone(),
        line,
        severity: Severity::Error,
        path: String::new(),
        message: format!("failed to decode configuration JSON/YAML: {without_line}"),
    }
}
