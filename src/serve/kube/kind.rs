//! The objects of a kind that two API groups have, and one of them perhaps in two versions.
//!
//! Those of the current group count if the kind is installed there, else those of the older one. An object that is seen in
//! two versions is told in both: each shows the fields that it knows.

use std::collections::BTreeMap;

use tracing::warn;

use super::change::Change;

/// By which group and version an object was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `llm-d.ai/v1`.
    V1,
    /// `llm-d.ai/v1alpha2`.
    V1Alpha2,
    /// `inference.networking.x-k8s.io/v1alpha2`.
    OldGroup,
}

/// All objects of a kind, by origin.
#[derive(Debug)]
pub(super) struct Kind<K> {
    v1: Objects<K>,
    v1_alpha2: Objects<K>,
    old_group: Objects<K>,
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
            v1: Objects::Awaited,
            v1_alpha2: Objects::Awaited,
            old_group: Objects::Awaited,
        }
    }

    /// The same of a kind that has no version 1.
    pub(super) const fn awaited_without_v1() -> Self {
        Self {
            v1: Objects::Absent,
            v1_alpha2: Objects::Awaited,
            old_group: Objects::Awaited,
        }
    }

    /// A kind of which there is nothing to read.
    pub(super) const fn absent() -> Self {
        Self {
            v1: Objects::Absent,
            v1_alpha2: Objects::Absent,
            old_group: Objects::Absent,
        }
    }

    /// Whether all objects are known.
    pub(super) fn is_read(&self) -> bool {
        let all = [&self.v1, &self.v1_alpha2, &self.old_group];
        all.iter().all(|objects| !matches!(objects, Objects::Awaited))
    }

    /// The objects that count, in the order of their names. One that is seen in two versions is told twice in a row, the
    /// newer version first.
    pub(super) fn effective(&self) -> Vec<(&str, &K)> {
        let counted = match (&self.v1, &self.v1_alpha2) {
            (Objects::Absent, Objects::Absent) => [self.old_group.here(), None],
            (v1, v1_alpha2) => [v1.here(), v1_alpha2.here()],
        };
        let objects = counted.into_iter().flatten().flatten();
        let mut effective: Vec<_> = objects.map(|(name, object)| (name.as_str(), object)).collect();
        // Stable, so the newer version stays first.
        effective.sort_by_key(|(name, _)| *name);
        effective
    }

    /// Whether the kind is installed in the current group; `None` while that is not known.
    fn is_in_the_current_group(&self) -> Option<bool> {
        match (&self.v1, &self.v1_alpha2) {
            (Objects::Here(_), _) | (_, Objects::Here(_)) => Some(true),
            (Objects::Absent, Objects::Absent) => Some(false),
            _ => None,
        }
    }

    fn warn_of_the_older(&self) {
        match (self.is_in_the_current_group(), &self.old_group) {
            (Some(true), Objects::Here(old)) if !old.is_empty() => warn!(
                objects = old.len(),
                "objects of the group `inference.networking.x-k8s.io` are ignored: the kind is installed in the group \
                 `llm-d.ai` too"
            ),
            (Some(false), Objects::Here(old)) if !old.is_empty() => warn!(
                objects = old.len(),
                "objects of the deprecated group `inference.networking.x-k8s.io` are used; the current one is `llm-d.ai`"
            ),
            _ => {}
        }
    }
}

impl<K: kube::Resource> Kind<K> {
    /// This was heard of the objects of an origin.
    pub(super) fn heard(&mut self, origin: Origin, change: Change<K>) {
        let is_ignored = origin == Origin::OldGroup && self.is_in_the_current_group() == Some(true);
        let before = self.is_in_the_current_group();
        let objects = match origin {
            Origin::V1 => &mut self.v1,
            Origin::V1Alpha2 => &mut self.v1_alpha2,
            Origin::OldGroup => &mut self.old_group,
        };
        let deserves_a_warning = match change {
            Change::All { objects: all, unread } => {
                objects.are(all, unread);
                origin == Origin::OldGroup
            }
            Change::Is(object) => objects.is(object) && is_ignored,
            Change::Gone(name) => {
                objects.is_gone(&name);
                false
            }
            Change::Absent => {
                *objects = Objects::Absent;
                false
            }
        };
        if deserves_a_warning || before != self.is_in_the_current_group() {
            self.warn_of_the_older();
        }
    }
}

impl<K> Objects<K> {
    fn here(&self) -> Option<&BTreeMap<String, K>> {
        match self {
            Self::Here(objects) => Some(objects),
            Self::Awaited | Self::Absent => None,
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
