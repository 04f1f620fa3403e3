//! Whether clients that are turned away are told the truth about when to come again.

use std::time::Duration;

use super::super::outcome::Refusal;
use super::traffic::{GUIDE, Scenario, Source};

/// An endpoint takes four requests at a time, and fifty of each priority may wait. With 0.9 s a request, that is 4.4
/// requests a second and a wait of 11 s.
const SMALL: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- type: round-robin-fairness-policy
- type: concurrency-detector
  parameters: {maxConcurrency: 4}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 60s
  noEndpointRequestTTL: 60s
  priorityBands:
  - priority: 100
    maxRequests: 50
    fairnessPolicyRef: round-robin-fairness-policy
  - priority: 0
    maxRequests: 50
    fairnessPolicyRef: round-robin-fairness-policy
";

const PRIORITIES: &[(&str, i32)] = &[("premium", 100), ("batch", -10)];

/// Something that happens in a pool, and the refusals in it that count.
struct Situation {
    name: &'static str,
    scenario: Scenario,
    /// The tenant whose refusals count, from this second on, and until half a minute before the end: what happens later
    /// would decide how long these would have waited.
    tenant: &'static str,
    from: f64,
}

fn source(tenant: &'static str, objective: &'static str, rate: f64, from: f64, until: f64) -> Source {
    Source {
        objective,
        from,
        until,
        ..Source::new(tenant, rate)
    }
}

fn situation(name: &'static str, config: &str, sources: Vec<Source>, from: f64) -> Situation {
    Situation {
        name,
        tenant: sources[0].tenant,
        scenario: Scenario {
            config: config.to_owned(),
            objectives: PRIORITIES,
            until: sources.iter().map(|source| source.until).fold(0.0, f64::max),
            sources,
            endpoints: vec![(0.0, 1)],
            service: 0.9,
            seed: 0,
        },
        from,
    }
}

/// An overload of half a minute, the time that its queue takes, so many seconds of quiet, and a burst.
fn burst_after(name: &'static str, quiet: f64) -> Situation {
    let again = 30.0 + 12.0 + quiet;
    let sources = vec![
        source("t", "", 7.0, 0.0, 30.0),
        source("t", "", 30.0, again, again + 5.0),
        // What comes later doesn't change how long these would have waited.
        source("t", "", 0.1, again + 5.0, again + 40.0),
    ];
    situation(name, SMALL, sources, again)
}

fn situations() -> Vec<Situation> {
    let end = 110.0;
    let from_zero = Situation {
        scenario: Scenario {
            endpoints: vec![(20.0, 1), (60.0, 0), (80.0, 1)],
            ..situation("", SMALL, vec![source("t", "", 7.0, 0.0, 100.0)], 0.0).scenario
        },
        ..situation(
            "scale from zero, the second time",
            SMALL,
            vec![source("t", "", 7.0, 0.0, 100.0)],
            62.0,
        )
    };
    vec![
        situation(
            "steady, 1.5 times what the pool serves",
            SMALL,
            vec![source("t", "", 6.7, 0.0, end)],
            20.0,
        ),
        burst_after("burst at once after an overload", 0.0),
        burst_after("burst after 5 s of quiet", 5.0),
        burst_after("burst after 15 s of quiet", 15.0),
        burst_after("burst after 30 s of quiet", 30.0),
        situation(
            "two bands",
            SMALL,
            vec![
                source("t", "", 5.0, 0.0, end),
                source("above", "premium", 1.5, 0.0, end),
            ],
            30.0,
        ),
        situation(
            "a starved band",
            SMALL,
            vec![
                source("t", "", 3.0, 0.0, 150.0),
                source("above", "premium", 6.0, 0.0, 150.0),
            ],
            40.0,
        ),
        situation(
            "heavy beside light",
            SMALL,
            vec![source("heavy", "", 6.5, 0.0, end), source("light", "", 0.4, 0.0, end)],
            20.0,
        ),
        situation(
            "the configuration of the guide",
            GUIDE,
            vec![
                source("noisy", "", 25.0, 0.0, 70.0),
                source("quiet", "", 1.5, 0.0, 70.0),
                source("premium", "premium", 2.0, 0.0, 70.0),
            ],
            20.0,
        ),
        from_zero,
    ]
}

/// Refusals of a situation that are looked at.
const LOOKED_AT: usize = 6;

/// By how much what was told is wrong, as a share of the truth, for some refusals of a situation.
fn errors(situation: &Situation) -> Vec<(f64, f64)> {
    let Situation {
        scenario, tenant, from, ..
    } = situation;
    let fates = scenario.run();
    let until = scenario.until - 30.0;
    let told = fates.iter().enumerate().filter_map(|(at, fate)| {
        let refused = fate.refused.as_ref().filter(|_| fate.tenant == *tenant)?;
        let is_full = matches!(refused.refusal, Refusal::QueueFull | Refusal::QueueFullNoEndpoints);
        let second = fate.came.as_nanos() as f64 / 1e9;
        let counts = is_full && second >= *from && second < until;
        counts.then_some((at, refused.retry_after?))
    });
    let told: Vec<(usize, Duration)> = told.collect();
    assert!(
        told.len() >= LOOKED_AT,
        "{}: only {} refusals",
        situation.name,
        told.len()
    );
    let some = (0..LOOKED_AT).map(|n| told[n * (told.len() - 1) / (LOOKED_AT - 1)]);
    // Nobody is told more than a minute.
    let truth = |at| {
        scenario
            .had_it_been_let_in(at)
            .map_or(60.0, |waited| waited.as_secs_f64().min(60.0))
    };
    some.map(|(at, told)| (told.as_secs_f64(), truth(at))).collect()
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// What is told is compared with how long an equal request would have waited had it been let in.
#[test]
fn who_is_turned_away_is_told_when_an_equal_request_would_have_been_served() {
    let mut all = Vec::new();
    for (seed, mut situation) in (1..).zip(situations()) {
        situation.scenario.seed = seed;
        let pairs = errors(&situation);
        let mut errors: Vec<f64> = pairs.iter().map(|(told, truth)| (told - truth).abs() / truth).collect();
        errors.sort_by(f64::total_cmp);
        let shown: Vec<String> = pairs
            .iter()
            .map(|(told, truth)| format!("{told:.0}/{truth:.1}"))
            .collect();
        println!(
            "{:40} median {:3.0} %, p90 {:3.0} %; told/true seconds: {}",
            situation.name,
            100.0 * percentile(&errors, 0.5),
            100.0 * percentile(&errors, 0.9),
            shown.join(" ")
        );
        all.extend(errors);
    }
    all.sort_by(f64::total_cmp);
    let (median, p90) = (percentile(&all, 0.5), percentile(&all, 0.9));
    println!("all: median {:.0} %, p90 {:.0} %", 100.0 * median, 100.0 * p90);
    assert!(median <= 0.2 && p90 <= 0.5, "median {median}, p90 {p90}");
}
