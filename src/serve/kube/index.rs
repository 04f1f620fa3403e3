//! What the cluster says, joined: the pool and its pods make endpoints, the objects that refer to the pool make
//! objectives and rewrites.
//!
//! ```text
//! pool ──┬── selector, ports ──┐
//!        │                     ├─▶ endpoints
//! pods ──┼── labels, readiness ┘
//!        │
//! objectives, rewrites ── poolRef, poolRefs, poolSelector ─▶ priorities, rules
//! ```
//!
//! Pure: it hears of changes and tells what follows from them. Whatever a pool that is gone left behind is kept, so
//! that one that comes back finds it.
//!
//! A pool whose selector changes serves by its old one until the pods of the new one are listed: the API server may take
//! its time, and a pool without endpoints answers every request with 503.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::core::SelectorExt as _;
use tracing::{info, warn};

use super::api::{InferenceModelRewrite, InferenceObjective, ObjectiveSpec, PoolReference, RewriteRule};
use super::change::Change;
use super::kind::{Kind, Origin};
use super::pods::PodFacts;
use super::pool::PoolFacts;
use super::selector;
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
    /// Once they were listed.
    pods: Option<Pods>,
    objectives: Kind<InferenceObjective>,
    rewrites: Kind<InferenceModelRewrite>,
    told_objectives: Objectives,
    told_rewrites: Rewrites,
    /// Labels of the pool itself, as they were seen last: objectives stay selected while it is gone.
    pool_labels: BTreeMap<String, String>,
    /// Objects that name no pool, or our pool's name and something else than its group and kind, as was told.
    told_astray: BTreeSet<Astray>,
}

/// An object that nothing comes of, and is probably meant for our pool: its kind, its name, and why.
type Astray = (&'static str, String, String);

/// The pods of one selector.
#[derive(Debug)]
struct Pods {
    /// The pool that they serve, or did: its labels are those that they were listed by.
    pool: PoolFacts,
    /// The pool is there.
    is_serving: bool,
    /// By name.
    members: BTreeMap<Arc<str>, Member>,
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
            Target::Pool { .. } => (None, Kind::awaited(), Kind::awaited_without_v1()),
            Target::Selector { ports, .. } => {
                let pool = PoolFacts {
                    labels: BTreeMap::new(),
                    own_labels: BTreeMap::new(),
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
            pool_labels: BTreeMap::new(),
            told_astray: BTreeSet::new(),
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

    /// The pool, if its pods have not been listed by its labels yet.
    pub(super) fn unlisted(&self) -> Option<&PoolFacts> {
        let pool = self.pool()?;
        let is_listed = self.pods.as_ref().is_some_and(|pods| pods.pool.labels == pool.labels);
        (!is_listed).then_some(pool)
    }

    /// This was heard of the pool: `None` if it was asked to go.
    pub(super) fn pool_heard(&mut self, change: Change<Option<PoolFacts>>) -> News {
        let pool = match change {
            // It is there, whatever it says now: what was known of it stays.
            Change::All { objects, unread } if objects.is_empty() && !unread.is_empty() => return News::default(),
            Change::All { objects, .. } => objects.into_iter().next().flatten(),
            Change::Is(pool) => pool,
            Change::Gone(_) | Change::Absent => None,
        };
        self.pool_is(pool)
    }

    /// This was heard of the pods that were listed.
    pub(super) fn pods_heard(&mut self, change: Change<Pod>) -> News {
        match change {
            Change::All { objects, unread } => match self.pods.take() {
                Some(old) => {
                    let (pool, is_serving) = (old.pool.clone(), old.is_serving);
                    self.pods_are(pool, is_serving, Some(old), objects, &unread)
                }
                None => News::default(),
            },
            Change::Is(pod) => PodFacts::of(pod).map_or_else(News::default, |pod| self.pod_is(pod)),
            Change::Gone(name) => self.pod_is_gone(&name),
            // Pods are always there: we may not read them. What was known last holds.
            Change::Absent => News::default(),
        }
    }

    /// These are the pods of the pool that was [`Self::unlisted`]: from now on it serves by its new labels.
    pub(super) fn pods_listed(&mut self, objects: Vec<Pod>, unread: &[String]) -> News {
        match self.unlisted().cloned() {
            Some(pool) => {
                let old = self.pods.take();
                self.pods_are(pool, true, old, objects, unread)
            }
            None => News::default(),
        }
    }

    /// The pool is this, or there is none.
    fn pool_is(&mut self, pool: Option<PoolFacts>) -> News {
        let target = self.target.to_string();
        match (self.pool(), &pool) {
            (None, Some(pool)) => info!(pool = %target, selector = pool.selector(), ports = ?pool.ports, "pool found"),
            (Some(_), None) => warn!(pool = %target, "pool is gone; what belongs to it is kept in case it comes back"),
            (None, None) if self.pool.is_none() => {
                warn!(pool = %target, "pool not found; not ready until it exists");
            }
            (Some(old), Some(new)) if old.labels != new.labels => info!(
                pool = %target, selector = new.selector(), ports = ?new.ports,
                "pool changed; its endpoints stay until the pods of its new selector are listed"
            ),
            (Some(old), Some(new)) if old != new => info!(pool = %target, ports = ?new.ports, "pool changed"),
            _ => {}
        }
        if let Some(pods) = &mut self.pods {
            match &pool {
                Some(pool) if pool.labels == pods.pool.labels => {
                    pods.pool = pool.clone();
                    pods.is_serving = true;
                }
                // Its pods are to be listed first. If it was gone meanwhile, those of before don't come back for that.
                Some(_) => {}
                None => pods.is_serving = false,
            }
        }
        let are_new_labels = pool.as_ref().is_some_and(|pool| pool.own_labels != self.pool_labels);
        if let Some(pool) = &pool {
            self.pool_labels.clone_from(&pool.own_labels);
        }
        self.pool = Some(pool);
        let mut news = self.all_pods_again();
        if are_new_labels {
            news.objectives = self.objectives_again().objectives;
        }
        news
    }

    /// These are all pods of `pool`, in the place of those of `old`.
    fn pods_are(
        &mut self,
        pool: PoolFacts,
        is_serving: bool,
        old: Option<Pods>,
        objects: Vec<Pod>,
        unread: &[String],
    ) -> News {
        let was_empty = old
            .as_ref()
            .is_some_and(|pods| pods.members.is_empty() && pods.pool == pool);
        let mut old = old.map(|pods| pods.members).unwrap_or_default();
        let mut all: Vec<_> = objects.into_iter().filter_map(PodFacts::of).collect();
        let known = |name: &String| old.get(name.as_str()).map(|pod| pod.facts.clone());
        all.extend(unread.iter().filter_map(known));
        let here = all.into_iter().map(|facts| {
            let endpoints = old.get_mut(&facts.name).map(|pod| std::mem::take(&mut pod.endpoints));
            let pod = Member {
                endpoints: endpoints.unwrap_or_default(),
                facts,
            };
            (Arc::clone(&pod.facts.name), pod)
        });
        let members: BTreeMap<_, _> = here.collect();
        // What was left behind belongs to pods that are gone.
        let gone = old.into_values().flat_map(|pod| pod.endpoints);
        let mut changes: Vec<_> = gone.map(|endpoint| PoolChange::Remove(endpoint.id.clone())).collect();
        let pods = self.pods.insert(Pods {
            pool,
            is_serving,
            members,
        });
        if pods.members.is_empty() && !was_empty {
            warn_of_no_match(&self.target, &pods.pool);
        }
        changes.extend(self.all_pods_again().changes);
        News {
            changes,
            ..News::default()
        }
    }

    /// A pod came or changed.
    fn pod_is(&mut self, facts: PodFacts) -> News {
        let Some(pods) = &mut self.pods else {
            return News::default();
        };
        let endpoints = pods.endpoints_of(self.target.namespace(), &facts);
        let old = pods
            .members
            .get_mut(&facts.name)
            .map(|pod| std::mem::take(&mut pod.endpoints));
        let changes = difference(&old.unwrap_or_default(), &endpoints);
        pods.members
            .insert(Arc::clone(&facts.name), Member { facts, endpoints });
        News {
            changes,
            ..News::default()
        }
    }

    /// A pod is gone, or does not belong to the pool any more.
    fn pod_is_gone(&mut self, name: &str) -> News {
        let Some(pods) = &mut self.pods else {
            return News::default();
        };
        let pod = pods.members.remove(name);
        if pod.is_some() && pods.members.is_empty() {
            warn_of_no_match(&self.target, &pods.pool);
        }
        News {
            changes: difference(&pod.map(|pod| pod.endpoints).unwrap_or_default(), &[]),
            ..News::default()
        }
    }

    /// This was heard of the objectives of an origin.
    pub(super) fn objectives_heard(&mut self, origin: Origin, change: Change<InferenceObjective>) -> News {
        self.objectives.heard(origin, change);
        self.objectives_again()
    }

    /// This was heard of the rewrites of an origin.
    pub(super) fn rewrites_heard(&mut self, origin: Origin, change: Change<InferenceModelRewrite>) -> News {
        self.rewrites.heard(origin, change);
        self.rewrites_again()
    }

    fn all_pods_again(&mut self) -> News {
        let mut changes = Vec::new();
        if let Some(pods) = &mut self.pods {
            let mut members = std::mem::take(&mut pods.members);
            for pod in members.values_mut() {
                let endpoints = pods.endpoints_of(self.target.namespace(), &pod.facts);
                changes.extend(difference(&pod.endpoints, &endpoints));
                pod.endpoints = endpoints;
            }
            pods.members = members;
        }
        // Who leaves goes first: an address that changes hands is never there twice.
        changes.sort_by_key(|change| !matches!(change, PoolChange::Remove(_)));
        News {
            changes,
            ..News::default()
        }
    }

    fn objectives_again(&mut self) -> News {
        let mut astray = BTreeMap::new();
        let mut objectives = Objectives::new();
        for (name, objective) in self.objectives.effective() {
            // The other version of an object that counts already.
            if objectives.contains_key(name) {
                continue;
            }
            match selected(&self.target, &self.pool_labels, &objective.spec) {
                Reference::Ours => {
                    objectives.insert(Arc::from(name), objective.spec.priority.unwrap_or(0));
                    astray.remove(name);
                }
                Reference::Astray(why) => {
                    astray.insert(name, why);
                }
                Reference::Another => {
                    astray.remove(name);
                }
                // Perhaps its other version names one.
                Reference::Nothing => {
                    astray.entry(name).or_insert_with(|| NO_POOL.to_owned());
                }
            }
        }
        let astray = astray
            .into_iter()
            .map(|(name, why)| (OBJECTIVE, name.to_owned(), why))
            .collect();
        self.warn_of_astray(OBJECTIVE, astray);
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
        let mut astray = BTreeSet::new();
        let mut objects = Vec::new();
        for (name, rewrite) in self.rewrites.effective() {
            match refers(&self.target, "poolRef", &rewrite.spec.pool_ref) {
                Reference::Ours => objects.push(rewrite),
                Reference::Astray(why) => {
                    astray.insert((REWRITE, name.to_owned(), why));
                }
                Reference::Another | Reference::Nothing => {}
            }
        }
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
        self.warn_of_astray(REWRITE, astray);
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

impl Index {
    /// Warns of objects of a kind of which nothing comes, though they are probably meant for our pool: of each once.
    fn warn_of_astray(&mut self, kind: &'static str, astray: BTreeSet<Astray>) {
        for (_, object, error) in astray.difference(&self.told_astray) {
            warn!(kind, %object, %error, "object ignored");
        }
        self.told_astray.retain(|(told, ..)| *told != kind);
        self.told_astray.extend(astray);
    }
}

impl Pods {
    fn endpoints_of(&self, namespace: &str, pod: &PodFacts) -> Vec<Arc<Endpoint>> {
        if self.is_serving {
            pod.endpoints(namespace, &self.pool.ports)
        } else {
            Vec::new()
        }
    }
}

fn warn_of_no_match(target: &Target, pool: &PoolFacts) {
    let selector = match target {
        Target::Pool { .. } => pool.selector(),
        Target::Selector { selector, .. } => selector.to_string(),
    };
    warn!(
        namespace = target.namespace(),
        selector, "no pod has the labels of the selector; there are no endpoints until one does"
    );
}

const OBJECTIVE: &str = "InferenceObjective";
const REWRITE: &str = "InferenceModelRewrite";

/// What is said of an objective that could be for any pool.
const NO_POOL: &str = "it names no pool; give `spec.poolRefs` or `spec.poolSelector` (`spec.poolRef` in v1alpha2)";

/// Which pool an object means.
enum Reference {
    Ours,
    /// One with another name, or with other labels.
    Another,
    /// The one with the name of ours, of this other kind or group: a mistake, unless there is such a one too.
    Astray(String),
    /// None.
    Nothing,
}

/// Whether an objective is for our pool, which has these labels: by any of the ways to say so.
fn selected(target: &Target, labels: &BTreeMap<String, String>, spec: &ObjectiveSpec) -> Reference {
    let one = spec.pool_ref.iter().map(|reference| ("poolRef".to_owned(), reference));
    let several = spec.pool_refs.iter().enumerate();
    let several = several.map(|(at, reference)| (format!("poolRefs[{at}]"), reference));
    let mut found = Reference::Nothing;
    for (field, reference) in one.chain(several) {
        match (refers(target, &field, reference), &found) {
            (Reference::Ours, _) => return Reference::Ours,
            (Reference::Another, Reference::Astray(_)) => {}
            (other, _) => found = other,
        }
    }
    let is_pool = matches!(target, Target::Pool { .. });
    // It was checked when it was read.
    match spec.pool_selector.as_ref().and_then(|pools| selector::of(pools).ok()) {
        Some(pools) if is_pool && pools.matches(labels) => Reference::Ours,
        Some(_) if matches!(found, Reference::Nothing) => Reference::Another,
        _ => found,
    }
}

fn refers(target: &Target, field: &str, reference: &PoolReference) -> Reference {
    let Target::Pool { name, group, .. } = target else {
        return Reference::Another;
    };
    if reference.name != *name {
        return Reference::Another;
    }
    if reference.kind != KIND {
        return Reference::Astray(format!(
            "it names the picker's pool, and means another: {field}.kind is `{}`; the picker's pool is of kind `{KIND}`",
            reference.kind
        ));
    }
    if reference.group != group.name() {
        let ours = group.name();
        return Reference::Astray(format!(
            "it names the picker's pool, and means another: {field}.group is `{}`; the picker's pool is of group `{ours}`",
            reference.group
        ));
    }
    Reference::Ours
}

/// The kind of a pool.
const KIND: &str = "InferencePool";

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
