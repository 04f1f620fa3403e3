//! Whether a finished run was overloaded, judged from arrivals and completions (spec, simulator 30).
//!
//! This is not flow control: nothing was held back for it. Each detector is fed the arrivals and the completions of the
//! completed requests, in order of time, and gives a verdict after each. What it said most in the last part of the run is
//! its final word.

mod backlog_drift;
mod composite;
mod threshold;

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use super::json;
use crate::sim::record::{End, RequestRecord, RunRecord};

use backlog_drift::BacklogDrift;
use composite::Composite;
use threshold::Threshold;

/// How far behind a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// It keeps up.
    Stable,
    /// It is behind, and not certain to fall further.
    Backlogged,
    /// It falls further and further behind.
    Overloaded,
}

/// What a detector says after an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// How far behind.
    pub level: Level,
    /// The same as a number, 0 to 1.
    pub score: f64,
    /// How much there is to go by, 0 to 1.
    pub confidence: f64,
    /// What it was concluded from, by name.
    #[serde(serialize_with = "signals")]
    pub signals: Vec<(&'static str, f64)>,
}

impl Verdict {
    /// What is said before anything arrived.
    fn of_nothing() -> Self {
        Self {
            level: Level::Stable,
            score: 0.0,
            confidence: 0.0,
            signals: Vec::new(),
        }
    }
}

fn signals<S: serde::Serializer>(signals: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(signals.iter().copied())
}

/// Something that a detector sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Arrival,
    Completion { e2e_us: u64 },
}

/// A way to tell overload.
trait Detect: std::fmt::Debug {
    /// Takes note of an event. Times never go back.
    fn observe(&mut self, at_us: u64, event: Event);

    /// Says how things are.
    fn verdict(&self) -> Verdict;
}

/// Which detectors to ask, and what they are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Detectors {
    names: Vec<&'static str>,
    /// Mean latency from which `threshold` calls a run overloaded, in milliseconds. Default: 5000.
    pub threshold_ms: f64,
    /// Width of the buckets of `backlog-drift`, in seconds, at least one. Default: 60.
    pub window_s: u64,
    /// How much of the end of the run the final word is about, in seconds. Default: 30.
    pub final_window_s: f64,
}

/// A detector's name, and how to make one.
type Entry = (&'static str, fn(&Detectors) -> Box<dyn Detect>);

/// Every detector. To add one: a file in the folder, and a line here.
const TABLE: &[Entry] = &[
    ("composite", |_| Box::new(Composite::default())),
    ("threshold", |with| Box::new(Threshold::new(with.threshold_ms))),
    ("backlog-drift", |with| Box::new(BacklogDrift::new(with.window_s))),
];

/// There is no such detector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown detector `{name}`; known detectors: {known}, all")]
pub struct UnknownDetector {
    /// What was given.
    pub name: String,
    /// What there is.
    pub known: String,
}

impl FromStr for Detectors {
    type Err = UnknownDetector;

    /// Reads names with commas between them, or `all`. Empty text names none.
    fn from_str(text: &str) -> Result<Self, UnknownDetector> {
        let known = || TABLE.iter().map(|&(name, _)| name);
        let mut names: Vec<&'static str> = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match known().find(|&name| name == item) {
                _ if item == "all" => names.extend(known()),
                Some(name) => names.push(name),
                None => {
                    return Err(UnknownDetector {
                        name: item.to_owned(),
                        known: known().collect::<Vec<_>>().join(", "),
                    });
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(Self {
            names,
            threshold_ms: 5_000.0,
            window_s: 60,
            final_window_s: 30.0,
        })
    }
}

/// One verdict, and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceRecord {
    /// When, in microseconds.
    pub timestamp: u64,
    /// The detector.
    pub detector: &'static str,
    /// What it said.
    pub result: Verdict,
}

#[derive(Serialize)]
struct Report {
    #[serde(rename = "final")]
    last: BTreeMap<String, Level>,
    trace: Vec<TraceRecord>,
}

impl Detectors {
    /// True if no detector is asked.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The final word of each detector, by name.
    pub fn final_levels(&self, record: &RunRecord) -> BTreeMap<String, Level> {
        self.judge(&record.requests, |_| {})
    }

    /// The file of `--saturation-report`: the final words, and every verdict on the way.
    pub fn report(&self, record: &RunRecord) -> String {
        let mut trace = Vec::new();
        let last = self.judge(&record.requests, |verdict| trace.push(verdict));
        json::pretty(&Report { last, trace })
    }

    fn judge(&self, requests: &[RequestRecord], mut each: impl FnMut(TraceRecord)) -> BTreeMap<String, Level> {
        let events = events(requests);
        let end_us = events.last().map_or(0, |&(at, _)| at);
        let window_starts = end_us as f64 - self.final_window_s * 1e6;
        let asked = TABLE.iter().filter(|(name, _)| self.names.contains(name));
        let mut asked: Vec<_> = asked.map(|&(name, make)| (name, make(self), [0_u64; 3])).collect();
        for &(at, event) in &events {
            for (name, detector, votes) in &mut asked {
                detector.observe(at, event);
                let result = detector.verdict();
                if at as f64 >= window_starts {
                    votes[result.level as usize] += 1;
                }
                each(TraceRecord {
                    timestamp: at,
                    detector: name,
                    result,
                });
            }
        }
        let levels = asked
            .iter()
            .map(|(name, _, votes)| ((*name).to_owned(), most_voted(votes)));
        levels.collect()
    }
}

/// The level with the most votes, the more severe of equals.
fn most_voted(votes: &[u64; 3]) -> Level {
    let levels = [Level::Stable, Level::Backlogged, Level::Overloaded];
    let voted = levels.into_iter().filter(|&level| votes[level as usize] > 0);
    voted
        .max_by_key(|&level| (votes[level as usize], level))
        .unwrap_or(Level::Stable)
}

/// Arrivals and completions of completed requests by time; arrivals before completions, then by name.
fn events(requests: &[RequestRecord]) -> Vec<(u64, Event)> {
    let completed = requests.iter().filter(|request| request.end == End::Completed);
    let mut events: Vec<_> = completed
        .filter_map(|request| {
            let e2e_us = request.e2e_us?;
            let arrival = (request.arrival_us, Event::Arrival, request);
            let completion = (request.arrival_us + e2e_us, Event::Completion { e2e_us }, request);
            Some([arrival, completion])
        })
        .flatten()
        .collect();
    events.sort_by(|(at, event, request), (other_at, other_event, other)| {
        let is_completion = |event: &Event| matches!(event, Event::Completion { .. });
        let by_time = (at, is_completion(event)).cmp(&(other_at, is_completion(other_event)));
        by_time.then_with(|| request.name.to_string().cmp(&other.name.to_string()))
    });
    events.into_iter().map(|(at, event, _)| (at, event)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::testing::completed;

    fn all() -> Detectors {
        "all".parse().unwrap()
    }

    /// Requests that arrive every `every_us` and take what `e2e_us` says of their number.
    fn run(count: u64, every_us: u64, e2e_us: impl Fn(u64) -> u64) -> RunRecord {
        let requests = (0..count).map(|number| {
            let mut request = completed(number, 1, e2e_us(number));
            request.arrival_us = number * every_us;
            request
        });
        RunRecord {
            requests: requests.collect(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn a_cluster_that_keeps_up_is_stable_to_all() {
        let levels = all().final_levels(&run(400, 1_000_000, |_| 200_000));

        assert_eq!(levels.len(), TABLE.len());
        assert!(levels.values().all(|&level| level == Level::Stable), "{levels:?}");
    }

    #[test]
    fn a_cluster_that_takes_longer_and_longer_is_overloaded() {
        let levels = all().final_levels(&run(600, 500_000, |number| 1_000_000 * (1 + number)));

        assert_eq!(levels["threshold"], Level::Overloaded);
        assert_eq!(levels["composite"], Level::Overloaded);
    }

    #[test]
    fn more_severe_wins_among_equals() {
        assert_eq!(most_voted(&[2, 2, 1]), Level::Backlogged);
        assert_eq!(most_voted(&[2, 1, 2]), Level::Overloaded);
        assert_eq!(most_voted(&[3, 1, 2]), Level::Stable);
        assert_eq!(most_voted(&[0, 0, 0]), Level::Stable);
    }

    #[test]
    fn arrivals_come_before_completions_of_the_same_moment() {
        let record = run(2, 5, |_| 5);

        assert_eq!(
            events(&record.requests),
            [
                (0, Event::Arrival),
                (5, Event::Arrival),
                (5, Event::Completion { e2e_us: 5 }),
                (10, Event::Completion { e2e_us: 5 }),
            ]
        );
    }

    #[test]
    fn the_report_has_every_verdict() {
        insta::assert_snapshot!(
            "composite,threshold"
                .parse::<Detectors>()
                .unwrap()
                .report(&run(1, 1, |_| 2_000))
        );
    }

    #[test]
    fn an_unknown_detector_is_answered_with_the_known_ones() {
        insta::assert_snapshot!(
            "composite,drift".parse::<Detectors>().unwrap_err(),
            @"unknown detector `drift`; known detectors: composite, threshold, backlog-drift, all"
        );
    }
}
