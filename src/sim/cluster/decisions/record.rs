//! What is written down of a decision: the lines of a decision trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// A record of one decision, as a line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum DecisionRecord {
    /// Whether a request may come in.
    Admission(AdmissionRecord),
    /// Where a request goes.
    Routing(RoutingRecord),
    /// Why a request that admission let in gets no answer.
    Refusal(RefusalRecord),
}

/// Whether a request may come in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdmissionRecord {
    /// The request.
    pub request: String,
    /// When it was decided.
    pub at_us: u64,
    /// Whether it may.
    pub admitted: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutingRecord {
    /// The request.
    pub request: String,
    /// Its tenant. Empty if it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tenant: Arc<str>,
    /// Its SLO class. Empty if it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub slo_class: Arc<str>,
    /// Its priority.
    pub priority: i32,
    /// When it was decided.
    pub at_us: u64,
    /// Where it goes.
    pub instance: String,
    /// The best candidate's score less that of the chosen one, or zero.
    pub regret: Regret,
    /// How long it waited, and for what.
    pub wait: WaitRecord,
    /// The age of the signals that instances report.
    pub signal_age_us: u64,
    /// Blocks of the prompt that the chosen instance probably has, and all of them, by each prefix producer.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prefix_blocks: BTreeMap<Arc<str>, (u32, u32)>,
    /// The candidates, the best first.
    pub candidates: Vec<CandidateRecord>,
}

/// Why a request that admission let in gets no answer: the gateway refused it, or cut it off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RefusalRecord {
    /// The request.
    pub request: String,
    /// Its tenant. Empty if it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tenant: Arc<str>,
    /// Its SLO class. Empty if it has none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub slo_class: Arc<str>,
    /// Its priority.
    pub priority: i32,
    /// When it was decided.
    pub at_us: u64,
    /// The name of a [`Refusal`](crate::engine::outcome::Refusal), or of [`Outcome::Evicted`](crate::engine::outcome::Outcome::Evicted).
    pub reason: &'static str,
    /// Where it was cut off, if it had been sent to an instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// How long it waited at the gateway, and for what.
    pub wait: WaitRecord,
}

/// How much better another choice would have been: in score, or in requests of load.
pub type Regret = f64;

/// An instance that a request could have gone to, as the gateway saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateRecord {
    /// The instance.
    pub instance: String,
    /// What it is compared by.
    pub score: f64,
    /// What each scorer said, from 0 to 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<Arc<str>, f64>,
    /// Requests in its queue.
    pub queue_depth: u32,
    /// Requests in its batch.
    pub batch_size: u32,
    /// Requests sent to it that have not ended.
    pub in_flight: u32,
    /// Share of its KV cache in use.
    pub kv_utilization: f64,
    /// KV blocks that are free.
    pub free_kv_blocks: u32,
}

/// How long a request waited at the gateway, by what it waited for. Each stretch of time between two releases counts
/// for the cause of the release that ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitRecord {
    /// All of it.
    pub total_us: u64,
    /// The pool had no room, and nobody else was released.
    pub saturation_us: u64,
    /// Requests of a higher priority were released.
    pub higher_priority_us: u64,
    /// Requests of the same priority and of other flows were released.
    pub other_flow_us: u64,
    /// Requests of its own flow were released.
    pub own_flow_us: u64,
    /// Requests of a lower priority were released: its band was closed, or they could go where it could not.
    pub lower_priority_us: u64,
}
