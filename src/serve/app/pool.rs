//! What is learnt of the pool, on its way to all that need it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::engine::pool::PoolChange;
use crate::engine::time::Timestamp;
use crate::serve::datalayer::scrape::Scrapers;
use crate::serve::datalayer::{Objectives, PoolSink};
use crate::serve::driver::{Driver, Picker};
use crate::serve::ext_proc::Settings;
use crate::serve::ext_proc::rewrite::Rewrites;
use crate::serve::kube::{ClusterSink, PoolState};
use crate::serve::observe::Telemetry;

/// The engine's pool, those who look at the endpoints in it, and what streams need to know of it.
#[derive(Clone, Debug)]
pub(super) struct ServedPool {
    pub(super) driver: Driver,
    pub(super) scrapers: Scrapers<Driver>,
    pub(super) front: Arc<ArcSwap<Settings>>,
    pub(super) telemetry: Arc<Telemetry>,
    /// Whether it is there, as it was told last.
    pub(super) state: watch::Sender<PoolState>,
}

impl PoolSink for ServedPool {
    fn now(&self) -> Timestamp {
        Picker::now(&self.driver)
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        self.scrapers.changed(changes);
    }

    fn objectives(&self, objectives: Objectives) {
        self.scrapers.objectives(objectives);
    }
}

impl ClusterSink for ServedPool {
    fn rewrites(&self, rewrites: Rewrites) {
        self.telemetry.metrics.pin_models(rewrites.models());
        let rewrites = Arc::new(rewrites);
        self.front.rcu(|settings| Settings {
            rewrites: rewrites.clone(),
            ..Settings::clone(settings)
        });
    }

    fn pool_is(&self, state: PoolState) {
        self.state.send_replace(state);
    }
}

impl PoolSink for Driver {
    fn now(&self) -> Timestamp {
        Picker::now(self)
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        self.pool_changed(changes);
    }

    fn objectives(&self, objectives: Objectives) {
        self.objectives_changed(objectives);
    }
}
