//! The journal of a run holds everything that the engine was told: replayed, it gives the same answers, whatever plugins
//! are in use.

use std::fmt::Write;

use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::tests::{Given, of_class, request, scenario};
use super::*;
use crate::engine::Engine;
use crate::engine::config::{LoadOptions, SourceName, load};
use crate::engine::flow::{fairness, ordering, usage};
use crate::engine::journal::{self, Agreement, Entry, Recorder};
use crate::engine::plugin::Entry as PluginType;
use crate::engine::scheduling::{Explain, NoProbe, filters, pickers, scorers};
use crate::engine::seed::Seed;
use crate::engine::{admission, saturation};
use crate::sim::request::SimRequest;

/// What a plugin is given beside its type, where its defaults would not do or would hardly ever do anything.
fn parameters(type_name: &str) -> &'static str {
    match type_name {
        "priority-holdback-policy" => "{minCeiling: 0.4}",
        "token-bucket" => "{capacity: 200, refillRate: 9000.5}",
        "tier-shed" => "{threshold: 3}",
        "gaie-legacy" => "{queueDepthThreshold: 2}",
        "tenant-budget" => "{budgets: {a: 0.01}, maxNumSeqs: 64, policy: {type: tier-shed}}",
        "concurrency-detector" => "{maxConcurrency: 3}",
        "utilization-detector" => "{queueDepthThreshold: 2, metricsStalenessThreshold: 10ms}",
        "program-aware-fairness" => "{lasHalfLifeSeconds: 0.05}",
        "no-hit-lru-scorer" => "{lruSize: 2}",
        _ => "{}",
    }
}

/// The types of a table.
fn types<T: ?Sized>(table: &'static [PluginType<T>]) -> Vec<&'static str> {
    table.iter().map(|entry| entry.type_name).collect()
}

#[derive(Clone, Debug)]
struct Choice {
    admission: &'static str,
    detector: &'static str,
    filters: Vec<&'static str>,
    scorers: Vec<(&'static str, u32)>,
    picker: &'static str,
    /// How many endpoints the picker names.
    endpoints: u8,
    flow: Option<Queues>,
}

#[derive(Clone, Debug)]
struct Queues {
    fairness: &'static str,
    ordering: &'static str,
    usage: &'static str,
    sheds: bool,
    evicts: bool,
    ttl_ms: u8,
}

impl Choice {
    fn config(&self) -> String {
        let mut plugins = vec![self.admission, self.detector, self.picker];
        plugins.extend(self.filters.iter().filter(|name| **name != self.detector));
        plugins.extend(self.scorers.iter().map(|(name, _)| name));
        plugins.extend(
            self.flow
                .iter()
                .flat_map(|flow| [flow.fairness, flow.ordering, flow.usage]),
        );
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect("a string takes all text");
        line(format!(
            "featureGates: [{}]\nplugins:",
            self.flow.as_ref().map_or("", |_| "flowControl")
        ));
        for name in plugins {
            line(match name == self.picker {
                true => format!(
                    "- {{type: {name}, parameters: {{maxNumOfEndpoints: {}}}}}",
                    self.endpoints
                ),
                false => format!("- {{type: {name}, parameters: {}}}", parameters(name)),
            });
        }
        line("schedulingProfiles:\n- name: default\n  plugins:".to_owned());
        for name in &self.filters {
            line(format!("  - {{pluginRef: {name}}}"));
        }
        for (name, weight) in &self.scorers {
            line(format!("  - {{pluginRef: {name}, weight: {weight}}}"));
        }
        line(format!("  - {{pluginRef: {}}}", self.picker));
        line(format!("admission: {{pluginRef: {}}}", self.admission));
        line(format!(
            "flowControl:\n  saturationDetector: {{pluginRef: {}}}",
            self.detector
        ));
        if let Some(flow) = &self.flow {
            let policies = format!(
                "{{fairnessPolicyRef: {}, orderingPolicyRef: {}, maxRequests: 20}}",
                flow.fairness, flow.ordering
            );
            line(format!("  usageLimitPolicyPluginRef: {}", flow.usage));
            line(format!("  defaultPriorityBand: {policies}"));
            line(format!("  defaultNegativePriorityBand: {policies}"));
            line(format!("  defaultRequestTTL: {}ms\n  maxRequests: 40", flow.ttl_ms));
            line(format!(
                "  shedWhenFull: {}\n  enableEviction: {}",
                flow.sheds, flow.evicts
            ));
        }
        text
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    let scorers = types(scorers::TABLE);
    let count = scorers.len();
    let scorers = (subsequence(scorers, 0..=count), vec(1_u32..4, count));
    // Nobody has the labels that some filters ask for.
    let filters = types(filters::TABLE);
    let filters = (0..filters.len()).prop_flat_map(move |at| subsequence(filters.clone(), 0..=(at % 3)));
    let flow = (
        select(types(fairness::TABLE)),
        select(types(ordering::TABLE)),
        select(types(usage::TABLE)),
        any::<bool>(),
        any::<bool>(),
        5_u8..200,
    );
    let flow = flow.prop_map(|(fairness, ordering, usage, sheds, evicts, ttl_ms)| Queues {
        fairness,
        ordering,
        usage,
        sheds,
        evicts,
        ttl_ms,
    });
    (
        select(types(admission::TABLE)),
        select(types(saturation::TABLE)),
        filters,
        scorers,
        select(types(pickers::TABLE)),
        1_u8..4,
        proptest::option::weighted(0.7, flow),
    )
        .prop_map(
            |(admission, detector, filters, (scorers, weights), picker, endpoints, flow)| Choice {
                admission,
                detector,
                filters,
                scorers: scorers.into_iter().zip(weights).collect(),
                picker,
                endpoints,
                flow,
            },
        )
}

/// Writes a journal as the commands do, as text.
#[derive(Clone, Debug, Default)]
struct Text(Arc<Mutex<String>>);

impl Recorder for Text {
    fn note(&mut self, entry: Entry) {
        let mut text = self.0.lock();
        let line = serde_json::to_string(&entry).expect("an entry can be written");
        writeln!(text, "{line}").expect("a string takes any text");
    }
}

/// Requests of some tenants and classes, whose prompts begin alike in groups.
fn requests(count: u64) -> Vec<SimRequest> {
    let request = |number: u64| {
        let mut request = request(
            number % 7,
            number * 900,
            40 + (number % 5) as u32 * 16,
            1 + (number % 6) as u32,
        );
        request.name = crate::sim::request::RequestName::Numbered(number);
        request.deadline_us = (number % 11 == 5).then_some(request.arrival_us + 4_000);
        request.slo_target_us = number.is_multiple_of(3).then_some(10_000 + number % 4 * 5_000);
        let class = ["critical", "standard", "batch", "background"][number as usize % 4];
        of_class(class, ["a", "b", "c"][number as usize % 3], request)
    };
    (0..count).map(request).collect()
}

/// Runs a workload, and replays its journal.
fn replayed(config: &str, scenario: &Scenario, count: u64) -> Agreement {
    let options = LoadOptions {
        allow_experimental_plugins: true,
        cache_source: true,
        ..LoadOptions::default()
    };
    let plan = || {
        let loaded = load(config, &SourceName::Flag, &options);
        loaded.unwrap_or_else(|errors| panic!("{errors}\n{config}")).plan.engine
    };
    let journal = Text::default();
    let trace = TraceOptions {
        journal: Some(Box::new(journal.clone())),
        ..TraceOptions::default()
    };
    run(scenario, plan(), &mut Given(requests(count).into()), trace);

    let text = journal.0.lock();
    let entries = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("what was written can be read"));
    let mut engine = Engine::new(plan(), Seed(scenario.seed), Box::new(NoProbe), Explain::Best(0));
    journal::replay(&mut engine, entries)
}

fn agrees(agreement: &Agreement, count: u64) -> bool {
    (
        agreement.submitted,
        agreement.same_endpoint + agreement.both_refused + agreement.unanswered,
    ) == (count, count)
}

/// A choice of plugins that all let something happen.
fn usual() -> Choice {
    Choice {
        admission: "always-admit",
        detector: "concurrency-detector",
        filters: Vec::new(),
        scorers: vec![("queue-depth-scorer", 1)],
        picker: "max-score-picker",
        endpoints: 1,
        flow: Some(Queues {
            fairness: "round-robin-fairness-policy",
            ordering: "fcfs-ordering-policy",
            usage: "static-usage-limit-policy",
            sheds: true,
            evicts: true,
            ttl_ms: 50,
        }),
    }
}

#[test]
fn a_run_with_any_plugin_is_replayed_without_a_difference() {
    let usual = usual();
    let with_flow = |change: &dyn Fn(&mut Queues)| {
        let mut choice = usual.clone();
        choice.flow.iter_mut().for_each(change);
        choice
    };
    let mut choices = Vec::new();
    choices.extend(types(admission::TABLE).into_iter().map(|admission| Choice {
        admission,
        ..usual.clone()
    }));
    choices.extend(types(saturation::TABLE).into_iter().map(|detector| Choice {
        detector,
        ..usual.clone()
    }));
    choices.extend(types(filters::TABLE).into_iter().map(|filter| Choice {
        filters: vec![filter],
        ..usual.clone()
    }));
    choices.extend(types(pickers::TABLE).into_iter().map(|picker| Choice {
        picker,
        ..usual.clone()
    }));
    choices.extend(types(scorers::TABLE).into_iter().map(|scorer| Choice {
        scorers: vec![(scorer, 1)],
        ..usual.clone()
    }));
    choices.extend(
        types(fairness::TABLE)
            .into_iter()
            .map(|name| with_flow(&|flow| flow.fairness = name)),
    );
    choices.extend(
        types(ordering::TABLE)
            .into_iter()
            .map(|name| with_flow(&|flow| flow.ordering = name)),
    );
    choices.extend(
        types(usage::TABLE)
            .into_iter()
            .map(|name| with_flow(&|flow| flow.usage = name)),
    );

    for choice in choices {
        let agreement = replayed(&choice.config(), &scenario(3), 30);
        assert!(agrees(&agreement, 30), "{agreement:?}\n{}", choice.config());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_run_with_any_plugins_together_is_replayed_without_a_difference(
        choice in choice(),
        instances in 1_u32..5,
        refresh_us in select(vec![0, 7_000]),
        delay_us in select(vec![0, 11_000]),
        count in 1_u64..60,
        seed: u64,
    ) {
        let scenario = Scenario {
            seed,
            snapshot_refresh_us: refresh_us,
            cache_signal_delay_us: delay_us,
            routing_latency_us: 100,
            ..scenario(instances)
        };

        let agreement = replayed(&choice.config(), &scenario, count);

        prop_assert!(agrees(&agreement, count), "{:?}\n{}", agreement, choice.config());
    }
}
