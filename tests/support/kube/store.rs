//! Objects, and every change of them, as an API server keeps them.

use std::collections::{BTreeMap, BTreeSet};

use forebay::serve::kube::parse_selector;
use kube::core::SelectorExt as _;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// Objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Collection {
    /// Group and version, such as `v1` or `llm-d.ai/v1alpha2`.
    pub(super) version: String,
    /// Such as `pods`.
    pub(super) resource: String,
    /// Empty for objects of the whole cluster.
    pub(super) namespace: String,
}

/// Which objects of a collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) labels: Option<String>,
    pub(super) name: Option<String>,
}

/// Why not.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Everything.
#[derive(Debug)]
pub(super) struct Store {
    state: Mutex<State>,
    /// The newest revision.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
    objects: BTreeMap<(Collection, String), Value>,
    log: Vec<Logged>,
    /// Groups and resources that are not installed.
    absent: BTreeSet<(String, String)>,
    /// Versions and resources that are not served.
    unserved: BTreeSet<(String, String)>,
    /// Groups and resources of which no lists are given, and the code of the answer.
    unlisted: BTreeMap<(String, String), u16>,
    uids: u64,
    /// Changes are not told to watches.
    is_mute: bool,
}

/// The objects at some revision.
#[derive(Clone, Debug)]
pub(crate) struct Backup {
    revision: u64,
    objects: BTreeMap<(Collection, String), Value>,
}

#[derive(Clone, Debug)]
struct Logged {
    revision: u64,
    collection: Collection,
    before: Option<Value>,
    after: Option<Value>,
}

fn failure(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
    Failure {
        code,
        reason,
        message: message.into(),
    }
}

impl Selection {
    pub(super) fn takes(&self, object: &Value) -> bool {
        if self
            .name
            .as_ref()
            .is_some_and(|name| object["metadata"]["name"] != *name)
        {
            return false;
        }
        let Some(selector) = self.labels.as_ref().filter(|selector| !selector.is_empty()) else {
            return true;
        };
        let labels: BTreeMap<String, String> =
            serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
        parse_selector(selector).unwrap().matches(&labels)
    }
}

impl Collection {
    /// Its group and resource.
    fn kind(&self) -> (String, String) {
        let group = self.version.split_once('/').map_or("", |(group, _)| group);
        (group.to_owned(), self.resource.clone())
    }
}

/// The kind that has two versions: its resource, the version in which it is stored, and the other one.
const TWO_VERSIONS: (&str, &str, &str) = ("inferenceobjectives", "llm-d.ai/v1alpha2", "llm-d.ai/v1");

impl Collection {
    /// The objects as they are stored, in whatever version they are asked for.
    pub(super) fn stored(&self) -> Self {
        let (resource, stored, other) = TWO_VERSIONS;
        let mut collection = self.clone();
        if self.resource == resource && self.version == other {
            stored.clone_into(&mut collection.version);
        }
        collection
    }

    /// An object as this version shows it. Without a conversion webhook a field that it does not have is left out.
    pub(super) fn show(&self, object: &mut Value) {
        let (resource, stored, other) = TWO_VERSIONS;
        if self.resource != resource || ![stored, other].contains(&self.version.as_str()) {
            return;
        }
        object["apiVersion"] = self.version.clone().into();
        if let (true, Some(spec)) = (self.version == other, object["spec"].as_object_mut()) {
            spec.remove("poolRef");
        }
    }
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(0),
        }
    }

    /// The newest revision, whenever there is one.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Forgets all changes so far: who watches from before has to list anew.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        state.forgotten = state.revision;
        state.log.clear();
    }

    pub(super) fn backup(&self) -> Backup {
        let state = self.state.lock();
        Backup {
            revision: state.revision,
            objects: state.objects.clone(),
        }
    }

    /// Goes back to a backup: to its objects, and to its revision, as etcd does.
    pub(super) fn restore(&self, backup: Backup) {
        let mut state = self.state.lock();
        state.log.clear();
        state.forgotten = 0;
        state.revision = backup.revision;
        state.objects = backup.objects;
    }

    /// Tells watches nothing of what changes from now on, if `is_mute`.
    pub(super) fn mute(&self, is_mute: bool) {
        self.state.lock().is_mute = is_mute;
    }

    /// Takes a kind away, or brings it.
    pub(super) fn install(&self, group: &str, resource: &str, is_installed: bool) {
        let kind = (group.to_owned(), resource.to_owned());
        let mut state = self.state.lock();
        match is_installed {
            true => state.absent.remove(&kind),
            false => state.absent.insert(kind),
        };
    }

    /// Serves a version of a kind, such as `llm-d.ai/v1`, or does not.
    pub(super) fn serve(&self, version: &str, resource: &str, is_served: bool) {
        let kind = (version.to_owned(), resource.to_owned());
        let mut state = self.state.lock();
        match is_served {
            true => state.unserved.remove(&kind),
            false => state.unserved.insert(kind),
        };
    }

    /// Fails if this version of a kind is not served.
    pub(super) fn check_served(&self, collection: &Collection) -> Result<(), Failure> {
        let kind = (collection.version.clone(), collection.resource.clone());
        match self.state.lock().unserved.contains(&kind) {
            true => Err(failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )),
            false => Ok(()),
        }
    }

    /// Answers every list of a kind with this code; with none, as usual.
    pub(super) fn refuse_lists(&self, group: &str, resource: &str, code: Option<u16>) {
        let kind = (group.to_owned(), resource.to_owned());
        let mut state = self.state.lock();
        match code {
            Some(code) => state.unlisted.insert(kind, code),
            None => state.unlisted.remove(&kind),
        };
    }

    pub(super) fn list(&self, collection: &Collection, selection: &Selection) -> Result<Value, Failure> {
        let state = self.state.lock();
        state.check(collection)?;
        if let Some(code) = state.unlisted.get(&collection.kind()) {
            return Err(failure(*code, "Refused", "lists of this kind are refused"));
        }
        let items: Vec<_> = state
            .objects
            .iter()
            .filter(|((place, _), object)| place == collection && selection.takes(object))
            .map(|(_, object)| object.clone())
            .collect();
        Ok(json!({
            "apiVersion": collection.version,
            "kind": "List",
            "metadata": { "resourceVersion": state.revision.to_string() },
            "items": items,
        }))
    }

    pub(super) fn get(&self, collection: &Collection, name: &str) -> Result<Value, Failure> {
        let state = self.state.lock();
        state.check(collection)?;
        state.object(collection, name).cloned()
    }

    pub(super) fn create(&self, collection: &Collection, mut object: Value) -> Result<Value, Failure> {
        self.write(|state| {
            state.check(collection)?;
            let metadata = &mut object["metadata"];
            if let Some(prefix) = metadata["generateName"].as_str().map(str::to_owned) {
                metadata["name"] = format!("{prefix}{}", state.uids).into();
            }
            let name = metadata["name"].as_str().unwrap_or_default().to_owned();
            if name.is_empty() {
                return Err(failure(422, "Invalid", "metadata.name: Required value"));
            }
            let key = (collection.clone(), name.clone());
            if state.objects.contains_key(&key) {
                return Err(failure(409, "AlreadyExists", format!("\"{name}\" already exists")));
            }
            state.uids += 1;
            metadata["uid"] = format!("uid-{}", state.uids).into();
            metadata["generation"] = 1.into();
            metadata["namespace"] = collection.namespace.clone().into();
            if metadata["creationTimestamp"].is_null() {
                metadata["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            if has_status(collection) {
                // A status is written apart.
                object.as_object_mut().unwrap().remove("status");
            }
            Ok(state.put(key, Some(object)))
        })
    }

    /// Changes an object or its status.
    pub(super) fn update(
        &self,
        collection: &Collection,
        name: &str,
        part: Part,
        change: impl FnOnce(&Value) -> Value,
    ) -> Result<Value, Failure> {
        self.write(|state| {
            state.check(collection)?;
            let old = state.object(collection, name)?.clone();
            let wanted = change(&old);
            let version = &wanted["metadata"]["resourceVersion"];
            if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
                return Err(failure(409, "Conflict", format!("\"{name}\" has been modified")));
            }
            let mut new = match part {
                Part::Whole if has_status(collection) => {
                    let mut new = wanted;
                    put_or_remove(&mut new, "status", &old["status"]);
                    new
                }
                Part::Whole => wanted,
                Part::Status => {
                    let mut new = old.clone();
                    put_or_remove(&mut new, "status", &wanted["status"]);
                    new
                }
            };
            for field in [
                "uid",
                "creationTimestamp",
                "namespace",
                "name",
                "generation",
                "deletionTimestamp",
            ] {
                let kept = old["metadata"][field].clone();
                put_or_remove(&mut new["metadata"], field, &kept);
            }
            let content = |object: &Value| {
                let mut fields = object.as_object().unwrap().clone();
                fields.retain(|name, _| !["metadata", "status"].contains(&name.as_str()));
                fields
            };
            if content(&old) != content(&new) {
                new["metadata"]["generation"] = (old["metadata"]["generation"].as_u64().unwrap_or(0) + 1).into();
            }
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            if new == old {
                return Ok(old);
            }
            Ok(state.put((collection.clone(), name.to_owned()), Some(new)))
        })
    }

    /// Deletes an object. A pod with time to go is only marked.
    pub(super) fn delete(&self, collection: &Collection, name: &str, grace: Option<u64>) -> Result<Value, Failure> {
        self.write(|state| {
            state.check(collection)?;
            let mut old = state.object(collection, name)?.clone();
            let key = (collection.clone(), name.to_owned());
            let runs_somewhere = old["spec"]["nodeName"].is_string();
            if collection.resource == "pods" && runs_somewhere && grace != Some(0) {
                old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                return Ok(state.put(key, Some(old)));
            }
            state.put(key, None);
            Ok(old)
        })
    }

    /// What happened after a revision to the objects of a selection, as lines of a watch, and the newest revision.
    pub(super) fn events(
        &self,
        collection: &Collection,
        selection: &Selection,
        after: u64,
    ) -> Result<(Vec<Value>, u64), Failure> {
        let state = self.state.lock();
        state.check(collection)?;
        if after < state.forgotten {
            return Err(failure(410, "Expired", format!("too old resource version: {after}")));
        }
        let ours = state
            .log
            .iter()
            .filter(|logged| logged.revision > after && logged.collection == *collection);
        let events = ours.filter_map(|logged| {
            let taken = |object: &Option<Value>| object.as_ref().filter(|object| selection.takes(object)).cloned();
            let (kind, mut object) = match (taken(&logged.before), taken(&logged.after)) {
                (None, None) => return None,
                (None, Some(after)) => ("ADDED", after),
                (Some(_), Some(after)) => ("MODIFIED", after),
                // It is gone, or is none of the selection any more.
                (Some(before), None) => ("DELETED", before),
            };
            object["metadata"]["resourceVersion"] = logged.revision.to_string().into();
            Some(json!({ "type": kind, "object": object }))
        });
        Ok((events.collect(), state.revision))
    }

    fn write(&self, change: impl FnOnce(&mut State) -> Result<Value, Failure>) -> Result<Value, Failure> {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.changed.send_replace(state.revision);
        result
    }
}

/// The part of an object that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Status,
}

impl State {
    fn check(&self, collection: &Collection) -> Result<(), Failure> {
        if self.absent.contains(&collection.kind()) {
            return Err(failure(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ));
        }
        Ok(())
    }

    fn object(&self, collection: &Collection, name: &str) -> Result<&Value, Failure> {
        let found = self.objects.get(&(collection.clone(), name.to_owned()));
        found.ok_or_else(|| failure(404, "NotFound", format!("{} \"{name}\" not found", collection.resource)))
    }

    /// Puts an object there, or takes it away, at a new revision.
    fn put(&mut self, key: (Collection, String), after: Option<Value>) -> Value {
        self.revision += 1;
        let after = after.map(|mut object| {
            object["metadata"]["resourceVersion"] = self.revision.to_string().into();
            object
        });
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        if !self.is_mute {
            self.log.push(Logged {
                revision: self.revision,
                collection: key.0,
                before,
                after: after.clone(),
            });
        }
        after.unwrap_or(Value::Null)
    }
}

/// Kinds with a status that is written apart.
fn has_status(collection: &Collection) -> bool {
    !["leases", "events", "namespaces"].contains(&collection.resource.as_str())
}

fn put_or_remove(object: &mut Value, field: &str, value: &Value) {
    if value.is_null() {
        object.as_object_mut().unwrap().remove(field);
    } else {
        object[field] = value.clone();
    }
}

/// A merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let fields = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
