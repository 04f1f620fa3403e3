//! Several configurations on one workload: by how much they differ, and whether that can be chance.
//!
//! Every configuration is run with the same seeds. A seed makes the same workload for all of them, so runs are compared
//! in pairs: of each metric the differences to the first configuration, seed by seed, have a mean, a 95 % confidence
//! interval by Student's t, and a probability `p` to be as large if there were no difference. Many metrics are looked at,
//! so `p` is corrected by Holm's method before a difference is called significant. A single seed has no spread, hence no
//! interval and no significance.
//!
//! Means over all requests hide who pays for whom, so a few classes or tenants are compared each on their own, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::json;
use super::metrics::{GroupMetrics, Metrics};
use super::tally::Tally;
use crate::sim::record::End;

/// The confidence of an interval.
const CONFIDENCE: f64 = 0.95;
/// A corrected `p` below this is significant.
const SIGNIFICANCE: f64 = 0.05;

/// Whether more of it is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// The less, the better.
    Lower,
    /// The more, the better.
    Higher,
}

/// Something that runs are compared by: of a whole run, or of the requests that have something in common.
#[derive(Clone, Copy, Debug)]
struct Metric<M = Metrics> {
    name: &'static str,
    better: Better,
    value: fn(&M) -> f64,
}

/// Everything that runs are compared by, in the order of the table.
const METRICS: &[Metric] = &[
    lower("ttft_mean_ms", |run| run.cluster.ttft.mean.ms()),
    lower("ttft_p50_ms", |run| run.cluster.ttft.p50.ms()),
    lower("ttft_p99_ms", |run| run.cluster.ttft.p99.ms()),
    lower("itl_mean_ms", |run| run.cluster.itl.mean.ms()),
    lower("itl_p99_ms", |run| run.cluster.itl.p99.ms()),
    lower("e2e_mean_ms", |run| run.cluster.e2e.mean.ms()),
    lower("e2e_p99_ms", |run| run.cluster.e2e.p99.ms()),
    lower("scheduling_delay_p99_ms", |run| run.cluster.scheduling_delay.p99.ms()),
    higher("responses_per_sec", |run| run.cluster.responses_per_sec),
    higher("tokens_per_sec", |run| run.cluster.tokens_per_sec),
    higher("completed_share", |run| completed_share(&run.cluster.tally)),
    higher("cache_hit_rate", |run| run.kv.cache_hit_rate),
    lower("preemption_rate", |run| run.kv.preemption_rate),
    higher("jain_fairness_index", |run| run.jain.unwrap_or(0.0)),
    higher("slo_attainment", |run| {
        run.goodput.as_ref().map_or(0.0, |goodput| goodput.attainment)
    }),
    higher("goodput_rps", |run| {
        run.goodput.as_ref().map_or(0.0, |goodput| goodput.rps)
    }),
    higher("fitness", |run| {
        run.fitness.as_ref().map_or(0.0, |fitness| fitness.score)
    }),
];

/// What classes and tenants are compared by, if there are two or more of them, and not too many to read.
const GROUP_METRICS: &[Metric<GroupMetrics>] = &[
    lower("ttft_mean_ms", |group| group.ttft.mean.ms()),
    lower("ttft_p99_ms", |group| group.ttft.p99.ms()),
    higher("completed_share", |group| completed_share(&group.tally)),
];

/// More classes or tenants than this are not told one by one.
const MOST_GROUPS: usize = 8;

fn completed_share(tally: &Tally) -> f64 {
    tally[End::Completed] as f64 / tally.total().max(1) as f64
}

const fn lower<M>(name: &'static str, value: fn(&M) -> f64) -> Metric<M> {
    Metric {
        name,
        better: Better::Lower,
        value,
    }
}

const fn higher<M>(name: &'static str, value: fn(&M) -> f64) -> Metric<M> {
    Metric {
        name,
        better: Better::Higher,
        value,
    }
}

/// What is kept of a run to compare it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Of the whole run, by place in [`METRICS`].
    whole: Vec<f64>,
    /// Of its classes and tenants.
    groups: BTreeMap<GroupKey, f64>,
}

/// A group, as the JSON document of a run calls it, and the place of a metric in [`GROUP_METRICS`].
type GroupKey = (String, usize);

impl Figures {
    /// The figures of one run.
    pub fn of(metrics: &Metrics) -> Self {
        let kinds = [("per_class", &metrics.classes), ("per_tenant", &metrics.tenants)];
        let told = kinds
            .into_iter()
            .filter(|(_, groups)| (2..=MOST_GROUPS).contains(&groups.len()));
        let groups = told.flat_map(|(kind, groups)| {
            groups.iter().flat_map(move |(name, group)| {
                let figures = GROUP_METRICS.iter().map(|metric| (metric.value)(group)).enumerate();
                figures.map(move |(metric, figure)| ((format!("{kind}.{name}"), metric), figure))
            })
        });
        Self {
            whole: METRICS.iter().map(|metric| (metric.value)(metrics)).collect(),
            groups: groups.collect(),
        }
    }
}

/// A row of a comparison.
#[derive(Clone, Debug, PartialEq)]
enum Row {
    /// A place in [`METRICS`].
    Whole(usize),
    /// One group's.
    Group(GroupKey),
}

impl Row {
    /// The rows of a comparison. What is zero in every run was measured by nobody.
    fn all(configurations: &[Configuration]) -> Vec<Self> {
        let figures = || {
            let runs = configurations.iter().flat_map(|configuration| &configuration.runs);
            runs.map(|(_, figures)| figures)
        };
        let groups: BTreeSet<&GroupKey> = figures().flat_map(|figures| figures.groups.keys()).collect();
        let whole = (0..METRICS.len()).map(Self::Whole);
        let all = whole.chain(groups.into_iter().cloned().map(Self::Group));
        all.filter(|row| figures().any(|figures| row.value(figures) != 0.0))
            .collect()
    }

    fn name(&self) -> String {
        match self {
            Self::Whole(metric) => METRICS[*metric].name.to_owned(),
            Self::Group((group, metric)) => format!("{group}.{}", GROUP_METRICS[*metric].name),
        }
    }

    fn better(&self) -> Better {
        match self {
            Self::Whole(metric) => METRICS[*metric].better,
            Self::Group((_, metric)) => GROUP_METRICS[*metric].better,
        }
    }

    /// Zero of a group that a run does not have.
    fn value(&self, figures: &Figures) -> f64 {
        match self {
            Self::Whole(metric) => figures.whole[*metric],
            Self::Group(key) => figures.groups.get(key).copied().unwrap_or(0.0),
        }
    }
}

/// A configuration and its runs, by seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// What it is called.
    pub name: String,
    /// A seed, and what came of it.
    pub runs: Vec<(u64, Figures)>,
}

/// Why configurations cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// There is nothing to compare with.
    #[error("`{0}` configurations are given; a comparison takes at least two")]
    TooFew(usize),
    /// A configuration was never run.
    #[error("configuration `{0}` has no run")]
    NoRun(String),
    /// A seed was used twice.
    #[error("configuration `{name}` has more than one run with seed `{seed}`")]
    RepeatedSeed {
        /// The configuration.
        name: String,
        /// The seed.
        seed: u64,
    },
    /// Runs do not pair up.
    #[error(
        "configuration `{name}` was run with seeds {seeds}, and `{first}` with {first_seeds}; they must be the same"
    )]
    OtherSeeds {
        /// The configuration.
        name: String,
        /// Its seeds.
        seeds: String,
        /// The first configuration.
        first: String,
        /// The seeds of that one.
        first_seeds: String,
    },
}

/// How configurations differ from the first of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The seeds, ascending.
    pub seeds: Vec<u64>,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// The first configuration.
    pub baseline: String,
    /// Its own figures.
    pub baseline_figures: Vec<Summary>,
    /// The other configurations.
    pub others: Vec<Contrast>,
}

/// One metric of one configuration over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The metric, such as `ttft_p99_ms`, or `per_tenant.blue.ttft_p99_ms`.
    pub metric: String,
    /// Whether more of it is good.
    pub better: Better,
    /// The mean over the seeds.
    pub mean: f64,
    /// The least of them.
    pub min: f64,
    /// The most of them.
    pub max: f64,
}

/// How one configuration differs from the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// The configuration.
    pub name: String,
    /// Metric by metric.
    pub differences: Vec<Difference>,
}

/// How one metric differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The metric of this configuration.
    #[serde(flatten)]
    pub summary: Summary,
    /// The mean of the differences to the first configuration.
    pub difference: f64,
    /// The same in percent of the first one's mean. `None` if that is zero.
    pub percent: Option<f64>,
    /// The confidence interval of the difference. `None` with one seed.
    pub interval: Option<[f64; 2]>,
    /// How likely so large a difference is by chance. `None` with one seed.
    pub p: Option<f64>,
    /// The same, corrected for the number of metrics.
    pub p_corrected: Option<f64>,
    /// The corrected `p` is below 0.05. `None` with one seed.
    pub is_significant: Option<bool>,
}

/// Compares configurations with the first of them.
///
/// Metrics that are zero in every run of every configuration are left out: nobody measured them.
///
/// # Errors
///
/// See [`CompareError`].
pub fn compare(configurations: &[Configuration]) -> Result<Comparison, CompareError> {
    let [first, others @ ..] = configurations else {
        return Err(CompareError::TooFew(0));
    };
    if others.is_empty() {
        return Err(CompareError::TooFew(1));
    }
    let seeds = seeds(first)?;
    for other in others {
        let others_seeds = self::seeds(other)?;
        if others_seeds != seeds {
            return Err(CompareError::OtherSeeds {
                name: other.name.clone(),
                seeds: listed(&others_seeds),
                first: first.name.clone(),
                first_seeds: listed(&seeds),
            });
        }
    }
    let rows = Row::all(configurations);
    Ok(Comparison {
        seeds,
        confidence: CONFIDENCE,
        baseline: first.name.clone(),
        baseline_figures: rows.iter().map(|row| Summary::of(first, row)).collect(),
        others: others.iter().map(|other| Contrast::of(first, other, &rows)).collect(),
    })
}

/// The seeds of a configuration, ascending.
fn seeds(configuration: &Configuration) -> Result<Vec<u64>, CompareError> {
    let mut seeds: Vec<_> = configuration.runs.iter().map(|&(seed, _)| seed).collect();
    seeds.sort_unstable();
    let repeated = seeds.windows(2).find(|pair| pair[0] == pair[1]);
    match (seeds.is_empty(), repeated) {
        (true, _) => Err(CompareError::NoRun(configuration.name.clone())),
        (_, Some(pair)) => Err(CompareError::RepeatedSeed {
            name: configuration.name.clone(),
            seed: pair[0],
        }),
        (false, None) => Ok(seeds),
    }
}

fn listed(seeds: &[u64]) -> String {
    let seeds: Vec<_> = seeds.iter().map(|seed| format!("`{seed}`")).collect();
    seeds.join(", ")
}

/// One metric of a configuration, by ascending seed.
fn values(configuration: &Configuration, row: &Row) -> Vec<f64> {
    let mut runs: Vec<_> = configuration.runs.iter().collect();
    runs.sort_by_key(|(seed, _)| *seed);
    runs.into_iter().map(|(_, figures)| row.value(figures)).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Summary {
    fn of(configuration: &Configuration, row: &Row) -> Self {
        let values = values(configuration, row);
        Self {
            metric: row.name(),
            better: row.better(),
            mean: mean(&values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

impl Contrast {
    fn of(first: &Configuration, other: &Configuration, rows: &[Row]) -> Self {
        let mut differences: Vec<_> = rows
            .iter()
            .map(|row| {
                let (before, after) = (values(first, row), values(other, row));
                let pairs = before.iter().zip(&after);
                let differences: Vec<f64> = pairs.map(|(before, after)| after - before).collect();
                let test = PairedTest::of(&differences);
                let base = mean(&before);
                Difference {
                    summary: Summary::of(other, row),
                    difference: mean(&differences),
                    percent: (base != 0.0).then(|| mean(&differences) / base * 100.0),
                    interval: test.map(|test| test.interval),
                    p: test.map(|test| test.p),
                    p_corrected: None,
                    is_significant: None,
                }
            })
            .collect();
        let ps: Vec<f64> = differences.iter().filter_map(|difference| difference.p).collect();
        if ps.len() == differences.len() {
            for (difference, corrected) in differences.iter_mut().zip(holm(&ps)) {
                difference.p_corrected = Some(corrected);
                difference.is_significant = Some(corrected < SIGNIFICANCE);
            }
        }
        Self {
            name: other.name.clone(),
            differences,
        }
    }
}

/// What Student's t says of differences in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PairedTest {
    interval: [f64; 2],
    p: f64,
}

impl PairedTest {
    /// With `d` the mean of `n` differences and `s` their standard deviation, the interval is
    /// `d ± t(0.975, n - 1) s / √n`, and `p` is the chance of a `t` as far from zero as `d √n / s`, on both sides.
    /// Differences that are all the same leave nothing to chance. `None` of fewer than two.
    fn of(differences: &[f64]) -> Option<Self> {
        let n = differences.len() as f64;
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
        let mean = mean(differences);
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        let error = (squares / (n - 1.0) / n).sqrt();
        if error == 0.0 {
            return Some(Self {
                interval: [mean, mean],
                p: if mean == 0.0 { 1.0 } else { 0.0 },
            });
        }
        let reach = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error;
        Some(Self {
            interval: [mean - reach, mean + reach],
            p: (2.0 * student.sf((mean / error).abs())).min(1.0),
        })
    }
}

/// Holm's correction: the k-th smallest of `m` is multiplied by `m - k`, counted from zero, and none becomes less than a
/// smaller one.
fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|&a, &b| ps[a].total_cmp(&ps[b]));
    let mut corrected = vec![0.0; ps.len()];
    let mut largest = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        largest = largest.max((ps.len() - rank) as f64 * ps[at]).min(1.0);
        corrected[at] = largest;
    }
    corrected
}

impl Comparison {
    /// The comparison as JSON.
    pub fn json(&self) -> String {
        json::pretty(self)
    }
}

impl fmt::Display for Comparison {
    /// A table for each configuration against the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, other) in self.others.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            let count = self.seeds.len();
            let seeds = if count == 1 { "seed" } else { "seeds" };
            writeln!(f, "=== {} against {} ({count} {seeds}) ===", other.name, self.baseline)?;
            let mut rows =
                vec![["metric", &self.baseline, &other.name, "change", "95 % interval", ""].map(str::to_owned)];
            rows.extend(
                self.baseline_figures
                    .iter()
                    .zip(&other.differences)
                    .map(|(base, difference)| row(base, difference)),
            );
            aligned(f, &rows)?;
        }
        match self.seeds.len() {
            1 => writeln!(
                f,
                "\nOne seed: no intervals, and no telling whether a difference is chance. Run more seeds."
            ),
            _ => writeln!(
                f,
                "\nIntervals are of the mean difference in pairs of runs with the same seed (Student's t). `better` and\n\
                 `worse` are differences that are significant at 5 % after Holm's correction over all metrics."
            ),
        }
    }
}

fn row(base: &Summary, difference: &Difference) -> [String; 6] {
    let verdict = match (difference.is_significant, difference.difference < 0.0) {
        (Some(true), is_less) => {
            if is_less == (base.better == Better::Lower) {
                "better"
            } else {
                "worse"
            }
        }
        _ => "",
    };
    [
        base.metric.clone(),
        format!("{:.3}", base.mean),
        format!("{:.3}", difference.summary.mean),
        difference
            .percent
            .map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %")),
        difference
            .interval
            .map_or_else(|| "-".to_owned(), |[low, high]| format!("{low:+.3} to {high:+.3}")),
        verdict.to_owned(),
    ]
}

/// Columns with two blanks between them: the first and the last to the left, the others to the right.
fn aligned<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).take(N - 1).skip(1) {
            write!(line, "  {cell:>width$}")?;
        }
        write!(line, "  {}", row[N - 1])?;
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::report::ReportOptions;
    use crate::sim::report::testing::{hand_checkable_run, mixed_run};

    /// A configuration of which only the first metrics are told.
    fn configuration(name: &str, runs: &[(u64, &[f64])]) -> Configuration {
        let runs = runs.iter().map(|&(seed, known)| {
            let mut figures = vec![0.0; METRICS.len()];
            figures[..known.len()].copy_from_slice(known);
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
    fn the_interval_of_five_differences_is_that_of_a_table_of_t() {
        // Mean 3, standard deviation √2.5, error √0.5; t(0.975, 4) is 2.776445.
        let test = PairedTest::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let reach = 2.776_445_105_2 * 0.5_f64.sqrt();

        assert!((test.interval[0] - (3.0 - reach)).abs() < 1e-8, "{test:?}");
        assert!((test.interval[1] - (3.0 + reach)).abs() < 1e-8, "{test:?}");
        // t = 4.242641 with 4 degrees of freedom.
        assert!((test.p - 0.013_235_6).abs() < 1e-6, "{test:?}");
    }

    #[test]
    fn equal_differences_leave_nothing_to_chance() {
        assert_eq!(PairedTest::of(&[0.0, 0.0]).unwrap().p, 1.0);
        assert_eq!(PairedTest::of(&[2.0, 2.0]).unwrap().p, 0.0);
        assert_eq!(PairedTest::of(&[2.0]), None);
    }

    #[test]
    fn holm_multiplies_the_smallest_most_and_keeps_the_order() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);

        // Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 is not less than the one before.
        for (corrected, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((corrected - expected).abs() < 1e-12, "{corrected:?} is not {expected}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn runs_are_paired_by_seed_and_not_by_place() {
        let first = configuration("first", &[(1, &[100.0]), (2, &[200.0]), (3, &[300.0])]);
        let other = configuration("other", &[(3, &[291.0]), (1, &[90.0]), (2, &[189.0])]);
        let comparison = compare(&[first, other]).unwrap();
        let difference = &comparison.others[0].differences[0];

        // -10, -11, -9.
        assert_eq!((difference.difference, difference.percent), (-10.0, Some(-5.0)));
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
                refused(&[run("a", &[1])]),
                refused(&[run("a", &[1]), run("b", &[])]),
                refused(&[run("a", &[1]), run("b", &[2, 2])]),
                refused(&[run("a", &[1, 2]), run("b", &[2, 3])]),
            ]
            .join("\n"),
            @"
        `1` configurations are given; a comparison takes at least two
        configuration `b` has no run
        configuration `b` has more than one run with seed `2`
        configuration `b` was run with seeds `2`, `3`, and `a` with `1`, `2`; they must be the same
        "
        );
    }

    proptest! {
        #[test]
        fn corrected_ps_are_no_smaller_and_in_the_same_order(ps in prop::collection::vec(0.0..1.0_f64, 1..20)) {
            let corrected = holm(&ps);

            for (at, &p) in ps.iter().enumerate() {
                prop_assert!(corrected[at] >= p && corrected[at] <= 1.0);
                prop_assert!(corrected[at] <= (p * ps.len() as f64).min(1.0) || ps.iter().any(|&other| other < p));
                for (other, &q) in ps.iter().enumerate() {
                    prop_assert!(p > q || corrected[at] <= corrected[other]);
                }
            }
        }

        #[test]
        fn the_interval_spans_zero_exactly_if_p_is_not_small(
            differences in prop::collection::vec(-10.0..10.0_f64, 2..12),
        ) {
            let test = PairedTest::of(&differences).unwrap();
            prop_assume!((test.p - 0.05).abs() > 1e-6);
            let spans_zero = test.interval[0] <= 0.0 && test.interval[1] >= 0.0;

            prop_assert_eq!(spans_zero, test.p > 0.05);
        }
    }
}
