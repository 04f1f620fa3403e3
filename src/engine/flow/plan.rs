//! What flow control is set to.

use std::time::Duration;

use super::super::scheduling::{InstanceRef, Named};
use super::fairness::FairnessPolicy;
use super::ordering::OrderingPolicy;
use super::usage::UsageLimitPolicy;

/// Flow control, as a configuration says that it should be. Without one, requests never wait.
#[derive(Debug)]
pub struct FlowPlan {
    /// What may wait in all.
    pub limits: GlobalLimits,
    /// How long requests may wait.
    pub budgets: Budgets,
    /// The bands that are always there, the highest priority first. Band 0 is among them.
    pub bands: Vec<BandPlan>,
    /// What a band of another priority is made like, if an objective asks for it. Its priority means nothing.
    pub template: BandPlan,
    /// The same for priorities below zero.
    pub negative_template: BandPlan,
    /// The fairness policies that the bands refer to.
    pub fairness: Vec<Named<dyn FairnessPolicy>>,
    /// The ordering policies that the bands refer to.
    pub ordering: Vec<Named<dyn OrderingPolicy>>,
    /// How full the pool may be for each band.
    pub usage: Named<dyn UsageLimitPolicy>,
}

/// What may wait in all bands together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalLimits {
    /// Bytes of bodies. No limit if it is not said.
    pub bytes: Option<u64>,
    /// Requests. No limit if it is not said.
    pub requests: Option<u64>,
}

/// How long a request may wait. Each time the pool gets its first endpoint or loses its last one, a fresh budget begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// While the pool has endpoints. Without end if it is not said.
    pub with_endpoints: Option<Duration>,
    /// While it has none. Without end if it is not said.
    pub without_endpoints: Option<Duration>,
}

impl Default for Budgets {
    /// A minute each.
    fn default() -> Self {
        Self {
            with_endpoints: Some(Duration::from_secs(60)),
            without_endpoints: Some(Duration::from_secs(60)),
        }
    }
}

/// One band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandPlan {
    /// The priority of its requests.
    pub priority: i32,
    /// Bytes of bodies that may wait in it.
    pub max_bytes: u64,
    /// Requests that may wait in it.
    pub max_requests: u64,
    /// How long its requests may wait while the pool has endpoints, in place of [`Budgets::with_endpoints`].
    pub ttl: Option<Duration>,
    /// Chooses between its flows: an index into [`FlowPlan::fairness`].
    pub fairness: InstanceRef,
    /// Orders each of its flows: an index into [`FlowPlan::ordering`].
    pub ordering: InstanceRef,
}

impl BandPlan {
    /// Bytes that may wait in a band unless the user says otherwise.
    pub const DEFAULT_MAX_BYTES: u64 = 1_000_000_000;
    /// Requests that may wait in a band unless the user says otherwise.
    pub const DEFAULT_MAX_REQUESTS: u64 = 5000;
}
