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

mod figures;
mod statistics;
mod table;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use figures::{Better, Figures};

use figures::Row;
use statistics::{CONFIDENCE, MeanTest, holm, mean};

use super::json;

/// A corrected `p` below this is significant.
const SIGNIFICANCE: f64 = 0.05;

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

impl Comparison {
    /// The comparison as JSON.
    pub fn json(&self) -> String {
        json::pretty(self)
    }
}
