//! What a cluster source tells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::engine::pool::PoolChange;
use forebay::engine::time::Timestamp;
use forebay::serve::datalayer::{Objectives, PoolSink};
use forebay::serve::ext_proc::rewrite::Rewrites;
use forebay::serve::kube::{ClusterSink, ClusterSource, Pace, PoolGroup, PoolState, Target, Wanted};
use kube::Client;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::support::happens;
use crate::support::kube::Kube;
use crate::support::kube::objects::POOL;

/// Bound for what a loaded machine may take long for.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that was told, put together.
#[derive(Clone, Default)]
pub(super) struct View(Arc<Mutex<Seen>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Addresses by name.
    pub(super) endpoints: BTreeMap<String, String>,
    pub(super) objectives: Objectives,
    pub(super) rewrites: Rewrites,
    pub(super) state: PoolState,
    /// How many changes of endpoints were told.
    pub(super) changes: usize,
    /// How often the last endpoint left.
    pub(super) emptied: usize,
}

impl PoolSink for View {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        let mut seen = self.0.lock();
        seen.changes += changes.len();
        for change in changes {
            match change {
                PoolChange::Upsert(endpoint) => {
                    let socket = endpoint.socket().to_string();
                    seen.endpoints.insert(endpoint.id.name().to_owned(), socket);
                }
                PoolChange::Remove(id) => {
                    seen.endpoints.remove(id.name());
                }
                PoolChange::Report(..) | PoolChange::Scrape(..) => panic!("a source of endpoints reports nothing"),
            }
        }
        seen.emptied += usize::from(seen.endpoints.is_empty());
    }

    fn objectives(&self, objectives: Objectives) {
        self.0.lock().objectives = objectives;
    }
}

impl ClusterSink for View {
    fn rewrites(&self, rewrites: Rewrites) {
        self.0.lock().rewrites = rewrites;
    }

    fn pool_is(&self, state: PoolState) {
        self.0.lock().state = state;
    }
}

impl View {
    pub(super) fn seen(&self) -> Seen {
        self.0.lock().clone()
    }

    /// Waits until exactly these endpoints are there, such as `a-rank-0 10.0.0.1:8000`.
    pub(super) async fn endpoints(&self, wanted: &[&str]) {
        self.sees(&format!("the endpoints are {wanted:?}"), |seen| {
            let here = seen.endpoints.iter().map(|(name, socket)| format!("{name} {socket}"));
            here.eq(wanted.iter().copied())
        })
        .await;
    }

    /// Waits until exactly these objectives are there.
    pub(super) async fn objectives(&self, wanted: &[(&str, i32)]) {
        self.sees(&format!("the objectives are {wanted:?}"), |seen| {
            let here = seen.objectives.iter().map(|(name, priority)| (&**name, *priority));
            here.eq(wanted.iter().copied())
        })
        .await;
    }

    pub(super) async fn state(&self, wanted: PoolState) {
        self.sees(&format!("the pool is {wanted:?}"), |seen| seen.state == wanted)
            .await;
    }

    pub(super) async fn sees(&self, what: &str, is: impl Fn(&Seen) -> bool) {
        happens(what, PATIENCE, async || {
            let seen = self.seen();
            is(&seen).then_some(()).ok_or_else(|| format!("{seen:?}"))
        })
        .await;
    }
}

/// Tries again soon.
pub(super) const PACE: Pace = Pace {
    first: Duration::from_millis(20),
    most: Duration::from_millis(200),
    relist: Duration::from_secs(600),
};

/// Follows a target, as a service does.
pub(super) fn follow(kube: &Kube, target: Target) -> (View, AbortOnDropHandle<()>) {
    follow_as(kube.tested_client(), target)
}

/// The same, as somebody.
pub(super) fn follow_as(client: Client, target: Target) -> (View, AbortOnDropHandle<()>) {
    follow_at(client, target, PACE)
}

/// The same, at another pace.
pub(super) fn follow_at(client: Client, target: Target, pace: Pace) -> (View, AbortOnDropHandle<()>) {
    let view = View::default();
    let source = ClusterSource::new(client, Wanted { target, pace });
    let task = tokio::spawn(source.run(view.clone()));
    (view, AbortOnDropHandle::new(task))
}

/// Follows the pool of the current group.
pub(super) fn follow_pool(kube: &Kube) -> (View, AbortOnDropHandle<()>) {
    follow(kube, target(kube, PoolGroup::Current))
}

pub(super) fn target(kube: &Kube, group: PoolGroup) -> Target {
    Target::Pool {
        namespace: kube.namespace.clone(),
        name: POOL.to_owned(),
        group,
    }
}
