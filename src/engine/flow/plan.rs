//! What flow control is set to.

use std::time::Duration;

use super::super::scheduling::{InstanceRef, Named};
use super::band::Load;
use super::fairness::FairnessPolicy;
use super::ordering::OrderingPolicy;
use super::usage::UsageLimitPolicy;

/// Flow control, as a configuration says that it should be. Without one, requests never wait.
///
/// How long a request may wait depends on whether the pool has endpoints. Each time it gets its first one or loses its
/// last one, a fresh budget begins.
#[derive(Debug)]
pub struct FlowPlan {
    /// What may wait in all.
    pub limits: GlobalLimits,
    /// Whether a request that these limits keep out takes the place of less urgent ones below priority zero.
    pub shed_when_full: bool,
    /// Whether a request that finds a limit reached takes the place of one of a flow that has more, in bands whose fairness
    /// policy tells flows apart.
    pub displace_when_full: bool,
    /// How long requests of any band may wait while the pool has no endpoints. Without end if it is not said.
    pub without_endpoints: Option<Duration>,
    /// The bands that are always there, the highest priority first. Band 0 is among them.
    pub bands: Vec<BandPlan>,
    /// What a band of another priority is made like, if an objective asks for it. Its priority means nothing.
    pub template: BandPlan,
    /// The same for priorities below zero.
    pub negative_template: BandPlan,
    /// The fairness policies there are. Several bands may refer to one.
    pub fairness: Vec<Named<dyn FairnessPolicy>>,
    /// The ordering policies there are. Several bands may refer to one.
    pub ordering: Vec<Named<dyn OrderingPolicy>>,
    /// How full the pool may be for each band.
    pub usage: Named<dyn UsageLimitPolicy>,
    /// Whether requests in flight with a priority below zero are cut off for more urgent ones that wait.
    pub evicts: bool,
}

/// What may wait in all bands together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalLimits {
    /// Bytes of bodies. No limit if it is not said.
    pub bytes: Option<u64>,
    /// Requests. No limit if it is not said.
    pub requests: Option<u64>,
}

impl GlobalLimits {
    /// True if a request of `size` bytes may wait beside what is `held`.
    pub fn admit(&self, held: Load, size: u64) -> bool {
        self.bytes.is_none_or(|limit| held.bytes + size <= limit)
            && self.requests.is_none_or(|limit| held.requests < limit)
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
    /// How long its requests may wait while the pool has endpoints. Without end if it is not said.
    pub ttl: Option<Duration>,
    /// Chooses between its flows: an index into [`FlowPlan::fairness`].
    pub fairness: InstanceRef,
    /// Orders each of its flows: an index into [`FlowPlan::ordering`].
    pub ordering: InstanceRef,
}

impl BandPlan {
    /// True if a request of `size` bytes may wait beside what is `held` in the band.
    pub fn admits(&self, held: Load, size: u64) -> bool {
        held.bytes + size <= self.max_bytes && held.requests < self.max_requests
    }

    /// Bytes that may wait in a band unless the user says otherwise.
    pub const DEFAULT_MAX_BYTES: u64 = 1_000_000_000;
    /// Requests that may wait in a band unless the user says otherwise.
    pub const DEFAULT_MAX_REQUESTS: u64 = 5000;
    /// How long requests may wait unless the user says otherwise, with endpoints or without.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(60);
}
