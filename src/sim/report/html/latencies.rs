//! The plots of latencies: the share of requests that took at most so long.

use std::collections::BTreeMap;

use super::super::metrics::class_name;
use super::MOST_LINES;
use super::axis::Axis;
use super::lines::{self, Line, LineChart};
use super::number::{duration, percent};
use crate::sim::record::{Counts, RunRecord};

/// Latencies below those of this share may stand at the very start of a logarithmic axis.
const NEGLIGIBLE: f64 = 0.01;

/// A plot for each latency that was measured.
pub(super) fn plots(record: &RunRecord) -> String {
    let mut ttft = Values::default();
    let mut delay = Values::default();
    let mut e2e = Values::default();
    let mut itl = Values::default();
    for request in &record.requests {
        let class = class_name(&request.client.slo_class);
        ttft.add(class, request.ttft_us);
        delay.add(class, request.scheduling_delay_us);
        e2e.add(class, request.e2e_us);
    }
    for (class, counts) in &record.itl {
        itl.merge(class_name(class), counts);
    }
    [
        delay.plot(
            "delay",
            "Time into a batch",
            "Requests that entered a batch of their instance.",
        ),
        ttft.plot("ttft", "Time to first token", "Requests that got a first token."),
        itl.plot(
            "itl",
            "Time between tokens",
            "All gaps between tokens of completed requests.",
        ),
        e2e.plot("e2e", "Time to last token", "Completed requests."),
    ]
    .concat()
}

/// Latencies by SLO class.
#[derive(Debug, Default)]
struct Values<'a>(BTreeMap<&'a str, Counts>);

impl<'a> Values<'a> {
    fn add(&mut self, class: &'a str, us: Option<u64>) {
        if let Some(us) = us {
            self.0.entry(class).or_default().add(us);
        }
    }

    fn merge(&mut self, class: &'a str, counts: &Counts) {
        self.0.entry(class).or_default().merge(counts);
    }

    /// The share of values that are at most so large, of all and of each class. Nothing, if there are no values.
    fn plot(&self, id: &'static str, title: &'static str, note: &str) -> String {
        let mut all = Counts::default();
        self.0.values().for_each(|counts| all.merge(counts));
        let Some((max, _)) = all.iter().last() else {
            return String::new();
        };
        // A few tiny values must not take half of the axis.
        let low = cumulative(&all).find(|&(_, share)| share >= NEGLIGIBLE);
        let low = low.map_or(0.0, |(value, _)| value);
        let x = Axis::durations(low, max as f64, title.to_lowercase());
        let y = Axis::shares("share of all");
        let mut curves = vec![("all", &all)];
        if self.0.len() > 1 {
            curves.extend(
                self.0
                    .iter()
                    .take(MOST_LINES - 1)
                    .map(|(&class, counts)| (class, counts)),
            );
        }
        let lines = curves.into_iter().map(|(name, counts)| Line {
            name: name.to_owned(),
            points: lines::thinned(cumulative(counts), &x, &y),
        });
        LineChart {
            id,
            title,
            note: note.to_owned(),
            lines: lines.collect(),
            mark: None,
            x,
            y,
            x_label: duration,
            y_label: percent,
            own_x: true,
        }
        .svg()
    }
}

/// A stair: for each value, the share of values that are smaller, and the share of those that are at most as large.
fn cumulative(counts: &Counts) -> impl Iterator<Item = (f64, f64)> + '_ {
    let total = counts.total() as f64;
    let stairs = counts.iter().scan(0, move |below, (value, count)| {
        let foot = (value as f64, *below as f64 / total);
        *below += count;
        Some([foot, (value as f64, *below as f64 / total)])
    });
    stairs.flatten()
}
