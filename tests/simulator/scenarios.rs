//! The scripts of `examples/scenarios`: each runs as it is, and shows what it says.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::{ROOT, Workplace, figure};

/// The scenarios that are tested below.
const TESTED: [&str; 9] = [
    "black-hole.sh",
    "deadlines.sh",
    "noisy-neighbour.sh",
    "overload.sh",
    "prefix-sharing.sh",
    "priority-inversion.sh",
    "routing-comparison.sh",
    "stale-signals.sh",
    "token-bucket.sh",
];

/// What a scenario prints, with two seeds.
fn printed(scenario: &str, flags: &str) -> String {
    Workplace::new().shell(&format!("SEEDS=1..2 examples/scenarios/{scenario} {flags}"))
}

/// The comparison that a scenario makes.
fn compared(scenario: &str) -> Value {
    serde_json::from_str(&printed(scenario, "--output json")).unwrap()
}

#[test]
fn every_scenario_is_executable_and_tested_and_told_of() {
    let folder = Path::new(ROOT).join("examples/scenarios");
    let documentation = std::fs::read_to_string(Path::new(ROOT).join("docs/simulator.md")).unwrap();
    let mut scripts: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "sh"))
        .collect();
    scripts.sort();

    assert_eq!(scripts, TESTED);
    for script in scripts {
        let mode = folder.join(&script).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{script} is not executable");
        assert!(
            documentation.contains(&format!("[{script}]")),
            "{script} is told nowhere"
        );
    }
}

#[test]
fn a_noisy_neighbour_is_not_felt_if_tenants_take_turns() {
    let comparison = compared("noisy-neighbour.sh");
    let quiet = |gateway| figure(&comparison, gateway, "per_tenant.quiet.ttft_p99_ms");
    let noisy = |gateway| figure(&comparison, gateway, "per_tenant.noisy.ttft_p99_ms");

    assert!(quiet("in turns") < quiet("passed on") / 10.0);
    assert!(quiet("in order") > quiet("passed on") / 2.0);
    assert!(noisy("in turns") < noisy("passed on") * 1.5);
}

#[test]
fn priorities_end_a_priority_inversion_and_one_queue_does_not() {
    let comparison = compared("priority-inversion.sh");
    let critical = |gateway| figure(&comparison, gateway, "per_class.critical.ttft_p99_ms");

    assert!(critical("one queue") > critical("passed on") / 2.0);
    assert!(critical("by priority") < critical("passed on") / 4.0);
    assert!(critical("servers by priority") < critical("passed on") / 4.0);
}

#[test]
fn in_an_overload_more_requests_are_good_if_they_are_held_and_more_still_if_they_are_bounded() {
    let comparison = compared("overload.sh");
    let good = |gateway| figure(&comparison, gateway, "goodput_rps");
    let tokens = |gateway| figure(&comparison, gateway, "tokens_per_sec");

    assert!(good("held") > good("passed on") * 1.1);
    assert!(good("held, bounded") > good("held") * 1.1);
    assert!((tokens("held") / tokens("passed on") - 1.0).abs() < 0.1);
    assert_eq!(
        figure(&comparison, "held, bounded", "per_class.critical.completed_share"),
        1.0
    );
}

#[test]
fn in_an_overload_most_deadlines_are_met_if_late_requests_go_behind() {
    let comparison = compared("deadlines.sh");
    let good = |gateway| figure(&comparison, gateway, "goodput_rps");
    let tokens = |gateway| figure(&comparison, gateway, "tokens_per_sec");

    assert!(good("by deadline") > good("in order") * 2.0);
    assert!(good("by deadline") > good("passed on") * 2.0);
    assert!((tokens("by deadline") / tokens("in order") - 1.0).abs() < 0.02);
}

#[test]
fn prompts_that_begin_alike_find_more_in_the_caches_if_they_go_where_they_were() {
    let comparison = compared("prefix-sharing.sh");
    let hits = |routing| figure(&comparison, routing, "cache_hit_rate");
    let ttft = |routing| figure(&comparison, routing, "ttft_mean_ms");

    for routing in ["by prefix", "by cache"] {
        assert!(hits(routing) > hits("in turns") + 0.2);
        assert!(ttft(routing) < ttft("in turns") * 0.9);
    }
    assert!((hits("by load") - hits("in turns")).abs() < 0.1);
}

#[test]
fn old_signals_do_harm_unless_the_gateway_counts_what_it_sent() {
    let comparison = compared("stale-signals.sh");
    let ttft = |age| figure(&comparison, age, "ttft_p99_ms");

    assert!(ttft("kv, 50 ms") < ttft("kv, at once") * 1.2);
    assert!(ttft("kv, 500 ms") > ttft("kv, at once") * 2.0);
    assert!(ttft("kv, 2 s") > ttft("kv, 500 ms") * 2.0);
    assert!(ttft("load, 2 s") < ttft("kv, at once") * 1.2);
}

#[test]
fn a_server_that_fails_everything_draws_what_comes_unless_it_is_ejected() {
    let comparison = compared("black-hole.sh");
    let completed = |gateway| figure(&comparison, gateway, "completed_share");

    assert!(completed("no ejection") < 0.75);
    assert!(completed("ejection") > 0.98);
}

#[test]
fn a_token_bucket_lets_short_prompts_in() {
    let run: Value = serde_json::from_str(&printed("token-bucket.sh", "--output json")).unwrap();
    let count = |end: &str| run["metrics"]["requests"][end].as_u64().unwrap();
    let tokens = run["metrics"]["total_input_tokens"].as_u64().unwrap();

    assert_eq!((count("completed"), count("rejected")), (118, 1882));
    assert_eq!(tokens / count("completed"), 117, "of 512 that were offered");
}

#[test]
fn a_comparison_of_routing_tells_each_policy_and_what_bad_looks_like() {
    let text = printed("routing-comparison.sh", "");
    let names = [
        "round-robin",
        "least-loaded",
        "weighted",
        "weighted, by load alone",
        "always-busiest",
    ];

    for name in names {
        let section = text.split_once(&format!("--- {name}\n")).unwrap().1;
        let section = section.split("---").next().unwrap();
        for shown in ["ttft_p99_ms", "responses_per_sec", "instance_0: ", "Mean Regret: "] {
            assert!(section.contains(shown), "{name}: {section}");
        }
    }
    let (_, worst) = text
        .split_once("=== always-busiest against round-robin (2 seeds) ===")
        .unwrap();
    let ttft = worst.lines().find(|line| line.starts_with("ttft_p99_ms")).unwrap();
    let change: f64 = ttft.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(change > 1000.0, "{ttft}");
}
