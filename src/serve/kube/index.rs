//! What the cluster says, joined: the pool and its pods make endpoints, the objects that refer to the pool make
//! objectives and rewrites.
//!
//! ```text
//! pool ──┬── selector, ports ──┐
//!        │                     ├─▶ endpoints
//! pods ──┼── labels, readiness ┘
//!        │
//! objectives, rewrites ── poolRef ─▶ priorities, rules
//! ```
//!
//! Pure: it hears of changes and tells what follows from them. Whatever a pool that is gone left behind is kept, so
//! that one that comes back finds it (spec, kubernetes 8, the bugs not to copy). Of a kind that two API groups have,
//! the objects of the current group count if it is installed, else those of the older one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{info, warn};

use super::api::{InferenceModelRewrite, InferenceObjective, PoolReference, RewriteRule};
use super::pods::PodFacts;
use super::source::Target;
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::serve::datalayer::Objectives;
use crate::serve::ext_proc::rewrite::{Rewrites, Rule};

/// What a pool says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolFacts {
    /// Labels that its pods have.
    pub(super) labels: BTreeMap<String, String>,
    /// The ports of each pod, in the order of their ranks.
    pub(super) ports: Vec<u16>,
}

/// Whether the pool is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolState {
    /// Not everything was read that is needed to serve.
    #[default]
    Awaited,
    /// It is, and everything that belongs to it was read.
    Known,
    /// It is not, and everything was read.
    Gone,
}

/// Which of two API groups an object is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Current,
    Old,
}

/// What follows from a change.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) changes: Vec<PoolChange>,
    pub(super) objectives: Option<Objectives>,
    pub(super) rewrites: Option<Rewrites>,
}

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Index {
    target: Target,
    /// The pool, once it was asked for; `Some(None)` if there is none.
    pool: Option<Option<PoolFacts>>,
    /// Pods by name, once they were listed.
    pods: Option<BTreeMap<Arc<str>, Pod>>,
    objectives: Kind<InferenceObjective>,
    rewrites: Kind<InferenceModelRewrite>,
    told_objectives: Objectives,
    told_rewrites: Rewrites,
}

#[derive(Debug)]
struct Pod {
    facts: PodFacts,
    endpoints: Vec<Arc<Endpoint>>,
}

/// Objects of one kind, by group.
#[derive(Debug)]
struct Kind<K> {
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

impl Index {
    pub(super) fn new(target: Target) -> Self {
        // Without a pool object there is nothing to wait for, and nothing can refer to it.
        let (pool, none) = match &target {
            Target::Pool { .. } => (None, false),
            Target::Selector { ports, .. } => {
                let pool = PoolFacts {
                    labels: BTreeMap::new(),
                    ports: ports.clone(),
                };
                (Some(Some(pool)), true)
            }
        };
        Self {
            target,
            pool,
            pods: None,
            objectives: Kind::new(none),
            rewrites: Kind::new(none),
            told_objectives: Objectives::new(),
            told_rewrites: Rewrites::default(),
        }
    }

    /// The pool as it was seen last.
    pub(super) fn pool(&self) -> Option<&PoolFacts> {
        self.pool.as_ref()?.as_ref()
    }

    /// Whether requests can be served.
    pub(super) fn state(&self) -> PoolState {
        let is_read = self.pods.is_some() && self.objectives.is_read() && self.rewrites.is_read();
        match &self.pool {
            Some(Some(_)) if is_read => PoolState::Known,
            Some(None) => PoolState::Gone,
            _ => PoolState::Awaited,
        }
    }

    /// The pool is this, or there is none.
    pub(super) fn pool_is(&mut self, pool: Option<PoolFacts>) -> News {
        match (self.pool(), &pool) {
            (None, Some(pool)) => info!(ports = ?pool.ports, "pool found"),
            (Some(_), None) => warn!("pool is gone; what belongs to it is kept for the case that it comes back"),
            (None, None) if self.pool.is_none() => warn!("there is no such pool yet"),
            (Some(old), Some(new)) if old != new => info!(ports = ?new.ports, "pool changed"),
            _ => {}
        }
        self.pool = Some(pool);
        self.all_pods_again()
    }

    /// What is known of the pods of these names.
    pub(super) fn pods_named(&self, names: &[String]) -> Vec<PodFacts> {
        let known = |name: &String| self.pods.as_ref()?.get(name.as_str());
        names.iter().filter_map(known).map(|pod| pod.facts.clone()).collect()
    }

    /// These are all pods.
    pub(super) fn pods_are(&mut self, pods: Vec<PodFacts>) -> News {
        let mut old = self.pods.take().unwrap_or_default();
        let here = pods.into_iter().map(|facts| {
            let endpoints = old.get_mut(&facts.name).map(|pod| std::mem::take(&mut pod.endpoints));
            let pod = Pod {
                endpoints: endpoints.unwrap_or_default(),
                facts,
            };
            (Arc::clone(&pod.facts.name), pod)
        });
        let here: BTreeMap<_, _> = here.collect();
        // What was left behind belongs to pods that are gone.
        let gone = old.into_values().flat_map(|pod| pod.endpoints);
        let mut changes: Vec<_> = gone.map(|endpoint| PoolChange::Remove(endpoint.id.clone())).collect();
        self.pods = Some(here);
        changes.extend(self.all_pods_again().changes);
        News {
            changes,
            ..News::default()
        }
    }

    /// A pod came or changed.
    pub(super) fn pod_is(&mut self, facts: PodFacts) -> News {
        let endpoints = self.endpoints_of(&facts);
        let pods = self.pods.get_or_insert_default();
        let old = pods.get_mut(&facts.name).map(|pod| std::mem::take(&mut pod.endpoints));
        let changes = difference(&old.unwrap_or_default(), &endpoints);
        pods.insert(Arc::clone(&facts.name), Pod { facts, endpoints });
        News {
            changes,
            ..News::default()
        }
    }

    /// A pod is gone, or does not belong to the pool any more.
    pub(super) fn pod_is_gone(&mut self, name: &str) -> News {
        let pod = self.pods.as_mut().and_then(|pods| pods.remove(name));
        News {
            changes: difference(&pod.map(|pod| pod.endpoints).unwrap_or_default(), &[]),
            ..News::default()
        }
    }

    /// The objectives of these names that are known.
    pub(super) fn objectives_named(&self, group: Group, names: &[String]) -> Vec<InferenceObjective> {
        self.objectives.named(group, names)
    }

    /// These are all objectives of a group; `None` if it does not have the kind.
    pub(super) fn objectives_are(&mut self, group: Group, all: Option<Vec<InferenceObjective>>) -> News {
        self.objectives.are(group, all);
        self.objectives_again()
    }

    /// An objective came or changed.
    pub(super) fn objective_is(&mut self, group: Group, objective: InferenceObjective) -> News {
        self.objectives.is(group, objective);
        self.objectives_again()
    }

    /// An objective is gone.
    pub(super) fn objective_is_gone(&mut self, group: Group, name: &str) -> News {
        self.objectives.is_gone(group, name);
        self.objectives_again()
    }

    /// The rewrites of these names that are known.
    pub(super) fn rewrites_named(&self, group: Group, names: &[String]) -> Vec<InferenceModelRewrite> {
        self.rewrites.named(group, names)
    }

    /// These are all rewrites of a group; `None` if it does not have the kind.
    pub(super) fn rewrites_are(&mut self, group: Group, all: Option<Vec<InferenceModelRewrite>>) -> News {
        self.rewrites.are(group, all);
        self.rewrites_again()
    }

    /// A rewrite came or changed.
    pub(super) fn rewrite_is(&mut self, group: Group, rewrite: InferenceModelRewrite) -> News {
        self.rewrites.is(group, rewrite);
        self.rewrites_again()
    }

    /// A rewrite is gone.
    pub(super) fn rewrite_is_gone(&mut self, group: Group, name: &str) -> News {
        self.rewrites.is_gone(group, name);
        self.rewrites_again()
    }

    fn endpoints_of(&self, pod: &PodFacts) -> Vec<Arc<Endpoint>> {
        let Some(pool) = self.pool() else {
            return Vec::new();
        };
        // A pod of the selector before stays away from the moment at which the pool changed.
        let is_selected = pool
            .labels
            .iter()
            .all(|(key, value)| pod.labels.get(key) == Some(value));
        if is_selected {
            pod.endpoints(self.target.namespace(), &pool.ports)
        } else {
            Vec::new()
        }
    }

    fn all_pods_again(&mut self) -> News {
        let mut pods = self.pods.take();
        let mut changes = Vec::new();
        for pod in pods.iter_mut().flat_map(BTreeMap::values_mut) {
            let endpoints = self.endpoints_of(&pod.facts);
            changes.extend(difference(&pod.endpoints, &endpoints));
            pod.endpoints = endpoints;
        }
        self.pods = pods;
        // Who leaves goes first: an address that changes hands is never there twice.
        changes.sort_by_key(|change| !matches!(change, PoolChange::Remove(_)));
        News {
            changes,
            ..News::default()
        }
    }

    fn objectives_again(&mut self) -> News {
        let target = &self.target;
        let of_pool = self
            .objectives
            .effective()
            .filter(|(_, objective)| is_for(target, &objective.spec.pool_ref));
        let objectives: Objectives = of_pool
            .map(|(name, objective)| (Arc::from(name), objective.spec.priority.unwrap_or(0)))
            .collect();
        let is_news = objectives != self.told_objectives;
        if is_news {
            info!(objectives = objectives.len(), "objectives changed");
            self.told_objectives.clone_from(&objectives);
        }
        News {
            objectives: is_news.then_some(objectives),
            ..News::default()
        }
    }

    fn rewrites_again(&mut self) -> News {
        let target = &self.target;
        let of_pool = self
            .rewrites
            .effective()
            .filter(|(_, rewrite)| is_for(target, &rewrite.spec.pool_ref));
        let mut objects: Vec<_> = of_pool.map(|(_, rewrite)| rewrite).collect();
        // By age, and then by name; whoever has no age is new. Stable, as the names are in order.
        objects.sort_by_key(|rewrite| {
            let created = rewrite.metadata.creation_timestamp.as_ref();
            (created.is_none(), created.map(|created| created.0))
        });
        let mut rewrites = Rewrites::default();
        for rewrite in objects {
            let object: Arc<str> = rewrite.metadata.name.as_deref().unwrap_or_default().into();
            for rule in &rewrite.spec.rules {
                let models = rule.matches.iter().map(|wanted| wanted.model.value.as_str().into());
                rewrites.add(models.collect(), rule_of(&object, rule));
            }
        }
        let is_news = rewrites != self.told_rewrites;
        if is_news {
            info!(rules = rewrites.len(), "model rewrites changed");
            self.told_rewrites.clone_from(&rewrites);
        }
        News {
            rewrites: is_news.then_some(rewrites),
            ..News::default()
        }
    }
}

/// True if an object refers to our pool.
fn is_for(target: &Target, reference: &PoolReference) -> bool {
    match target {
        Target::Pool { name, group, .. } => reference.name == *name && reference.group == group.name(),
        Target::Selector { .. } => false,
    }
}

fn rule_of(object: &Arc<str>, rule: &RewriteRule) -> Rule {
    let weights = rule.targets.iter().filter(|target| target.weight.is_some()).count();
    if weights > 0 && weights < rule.targets.len() {
        warn!(rewrite = %object, "targets without a weight beside others that have one get no requests");
    }
    let targets = rule.targets.iter().map(|target| {
        let weight = u32::try_from(target.weight.unwrap_or(0)).unwrap_or(0);
        (Arc::from(target.model_rewrite.as_str()), weight)
    });
    Rule {
        object: Arc::clone(object),
        targets: targets.collect(),
    }
}

/// What leads from the endpoints of a pod before to those now.
fn difference(old: &[Arc<Endpoint>], new: &[Arc<Endpoint>]) -> Vec<PoolChange> {
    let has = |all: &[Arc<Endpoint>], id: &EndpointId| all.iter().any(|endpoint| endpoint.id == *id);
    let left = old.iter().filter(|endpoint| !has(new, &endpoint.id));
    let other = new.iter().filter(|endpoint| !old.contains(endpoint));
    left.map(|endpoint| PoolChange::Remove(endpoint.id.clone()))
        .chain(other.cloned().map(PoolChange::Upsert))
        .collect()
}

impl<K> Kind<K> {
    fn new(is_absent: bool) -> Self {
        let none = || match is_absent {
            true => Objects::Absent,
            false => Objects::Awaited,
        };
        Self {
            current: none(),
            old: none(),
        }
    }

    fn is_read(&self) -> bool {
        let is_read = |objects: &Objects<K>| !matches!(objects, Objects::Awaited);
        is_read(&self.current) && is_read(&self.old)
    }

    fn objects(&mut self, group: Group) -> &mut Objects<K> {
        match group {
            Group::Current => &mut self.current,
            Group::Old => &mut self.old,
        }
    }

    /// The objects that count.
    fn effective(&self) -> impl Iterator<Item = (&str, &K)> {
        let objects = match (&self.current, &self.old) {
            (Objects::Here(objects), _) | (Objects::Absent, Objects::Here(objects)) => Some(objects),
            _ => None,
        };
        objects
            .into_iter()
            .flatten()
            .map(|(name, object)| (name.as_str(), object))
    }
}

impl<K: kube::Resource + Clone> Kind<K> {
    fn named(&self, group: Group, names: &[String]) -> Vec<K> {
        let objects = match group {
            Group::Current => &self.current,
            Group::Old => &self.old,
        };
        match objects {
            Objects::Here(objects) => names.iter().filter_map(|name| objects.get(name)).cloned().collect(),
            Objects::Awaited | Objects::Absent => Vec::new(),
        }
    }

    fn are(&mut self, group: Group, all: Option<Vec<K>>) {
        let named = |object: K| Some((object.meta().name.clone()?, object));
        *self.objects(group) = match all {
            Some(all) => Objects::Here(all.into_iter().filter_map(named).collect()),
            None => Objects::Absent,
        };
        self.warn_of_the_ignored();
    }

    fn is(&mut self, group: Group, object: K) {
        let Some(name) = object.meta().name.clone() else { return };
        if !matches!(self.objects(group), Objects::Here(_)) {
            *self.objects(group) = Objects::Here(BTreeMap::new());
        }
        let Objects::Here(objects) = self.objects(group) else {
            return;
        };
        let is_new = objects.insert(name, object).is_none();
        if is_new && group == Group::Old && matches!(self.current, Objects::Here(_)) {
            self.warn_of_the_ignored();
        }
    }

    fn is_gone(&mut self, group: Group, name: &str) {
        if let Objects::Here(objects) = self.objects(group) {
            objects.remove(name);
        }
    }

    fn warn_of_the_ignored(&self) {
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

#[cfg(test)]
mod tests;
