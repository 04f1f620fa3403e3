//! Whether the simulation keeps the promises that reality keeps.

use std::collections::BTreeMap;

use serde::Serialize;

use super::pair::{Latencies, Pair};
use crate::sim::report::goodput::{Dimension, GoodputTargets};
use crate::sim::report::metrics::class_name;

/// How far promises were kept in reality and in the simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoodputComparison {
    /// What is promised to each class, in microseconds.
    pub targets: GoodputTargets,
    /// The classes to which something is promised.
    pub per_class: BTreeMap<String, ClassComparison>,
    /// A time between tokens was promised, and not measured for every request: that promise is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped_itl: bool,
}

/// How far the promises to one class were kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassComparison {
    /// Requests that were compared.
    pub count: u64,
    /// Share of real requests that kept every promise.
    pub real_slo_attainment: f64,
    /// Share of simulated requests that kept every promise.
    pub sim_slo_attainment: f64,
    /// Good real requests per second of the trace.
    pub real_goodput_rps: f64,
    /// Good simulated requests per second of the trace.
    pub sim_goodput_rps: f64,
    /// Share of real requests that kept each single promise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub real_attainment_by_dim: BTreeMap<Dimension, f64>,
    /// Share of simulated requests that kept each single promise.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sim_attainment_by_dim: BTreeMap<Dimension, f64>,
}

impl GoodputComparison {
    /// `None` if nothing is promised.
    pub(super) fn of(pairs: &[Pair<'_>], seconds: f64, targets: &GoodputTargets) -> Option<Self> {
        if targets.is_empty() {
            return None;
        }
        let has_itl = pairs
            .iter()
            .all(|pair| pair.real.itl_us.is_some() && pair.sim.itl_us.is_some());
        let promises_itl = targets
            .iter()
            .any(|(_, of_class)| of_class.contains_key(&Dimension::Itl));
        let per_class = targets.iter().map(|(class, of_class)| {
            let members: Vec<_> = pairs
                .iter()
                .filter(|pair| class_name(pair.slo_class) == class)
                .collect();
            let bounds: BTreeMap<Dimension, f64> = of_class
                .iter()
                .filter(|&(&dimension, _)| has_itl || dimension != Dimension::Itl)
                .map(|(&dimension, &bound)| (dimension, bound))
                .collect();
            let share = |side: fn(&Pair<'_>) -> Latencies, bounds: &BTreeMap<Dimension, f64>| {
                let kept = members.iter().filter(|pair| keeps(side(pair), bounds)).count();
                kept as f64 / members.len().max(1) as f64
            };
            let by_dim = |side: fn(&Pair<'_>) -> Latencies| {
                let single = bounds
                    .iter()
                    .map(|(&dimension, &bound)| (dimension, share(side, &BTreeMap::from([(dimension, bound)]))));
                single.collect()
            };
            let (real, sim) = (share(|pair| pair.real, &bounds), share(|pair| pair.sim, &bounds));
            let per_second = |share: f64| {
                if seconds > 0.0 {
                    share * members.len() as f64 / seconds
                } else {
                    0.0
                }
            };
            let comparison = ClassComparison {
                count: members.len() as u64,
                real_slo_attainment: real,
                sim_slo_attainment: sim,
                real_goodput_rps: per_second(real),
                sim_goodput_rps: per_second(sim),
                real_attainment_by_dim: by_dim(|pair| pair.real),
                sim_attainment_by_dim: by_dim(|pair| pair.sim),
            };
            (class.to_owned(), comparison)
        });
        Some(Self {
            per_class: per_class.collect(),
            targets: targets.clone(),
            skipped_itl: promises_itl && !has_itl,
        })
    }
}

fn keeps(latencies: Latencies, bounds: &BTreeMap<Dimension, f64>) -> bool {
    bounds.iter().all(|(dimension, &bound)| match dimension {
        Dimension::Ttft => latencies.ttft_us <= bound,
        Dimension::Itl => latencies.itl_us.is_some_and(|itl| itl <= bound),
        Dimension::E2e => latencies.e2e_us <= bound,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(ttft_us: f64, e2e_us: f64, itl_us: Option<f64>) -> Latencies {
        Latencies {
            ttft_us,
            e2e_us,
            itl_us,
        }
    }

    #[test]
    fn both_sides_are_held_to_the_same_promises() {
        let pairs = [
            Pair {
                slo_class: "critical",
                real: latencies(90.0, 900.0, Some(10.0)),
                sim: latencies(110.0, 900.0, Some(10.0)),
            },
            Pair {
                slo_class: "critical",
                real: latencies(90.0, 1_100.0, Some(10.0)),
                sim: latencies(90.0, 900.0, Some(10.0)),
            },
        ];
        let mut targets = GoodputTargets::default();
        targets.set("critical", Dimension::Ttft, 100.0);
        targets.set("critical", Dimension::E2e, 1_000.0);
        let comparison = GoodputComparison::of(&pairs, 4.0, &targets).unwrap();
        let critical = &comparison.per_class["critical"];

        assert_eq!((critical.real_slo_attainment, critical.sim_slo_attainment), (0.5, 0.5));
        assert_eq!(critical.real_attainment_by_dim[&Dimension::Ttft], 1.0);
        assert_eq!(critical.sim_attainment_by_dim[&Dimension::Ttft], 0.5);
        assert_eq!(critical.real_goodput_rps, 0.25);
        assert!(!comparison.skipped_itl);
    }

    #[test]
    fn a_promise_that_was_not_measured_is_left_out_and_told() {
        let pairs = [Pair {
            slo_class: "",
            real: latencies(1.0, 2.0, None),
            sim: latencies(1.0, 2.0, Some(1.0)),
        }];
        let mut targets = GoodputTargets::default();
        targets.set("", Dimension::Itl, 0.5);
        let comparison = GoodputComparison::of(&pairs, 1.0, &targets).unwrap();

        assert!(comparison.skipped_itl);
        assert_eq!(comparison.per_class["default"].real_slo_attainment, 1.0);
    }
}
