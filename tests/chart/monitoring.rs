//! Alerts and the dashboard.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use forebay::engine::outcome::Outcome;
use serde_json::{Value, json};

use super::metrics::Known;
use super::{example, list, text_of};

fn rules() -> Value {
    let rendered = example("gateway-high-availability");
    rendered.named("PrometheusRule", "vllm-qwen3-32b-epp")["spec"].clone()
}

fn alerts(rules: &Value) -> &[Value] {
    list(&rules["groups"][0]["rules"])
}

fn dashboard() -> Value {
    let rendered = example("gateway-high-availability");
    let map = rendered.named("ConfigMap", "vllm-qwen3-32b-epp-dashboard");
    serde_json::from_str(map["data"]["forebay.json"].as_str().unwrap()).unwrap()
}

/// Title and expression of everything that the dashboard shows.
fn shown(dashboard: &Value) -> Vec<(String, String)> {
    let panels = list(&dashboard["panels"]).iter();
    let targets = panels.flat_map(|panel| list(&panel["targets"]).iter().map(move |target| (panel, target)));
    targets
        .map(|(panel, target)| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&panel["title"]), text(&target["expr"]))
        })
        .collect()
}

pub(super) fn promtool(arguments: &[&str], directory: &Path) {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("this test needs promtool on the PATH: it is in Debian's package prometheus");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
}

#[test]
fn alerts_are_the_same_for_google_managed_prometheus() {
    let rendered = example("gateway-gke");

    let managed = &rendered.named("Rules", "vllm-qwen3-32b-epp")["spec"];

    assert_eq!(managed, &rules());
    // Older versions of the kind want it.
    assert_eq!(managed["groups"][0]["interval"], "30s");
    assert_eq!(rendered.of_kind("PrometheusRule").count(), 0);
}

#[test]
fn every_outcome_is_an_error_or_is_none_by_design() {
    let rules = rules();
    let alert = alerts(&rules)
        .iter()
        .find(|alert| alert["alert"] == "ForebayRequestErrors");
    let expression = alert.unwrap()["expr"].as_str().unwrap();
    let (_, rest) = expression.split_once("outcome=~\"").unwrap();
    let (errors, _) = rest.split_once('"').unwrap();
    // What a client did, or what overload is answered with.
    let by_design = [
        "completed",
        "unobserved",
        "disconnected",
        "cancelled",
        "malformed",
        "too-large",
        "oversized",
        "body-timeout",
        "not-cached",
        "not-admitted",
        "never-admitted",
        "queue-full",
        "shed",
        "displaced",
        "expired",
        "saturated",
        "evicted",
    ];

    let told: BTreeSet<_> = errors.split('|').chain(by_design).collect();

    assert_eq!(told, Outcome::all().map(Outcome::name).collect());
}

#[test]
fn alerts_look_at_metrics_that_there_are() {
    let known = Known::new();
    for alert in alerts(&rules()) {
        let complaints = known.complaints(alert["expr"].as_str().unwrap());
        assert!(complaints.is_empty(), "{}: {complaints:?}", alert["alert"]);
    }
}

#[test]
fn the_dashboard_shows_metrics_that_there_are() {
    let known = Known::new();
    let shown = shown(&dashboard());
    assert!(shown.len() > 30);
    for (title, expression) in shown {
        let complaints = known.complaints(&expression);
        assert!(complaints.is_empty(), "{title}: {complaints:?}");
    }
}

#[test]
fn panels_have_room_of_their_own() {
    let dashboard = dashboard();
    let panels = list(&dashboard["panels"]);
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + width <= 24, "{}", panel["title"]);
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} lies on another panel", panel["title"]);
        }
    }
}

#[test]
fn prometheus_reads_all_expressions() {
    let directory = tempfile::tempdir().unwrap();
    let panels: Vec<_> = shown(&dashboard())
        .into_iter()
        .enumerate()
        .map(|(number, (_, expression))| {
            json!({"record": format!("panel:{number}"), "expr": expression.replace("$__rate_interval", "5m")})
        })
        .collect();
    let mut all = rules();
    all["groups"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "dashboard", "rules": panels}));
    std::fs::write(directory.path().join("rules.yaml"), all.to_string()).unwrap();

    promtool(&["check", "rules", "rules.yaml"], directory.path());
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules().to_string()).unwrap();
    std::fs::write(
        directory.path().join("test.yaml"),
        text_of("tests/fixtures/alerts.yaml"),
    )
    .unwrap();

    promtool(&["test", "rules", "test.yaml"], directory.path());
}

/// What is in quotation marks in the part of a page between two headings.
fn quoted<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let (_, part) = page.split_once(from).unwrap();
    let part = part.split_once(to).map_or(part, |(part, _)| part);
    part.split('"').skip(1).step_by(2).collect()
}

#[test]
fn panels_that_the_runbooks_name_are_on_the_dashboard() {
    let page = text_of("docs/operations.md");
    let dashboard = dashboard();
    let titles: BTreeSet<_> = list(&dashboard["panels"])
        .iter()
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();

    let named = quoted(&page, "\n## Alerts\n", "\n## ");

    assert!(named.len() > 8, "{named:?}");
    for name in named {
        assert!(titles.contains(name), "no panel is called `{name}`: {titles:?}");
    }
}

#[test]
fn a_panel_of_shares_in_use_does_not_promise_what_is_left() {
    let dashboard = dashboard();
    for panel in list(&dashboard["panels"]) {
        let (title, targets) = (panel["title"].as_str().unwrap(), list(&panel["targets"]));
        let shows = |name: &str| {
            targets
                .iter()
                .any(|target| target["expr"].as_str().unwrap().contains(name))
        };
        if shows("_utilization") {
            assert!(title.contains("utilization"), "{title}");
        }
        if shows("hit_ratio") {
            assert!(title.contains("hit ratio"), "{title}");
        }
        assert!(
            targets.is_empty() || panel["description"].is_string(),
            "{title} is not described"
        );
    }
}

#[test]
fn each_alert_has_a_test_and_a_section() {
    let scenarios = text_of("tests/fixtures/alerts.yaml");
    let page = text_of("docs/operations.md");
    let rules = rules();
    let names: BTreeSet<_> = alerts(&rules)
        .iter()
        .map(|alert| alert["alert"].as_str().unwrap())
        .collect();

    let described: BTreeSet<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .filter(|heading| heading.starts_with("Forebay"))
        .collect();
    let tested: BTreeSet<_> = names
        .iter()
        .copied()
        .filter(|name| scenarios.contains(&format!("- alertname: {name}\n")))
        .collect();

    assert_eq!(names, described);
    assert_eq!(names, tested);
    for alert in alerts(&rules) {
        let anchor = alert["alert"].as_str().unwrap().to_lowercase();
        assert_eq!(
            alert["annotations"]["runbook_url"],
            format!("docs/operations.md#{anchor}").as_str()
        );
        assert!(alert["annotations"]["summary"].is_string());
        assert!(["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()));
    }
}
