//! The words in which errors speak of what was found.

use std::fmt;

use serde_json::Value;

/// How many things of a kind an error names.
const MAX_LISTED: usize = 20;

/// What a value is.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// At most [`MAX_LISTED`] of `items`; the rest is counted.
pub(super) fn listed(items: &[impl fmt::Display], separator: &str) -> String {
    let shown: Vec<_> = items.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    match items.len() - shown.len() {
        0 => shown.join(separator),
        more => format!("{}{separator}and {more} more", shown.join(separator)),
    }
}
