//! The objects of a kind that two API groups have.
//!
//! Those of the current group count if the kind is installed there, else those of the older one.

use std::collections::BTreeMap;

use tracing::warn;

use super::change::Change;

/// Which of two API groups an object is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Current,
    Old,
}

/// All objects of a kind, by group.
#[derive(Debug)]
pub(super) struct Kind<K> {
    current: Objects<K>,
    old: Objects<K>,
}

#[derive(Debug)]
enum Objects<K> {
    /// Not read yet.
    Awaited,
    /// The kind is not installed, or may not be read.
    Absent,
    /// By name.
    Here(BTreeMap<String, K>),
}

impl<K> Kind<K> {
    /// A kind of which nothing was read yet.
    pub(super) const fn awaited() -> Self {
        Self {
            current: Objects::Awaited,
            old: Objects::Awaited,
        }
    }

    /// A kind of which there is nothing to read.
    pub(super) const fn absent() -> Self {
        Self {
            current: Objects::Absent,
            old: Objects::Absent,
        }
    }

    /// Whether all objects are known.
    pub(super) fn is_read(&self) -> bool {
        let is_read = |objects: &Objects<K>| !matches!(objects, Objects::Awaited);
        is_read(&self.current) && is_read(&self.old)
    }

    /// The objects that count, in the order of their names.
    pub(super) fn effective(&self) -> impl Iterator<Item = (&str, &K)> {
        let objects = match (&self.current, &self.old) {
            (Objects::Here(objects), _) | (Objects::Absent, Objects::Here(objects)) => Some(objects),
            _ => None,
        };
        objects
            .into_iter()
            .flatten()
            .map(|(name, object)| (name.as_str(), object))
    }

    fn warn_of_the_older(&self) {
        match (&self.current, &self.old) {
            (Objects::Here(_), Objects::Here(old)) if !old.is_empty() => warn!(
                objects = old.len(),
                "objects of the group `inference.networking.x-k8s.io` are ignored: the kind is installed in the group \
                 `llm-d.ai` too"
            ),
            (Objects::Absent, Objects::Here(old)) if !old.is_empty() => warn!(
                objects = old.len(),
                "objects of the deprecated group `inference.networking.x-k8s.io` are used; the current one is `llm-d.ai`"
            ),
            _ => {}
        }
    }
}

impl<K: kube::Resource> Kind<K> {
    /// This was heard of the objects of a group.
    pub(super) fn heard(&mut self, group: Group, change: Change<K>) {
        let is_ignored = group == Group::Old && matches!(self.current, Objects::Here(_));
        let objects = match group {
            Group::Current => &mut self.current,
            Group::Old => &mut self.old,
        };
        let deserves_a_warning = match change {
            Change::All { objects: all, unread } => {
                objects.are(all, unread);
                true
            }
            Change::Is(object) => objects.is(object) && is_ignored,
            Change::Gone(name) => {
                objects.is_gone(&name);
                false
            }
            Change::Absent => {
                *objects = Objects::Absent;
                true
            }
        };
        if deserves_a_warning {
            self.warn_of_the_older();
        }
    }
}

impl<K: kube::Resource> Objects<K> {
    /// These are all, and those of the names `unread` as they were known.
    fn are(&mut self, all: Vec<K>, unread: Vec<String>) {
        let named = |object: K| Some((object.meta().name.clone()?, object));
        let mut here: BTreeMap<_, _> = all.into_iter().filter_map(named).collect();
        if let Self::Here(before) = self {
            let known = unread.into_iter().filter_map(|name| before.remove_entry(&name));
            here.extend(known);
        }
        *self = Self::Here(here);
    }

    /// One came or changed. True if it came.
    fn is(&mut self, object: K) -> bool {
        let Some(name) = object.meta().name.clone() else {
            return false;
        };
        match self {
            Self::Here(objects) => objects.insert(name, object).is_none(),
            Self::Awaited | Self::Absent => {
                *self = Self::Here(BTreeMap::from([(name, object)]));
                true
            }
        }
    }

    fn is_gone(&mut self, name: &str) {
        if let Self::Here(objects) = self {
            objects.remove(name);
        }
    }
}
