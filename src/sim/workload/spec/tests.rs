use crate::engine::config::{Severity, SourceName};

use super::*;

fn loaded(text: &str) -> Result<Loaded, String> {
    load(text, &SourceName::File("load.yaml".into())).map_err(|errors| errors.to_string())
}

const CLIENT: &str = "
clients:
- rate_fraction: 1
  arrival: {process: poisson}
  input_distribution: {type: constant, params: {value: 10}}
  output_distribution: {type: constant, params: {value: 10}}
";

#[test]
fn a_version_1_file_is_brought_up_to_date_with_a_warning() {
    let text = format!("version: 1\naggregate_rate: 1\n{CLIENT}  slo_class: realtime\n");

    let Loaded { spec, warnings } = loaded(&text).unwrap();

    assert_eq!(spec.version, "2");
    assert_eq!(spec.clients[0].slo_class, "critical");
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].severity, Severity::Warning);
    assert!(
        warnings[0].message.contains("`realtime` is now `critical`"),
        "{}",
        warnings[0]
    );
}

#[test]
fn every_error_is_found_at_once_and_has_its_line() {
    let text = "version: \"2\"
aggregate_rat: 5
clients:
- rate_fraction: 0
  slo_class: urgent
  arrival: {process: poison}
  input_distribution: {type: gaussian, params: {mean: 1, std_dev: 1, min: 5, max: 2}}
  output_distribution: {type: constant, params: {valu: 1}}
  timeout: 0
  lifecycle: {windows: [{start_us: 5, end_us: 5}]}
";

    let errors = loaded(text).unwrap_err();

    let expected = [
        "load.yaml:2: error: aggregate_rat: unknown field \"aggregate_rat\"; did you mean `aggregate_rate`?",
        "load.yaml:4: error: clients[0].rate_fraction: is 0; it must be above zero",
        "load.yaml:5: error: clients[0].slo_class: `urgent` is not known; known here: `critical`",
        "load.yaml:6: error: clients[0].arrival.process: `poison` is not known; did you mean `poisson`?",
        "load.yaml:7: error: clients[0].input_distribution.params.min: is 5, above `max`, which is 2",
        "load.yaml:8: error: clients[0].output_distribution.params.valu: is not known; known here: `value`",
        "load.yaml:9: error: clients[0].timeout: is 0;",
        "load.yaml:10: error: clients[0].lifecycle.windows[0].end_us: is 5; it must be above `start_us`, which is 5",
    ];
    for line in expected {
        assert!(
            errors.lines().any(|found| found.starts_with(line)),
            "{line}\n\n{errors}"
        );
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let cases = [
        ("aggregate_rate: 1\n", "nobody sends requests"),
        (
            "aggregate_rate: -1\nclients: []\n",
            "is -1; it must be a number, zero or more",
        ),
        ("version: 3\n", "version \"3\" is not known"),
        ("servegen_data: {path: x}\n", "ServeGen data cannot be read"),
        (
            "aggregate_rate: 1\nclients: [{rate_fraction: 1, concurrency: 1}]\n",
            "stands beside `rate_fraction`",
        ),
        (
            "clients: [{rate_fraction: 1}]\n",
            "needs `lifecycle.windows` with a `trace_rate` each",
        ),
        (
            "clients: [{concurrency: 1}, {rate_fraction: 1, reasoning: {multi_turn: {max_rounds: 1}}}]\n",
            "cannot be mixed",
        ),
        (
            "clients: [{concurrency: 1, slo_class: batch}, {concurrency: 1}]\n",
            "has no `slo_class` while others have one",
        ),
        (
            "cohorts: [{population: 0, rate_fraction: 1}]\n",
            "is 0; it must be from 1 to 100000",
        ),
        (
            "cohorts: [{population: 1, rate_fraction: 1, diurnal: {peak_hour: 24, peak_to_trough_ratio: 0.5}}]\n",
            "is 24; it must be from 0 to 23",
        ),
        (
            "clients: [{rate_fraction: 1, lifecycle: {windows: [{start_us: 0, end_us: 9, trace_rate: 1}, \
             {start_us: 5, end_us: 7, trace_rate: 1}]}}]\n",
            "overlaps windows[0]",
        ),
        (
            "clients: [{rate_fraction: 1, arrival: {process: weibull, cv: 11}}]\n",
            "for `weibull` it must be from 0.01 to 10.4",
        ),
        (
            "clients: [{rate_fraction: 1, output_distribution: {type: empirical, params: {x: 1}}}]\n",
            "is no length",
        ),
        (
            "inference_perf: {stages: [{rate: 0, duration: 1}]}\n",
            "is 0; it must be above zero",
        ),
    ];
    for (text, message) in cases {
        let text = if text.starts_with("version") {
            text.to_owned()
        } else {
            format!("version: 2\n{text}")
        };
        let errors = loaded(&text).unwrap_err();
        assert!(errors.contains(message), "{text}{message}\n\n{errors}");
    }
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let text = format!("version: 2\naggregate_rate: 1\n{CLIENT}  network: {{rtt_ms: 5}}\n  prefix_length: 3\n");

    let warnings = loaded(&text).unwrap().warnings;

    let lines: Vec<usize> = warnings.iter().map(|warning| warning.line).collect();
    assert_eq!(lines, [9, 10], "{warnings:?}");
}

#[test]
fn what_follows_from_an_error_is_not_said() {
    let cases = [
        (
            "poisson}",
            "poison}",
            "clients[0].arrival.process: `poison` is not known",
        ),
        (
            "rate_fraction: 1",
            "rate_fraction: one",
            "clients[0].rate_fraction: expected a number",
        ),
        (
            "{value: 10}",
            "{value: [10]}",
            "clients[0].input_distribution.params.value",
        ),
        (
            "  output_distribution",
            "  lifecycle: {windows: [{start_us: -1, end_us: 5}]}\n  output_distribution",
            "clients[0].lifecycle.windows[0].start_us: expected a whole number, not negative",
        ),
        ("clients:", "clients: none\ncohorts:", "clients: expected"),
    ];
    for (right, wrong, said) in cases {
        let text = format!("version: 2\naggregate_rate: 1\n{}", CLIENT.replacen(right, wrong, 1));

        let errors = loaded(&text).unwrap_err();

        assert!(errors.contains(said), "{errors}");
        for untrue in [
            "nobody sends requests",
            "no version",
            "is missing; give it",
            "has neither",
            "`input_distribution` is missing",
        ] {
            assert!(!errors.contains(untrue), "{errors}");
        }
    }
}

#[test]
fn a_second_document_in_the_file_is_warned_of() {
    let text = format!("version: 2\naggregate_rate: 1\n{CLIENT}---\naggregate_rate: 2\n");

    let warnings = loaded(&text).unwrap().warnings;

    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].message.starts_with("line 9 begins another document"),
        "{warnings:?}"
    );
}

#[test]
fn users_without_number_are_refused() {
    let text = format!(
        "version: 2\n{}",
        CLIENT.replace("rate_fraction: 1", "concurrency: 1000000001")
    );

    let errors = loaded(&text).unwrap_err();

    assert!(
        errors.contains("load.yaml:4: error: clients[0].concurrency: is 1000000001; it must be from 1 to 1000000"),
        "{errors}"
    );
}

#[test]
fn arrivals_that_cannot_be_as_uneven_as_wanted_are_warned_of() {
    let warnings = |arrival: &str| {
        let client = CLIENT.replace("process: poisson", arrival);
        let warnings = loaded(&format!("version: 2\naggregate_rate: 1\n{client}"))
            .unwrap()
            .warnings;
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };

    assert_eq!(warnings("process: gamma, cv: 10"), [""; 0]);
    for uneven in ["process: gamma, cv: 50", "process: gamma, shape: 0.001, scale: 5"] {
        let said = warnings(uneven);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("poisson arrivals are taken instead"), "{said:?}");
    }
}

#[test]
fn another_length_of_a_prefix_that_has_one_is_warned_of() {
    let (_, client) = CLIENT.split_once("clients:\n").unwrap();
    let of_group = |length: &str| format!("{client}  prefix_group: a\n{length}");
    let clients = [
        of_group("  prefix_length: 10\n"),
        of_group("  prefix_length: 10\n"),
        of_group("  prefix_length: 20\n"),
        of_group(""),
    ];
    let text = format!("version: 2\naggregate_rate: 1\nclients:\n{}", clients.concat());

    let warnings = loaded(&text).unwrap().warnings;

    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let said = warnings[0].to_string();
    assert!(
        said.contains("clients[2].prefix_length: is 20, but that of group `a` is 10, as its first client says"),
        "{said}"
    );
}
