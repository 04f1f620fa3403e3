//! Policies by the names of the simulator's flags, as an `EndpointPickerConfig`.
//!
//! There is one way from what users write to what runs: the configuration that serves. The flags of the simulator
//! (spec, simulator 7 to 10) are a shorthand for it, and [`PolicySettings::document`] writes it out.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

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

/// Scorers and what they count.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorers(Vec<(ScorerName, f64)>);

impl Default for Scorers {
    /// Prefix affinity 3, queue depth 2, KV utilization 2.
    fn default() -> Self {
        Self(vec![
            (ScorerName::PrefixAffinity, 3.0),
            (ScorerName::QueueDepth, 2.0),
            (ScorerName::KvUtilization, 2.0),
        ])
    }
}

macro_rules! scorer_names {
    ($($variant:ident $name:literal $plugin:literal $doc:literal;)*) => {
        /// A scorer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ScorerName {
            $(#[doc = $doc] $variant,)*
        }

        impl ScorerName {
            /// Every scorer.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its name in a list of scorers.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Its plugin type.
            pub const fn plugin(self) -> &'static str {
                match self { $(Self::$variant => $plugin),* }
            }
        }
    };
}

scorer_names! {
    PrefixAffinity "prefix-affinity" "prefix-affinity-scorer" "How much of the prompt an instance was sent before.";
    PrecisePrefixCache "precise-prefix-cache" "precise-prefix-cache-scorer" "How much of the prompt is in its KV cache.";
    NoHitLru "no-hit-lru" "no-hit-lru-scorer" "How long ago it was sent a prompt that nobody had in its cache.";
    QueueDepth "queue-depth" "queue-depth-scorer" "How small its effective load is among all.";
    KvUtilization "kv-utilization" "kv-cache-utilization-scorer" "How empty its KV cache is.";
    LoadBalance "load-balance" "load-balance-scorer" "The inverse of its effective load.";
    ActiveRequests "active-requests" "active-request-scorer" "How few requests are in flight to it.";
    RunningRequests "running-requests" "running-requests-size-scorer" "How small its batch is among all.";
    LoadAware "load-aware" "load-aware-scorer" "How short its queue is.";
    VllmDp "vllm-dp" "vllm-dp-scorer" "How few requests it has, those that wait counted four times.";
    LoraAffinity "lora-affinity" "lora-affinity-scorer" "Whether it has the adapter of the request.";
}

/// What is wrong with a list of scorers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScorersError {
    /// An entry has no weight.
    #[error("`{0}` has no weight; write it as `name:weight`, such as `queue-depth:2`")]
    NoWeight(String),
    /// A weight is no number above zero.
    #[error("the weight of `{name}` must be a number above 0, found `{weight}`")]
    Weight {
        /// The scorer.
        name: String,
        /// What was found.
        weight: String,
    },
    /// There is no such scorer.
    #[error("`{0}` is no scorer; the scorers are {known}", known = known())]
    Unknown(String),
    /// A scorer is there twice.
    #[error("`{0}` is listed twice; give it the sum of the weights instead")]
    Twice(String),
}

fn known() -> String {
    let names: Vec<_> = ScorerName::ALL.iter().map(|scorer| scorer.name()).collect();
    names.join(", ")
}

impl Scorers {
    /// Adds a scorer.
    ///
    /// # Errors
    ///
    /// If there is none of this name, it is there already, or the weight is no number above zero.
    pub fn add(&mut self, name: &str, weight: f64) -> Result<(), ScorersError> {
        let Some(scorer) = ScorerName::ALL.iter().find(|scorer| scorer.name() == name) else {
            return Err(ScorersError::Unknown(name.to_owned()));
        };
        if self.0.iter().any(|(known, _)| known == scorer) {
            return Err(ScorersError::Twice(name.to_owned()));
        }
        if !weight.is_finite() || weight <= 0.0 {
            return Err(ScorersError::Weight {
                name: name.to_owned(),
                weight: weight.to_string(),
            });
        }
        self.0.push((*scorer, weight));
        Ok(())
    }

    /// No scorer at all, to add some to.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Scorers {
    type Err = ScorersError;

    /// Reads `name:weight,name:weight`.
    fn from_str(text: &str) -> Result<Self, ScorersError> {
        let mut scorers = Self::none();
        for entry in text.split(',').map(str::trim) {
            let Some((name, weight)) = entry.split_once(':') else {
                return Err(ScorersError::NoWeight(entry.to_owned()));
            };
            let (name, weight) = (name.trim(), weight.trim());
            let number = weight.parse().map_err(|_| ScorersError::Weight {
                name: name.to_owned(),
                weight: weight.to_owned(),
            })?;
            scorers.add(name, number)?;
        }
        Ok(scorers)
    }
}

impl fmt::Display for Scorers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (scorer, weight)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}:{weight}", scorer.name())?;
        }
        Ok(())
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

/// Blocks that the gateway remembers of each instance (spec, simulator 10.5).
const ROUTER_BLOCKS: u32 = 10_000;

/// Signals of a simulated instance are as old as the scenario says, and good for as long.
const NEVER_STALE: &str = "100000h";

/// The largest count that a band of the gateway can be limited to. It stands for no limit.
const NO_LIMIT: u64 = 1_000_000_000_000;

impl PolicySettings {
    /// The same policies as an `EndpointPickerConfig`. `block_tokens` are the tokens of a KV block, and `places` is how
    /// many requests an instance can run at once.
    pub fn document(&self, block_tokens: u32, places: u32) -> Value {
        let mut plugins = Vec::new();
        let profile = self.profile(block_tokens, &mut plugins);
        let admission = self.admission_ref(places, &mut plugins);
        let mut document = json!({
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
        });
        let detector = self.flow.as_ref().map_or(Detector::Never, |flow| flow.detector);
        let detector = detector_ref(detector, &mut plugins);
        let mut flow_control = match &self.flow {
            Some(flow) => {
                document["featureGates"] = json!(["flowControl"]);
                flow.section(&mut plugins)
            }
            None => json!({}),
        };
        flow_control["saturationDetector"] = json!({ "pluginRef": detector });
        document["plugins"] = Value::Array(plugins);
        document["schedulingProfiles"] = json!([{ "name": "default", "plugins": profile }]);
        document["admission"] = json!({ "pluginRef": admission });
        document["flowControl"] = flow_control;
        document
    }

    fn profile(&self, block_tokens: u32, plugins: &mut Vec<Value>) -> Vec<Value> {
        let scorers = match &self.routing {
            Routing::RoundRobin => {
                plugins.push(json!({ "type": "round-robin-picker" }));
                return vec![json!({ "pluginRef": "round-robin-picker" })];
            }
            Routing::LeastLoaded => vec![("queue-depth-scorer", 1.0)],
            Routing::AlwaysBusiest => vec![("busiest-scorer", 1.0)],
            Routing::Weighted(Scorers(scorers)) => {
                let sum: f64 = scorers.iter().map(|(_, weight)| weight).sum();
                let share = |&(scorer, weight): &(ScorerName, f64)| (scorer.plugin(), weight / sum);
                scorers.iter().map(share).collect()
            }
        };
        let ties = match self.routing {
            Routing::AlwaysBusiest => "first",
            _ => "random",
        };
        for &(plugin, _) in &scorers {
            match plugin {
                "prefix-affinity-scorer" => plugins.push(json!({
                    "type": "prefix-affinity-producer",
                    "parameters": { "blockSizeTokens": block_tokens, "lruCapacityPerServer": ROUTER_BLOCKS },
                })),
                "precise-prefix-cache-scorer" | "no-hit-lru-scorer" => plugins.push(json!({
                    "type": "precise-prefix-cache-producer",
                    "parameters": { "tokenProcessorConfig": { "blockSizeTokens": block_tokens } },
                })),
                _ => {}
            }
            plugins.push(json!({ "type": plugin }));
        }
        // Two scorers may read the same producer.
        let mut seen = std::collections::BTreeSet::new();
        plugins.retain(|plugin| seen.insert(plugin["type"].to_string()));
        plugins.push(json!({ "type": "max-score-picker", "parameters": { "ties": ties } }));
        let weighted = scorers
            .iter()
            .map(|(plugin, weight)| json!({ "pluginRef": plugin, "weight": weight }));
        weighted.chain([json!({ "pluginRef": "max-score-picker" })]).collect()
    }

    fn admission_ref(&self, places: u32, plugins: &mut Vec<Value>) -> &'static str {
        let plugin = self.admission.name();
        let parameters = match self.admission {
            Admission::Always | Admission::RejectAll => Value::Null,
            Admission::TokenBucket { capacity, refill_rate } => {
                json!({ "capacity": capacity, "refillRate": refill_rate })
            }
            Admission::TierShed {
                threshold,
                min_priority,
            } => json!({ "threshold": threshold, "minPriority": min_priority }),
            Admission::GaieLegacy {
                queue_depth,
                kv_utilization,
            } => json!({ "queueDepthThreshold": queue_depth, "kvThreshold": kv_utilization }),
        };
        let policy = with(plugin, parameters);
        if self.tenant_budgets.is_empty() {
            plugins.push(policy);
            return plugin;
        }
        let budgets = json!({
            "budgets": self.tenant_budgets,
            "maxNumSeqs": places,
            "policy": policy,
        });
        plugins.push(with("tenant-budget", budgets));
        "tenant-budget"
    }
}

impl Flow {
    fn section(&self, plugins: &mut Vec<Value>) -> Value {
        let fairness = match self.fairness {
            Fairness::GlobalStrict => "global-strict-fairness-policy",
            Fairness::RoundRobin => "round-robin-fairness-policy",
        };
        let ordering = match self.order {
            DispatchOrder::Priority | DispatchOrder::Fifo => "fcfs-ordering-policy",
            DispatchOrder::SloDeadline => "slo-deadline-ordering-policy",
        };
        plugins.push(with(fairness, Value::Null));
        plugins.push(with(ordering, Value::Null));
        let band_limit = match self.max_band_requests {
            0 => NO_LIMIT,
            limit => limit,
        };
        let band = |priority: Option<i32>| {
            let mut band = json!({
                "maxRequests": band_limit,
                "maxBytes": NO_LIMIT,
                "fairnessPolicyRef": fairness,
                "orderingPolicyRef": ordering,
            });
            if let Some(priority) = priority {
                band["priority"] = json!(priority);
            }
            band
        };
        let bands: Vec<_> = self.priorities.iter().map(|&priority| band(Some(priority))).collect();
        let mut section = json!({
            "maxRequests": self.max_requests,
            "defaultRequestTTL": format!("{}us", self.ttl_us),
            "defaultPriorityBand": band(None),
            "priorityBands": bands,
        });
        if self.shedding {
            section["shedWhenFull"] = json!(true);
        }
        if self.eviction {
            section["enableEviction"] = json!(true);
        }
        if self.usage_limit < 1.0 {
            plugins.push(with(
                "priority-holdback-policy",
                json!({ "minCeiling": self.usage_limit }),
            ));
            section["usageLimitPolicyPluginRef"] = json!("priority-holdback-policy");
        }
        section
    }
}

fn detector_ref(detector: Detector, plugins: &mut Vec<Value>) -> &'static str {
    let (plugin, parameters) = match detector {
        Detector::Never => ("never-saturated", Value::Null),
        Detector::Utilization {
            queue_depth,
            kv_utilization,
        } => (
            "utilization-detector",
            json!({
                "queueDepthThreshold": queue_depth,
                "kvCacheUtilThreshold": kv_utilization,
                "metricsStalenessThreshold": NEVER_STALE,
                "countUnreported": false,
            }),
        ),
        Detector::Concurrency { max } => ("concurrency-detector", json!({ "maxConcurrency": max })),
    };
    plugins.push(with(plugin, parameters));
    plugin
}

fn with(plugin: &str, parameters: Value) -> Value {
    match parameters {
        Value::Null => json!({ "type": plugin }),
        parameters => json!({ "type": plugin, "parameters": parameters }),
    }
}
