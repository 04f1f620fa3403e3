//! Policies by the names of the simulator's flags, as an `EndpointPickerConfig`.
//!
//! There is one way from what users write to what runs: the configuration that serves. The flags of the simulator
//! (spec, simulator 7 to 10) are a shorthand for it, and [`PolicySettings::document`] writes it out.

mod document;
mod scorers;

use std::collections::BTreeMap;

pub use scorers::{ScorerName, Scorers, ScorersError};

/// Which policies a simulated gateway runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicySettings {
    /// What may come in.
    pub admission: Admission,
    /// The share of the pool's places that sheddable requests of a tenant leave to others: a request below priority
    /// zero is refused if its tenant has more than this share in flight.
    pub tenant_budgets: BTreeMap<String, f64>,
    /// Which instance a request goes to.
    pub routing: Routing,
    /// How requests wait at the gateway; without it they do not.
    pub flow: Option<Flow>,
}

/// What may come in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// Everything.
    Always,
    /// A bounded rate of prompt tokens.
    TokenBucket {
        /// Tokens of a full bucket.
        capacity: f64,
        /// Tokens that come back each second.
        refill_rate: f64,
    },
    /// Nothing.
    RejectAll,
    /// While any instance has more than this load, nothing below this priority.
    TierShed {
        /// The effective load.
        threshold: u32,
        /// The priority.
        min_priority: i32,
    },
    /// While the pool is full, nothing below priority zero.
    GaieLegacy {
        /// Waiting requests at which an instance is full.
        queue_depth: f64,
        /// Share of the KV cache at which it is full.
        kv_utilization: f64,
    },
}

impl Admission {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Always => "always-admit",
            Self::TokenBucket { .. } => "token-bucket",
            Self::RejectAll => "reject-all",
            Self::TierShed { .. } => "tier-shed",
            Self::GaieLegacy { .. } => "gaie-legacy",
        }
    }
}

/// Which instance a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Routing {
    /// One after the other.
    RoundRobin,
    /// The one with the least effective load.
    LeastLoaded,
    /// The one with the highest sum of weighted scores.
    Weighted(Scorers),
    /// The one with the highest effective load. A bad example.
    AlwaysBusiest,
}

impl Routing {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::Weighted(_) => "weighted",
            Self::AlwaysBusiest => "always-busiest",
        }
    }
}

/// How requests wait at the gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// How full the pool is.
    pub detector: Detector,
    /// Which request goes next.
    pub order: DispatchOrder,
    /// Which tenant goes next among those of one priority.
    pub fairness: Fairness,
    /// Requests that may wait; 0 is no limit.
    pub max_requests: u64,
    /// Requests of one priority that may wait; 0 is no limit.
    pub max_band_requests: u64,
    /// Microseconds that a request waits at most; 0 is no limit.
    pub ttl_us: u64,
    /// How full the pool may be for the lowest priority; 1 is full.
    pub usage_limit: f64,
    /// Whether a request that finds no room turns out a less urgent one that may be shed.
    pub shedding: bool,
    /// Whether requests in flight may be cut off for more urgent ones.
    pub eviction: bool,
    /// The priorities that requests can have.
    pub priorities: Vec<i32>,
}

/// How full the pool is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Detector {
    /// Never full.
    Never,
    /// By queues and KV caches.
    Utilization {
        /// Waiting requests at which an instance is full.
        queue_depth: u32,
        /// Share of the KV cache at which it is full.
        kv_utilization: f64,
    },
    /// By requests in flight.
    Concurrency {
        /// Those at which an instance is full.
        max: u32,
    },
}

impl Detector {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Utilization { .. } => "utilization",
            Self::Concurrency { .. } => "concurrency",
        }
    }
}

/// Which request goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DispatchOrder {
    /// The most urgent, and of those the oldest.
    #[default]
    Priority,
    /// The oldest, whatever its priority.
    Fifo,
    /// The most urgent, and of those the one that is due first.
    SloDeadline,
}

impl DispatchOrder {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Fifo => "fifo",
            Self::SloDeadline => "slo-deadline",
        }
    }
}

/// Which tenant goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// The one whose request goes first by the dispatch order.
    #[default]
    GlobalStrict,
    /// Each in its turn.
    RoundRobin,
}

impl Fairness {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GlobalStrict => "global-strict",
            Self::RoundRobin => "round-robin",
        }
    }
}
