//! Objects one by one: what cannot be read is told and left out, and hides nothing else.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::checked::Checked;

/// What an object says.
#[derive(Debug)]
pub(super) enum Reading<K> {
    /// This.
    Is(K),
    /// Nothing at all, though its kind ought to: the object of this name has no `spec`.
    Empty(String),
    /// Something that does not fit its kind, or makes no sense. By its name.
    Unreadable(String),
}

/// Reads objects, and warns of each one that it cannot read: once, until it is another reason.
#[derive(Debug)]
pub(super) struct Reader {
    what: &'static str,
    /// Why objects could not be read, by their names.
    told: BTreeMap<String, String>,
}

impl Reader {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            what,
            told: BTreeMap::new(),
        }
    }

    pub(super) fn read<K: DeserializeOwned + Checked>(&mut self, object: DynamicObject) -> Reading<K> {
        let name = object.metadata.name.clone().unwrap_or_default();
        let is_empty = says_nothing(&object);
        let read = serde_json::to_value(object).and_then(serde_json::from_value::<K>);
        let checked = read.map_err(|error| error.to_string()).and_then(|object| {
            object.check()?;
            Ok(object)
        });
        match checked {
            Ok(object) => {
                self.forget(&name);
                Reading::Is(object)
            }
            Err(error) => {
                self.warn(&name, error, is_empty);
                if is_empty {
                    Reading::Empty(name)
                } else {
                    Reading::Unreadable(name)
                }
            }
        }
    }

    /// The object of this name is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.told.remove(name);
    }

    fn warn(&mut self, name: &str, why: String, is_empty: bool) {
        if self.told.get(name) == Some(&why) {
            return;
        }
        let what = self.what;
        if is_empty {
            warn!(watched = what, object = %name, "an object without a spec counts as if it were not there");
        } else {
            warn!(
                watched = what, object = %name, error = %why,
                "object rejected; keeping its last good version, if there was one"
            );
        }
        self.told.insert(name.to_owned(), why);
    }
}

/// True if an object has nothing but a name and a status.
fn says_nothing(object: &DynamicObject) -> bool {
    let Some(fields) = object.data.as_object() else {
        return true;
    };
    fields.iter().all(|(name, value)| name == "status" || value.is_null())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::serve::kube::api::{EndpointPickerConfig, InferenceModelRewrite, InferencePool};

    fn object(kind: &str, fields: &Value) -> DynamicObject {
        let mut object = json!({ "apiVersion": "llm-d.ai/v1alpha2", "kind": kind, "metadata": { "name": "a" } });
        let more = fields.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(more);
        serde_json::from_value(object).unwrap()
    }

    fn rewrite(fields: &Value) -> Reading<InferenceModelRewrite> {
        Reader::new("rewrites").read(object("InferenceModelRewrite", fields))
    }

    #[test]
    fn an_object_without_a_spec_is_empty_whatever_its_status_says() {
        let pending = json!({ "conditions": [] });

        for fields in [
            json!({}),
            json!({ "spec": null }),
            json!({ "status": pending, "spec": null }),
        ] {
            let reading = rewrite(&fields);
            assert!(
                matches!(&reading, Reading::Empty(name) if name == "a"),
                "{fields}: {reading:?}"
            );
        }
    }

    #[test]
    fn an_object_that_does_not_fit_is_named() {
        for spec in [
            json!({}),
            json!("x"),
            json!({ "poolRef": { "name": "p" }, "rules": {} }),
        ] {
            let reading = rewrite(&json!({ "spec": spec }));
            assert!(
                matches!(&reading, Reading::Unreadable(name) if name == "a"),
                "{spec}: {reading:?}"
            );
        }
    }

    #[test]
    fn an_object_that_makes_no_sense_is_named() {
        let spec = json!({ "selector": { "matchLabels": { "app": "a,b" } }, "targetPorts": [{ "number": 8000 }] });
        let mut reader = Reader::new("the pool");

        let reading = reader.read::<InferencePool>(object("InferencePool", &json!({ "spec": spec })));

        assert!(
            matches!(&reading, Reading::Unreadable(name) if name == "a"),
            "{reading:?}"
        );
        assert!(reader.told["a"].contains("`a,b`"), "{reader:?}");
    }

    #[test]
    fn a_configuration_without_fields_can_be_read() {
        let mut reader = Reader::new("the configuration object");

        let reading = reader.read::<EndpointPickerConfig>(object("EndpointPickerConfig", &json!({})));

        assert!(
            matches!(&reading, Reading::Is(config) if config.text() == "{}"),
            "{reading:?}"
        );
    }

    #[test]
    fn each_reason_is_told_once_until_the_object_can_be_read() {
        let mut reader = Reader::new("rewrites");
        let mut told = |fields: Value| {
            let _: Reading<InferenceModelRewrite> = reader.read(object("InferenceModelRewrite", &fields));
            reader.told.get("a").cloned()
        };

        let first = told(json!({ "spec": 1 }));
        assert!(first.is_some());
        assert_eq!(told(json!({ "spec": 1 })), first);
        assert_ne!(told(json!({ "spec": {} })), first);
        assert_eq!(
            told(json!({ "spec": { "poolRef": { "name": "p" }, "rules": [] } })),
            None
        );
    }
}
