//! Follows the pool and all that belongs to it.

use std::fmt;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::Pod;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::api::{
    InferenceModelRewrite, InferenceObjective, InferenceObjectiveV1, InferencePool, OLD_GROUP,
    OldInferenceModelRewrite, OldInferenceObjective, OldInferencePool, POOL_GROUP,
};
use super::change::Change;
use super::checked::Checked;
use super::index::{Index, News, PoolState};
use super::kind::Origin;
use super::list_watch::Selection;
use super::pool::PoolFacts;
use super::watch::{Pace, changes};
use crate::serve::datalayer::PoolSink;
use crate::serve::ext_proc::rewrite::Rewrites;

/// Takes what Kubernetes says besides endpoints and objectives.
pub trait ClusterSink: PoolSink {
    /// Takes all rewrites that there are, in the place of those before.
    fn rewrites(&self, rewrites: Rewrites);

    /// Whether the pool is there. Told when that changes, and after all that the state stands for.
    fn pool_is(&self, state: PoolState);
}

/// Which pods are the endpoints.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Those of an `InferencePool`.
    Pool {
        /// The namespace of the pool and of all that belongs to it.
        namespace: String,
        /// The name of the pool.
        name: String,
        /// Its API group.
        group: PoolGroup,
    },
    /// Those with certain labels, without any of the custom resources.
    Selector {
        /// Their namespace.
        namespace: String,
        /// Their labels, as the API server takes them.
        selector: kube::core::Selector,
        /// The ports on which each of them serves.
        ports: Vec<u16>,
    },
}

/// The API group of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolGroup {
    /// `inference.networking.k8s.io`, version 1.
    #[default]
    Current,
    /// `inference.networking.x-k8s.io`, version 1alpha2.
    Old,
}

impl PoolGroup {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Current, Self::Old];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => POOL_GROUP,
            Self::Old => OLD_GROUP,
        }
    }
}

impl Target {
    /// The namespace of everything that is watched.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Pool { namespace, .. } | Self::Selector { namespace, .. } => namespace,
        }
    }
}

impl fmt::Display for Target {
    /// As in `inference/qwen3 (inferencepools.inference.networking.k8s.io)`, which finds it with `kubectl get`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool { namespace, name, group } => {
                write!(f, "{namespace}/{name} (inferencepools.{})", group.name())
            }
            Self::Selector {
                namespace, selector, ..
            } => write!(f, "pods with `{selector}` in {namespace}"),
        }
    }
}

/// What is to be followed, and how.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Which pods are the endpoints.
    pub target: Target,
    /// How soon what fails is tried again.
    pub pace: Pace,
}

/// Follows the pool, its pods, objectives and rewrites.
#[derive(Debug)]
pub struct ClusterSource {
    watches: Watches,
    index: Index,
    told: PoolState,
}

/// A watch of the pods of one selector.
struct PodWatch {
    selector: String,
    changes: BoxStream<'static, Change<Pod>>,
}

/// What is needed to watch.
#[derive(Clone)]
struct Watches {
    client: Client,
    wanted: Wanted,
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches")
            .field("wanted", &self.wanted)
            .finish_non_exhaustive()
    }
}

/// What was heard of anything but pods.
#[derive(Debug)]
enum Heard {
    /// `None` for a pool that was asked to go.
    Pool(Change<Option<PoolFacts>>),
    Objective(Origin, Change<InferenceObjective>),
    Rewrite(Origin, Change<InferenceModelRewrite>),
}

impl ClusterSource {
    /// A source that has seen nothing yet.
    pub fn new(client: Client, wanted: Wanted) -> Self {
        Self {
            index: Index::new(wanted.target.clone()),
            watches: Watches { client, wanted },
            told: PoolState::Awaited,
        }
    }

    /// Tells `sink` of everything, without end.
    pub async fn run<S: ClusterSink>(mut self, sink: S) {
        let mut objects = self.watches.objects();
        // The pods that are served, and those of a selector that was not listed yet.
        let (mut pods, mut unlisted): (Option<PodWatch>, Option<PodWatch>) = (None, None);
        loop {
            self.watch_unlisted(&mut unlisted);
            let news = tokio::select! {
                // What belongs to an endpoint goes before it.
                biased;
                Some(heard) = objects.next() => match heard {
                    Heard::Pool(change) => self.index.pool_heard(change),
                    Heard::Objective(origin, change) => self.index.objectives_heard(origin, change),
                    Heard::Rewrite(origin, change) => self.index.rewrites_heard(origin, change),
                },
                change = next_of(&mut unlisted) => match change {
                    Change::All { objects, unread } => {
                        pods = unlisted.take();
                        self.index.pods_listed(objects, &unread)
                    }
                    // Before the list there is nothing to change.
                    Change::Is(_) | Change::Gone(_) | Change::Absent => continue,
                },
                change = next_of(&mut pods) => self.index.pods_heard(change),
            };
            self.tell(news, &sink);
        }
    }

    /// Watches the pods of the selector that was not listed yet, if there is one and it is not watched already.
    fn watch_unlisted(&self, watch: &mut Option<PodWatch>) {
        let wanted = self.index.unlisted().map(|pool| match &self.watches.wanted.target {
            Target::Selector { selector, .. } => selector.to_string(),
            Target::Pool { .. } => pool.selector(),
        });
        if watch.as_ref().map(|watch| &watch.selector) != wanted.as_ref() {
            *watch = wanted.map(|selector| PodWatch {
                changes: self.watches.pods(&selector),
                selector,
            });
        }
    }

    fn tell<S: ClusterSink>(&mut self, news: News, sink: &S) {
        let News {
            changes,
            objectives,
            rewrites,
        } = news;
        if let Some(objectives) = objectives {
            sink.objectives(objectives);
        }
        if let Some(rewrites) = rewrites {
            sink.rewrites(rewrites);
        }
        if !changes.is_empty() {
            sink.changed(changes);
        }
        let state = self.index.state();
        if state != self.told {
            self.told = state;
            sink.pool_is(state);
        }
    }
}

/// The next change of a watch, which does not end; never if there is none.
async fn next_of(watch: &mut Option<PodWatch>) -> Change<Pod> {
    let next = async { watch.as_mut()?.changes.next().await };
    match next.await {
        Some(change) => change,
        None => std::future::pending().await,
    }
}

impl Watches {
    fn changes<K>(&self, what: &'static str, selection: Selection) -> BoxStream<'static, Change<K>>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Checked + fmt::Debug + Send + 'static,
        K::DynamicType: Default,
    {
        let namespace = self.wanted.target.namespace();
        changes(what, self.client.clone(), namespace, selection, self.wanted.pace)
    }

    fn pods(&self, selector: &str) -> BoxStream<'static, Change<Pod>> {
        self.changes("pods", Selection::labels(selector))
    }

    /// Everything but pods.
    fn objects(&self) -> BoxStream<'static, Heard> {
        let Target::Pool { name, group, .. } = &self.wanted.target else {
            return stream::pending().boxed();
        };
        let all = Selection::default();
        let named = Selection::named(name);
        let pool = match group {
            PoolGroup::Current => self
                .changes::<InferencePool>("the pool", named)
                .map(|change| Heard::Pool(change.map(PoolFacts::of)))
                .boxed(),
            PoolGroup::Old => self
                .changes::<OldInferencePool>("the pool", named)
                .map(|change| Heard::Pool(change.map(PoolFacts::of_old)))
                .boxed(),
        };
        // An object may be seen in both versions, and say in one of them alone which pools it is for.
        let objectives_v1 = self
            .changes::<InferenceObjectiveV1>("objectives of llm-d.ai/v1", all.clone())
            .map(|change| Heard::Objective(Origin::V1, change.map(Into::into)));
        let objectives = self
            .changes::<InferenceObjective>("objectives", all.clone())
            .map(|change| Heard::Objective(Origin::V1Alpha2, change));
        let old_objectives = self
            .changes::<OldInferenceObjective>("older objectives", all.clone())
            .map(|change| Heard::Objective(Origin::OldGroup, change.map(Into::into)));
        let rewrites = self
            .changes::<InferenceModelRewrite>("rewrites", all.clone())
            .map(|change| Heard::Rewrite(Origin::V1Alpha2, change));
        let old_rewrites = self
            .changes::<OldInferenceModelRewrite>("older rewrites", all)
            .map(|change| Heard::Rewrite(Origin::OldGroup, change.map(Into::into)));
        stream::select_all([
            pool,
            objectives_v1.boxed(),
            objectives.boxed(),
            old_objectives.boxed(),
            rewrites.boxed(),
            old_rewrites.boxed(),
        ])
        .boxed()
    }
}
