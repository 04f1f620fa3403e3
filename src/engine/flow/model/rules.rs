//! Settings of flow control, made up at random, and the configuration that says them.

use std::fmt::Write;

use proptest::option;
use proptest::prelude::*;

use super::super::super::config::plan::EnginePlan;
use super::super::super::config::{LoadOptions, SourceName, load};

/// Priorities that bands and objectives have.
pub(super) const PRIORITIES: [i32; 5] = [-5, -1, 0, 7, 20];

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) bands: Vec<(i32, BandRules)>,
    pub(super) template: BandRules,
    pub(super) negative_template: BandRules,
    pub(super) max_requests: Option<u64>,
    pub(super) max_bytes: Option<u64>,
    pub(super) sheds: bool,
    pub(super) displaces: bool,
    /// Milliseconds; 0 is for ever.
    pub(super) ttl: u64,
    /// Milliseconds; 0 is for ever.
    pub(super) ttl_without_endpoints: u64,
    /// Requests that an endpoint takes at a time.
    pub(super) concurrency: u64,
    pub(super) usage: Usage,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BandRules {
    pub(super) fairness: Fairness,
    pub(super) ordering: Ordering,
    pub(super) max_requests: u64,
    pub(super) max_bytes: u64,
    /// Milliseconds, if it is not that of all bands; 0 is for ever.
    pub(super) ttl: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fairness {
    Strict,
    RoundRobin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ordering {
    Fcfs,
    Edf,
    Slo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    Static,
    Holdback,
}

/// The ceiling of the lowest band under [`Usage::Holdback`].
pub(super) const MIN_CEILING: f64 = 0.5;

impl Rules {
    pub(super) fn plan(&self) -> EnginePlan {
        let options = LoadOptions {
            allow_experimental_plugins: true,
            ..LoadOptions::default()
        };
        let loaded = load(&self.text(), &SourceName::Flag, &options);
        loaded.unwrap_or_else(|errors| panic!("{errors}")).plan.engine
    }

    fn text(&self) -> String {
        let usage = match self.usage {
            Usage::Static => "static-usage-limit-policy",
            Usage::Holdback => "priority-holdback-policy",
        };
        let mut text = format!(
            "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: round-robin-fairness-policy}}
- {{type: edf-ordering-policy}}
- {{type: slo-deadline-ordering-policy}}
- {{type: priority-holdback-policy, parameters: {{minCeiling: {MIN_CEILING}}}}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: {}}}}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  usageLimitPolicyPluginRef: {usage}
  defaultRequestTTL: {}ms
  noEndpointRequestTTL: {}ms
  defaultPriorityBand: {{{}}}
  defaultNegativePriorityBand: {{{}}}
",
            self.concurrency,
            self.ttl,
            self.ttl_without_endpoints,
            self.template.text(),
            self.negative_template.text()
        );
        let mut line = |field: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "  {field}: {value}").expect("a string takes whatever is written");
        };
        if let Some(limit) = self.max_requests {
            line("maxRequests", &limit);
        }
        if let Some(limit) = self.max_bytes {
            line("maxBytes", &limit);
        }
        line("shedWhenFull", &self.sheds);
        line("displaceWhenFull", &self.displaces);
        let band = |(priority, rules): &(i32, BandRules)| format!("{{priority: {priority}, {}}}", rules.text());
        let bands: Vec<_> = self.bands.iter().map(band).collect();
        line("priorityBands", &format!("[{}]", bands.join(", ")));
        text
    }
}

impl BandRules {
    fn text(&self) -> String {
        let fairness = match self.fairness {
            Fairness::Strict => "global-strict-fairness-policy",
            Fairness::RoundRobin => "round-robin-fairness-policy",
        };
        let ordering = match self.ordering {
            Ordering::Fcfs => "fcfs-ordering-policy",
            Ordering::Edf => "edf-ordering-policy",
            Ordering::Slo => "slo-deadline-ordering-policy",
        };
        let ttl = self
            .ttl
            .map(|ttl| format!(", defaultRequestTTL: {ttl}ms"))
            .unwrap_or_default();
        format!(
            "fairnessPolicyRef: {fairness}, orderingPolicyRef: {ordering}, maxRequests: {}, maxBytes: {}{ttl}",
            self.max_requests, self.max_bytes
        )
    }
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), 5_u64..40]
}

fn band() -> impl Strategy<Value = BandRules> {
    let fairness = prop_oneof![Just(Fairness::Strict), Just(Fairness::RoundRobin)];
    let ordering = prop_oneof![Just(Ordering::Fcfs), Just(Ordering::Edf), Just(Ordering::Slo)];
    (fairness, ordering, 1_u64..8, 100_u64..500, option::of(ttl())).prop_map(
        |(fairness, ordering, max_requests, max_bytes, ttl)| BandRules {
            fairness,
            ordering,
            max_requests,
            max_bytes,
            ttl,
        },
    )
}

pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let bands = proptest::collection::btree_map(proptest::sample::select(&PRIORITIES[..]), band(), 0..4);
    let usage = prop_oneof![Just(Usage::Static), Just(Usage::Holdback)];
    let limits = (
        option::of(3_u64..12),
        option::of(200_u64..900),
        any::<bool>(),
        any::<bool>(),
    );
    (bands, band(), band(), limits, ttl(), ttl(), 1_u64..4, usage).prop_map(
        |(bands, template, negative_template, limits, ttl, ttl_without_endpoints, concurrency, usage)| Rules {
            bands: bands.into_iter().collect(),
            template,
            negative_template,
            max_requests: limits.0,
            max_bytes: limits.1,
            sheds: limits.2,
            displaces: limits.3,
            ttl,
            ttl_without_endpoints,
            concurrency,
            usage,
        },
    )
}
