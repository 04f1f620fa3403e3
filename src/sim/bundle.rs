//! Policy bundles of the reference simulator (spec, simulator 32).
//!
//! A bundle says what flags say, and flags come before it. What it says of autoscaling is read and not simulated.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::engine::config::yaml::{self, DecodeError};

/// What a bundle says. Nothing is said of what is `None`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bundle {
    /// What may come in.
    pub admission: AdmissionSection,
    /// Where requests go.
    pub routing: RoutingSection,
    /// Accepted, without effect.
    pub priority: Option<Named>,
    /// Who of an instance's queue goes first.
    pub scheduler: Option<String>,
    /// Who loses its place when KV blocks run out.
    pub preemption: Option<Named>,
    /// The share of the places of the pool for each tenant, 0 to 1.
    pub tenant_budgets: BTreeMap<String, f64>,
    /// Accepted, and not simulated.
    pub node_pools: Option<Value>,
    /// Accepted, and not simulated.
    pub autoscaler: Option<Value>,
    /// Accepted, and not simulated.
    pub instance_lifecycle: Option<Value>,
}

/// A policy by its name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Named {
    /// The name.
    pub policy: Option<String>,
}

/// What may come in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionSection {
    /// The policy.
    pub policy: Option<String>,
    /// Tokens of a full bucket.
    pub token_bucket_capacity: Option<f64>,
    /// Tokens that come back each second.
    pub token_bucket_refill_rate: Option<f64>,
    /// The effective load from which on classes are shed.
    pub tier_shed_threshold: Option<u32>,
    /// The lowest priority that is not shed.
    pub tier_shed_min_priority: Option<i32>,
    /// Waiting requests at which an instance is full.
    pub gaie_qd_threshold: Option<f64>,
    /// Share of the KV cache at which it is full.
    pub gaie_kv_threshold: Option<f64>,
    /// Priorities of SLO classes.
    pub slo_priorities: BTreeMap<String, i64>,
    /// Latency that the requests of a class hope for, in microseconds.
    pub slo_targets: BTreeMap<String, u64>,
}

/// Where requests go.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutingSection {
    /// The policy.
    pub policy: Option<String>,
    /// Its scorers.
    pub scorers: Vec<ScorerSection>,
}

/// A scorer, and what it counts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScorerSection {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub weight: f64,
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// # Errors
    ///
    /// If the text is no YAML, or says something that a bundle cannot say.
    pub fn read(text: &str) -> Result<Self, DecodeError> {
        yaml::decode(text)
    }

    /// What the bundle says and has no effect, for a warning.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let sections = [
            ("priority", self.priority.is_some()),
            ("node_pools", self.node_pools.is_some()),
            ("autoscaler", self.autoscaler.is_some()),
            ("instance_lifecycle", self.instance_lifecycle.is_some()),
        ];
        sections
            .iter()
            .filter(|(_, said)| *said)
            .map(|(name, _)| *name)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_says_what_flags_say() {
        let bundle = Bundle::read(
            "admission:\n  policy: tier-shed\n  tier_shed_threshold: 4\n  slo_priorities: {batch: 2}\n\
             routing:\n  policy: weighted\n  scorers:\n  - {name: queue-depth, weight: 2}\n\
             tenant_budgets: {acme: 0.25}\nautoscaler: {interval_us: 5}\n",
        )
        .unwrap();

        assert_eq!(bundle.admission.policy.as_deref(), Some("tier-shed"));
        assert_eq!(bundle.admission.tier_shed_threshold, Some(4));
        assert_eq!(bundle.routing.scorers[0].weight, 2.0);
        assert_eq!(bundle.tenant_budgets["acme"], 0.25);
        assert_eq!(bundle.without_effect(), ["autoscaler"]);
    }

    #[test]
    fn a_word_that_is_not_known_is_found_with_its_line() {
        let error = Bundle::read("routing:\n  policy: weighted\n  scores: []\n").unwrap_err();

        assert_eq!(error.line(), 3);
        assert!(error.to_string().contains("scores"), "{error}");
    }
}
