//! Reads a document in spite of its errors, so that all of them are found at once.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::super::plugin::decode;
use super::super::misfit::{UnknownField, reworded};

/// A field that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Misfit {
    /// Its path.
    pub(in super::super) path: String,
    /// What was found, and what would be right.
    pub(in super::super) message: String,
}

/// More errors than this are not looked for: the first ones need mending first.
const MOST: usize = 50;

/// Reads `value`, leaving out what does not fit. No document is left if there is too much of that.
pub(in super::super) fn read<T: DeserializeOwned>(mut value: Value) -> (Option<T>, Vec<Misfit>) {
    let mut misfits: Vec<Misfit> = Vec::new();
    if value.is_null() {
        value = Value::Object(Map::new());
    }
    if value.is_array() {
        // The decoder would take its items for the fields, one after the other.
        let message = "expected a mapping, found a list".to_owned();
        return (
            None,
            vec![Misfit {
                path: String::new(),
                message,
            }],
        );
    }
    while misfits.len() < MOST {
        let error = match decode::<T>(&value) {
            Ok(document) => return (Some(document), misfits),
            Err(error) => error,
        };
        let message = match UnknownField::of(&error.message) {
            Some(unknown) => format!("unknown field \"{}\"; {}", error.path, unknown.remedy()),
            None => reworded(&error.message),
        };
        let left_out = leave_out(&mut value, &error.path);
        if misfits.last().is_none_or(|last| last.path != error.path) {
            misfits.push(Misfit {
                path: error.path,
                message,
            });
        }
        if !left_out {
            break;
        }
    }
    (None, misfits)
}

/// Takes away what is at `path`. An item of a list becomes an empty mapping, or an empty text if that is what it was, so
/// that the others keep their places. False if there is nothing left to take.
fn leave_out(root: &mut Value, path: &str) -> bool {
    match root {
        Value::Object(fields) => {
            let path = path.strip_prefix('.').unwrap_or(path);
            if fields.remove(path).is_some() {
                return true;
            }
            let boundary = path.find(['.', '[']).unwrap_or(path.len());
            let (field, rest) = path.split_at(boundary);
            match fields.get_mut(field) {
                Some(value) if !rest.is_empty() => leave_out(value, rest),
                _ => false,
            }
        }
        Value::Array(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return false;
            };
            let item = index.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            match (item, rest) {
                (None, _) => false,
                (Some(Value::String(text)), "") if text.is_empty() => false,
                (Some(item), "") => {
                    *item = match item {
                        Value::Object(fields) if fields.is_empty() => Value::String(String::new()),
                        _ => Value::Object(Map::new()),
                    };
                    true
                }
                (Some(item), rest) => leave_out(item, rest),
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Document;
    use super::*;

    #[test]
    fn a_list_is_no_document() {
        let (document, misfits) = read::<Document>(json!(["llm-d.ai/v1alpha1", "EndpointPickerConfig"]));

        assert_eq!(document, None);
        assert_eq!(misfits[0].message, "expected a mapping, found a list");
    }

    #[test]
    fn every_field_that_does_not_fit_is_found_and_the_rest_is_read() {
        let value = json!({
            "plugin": [],
            "plugins": [{"type": "a", "weight": 1}, "b", {"type": 5, "name": "c"}],
            "featureGates": [true, "x"],
            "a.b": 1,
        });

        let (document, misfits) = read::<Document>(value);

        let document = document.unwrap();
        let mut paths: Vec<_> = misfits.iter().map(|misfit| misfit.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(
            paths,
            [
                "a.b",
                "featureGates[0]",
                "plugin",
                "plugins[0].weight",
                "plugins[1]",
                "plugins[2].type"
            ]
        );
        assert_eq!(document.plugins[0].type_name, "a");
        assert_eq!(document.plugins[2].name, "c");
    }
}
