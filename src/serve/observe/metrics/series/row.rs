//! The series that have the same labels.

use super::key::{Extra, Key};
use super::measure::Measure;
use crate::engine::time::Timestamp;

/// All series of one combination of labels.
#[derive(Debug)]
pub(super) struct Row {
    /// Told apart from a row that is in the same slot later.
    pub(super) id: u64,
    pub(super) key: Key,
    pub(super) series: Vec<Series>,
    /// Requests that run, if any ever did.
    pub(super) running: Option<u64>,
    /// What it takes on the page, about.
    pub(super) bytes: usize,
    /// When something was counted last.
    pub(super) used: Timestamp,
    /// Something was counted since it was last looked at for its place.
    pub(super) used_again: bool,
    /// The page that was made last before it came: it is on the pages after that.
    pub(super) since_page: u64,
    /// It was on a page.
    pub(super) was_shown: bool,
    /// Something was counted since it was on a page.
    pub(super) is_news: bool,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Series {
    pub(in super::super) measure: Measure,
    pub(in super::super) extra: Extra,
    pub(in super::super) count: Count,
}

/// What was counted.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Count {
    Counter(u64),
    Histogram {
        /// Observations in each bucket, those of the one without a bound last.
        buckets: Box<[u64]>,
        sum: f64,
    },
}

impl Row {
    pub(super) fn find(&self, measure: Measure, extra: Extra) -> Option<usize> {
        let is_it = |series: &Series| series.measure == measure && series.extra == extra;
        self.series.iter().position(is_it)
    }

    pub(super) fn use_at(&mut self, now: Timestamp) {
        self.used = self.used.max(now);
        self.used_again = true;
        self.is_news = true;
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some_and(|running| running > 0)
    }
}

impl Series {
    pub(super) fn new(measure: Measure, extra: Extra) -> Self {
        let count = match measure.buckets() {
            None => Count::Counter(0),
            Some(bounds) => Count::Histogram {
                buckets: vec![0; bounds.len() + 1].into(),
                sum: 0.0,
            },
        };
        Self { measure, extra, count }
    }

    pub(super) fn add(&mut self, amount: Amount) {
        match (&mut self.count, amount) {
            (Count::Counter(count), Amount::More(more)) => *count += more,
            (Count::Histogram { buckets, sum }, Amount::Observed(value)) => {
                let bounds = self.measure.buckets().unwrap_or_default();
                buckets[bounds.partition_point(|bound| *bound < value)] += 1;
                *sum += value;
            }
            (count, amount) => debug_assert!(false, "{:?} is a {count:?}, not {amount:?}", self.measure),
        }
    }

    /// Takes over what another series of the same family counted.
    pub(super) fn take_over(&mut self, other: &Self) {
        match (&mut self.count, &other.count) {
            (Count::Counter(count), Count::Counter(more)) => *count += more,
            (
                Count::Histogram { buckets, sum },
                Count::Histogram {
                    buckets: more,
                    sum: rest,
                },
            ) => {
                for (bucket, more) in buckets.iter_mut().zip(more) {
                    *bucket += more;
                }
                *sum += rest;
            }
            (mine, theirs) => debug_assert!(false, "{mine:?} and {theirs:?} are of one family"),
        }
    }
}

/// What is added to a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Amount {
    /// To a counter.
    More(u64),
    /// To a histogram.
    Observed(f64),
}
