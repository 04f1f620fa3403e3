//! What runs are compared by.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::super::distribution::{Distribution, Latency};
use super::super::metrics::{GroupMetrics, Metrics};
use super::super::tally::Tally;
use super::Configuration;
use crate::sim::record::End;

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
pub(super) struct Metric<M = Metrics> {
    name: &'static str,
    better: Better,
    /// `None` of a run that has nothing to measure it by.
    value: fn(&M) -> Option<f64>,
    /// Whether it is told even if it is zero everywhere. Of the others that says that they play no part.
    is_told_at_zero: bool,
}

/// Everything that runs are compared by, in the order of the table.
pub(super) const METRICS: &[Metric] = &[
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
pub(super) const MOST_GROUPS: usize = 8;

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
    pub(super) whole: Vec<Option<f64>>,
    /// Of its classes and tenants.
    pub(super) groups: BTreeMap<GroupKey, Option<f64>>,
}

/// A group, as the JSON document of a run calls it, and the place of a metric in [`GROUP_METRICS`].
pub(super) type GroupKey = (String, usize);

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
pub(super) enum Row {
    /// A place in [`METRICS`].
    Whole(usize),
    /// One group's.
    Group(GroupKey),
}

impl Row {
    /// The rows of a comparison: what some run has a figure of, and what plays a part in some run.
    pub(super) fn all(configurations: &[Configuration]) -> Vec<Self> {
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

    pub(super) fn name(&self) -> String {
        match self {
            Self::Whole(metric) => METRICS[*metric].name.to_owned(),
            Self::Group((group, metric)) => format!("{group}.{}", GROUP_METRICS[*metric].name),
        }
    }

    pub(super) fn better(&self) -> Better {
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
    pub(super) fn value(&self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Whole(metric) => figures.whole[*metric],
            Self::Group(key) => figures.groups.get(key).copied().flatten(),
        }
    }
}
