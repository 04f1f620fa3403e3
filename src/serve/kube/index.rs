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
//! that one that comes back finds it (spec, kubernetes 8, the bugs not to copy).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tracing::{info, warn};

use super::api::{InferenceModelRewrite, InferenceObjective, PoolReference, RewriteRule};
use super::change::Change;
use super::kind::{Group, Kind};
use super::pods::PodFacts;
use super::pool::PoolFacts;
use super::source::Target;
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::serve::datalayer::Objectives;
use crate::serve::ext_proc::rewrite::{Rewrites, Rule};

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
    pods: Option<BTreeMap<Arc<str>, Member>>,
    objectives: Kind<InferenceObjective>,
    rewrites: Kind<InferenceModelRewrite>,
    told_objectives: Objectives,
    told_rewrites: Rewrites,
}

/// A pod, and what it serves by the pool as it is.
#[derive(Debug)]
struct Member {
    facts: PodFacts,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Index {
    pub(super) fn new(target: Target) -> Self {
        // Without a pool object there is nothing to wait for, and nothing can refer to it.
        let (pool, objectives, rewrites) = match &target {
            Target::Pool { .. } => (None, Kind::awaited(), Kind::awaited()),
            Target::Selector { ports, .. } => {
                let pool = PoolFacts {
                    labels: BTreeMap::new(),
                    ports: ports.clone(),
                };
                (Some(Some(pool)), Kind::absent(), Kind::absent())
            }
        };
        Self {
            target,
            pool,
            pods: None,
            objectives,
            rewrites,
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

    /// This was heard of the pool: `None` if it was asked to go.
    pub(super) fn pool_heard(&mut self, change: Change<Option<PoolFacts>>) -> News {
        let pool = match change {
            // It is there, whatever it says now.
            Change::All { objects, unread } if objects.is_empty() && !unread.is_empty() => self.pool().cloned(),
            Change::All { objects, .. } => objects.into_iter().next().flatten(),
            Change::Is(pool) => pool,
            Change::Gone(_) | Change::Absent => None,
        };
        self.pool_is(pool)
    }

    /// This was heard of the pods.
    pub(super) fn pods_heard(&mut self, change: Change<Pod>) -> News {
        match change {
            Change::All { objects, unread } => {
                let mut pods: Vec<_> = objects.into_iter().filter_map(PodFacts::of).collect();
                pods.extend(self.pods_named(&unread));
                self.pods_are(pods)
            }
            Change::Is(pod) => PodFacts::of(pod).map_or_else(News::default, |pod| self.pod_is(pod)),
            Change::Gone(name) => self.pod_is_gone(&name),
            // Pods are always there: we may not read them. What was known last holds.
            Change::Absent => News::default(),
        }
    }

    /// The pool is this, or there is none.
    fn pool_is(&mut self, pool: Option<PoolFacts>) -> News {
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
    fn pods_named(&self, names: &[String]) -> Vec<PodFacts> {
        let known = |name: &String| self.pods.as_ref()?.get(name.as_str());
        names.iter().filter_map(known).map(|pod| pod.facts.clone()).collect()
    }

    /// These are all pods.
    fn pods_are(&mut self, pods: Vec<PodFacts>) -> News {
        let mut old = self.pods.take().unwrap_or_default();
        let here = pods.into_iter().map(|facts| {
            let endpoints = old.get_mut(&facts.name).map(|pod| std::mem::take(&mut pod.endpoints));
            let pod = Member {
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
    fn pod_is(&mut self, facts: PodFacts) -> News {
        let endpoints = self.endpoints_of(&facts);
        let pods = self.pods.get_or_insert_default();
        let old = pods.get_mut(&facts.name).map(|pod| std::mem::take(&mut pod.endpoints));
        let changes = difference(&old.unwrap_or_default(), &endpoints);
        pods.insert(Arc::clone(&facts.name), Member { facts, endpoints });
        News {
            changes,
            ..News::default()
        }
    }

    /// A pod is gone, or does not belong to the pool any more.
    fn pod_is_gone(&mut self, name: &str) -> News {
        let pod = self.pods.as_mut().and_then(|pods| pods.remove(name));
        News {
            changes: difference(&pod.map(|pod| pod.endpoints).unwrap_or_default(), &[]),
            ..News::default()
        }
    }

    /// This was heard of the objectives of a group.
    pub(super) fn objectives_heard(&mut self, group: Group, change: Change<InferenceObjective>) -> News {
        self.objectives.heard(group, change);
        self.objectives_again()
    }

    /// This was heard of the rewrites of a group.
    pub(super) fn rewrites_heard(&mut self, group: Group, change: Change<InferenceModelRewrite>) -> News {
        self.rewrites.heard(group, change);
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

#[cfg(test)]
mod tests;
