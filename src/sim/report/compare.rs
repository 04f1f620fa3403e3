//! Several configurations on one workload: by how much they differ, and whether that can be chance.
//!
//! Every configuration is run with the same seeds. A seed makes the same workload for all of them, so runs are compared
//! in pairs: of each metric the differences to the first configuration, seed by seed, have a mean, a 95 % confidence
//! interval by Student's t, and a probability `p` to be as large if there were no difference. Many metrics are looked at,
//! so `p` is corrected by Holm's method before a difference is called significant. A single seed has no spread, hence no
//! interval and no significance. A single configuration has nothing to differ from: the intervals of its own means are
//! told.
//!
//! A latency of no request is not zero, it is missing: a run that serves nobody is not a quick one. Differences are those
//! of the seeds with which both configurations have a figure.
//!
//! Means over all requests hide who pays for whom, so a few classes or tenants are compared each on their own, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::distribution::{Distribution, Latency};
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
    /// `None` of a run that has nothing to measure it by.
    value: fn(&M) -> Option<f64>,
    /// Whether it is told even if it is zero everywhere. Of the others that says that they play no part.
    is_told_at_zero: bool,
}

/// Everything that runs are compared by, in the order of the table.
const METRICS: &[Metric] = &[
    lower("ttft_mean_ms", |run| ms(&run.cluster.ttft, run.cluster.ttft.mean)),
    lower("ttft_p50_ms", |run| ms(&run.cluster.ttft, run.cluster.ttft.p50)),
    lower("ttft_p99_ms", |run| ms(&run.cluster.ttft, run.cluster.ttft.p99)),
    lower("itl_mean_ms", |run| ms(&run.cluster.itl, run.cluster.itl.mean)),
    lower("itl_p99_ms", |run| ms(&run.cluster.itl, run.cluster.itl.p99)),
    lower("e2e_mean_ms", |run| ms(&run.cluster.e2e, run.cluster.e2e.mean)),
    lower("e2e_p99_ms", |run| ms(&run.cluster.e2e, run.cluster.e2e.p99)),
    lower("scheduling_delay_p99_ms", |run| {
        ms(&run.cluster.scheduling_delay, run.cluster.scheduling_delay.p99)
    }),
    higher("responses_per_sec", |run| Some(run.cluster.responses_per_sec)),
    higher("tokens_per_sec", |run| Some(run.cluster.tokens_per_sec)),
    completed_share(|run| share(&run.cluster.tally)),
    higher("cache_hit_rate", |run| {
        (run.cluster.input_tokens > 0).then_some(run.kv.cache_hit_rate)
    }),
    lower("preemption_rate", |run| {
        has_completed(run).then_some(run.kv.preemption_rate)
    }),
    higher("jain_fairness_index", |run| {
        let is_served = run.tenants.values().any(|tenant| tenant.tokens_served > 0);
        run.jain.filter(|_| is_served)
    }),
    higher("slo_attainment", |run| {
        run.goodput.as_ref().map(|goodput| goodput.attainment)
    }),
    higher("goodput_rps", |run| run.goodput.as_ref().map(|goodput| goodput.rps)),
    higher("fitness", |run| {
        let fitness = run.fitness.as_ref().filter(|_| has_completed(run));
        fitness.map(|fitness| fitness.score)
    }),
];

/// What classes and tenants are compared by, if there are two or more of them, and not too many to read.
const GROUP_METRICS: &[Metric<GroupMetrics>] = &[
    lower("ttft_mean_ms", |group| ms(&group.ttft, group.ttft.mean)),
    lower("ttft_p99_ms", |group| ms(&group.ttft, group.ttft.p99)),
    completed_share(|group| share(&group.tally)),
];

/// More classes or tenants than this are not told one by one.
const MOST_GROUPS: usize = 8;

/// One of the latencies of a distribution, if anything was measured.
fn ms(of: &Distribution, latency: Latency) -> Option<f64> {
    (of.count > 0).then(|| latency.ms())
}

fn has_completed(run: &Metrics) -> bool {
    run.cluster.tally[End::Completed] > 0
}

/// The share of requests that were completed. Of no requests there is none.
fn share(tally: &Tally) -> Option<f64> {
    let total = tally.total();
    (total > 0).then(|| tally[End::Completed] as f64 / total as f64)
}

const fn lower<M>(name: &'static str, value: fn(&M) -> Option<f64>) -> Metric<M> {
    Metric {
        name,
        better: Better::Lower,
        value,
        is_told_at_zero: false,
    }
}

const fn higher<M>(name: &'static str, value: fn(&M) -> Option<f64>) -> Metric<M> {
    Metric {
        name,
        better: Better::Higher,
        value,
        is_told_at_zero: false,
    }
}

const fn completed_share<M>(value: fn(&M) -> Option<f64>) -> Metric<M> {
    Metric {
        is_told_at_zero: true,
        ..higher("completed_share", value)
    }
}

/// What is kept of a run to compare it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Of the whole run, by place in [`METRICS`].
    whole: Vec<Option<f64>>,
    /// Of its classes and tenants.
    groups: BTreeMap<GroupKey, Option<f64>>,
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
    /// The rows of a comparison: what some run has a figure of, and what plays a part in some run.
    fn all(configurations: &[Configuration]) -> Vec<Self> {
        let figures = || {
            let runs = configurations.iter().flat_map(|configuration| &configuration.runs);
            runs.map(|(_, figures)| figures)
        };
        let groups: BTreeSet<&GroupKey> = figures().flat_map(|figures| figures.groups.keys()).collect();
        let whole = (0..METRICS.len()).map(Self::Whole);
        let all = whole.chain(groups.into_iter().cloned().map(Self::Group));
        let is_told = |row: &Self| {
            let mut values = figures().filter_map(|figures| row.value(figures));
            values.any(|value| value != 0.0 || row.is_told_at_zero())
        };
        all.filter(is_told).collect()
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

    fn is_told_at_zero(&self) -> bool {
        match self {
            Self::Whole(metric) => METRICS[*metric].is_told_at_zero,
            Self::Group((_, metric)) => GROUP_METRICS[*metric].is_told_at_zero,
        }
    }

    /// `None` if the run has nothing to measure it by, such as a group that it does not have.
    fn value(&self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Whole(metric) => figures.whole[*metric],
            Self::Group(key) => figures.groups.get(key).copied().flatten(),
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
    /// There is nothing to tell of.
    #[error("no configuration is given")]
    Nothing,
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

/// How configurations differ from the first of them, if there are others.
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
    /// In how many runs there is such a figure. There is none of a latency in a run that serves nobody.
    pub runs: usize,
    /// The mean over the seeds. `None` without a run, as are the next two.
    pub mean: Option<f64>,
    /// The least of them.
    pub min: Option<f64>,
    /// The most of them.
    pub max: Option<f64>,
    /// The confidence interval of the mean. `None` with fewer than two runs.
    pub mean_interval: Option<[f64; 2]>,
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
    /// With how many seeds both configurations have such a figure.
    pub pairs: usize,
    /// The mean of the differences to the first configuration, over these seeds. `None` if there are none.
    pub difference: Option<f64>,
    /// The same in percent of the first one's mean over these seeds. `None` if that is zero.
    pub percent: Option<f64>,
    /// The confidence interval of the difference. `None` with fewer than two seeds.
    pub interval: Option<[f64; 2]>,
    /// How likely so large a difference is by chance. `None` with fewer than two seeds.
    pub p: Option<f64>,
    /// The same, corrected for the number of metrics.
    pub p_corrected: Option<f64>,
    /// The corrected `p` is below 0.05. `None` with fewer than two seeds.
    pub is_significant: Option<bool>,
}

/// Compares configurations with the first of them. Of a single one there is what it did.
///
/// Metrics of which no run has a figure are left out, and those that are zero in all of them: they play no part.
///
/// # Errors
///
/// See [`CompareError`].
pub fn compare(configurations: &[Configuration]) -> Result<Comparison, CompareError> {
    let [first, others @ ..] = configurations else {
        return Err(CompareError::Nothing);
    };
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
fn values(configuration: &Configuration, row: &Row) -> Vec<Option<f64>> {
    let mut runs: Vec<_> = configuration.runs.iter().collect();
    runs.sort_by_key(|(seed, _)| *seed);
    runs.into_iter().map(|(_, figures)| row.value(figures)).collect()
}

/// `None` of nothing.
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl Summary {
    fn of(configuration: &Configuration, row: &Row) -> Self {
        let values: Vec<f64> = values(configuration, row).into_iter().flatten().collect();
        Self {
            metric: row.name(),
            better: row.better(),
            runs: values.len(),
            mean: mean(&values),
            min: values.iter().copied().reduce(f64::min),
            max: values.iter().copied().reduce(f64::max),
            mean_interval: MeanTest::of(&values).map(|test| test.interval),
        }
    }
}

impl Contrast {
    fn of(first: &Configuration, other: &Configuration, rows: &[Row]) -> Self {
        let mut differences: Vec<_> = rows
            .iter()
            .map(|row| {
                let pairs: Vec<(f64, f64)> = std::iter::zip(values(first, row), values(other, row))
                    .filter_map(|(before, after)| before.zip(after))
                    .collect();
                let before: Vec<f64> = pairs.iter().map(|(before, _)| *before).collect();
                let differences: Vec<f64> = pairs.iter().map(|(before, after)| after - before).collect();
                let test = MeanTest::of(&differences);
                let difference = mean(&differences);
                let base = mean(&before).filter(|&base| base != 0.0);
                Difference {
                    summary: Summary::of(other, row),
                    pairs: pairs.len(),
                    difference,
                    percent: difference.zip(base).map(|(difference, base)| difference / base * 100.0),
                    interval: test.map(|test| test.interval),
                    p: test.map(|test| test.p),
                    p_corrected: None,
                    is_significant: None,
                }
            })
            .collect();
        let ps: Vec<f64> = differences.iter().filter_map(|difference| difference.p).collect();
        let tested = differences.iter_mut().filter(|difference| difference.p.is_some());
        for (difference, corrected) in tested.zip(holm(&ps)) {
            difference.p_corrected = Some(corrected);
            difference.is_significant = Some(corrected < SIGNIFICANCE);
        }
        Self {
            name: other.name.clone(),
            differences,
        }
    }
}

/// What Student's t says of a mean, such as that of differences in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MeanTest {
    interval: [f64; 2],
    p: f64,
}

impl MeanTest {
    /// With `d` the mean of `n` values and `s` their standard deviation, the interval is `d ± t(0.975, n - 1) s / √n`, and
    /// `p` is the chance of a `t` as far from zero as `d √n / s`, on both sides. Values that are all the same leave nothing
    /// to chance. `None` of fewer than two.
    fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = mean(values)?;
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
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
    /// A table for each configuration against the first, or one of the only one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.seeds.len();
        let seeds = if count == 1 { "seed" } else { "seeds" };
        if self.others.is_empty() {
            writeln!(f, "=== {} ({count} {seeds}) ===", self.baseline)?;
            let mut rows = vec![["metric", "mean", "min", "max", "95 % interval", ""].map(str::to_owned)];
            rows.extend(self.baseline_figures.iter().map(|figure| row_alone(figure, count)));
            aligned(f, &rows)?;
        }
        for (at, other) in self.others.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            writeln!(f, "=== {} against {} ({count} {seeds}) ===", other.name, self.baseline)?;
            let mut rows =
                vec![["metric", &self.baseline, &other.name, "change", "95 % interval", ""].map(str::to_owned)];
            let figures = self.baseline_figures.iter().zip(&other.differences);
            rows.extend(figures.map(|(base, difference)| row(base, difference, count)));
            aligned(f, &rows)?;
        }
        writeln!(f)?;
        match (count, self.others.is_empty()) {
            (1, true) => writeln!(f, "One seed: no intervals. Run more seeds."),
            (1, false) => writeln!(
                f,
                "One seed: no intervals, and no telling whether a difference is chance. Run more seeds."
            ),
            (_, true) => writeln!(f, "Intervals are of the mean over the seeds (Student's t)."),
            (_, false) => writeln!(
                f,
                "Intervals are of the mean difference in pairs of runs with the same seed (Student's t). `better` and\n\
                 `worse` are differences that are significant at 5 % after Holm's correction over all metrics."
            ),
        }?;
        if self.has_gaps() {
            writeln!(
                f,
                "Runs in which there was nothing to measure, such as a latency where no request was served, are left out."
            )?;
        }
        Ok(())
    }
}

impl Comparison {
    /// True if a run has no figure of something that another one has.
    fn has_gaps(&self) -> bool {
        let of_others = self.others.iter().flat_map(|other| &other.differences);
        let mut summaries = self
            .baseline_figures
            .iter()
            .chain(of_others.map(|difference| &difference.summary));
        summaries.any(|summary| summary.runs < self.seeds.len())
    }
}

fn row_alone(figure: &Summary, seeds: usize) -> [String; 6] {
    let interval = figure.mean_interval;
    [
        figure.metric.clone(),
        told(figure.mean),
        told(figure.min),
        told(figure.max),
        interval.map_or_else(missing, |[low, high]| format!("{low:.3} to {high:.3}")),
        some_of(figure.runs, seeds),
    ]
}

fn row(base: &Summary, difference: &Difference, seeds: usize) -> [String; 6] {
    let verdict = match (difference.is_significant, difference.difference) {
        (Some(true), Some(value)) => {
            if (value < 0.0) == (base.better == Better::Lower) {
                "better".to_owned()
            } else {
                "worse".to_owned()
            }
        }
        _ => String::new(),
    };
    let percent = difference.percent;
    let interval = difference.interval;
    let runs = some_of(difference.pairs, seeds);
    [
        base.metric.clone(),
        told(base.mean),
        told(difference.summary.mean),
        percent.map_or_else(missing, |percent| format!("{percent:+.1} %")),
        interval.map_or_else(missing, |[low, high]| format!("{low:+.3} to {high:+.3}")),
        [verdict, runs].join(" ").trim().to_owned(),
    ]
}

fn told(value: Option<f64>) -> String {
    value.map_or_else(missing, |value| format!("{value:.3}"))
}

/// What stands for a figure that there is none of.
fn missing() -> String {
    "-".to_owned()
}

/// Says so if a figure is of some of the seeds.
fn some_of(runs: usize, seeds: usize) -> String {
    if (1..seeds).contains(&runs) {
        format!("(in {runs} of {seeds})")
    } else {
        String::new()
    }
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
    fn the_interval_of_five_differences_is_that_of_a_table_of_t() {
        // Mean 3, standard deviation √2.5, error √0.5; t(0.975, 4) is 2.776445.
        let test = MeanTest::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let reach = 2.776_445_105_2 * 0.5_f64.sqrt();

        assert!((test.interval[0] - (3.0 - reach)).abs() < 1e-8, "{test:?}");
        assert!((test.interval[1] - (3.0 + reach)).abs() < 1e-8, "{test:?}");
        // t = 4.242641 with 4 degrees of freedom.
        assert!((test.p - 0.013_235_6).abs() < 1e-6, "{test:?}");
    }

    #[test]
    fn equal_differences_leave_nothing_to_chance() {
        assert_eq!(MeanTest::of(&[0.0, 0.0]).unwrap().p, 1.0);
        assert_eq!(MeanTest::of(&[2.0, 2.0]).unwrap().p, 0.0);
        assert_eq!(MeanTest::of(&[2.0]), None);
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
            let test = MeanTest::of(&differences).unwrap();
            prop_assume!((test.p - 0.05).abs() > 1e-6);
            let spans_zero = test.interval[0] <= 0.0 && test.interval[1] >= 0.0;

            prop_assert_eq!(spans_zero, test.p > 0.05);
        }
    }
}
