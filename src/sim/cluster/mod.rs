//! A cluster in invented time: a gateway, and the instances behind it.
//!
//! [`run()`] takes requests from a workload, has the engine admit, queue and route them, and lets the instances compute
//! (spec, simulator 4 and 5). What happens next is always the earliest entry of the agenda; equal inputs give equal
//! runs, byte by byte. Read `events.rs` (what can happen, and in which order), `run.rs` (what follows from it), and
//! `gateway.rs` (how the engine is driven).
//!
//! What holds at all times:
//!
//! - the clock never goes back;
//! - every request that arrived is in exactly one of the places that [`End`](super::record::End) names;
//! - policies learn of instances only what the signals say, and of requests nothing of how long their answers will be.

mod decisions;
mod events;
mod faults;
mod gateway;
#[cfg(all(test, feature = "serve"))]
mod replays;
mod run;
mod sampler;
#[cfg(test)]
mod tests;
mod tracked;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use decisions::{
    AdmissionRecord, CandidateRecord, DecisionRecord, DecisionSink, RefusalRecord, Regret, RegretBasis, RoutingRecord,
    Summary, TraceOptions, WaitRecord,
};
pub use events::MAX_INSTANCES;
pub use faults::{Fault, FaultKind};
pub use run::run;

use super::classes::Classes;
use super::instance::InstanceConfig;
use super::latency::LatencyModel;

/// A cluster, and what surrounds it. Times are microseconds.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of instances. At least one, at most [`MAX_INSTANCES`].
    pub instances: u32,
    /// The labels of the instances, by index. Those past the end have none.
    pub labels: Vec<BTreeMap<String, String>>,
    /// What an instance has room for.
    pub instance: InstanceConfig,
    /// How long an instance takes.
    pub latency: Arc<dyn LatencyModel>,
    /// The model that every instance serves. Without a name, it is whatever model requests name.
    pub model: Arc<str>,
    /// The priorities of the SLO classes.
    pub classes: Classes,
    /// The latency that requests of a class hope for, if they do not say so themselves.
    pub slo_targets_us: BTreeMap<Arc<str>, u64>,
    /// Requests of all priorities wait in one queue of the gateway: it is not told of priorities.
    pub one_queue: bool,
    /// All chance of the policies follows from it.
    pub seed: u64,
    /// From the arrival of a request to the decision whether to let it in.
    pub admission_latency_us: u64,
    /// From the decision where a request goes to its arrival there.
    pub routing_latency_us: u64,
    /// The age that signals of instances may have before they are read again. Zero: they are read for each decision.
    pub snapshot_refresh_us: u64,
    /// The same for the names of the blocks in the KV caches.
    pub cache_signal_delay_us: u64,
    /// Instances that fail for a time. Those of one instance do not overlap.
    pub faults: Vec<Fault>,
    /// When the run ends, whatever is under way.
    pub horizon_us: Option<u64>,
}

impl Scenario {
    /// Whether there are instances for requests that name this model. Those that name none are served by any.
    pub fn serves(&self, model: &str) -> bool {
        model.is_empty() || self.model.is_empty() || *self.model == *model
    }
}
