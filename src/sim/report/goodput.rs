//! How many requests were served as well as their class was promised (spec, simulator 29).

use std::collections::BTreeMap;

use serde::Serialize;

use super::distribution::Distribution;
use super::metrics::class_name;
use crate::engine::config::duration::{self, DurationError};
use crate::sim::record::{End, RequestRecord, RunRecord};

/// What a promise is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    /// The time to the first token.
    Ttft,
    /// The mean time between the tokens of a request.
    Itl,
    /// The time to the last token.
    E2e,
}

/// What is promised to each SLO class. Empty if nothing is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct GoodputTargets(BTreeMap<String, Targets>);

/// Bounds in microseconds.
pub(super) type Targets = BTreeMap<Dimension, f64>;

/// Why text is no list of targets.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GoodputError {
    /// An item is not a pair.
    #[error("goodput target `{0}` is not of the form `class=duration`, such as `critical=100ms`")]
    NotAPair(String),
    /// A class is named twice.
    #[error("goodput target of class `{0}` is given more than once")]
    Repeated(String),
    /// No time at all can be met by nothing.
    #[error("goodput target of class `{0}` is zero; a target is longer than that")]
    Zero(String),
    /// A duration cannot be read.
    #[error("goodput target of class `{class}`")]
    BadDuration {
        /// The class.
        class: String,
        /// Why not.
        #[source]
        source: DurationError,
    },
}

impl GoodputTargets {
    /// True if nothing is promised to anyone.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each class with its bounds.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Targets)> {
        self.0.iter().map(|(class, targets)| (class.as_str(), targets))
    }

    /// Reads `class=duration,class=duration` and promises it for one dimension. The class without a name is `default`.
    ///
    /// # Errors
    ///
    /// See [`GoodputError`]. Nothing is changed then.
    pub fn add(&mut self, dimension: Dimension, text: &str) -> Result<(), GoodputError> {
        let mut read = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let Some((class, bound)) = item.split_once('=') else {
                return Err(GoodputError::NotAPair(item.to_owned()));
            };
            let class = class_name(class.trim()).to_owned();
            let bound = match duration::parse(bound.trim()) {
                Ok(bound) if bound.is_zero() => return Err(GoodputError::Zero(class)),
                Ok(bound) => bound.as_secs_f64() * 1e6,
                Err(source) => return Err(GoodputError::BadDuration { class, source }),
            };
            if read.contains_key(&class) {
                return Err(GoodputError::Repeated(class));
            }
            read.insert(class, bound);
        }
        for (class, bound) in read {
            self.0.entry(class).or_default().insert(dimension, bound);
        }
        Ok(())
    }

    /// Promises `us` microseconds to one class.
    pub fn set(&mut self, class: &str, dimension: Dimension, us: f64) {
        let targets = self.0.entry(class_name(class).to_owned()).or_default();
        targets.insert(dimension, us);
    }

    /// These, and of `others` what these do not say: the command line before the trace, the trace before the workload.
    pub fn or(mut self, others: &Self) -> Self {
        for (class, targets) in &others.0 {
            let mine = self.0.entry(class.clone()).or_default();
            for (&dimension, &bound) in targets {
                mine.entry(dimension).or_insert(bound);
            }
        }
        self
    }
}

/// How far the promises were kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    /// Good requests per second.
    pub rps: f64,
    /// Share of good requests among all that were promised something.
    pub attainment: f64,
    /// The classes to which something was promised.
    pub per_class: BTreeMap<String, ClassGoodput>,
}

/// How far the promises to one class were kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassGoodput {
    /// Share of good requests among all of the class, the ones that were turned away included.
    pub slo_attainment: f64,
    /// Requests of the class.
    pub count: u64,
    /// Good requests per second.
    pub goodput_rps: f64,
    /// Share that kept each single promise.
    pub slo_attainment_by_dim: BTreeMap<Dimension, f64>,
    /// 99th percentile of the time to the first token, of completed requests.
    pub ttft_p99_ms: f64,
    /// Mean over completed requests of their mean times between tokens.
    pub itl_mean_ms: f64,
    /// 99th percentile of the time to the last token.
    pub e2e_p99_ms: f64,
}

impl Goodput {
    /// Measures a run. `None` if nothing was promised.
    pub fn of(record: &RunRecord, targets: &GoodputTargets) -> Option<Self> {
        if targets.is_empty() {
            return None;
        }
        let seconds = record.end_us as f64 / 1e6;
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let (mut good, mut all) = (0, 0);
        let per_class = targets.0.iter().map(|(class, targets)| {
            let requests = record
                .requests
                .iter()
                .filter(|request| class_name(&request.client.slo_class) == class);
            let mut measured = Measured::default();
            requests.for_each(|request| measured.add(request, targets));
            good += measured.good;
            all += measured.count;
            let count = measured.count;
            let completed = measured.ttft.len();
            let entry = ClassGoodput {
                slo_attainment: share(measured.good, count),
                count,
                goodput_rps: per_second(measured.good),
                slo_attainment_by_dim: measured
                    .kept
                    .iter()
                    .map(|(&dimension, &kept)| (dimension, share(kept, count)))
                    .collect(),
                ttft_p99_ms: Distribution::of(measured.ttft).p99.ms(),
                itl_mean_ms: measured.itl_sum / completed.max(1) as f64 / 1000.0,
                e2e_p99_ms: Distribution::of(measured.e2e).p99.ms(),
            };
            (class.clone(), entry)
        });
        let per_class = per_class.collect();
        Some(Self {
            rps: per_second(good),
            attainment: share(good, all),
            per_class,
        })
    }
}

#[derive(Debug, Default)]
struct Measured {
    count: u64,
    good: u64,
    kept: BTreeMap<Dimension, u64>,
    ttft: Vec<u64>,
    e2e: Vec<u64>,
    itl_sum: f64,
}

impl Measured {
    fn add(&mut self, request: &RequestRecord, targets: &Targets) {
        self.count += 1;
        for &dimension in targets.keys() {
            self.kept.entry(dimension).or_default();
        }
        let (End::Completed, Some(ttft), Some(e2e)) = (request.end, request.ttft_us, request.e2e_us) else {
            return;
        };
        self.ttft.push(ttft);
        self.e2e.push(e2e);
        self.itl_sum += request.itl_mean_us();
        let mut all_kept = true;
        for (&dimension, &bound) in targets {
            let took = match dimension {
                Dimension::Ttft => ttft as f64,
                Dimension::Itl => request.itl_mean_us(),
                Dimension::E2e => e2e as f64,
            };
            match took <= bound {
                true => *self.kept.entry(dimension).or_default() += 1,
                false => all_kept = false,
            }
        }
        self.good += u64::from(all_kept);
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::testing::{completed, of_class, request};

    #[test]
    fn a_good_request_keeps_every_promise_to_its_class() {
        let mut turned_away = of_class(request(3), "critical");
        turned_away.end = End::Rejected;
        let record = RunRecord {
            requests: vec![
                of_class(completed(0, 90_000, 1_000_000), "critical"),
                of_class(completed(1, 110_000, 1_000_000), "critical"),
                of_class(completed(2, 90_000, 3_000_000), "critical"),
                turned_away,
                completed(4, 400_000, 500_000),
                of_class(completed(5, 1, 2), "batch"),
            ],
            end_us: 2_000_000,
            ..RunRecord::default()
        };
        let mut targets = GoodputTargets::default();
        targets.add(Dimension::Ttft, "critical=100ms,default=500ms").unwrap();
        targets.add(Dimension::E2e, "critical=2s").unwrap();

        let goodput = Goodput::of(&record, &targets).unwrap();

        // One of four critical requests, and the one without a class.
        assert_eq!((goodput.rps, goodput.attainment), (1.0, 0.4));
        let critical = &goodput.per_class["critical"];
        assert_eq!((critical.count, critical.slo_attainment), (4, 0.25));
        assert_eq!(
            critical.slo_attainment_by_dim,
            BTreeMap::from([(Dimension::Ttft, 0.5), (Dimension::E2e, 0.5)])
        );
        assert_eq!(critical.e2e_p99_ms, 1_000.0 + 2_000.0 * 0.98);
        assert!(
            !goodput.per_class.contains_key("batch"),
            "nothing was promised to batch"
        );
    }

    #[test]
    fn nothing_is_measured_where_nothing_is_promised() {
        assert_eq!(Goodput::of(&RunRecord::default(), &GoodputTargets::default()), None);
    }

    #[test]
    fn the_nearer_promise_counts() {
        let mut given = GoodputTargets::default();
        given.set("critical", Dimension::Ttft, 1.0);
        let mut further = GoodputTargets::default();
        further.set("critical", Dimension::Ttft, 2.0);
        further.set("critical", Dimension::E2e, 3.0);
        let mut both = given.clone();
        both.set("critical", Dimension::E2e, 3.0);

        assert_eq!(given.or(&further), both);
    }

    #[test]
    fn what_is_no_target_is_refused_with_what_would_be() {
        let refused = |text: &str| {
            let error = GoodputTargets::default().add(Dimension::Ttft, text).unwrap_err();
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        };
        insta::assert_snapshot!(["critical", "critical=1s,critical=2s", "critical=0", "critical=fast"].map(refused).join("\n"), @r"
        goodput target `critical` is not of the form `class=duration`, such as `critical=100ms`
        goodput target of class `critical` is given more than once
        goodput target of class `critical` is zero; a target is longer than that
        goodput target of class `critical`: `fast` is not a duration; write a number with a unit, such as `300ms`, `10s` or `1m30s`
        ");
    }
}
