//! The settings of policies, written out as the configuration that serves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Admission, Detector, DispatchOrder, Fairness, Flow, PolicySettings, Routing, ScorerName, Scorers};

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
        // Instances of the reference do not fail, and a client that gives up there says nothing of them.
        document["outlierDetection"] = json!({ "consecutiveFailures": 0 });
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
        let mut seen = BTreeSet::new();
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
