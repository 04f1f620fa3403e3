//! The plots of the gateway and its endpoints over simulated time.

use super::axis::Axis;
use super::heat::HeatMap;
use super::lines::{Line, LineChart};
use super::number::{duration, figure, percent};
use super::{MOST_COLUMNS, MOST_LINES};
use crate::sim::record::{InstanceSample, Judge, RunRecord, Sample};

/// Points of a line over time. Of more samples, the largest of each few is drawn.
const MOST_POINTS: usize = 240;

/// A plot for each thing that was sampled. Nothing without samples.
pub(super) fn plots(record: &RunRecord, names: &[String]) -> String {
    let samples = &record.series.samples;
    if samples.is_empty() {
        return String::new();
    }
    let plot = |id, title, y_title| OverTime {
        id,
        title,
        y_title,
        samples,
        scale: Scale::Count,
        mark: None,
        judged: "",
    };
    let of_endpoints = |value: fn(&InstanceSample) -> f64| {
        let curves = names.iter().enumerate().map(|(at, name)| {
            let of_instance = move |sample: &Sample| sample.instances.get(at).map_or(0.0, value);
            (name.as_str(), Box::new(of_instance) as Box<dyn Fn(&Sample) -> f64>)
        });
        curves.collect::<Vec<Curve<'_>>>()
    };
    let mut plots = String::new();
    if samples.iter().any(|sample| sample.gateway_waiting > 0) {
        let waiting: Curve<'_> = ("gateway", Box::new(|sample| sample.gateway_waiting as f64));
        plots += &plot("gateway", "Waiting at the gateway", "requests").svg(&[waiting]);
    }
    let saturation = OverTime {
        scale: Scale::Amount,
        mark: Some((1.0, "full")),
        judged: match record.series.judge {
            Judge::Detector => "",
            Judge::Onlooker => "As a utilization detector would say; nothing waits for it here.",
        },
        ..plot("saturation", "Saturation of the pool", "saturation")
    };
    plots += &saturation.svg(&[("pool", Box::new(|sample| sample.saturation))]);
    let endpoint_saturation = OverTime {
        id: "endpoint-saturation",
        title: "Saturation of endpoints",
        ..saturation
    };
    plots += &endpoint_saturation.svg(&of_endpoints(|s| s.saturation));
    plots += &plot("waiting", "Waiting at endpoints", "requests").svg(&of_endpoints(|s| f64::from(s.waiting)));
    plots += &plot("running", "In the batch", "requests").svg(&of_endpoints(|s| f64::from(s.running)));
    plots += &plot("in-flight", "In flight", "requests").svg(&of_endpoints(|s| f64::from(s.in_flight)));
    let kv_usage = OverTime {
        scale: Scale::Share,
        ..plot("kv-usage", "KV cache in use", "share of blocks")
    };
    plots += &kv_usage.svg(&of_endpoints(|s| s.kv_usage));
    plots
}

/// Something sampled, with its name.
type Curve<'a> = (&'a str, Box<dyn Fn(&Sample) -> f64 + 'a>);

/// What is measured over time.
#[derive(Clone, Copy, Debug)]
enum Scale {
    /// Whole things.
    Count,
    /// Any number from zero on.
    Amount,
    /// A part of a whole.
    Share,
}

/// A plot over simulated time: lines, or a heat map if there are too many.
struct OverTime<'a> {
    id: &'static str,
    title: &'static str,
    y_title: &'static str,
    samples: &'a [Sample],
    scale: Scale,
    mark: Option<(f64, &'static str)>,
    /// Whose word it is, if that is to be said.
    judged: &'static str,
}

impl OverTime<'_> {
    fn svg(&self, curves: &[Curve<'_>]) -> String {
        let end_us = self.samples.last().map_or(0, |sample| sample.at_us) as f64;
        let x = Axis::time(end_us);
        if curves.len() > MOST_LINES {
            return self.heat_map(curves, x);
        }
        let (groups, note) = self.groups(MOST_POINTS);
        let lines: Vec<_> = curves
            .iter()
            .map(|(name, value)| Line {
                name: (*name).to_owned(),
                points: groups
                    .iter()
                    .map(|group| (group[0].at_us as f64, largest(group, value)))
                    .collect(),
            })
            .collect();
        let highest = lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
        let highest = highest.chain(self.mark.map(|(level, _)| level)).fold(0.0, f64::max);
        LineChart {
            id: self.id,
            title: self.title,
            note,
            y: self.axis(highest),
            x,
            lines,
            mark: self.mark,
            x_label: duration,
            y_label: self.label(),
            own_x: false,
        }
        .svg()
    }

    fn heat_map(&self, curves: &[Curve<'_>], x: Axis) -> String {
        let (groups, note) = self.groups(MOST_COLUMNS);
        let starts = groups.iter().map(|group| group[0].at_us as f64);
        let end = x.max;
        HeatMap {
            id: self.id,
            title: self.title,
            note,
            unit: self.y_title.trim_start_matches("share ").to_owned(),
            x,
            edges: starts.chain([end]).collect(),
            rows: curves
                .iter()
                .map(|(name, value)| {
                    let cells = groups.iter().map(|group| largest(group, value));
                    ((*name).to_owned(), cells.collect())
                })
                .collect(),
            label: self.label(),
        }
        .svg()
    }

    fn groups(&self, most: usize) -> (Vec<&[Sample]>, String) {
        let size = self.samples.len().div_ceil(most).max(1);
        let sampled = match size {
            1 => String::new(),
            size => format!("Each point is the largest of {size} samples."),
        };
        let note = [self.judged, &sampled].join(" ").trim().to_owned();
        (self.samples.chunks(size).collect(), note)
    }

    fn axis(&self, highest: f64) -> Axis {
        match self.scale {
            Scale::Count => Axis::counts(highest, self.y_title),
            Scale::Amount => Axis::amounts(highest, self.y_title),
            Scale::Share => Axis::shares(self.y_title),
        }
    }

    fn label(&self) -> fn(f64) -> String {
        match self.scale {
            Scale::Count | Scale::Amount => figure,
            Scale::Share => percent,
        }
    }
}

fn largest(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(value).fold(0.0, f64::max)
}
