//! Comparisons as a whole: what is told of them, and what is refused.

use super::super::metrics::Metrics;
use super::figures::{METRICS, MOST_GROUPS};
use super::*;
use crate::sim::record::RunRecord;
use crate::sim::report::ReportOptions;
use crate::sim::report::testing::{hand_checkable_run, mixed_run, request};

/// A configuration of which only the first metrics are told, and of these not the ones that are no number.
fn configuration(name: &str, runs: &[(u64, &[f64])]) -> Configuration {
    let runs = runs.iter().map(|&(seed, known)| {
        let mut figures = vec![None; METRICS.len()];
        for (figure, &known) in figures.iter_mut().zip(known) {
            *figure = (!known.is_nan()).then_some(known);
        }
        let figures = Figures {
            whole: figures,
            ..Figures::default()
        };
        (seed, figures)
    });
    Configuration {
        name: name.to_owned(),
        runs: runs.collect(),
    }
}

#[test]
fn runs_are_paired_by_seed_and_not_by_place() {
    let first = configuration("first", &[(1, &[100.0]), (2, &[200.0]), (3, &[300.0])]);
    let other = configuration("other", &[(3, &[291.0]), (1, &[90.0]), (2, &[189.0])]);
    let comparison = compare(&[first, other]).unwrap();
    let difference = &comparison.others[0].differences[0];

    // -10, -11, -9.
    assert_eq!((difference.difference, difference.percent), (Some(-10.0), Some(-5.0)));
    assert_eq!(difference.is_significant, Some(true));
    assert_eq!(comparison.others[0].differences.len(), 1, "nobody measured the rest");
}

#[test]
fn the_table_says_what_is_better_and_what_is_worse() {
    let first = configuration(
        "round-robin",
        &[
            (1, &[100.0, 50.0, 400.0, 8.0]),
            (2, &[110.0, 55.0, 410.0, 8.1]),
            (3, &[90.0, 52.0, 390.0, 8.2]),
        ],
    );
    let quick = configuration(
        "weighted",
        &[
            (1, &[60.0, 51.0, 300.0, 9.0]),
            (2, &[70.1, 54.0, 309.0, 9.1]),
            (3, &[49.9, 52.5, 291.0, 9.2]),
        ],
    );

    insta::assert_snapshot!(compare(&[first, quick]).unwrap());
}

#[test]
fn one_seed_has_no_interval_and_says_so() {
    let (record, options) = hand_checkable_run();
    let figures = Figures::of(&Metrics::of(&record, &options));
    let run = |name: &str| Configuration {
        name: name.to_owned(),
        runs: vec![(42, figures.clone())],
    };
    let comparison = compare(&[run("a"), run("b")]).unwrap();

    assert!(
        comparison.others[0]
            .differences
            .iter()
            .all(|difference| difference.interval.is_none())
    );
    insta::assert_snapshot!(comparison);
}

#[test]
fn one_configuration_has_the_intervals_of_its_means() {
    let only = configuration("as given", &[(1, &[1.0, 7.0]), (2, &[3.0, 7.0]), (3, &[2.0, 7.0])]);
    let comparison = compare(&[only]).unwrap();
    let figure = &comparison.baseline_figures[0];

    // Standard deviation 1, error 1/√3; t(0.975, 2) is 4.302653.
    let reach = 4.302_652_7 / 3.0_f64.sqrt();
    let [low, high] = figure.mean_interval.unwrap();
    assert!(
        (low - (2.0 - reach)).abs() < 1e-6 && (high - (2.0 + reach)).abs() < 1e-6,
        "{figure:?}"
    );
    assert_eq!((figure.mean, figure.min, figure.max), (Some(2.0), Some(1.0), Some(3.0)));
    insta::assert_snapshot!(comparison, @"
    === as given (3 seeds) ===
    metric         mean    min    max    95 % interval
    ttft_mean_ms  2.000  1.000  3.000  -0.484 to 4.484
    ttft_p50_ms   7.000  7.000  7.000   7.000 to 7.000

    Intervals are of the mean over the seeds (Student's t).
    ");
}

#[test]
fn one_run_alone_has_figures_and_no_interval() {
    insta::assert_snapshot!(compare(&[configuration("as given", &[(1, &[1.5])])]).unwrap(), @"
    === as given (1 seed) ===
    metric         mean    min    max  95 % interval
    ttft_mean_ms  1.500  1.500  1.500              -

    One seed: no intervals. Run more seeds.
    ");
}

#[test]
fn what_a_run_has_nothing_to_measure_by_is_missing_and_neither_better_nor_worse() {
    let none = f64::NAN;
    let first = configuration("open", &[(1, &[100.0, 8.0]), (2, &[110.0, 9.0]), (3, &[105.0, 8.5])]);
    let shut = configuration("shut", &[(1, &[none, none]), (2, &[none, 8.0]), (3, &[none, 7.5])]);
    let comparison = compare(&[first, shut]).unwrap();
    let [never, partly] = comparison.others[0].differences.as_slice() else {
        panic!("{comparison}");
    };

    assert_eq!(
        (never.summary.runs, never.summary.mean, never.difference),
        (0, None, None)
    );
    assert_eq!(
        (never.percent, never.p_corrected, never.is_significant),
        (None, None, None)
    );
    // Against 9 and 8.5, not against 8.
    assert_eq!((partly.summary.runs, partly.difference), (2, Some(-1.0)));
    insta::assert_snapshot!(comparison, @"
    === shut against open (3 seeds) ===
    metric           open   shut   change     95 % interval
    ttft_mean_ms  105.000      -        -                 -
    ttft_p50_ms     8.500  7.750  -11.4 %  -1.000 to -1.000  better (in 2 of 3)

    Intervals are of the mean difference in pairs of runs with the same seed (Student's t). `better` and
    `worse` are differences that are significant at 5 % after Holm's correction over all metrics.
    Runs in which there was nothing to measure, such as a latency where no request was served, are left out.
    ");
}

#[test]
fn a_run_that_serves_nobody_has_no_latency_and_no_score_and_a_share_of_zero() {
    let (record, options) = hand_checkable_run();
    let nobody = RunRecord {
        requests: (0..3).map(request).collect(),
        instances: vec![Default::default()],
        end_us: 10_000,
        ..RunRecord::default()
    };
    let options = ReportOptions {
        fitness: Some("p99_ttft:1".parse().unwrap()),
        ..options
    };
    let run = |name: &str, record: &RunRecord| Configuration {
        name: name.to_owned(),
        runs: vec![(1, Figures::of(&Metrics::of(record, &options)))],
    };
    let comparison = compare(&[run("served", &record), run("refused", &nobody)]).unwrap();
    let alone = compare(&[run("refused", &nobody)]).unwrap();

    for difference in &comparison.others[0].differences {
        let metric = &*difference.summary.metric;
        let of_none = ["responses_per_sec", "tokens_per_sec", "completed_share"].contains(&metric);
        assert_eq!(difference.summary.mean, of_none.then_some(0.0), "{metric}");
    }
    let told: Vec<_> = alone.baseline_figures.iter().map(|figure| &*figure.metric).collect();
    assert_eq!(told, ["completed_share"]);
}

#[test]
fn classes_and_tenants_have_rows_of_their_own_if_there_are_a_few() {
    let record = mixed_run();
    let metrics = Metrics::of(&record, &ReportOptions::default());
    let figures = Figures::of(&metrics);
    let run = |name: &str| Configuration {
        name: name.to_owned(),
        runs: vec![(42, figures.clone())],
    };
    let comparison = compare(&[run("a"), run("b")]).unwrap();
    let rows = comparison.baseline_figures.iter();
    let of_groups: Vec<&str> = rows
        .map(|summary| &*summary.metric)
        .filter(|metric| metric.starts_with("per_"))
        .collect();

    insta::assert_snapshot!(of_groups.join("\n"));
    let mut crowd = metrics;
    let one = crowd.tenants.values().next().unwrap().clone();
    crowd.tenants = (0..=MOST_GROUPS)
        .map(|at| (format!("tenant-{at}"), one.clone()))
        .collect();
    let groups = Figures::of(&crowd).groups;
    assert!(groups.keys().all(|(group, _)| group.starts_with("per_class.")));
}

#[test]
fn the_document_has_every_figure() {
    let one = configuration("a", &[(1, &[2.0]), (2, &[4.0])]);
    let other = configuration("b", &[(1, &[1.0]), (2, &[3.0])]);

    insta::assert_snapshot!(compare(&[one, other]).unwrap().json());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let run = |name: &str, seeds: &[u64]| Configuration {
        name: name.to_owned(),
        runs: seeds.iter().map(|&seed| (seed, Figures::default())).collect(),
    };
    let refused = |configurations: &[Configuration]| compare(configurations).unwrap_err().to_string();

    insta::assert_snapshot!(
        [
            refused(&[]),
            refused(&[run("a", &[1]), run("b", &[])]),
            refused(&[run("a", &[1]), run("b", &[2, 2])]),
            refused(&[run("a", &[1, 2]), run("b", &[2, 3])]),
        ]
        .join("\n"),
        @"
    no configuration is given
    configuration `b` has no run
    configuration `b` has more than one run with seed `2`
    configuration `b` was run with seeds `2`, `3`, and `a` with `1`, `2`; they must be the same
    "
    );
}
