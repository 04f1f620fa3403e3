//! A run as one page for people: figures, plots and tables in a single HTML file that fetches nothing.
//!
//! The plots are SVG and complete without a script; the script adds what the pointer is over. Colours follow the reader's
//! light or dark setting, and can be told apart with any kind of sight. Every name is escaped: it may come from a client.

mod axis;
mod escape;
mod heat;
mod lines;
mod number;
mod ranges;
mod tables;

use std::collections::BTreeMap;
use std::fmt::Write;

use axis::Axis;
use escape::escaped;
use heat::HeatMap;
use lines::{Line, LineChart};
use number::{counted_of, duration, figure, percent};
use ranges::{Range, RangeChart, Row};

use super::metrics::{Metrics, class_name};
use super::options::ReportOptions;
use super::saturation::Level;
use crate::sim::record::{Counts, InstanceSample, Judge, RequestRecord, RunRecord, Sample};

/// Lines beyond these could not be told apart: more endpoints make a heat map.
const MOST_LINES: usize = 7;
/// Points of a line over time. Of more samples, the largest of each few is drawn.
const MOST_POINTS: usize = 240;
/// Latencies below those of this share may stand at the very start of a logarithmic axis.
const NEGLIGIBLE: f64 = 0.01;
/// Columns of a heat map.
const MOST_COLUMNS: usize = 48;
/// Tenants whose waits are drawn; of more, those that waited longest.
const MOST_TENANTS: usize = 16;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page. `saturation` is what the detectors said in the end, if any looked.
pub fn page(
    record: &RunRecord,
    metrics: &Metrics,
    options: &ReportOptions,
    saturation: Option<&BTreeMap<String, Level>>,
) -> String {
    let names: Vec<_> = (0..record.instances.len())
        .map(|at| options.instance_name(at))
        .collect();
    let title = match options.title.as_str() {
        "" => "Simulated run",
        title => title,
    };
    let mut body = String::new();
    tables::heading(&mut body, title, metrics);
    tables::key_figures(&mut body, metrics, saturation);
    section(&mut body, "Latency", &latency_plots(record));
    section(&mut body, "Endpoints over time", &endpoint_plots(record, &names));
    let who = [decision_map(record, &names), tenant_waits(metrics)];
    section(&mut body, "Who was served, where and how soon", &who.concat());
    tables::groups(&mut body, metrics);
    tables::outcomes_and_anomalies(&mut body, metrics);
    tables::settings(&mut body, options);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        title = escaped(title),
    )
}

fn section(out: &mut String, title: &str, plots: &str) {
    if !plots.is_empty() {
        writeln!(out, "<h2>{title}</h2>\n<div class=\"plots\">\n{plots}</div>").expect("a String takes every text");
    }
}

fn latency_plots(record: &RunRecord) -> String {
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

fn endpoint_plots(record: &RunRecord, names: &[String]) -> String {
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

/// How many requests were sent to each endpoint, over time.
fn decision_map(record: &RunRecord, names: &[String]) -> String {
    let sent_at = |request: &RequestRecord| request.arrival_us + request.gateway_delay_us.unwrap_or(0);
    let sent = || {
        let placed = record.requests.iter();
        placed.filter_map(|request| Some((sent_at(request), request.instance? as usize)))
    };
    let Some(last) = sent().map(|(at, _)| at).max() else {
        return String::new();
    };
    let end_us = record.end_us.max(last).max(1);
    let columns = MOST_COLUMNS as u64;
    let width = end_us.div_ceil(columns).max(1);
    let mut rows: Vec<_> = names
        .iter()
        .map(|name| (name.clone(), vec![0.0; MOST_COLUMNS]))
        .collect();
    for (at, instance) in sent() {
        let column = usize::try_from(at / width).map_or(MOST_COLUMNS - 1, |column| column.min(MOST_COLUMNS - 1));
        if let Some((_, cells)) = rows.get_mut(instance) {
            cells[column] += 1.0;
        }
    }
    let total = sent().count() as u64;
    HeatMap {
        id: "decisions",
        title: "Decision map",
        note: format!(
            "{} by the endpoint that they were sent to, and when.",
            counted_of(total, "request")
        ),
        unit: "requests".to_owned(),
        x: Axis::time((width * columns) as f64),
        edges: (0..=columns).map(|column| (column * width) as f64).collect(),
        rows,
        label: figure,
    }
    .svg()
}

fn tenant_waits(metrics: &Metrics) -> String {
    let cluster = &metrics.cluster;
    let mut rows: Vec<_> = metrics
        .tenants
        .iter()
        .map(|(name, tenant)| (name.as_str(), &tenant.gateway_delay, &tenant.scheduling_delay))
        .collect();
    if rows.is_empty() {
        rows.push(("all requests", &cluster.gateway_delay, &cluster.scheduling_delay));
    }
    let found = rows.len();
    rows.sort_by(|(_, gateway, scheduling), (_, other_gateway, other_scheduling)| {
        let worst = scheduling.p99.us().max(gateway.p99.us());
        other_scheduling.p99.us().max(other_gateway.p99.us()).total_cmp(&worst)
    });
    rows.truncate(MOST_TENANTS);
    let is_queued = rows.iter().any(|(_, gateway, _)| gateway.count > 0);
    if rows
        .iter()
        .all(|(_, gateway, scheduling)| gateway.count + scheduling.count == 0)
    {
        return String::new();
    }
    let mut note = "Bar: median; line: 95th percentile; dot: 99th percentile.".to_owned();
    if found > MOST_TENANTS {
        write!(note, " The {MOST_TENANTS} of {found} tenants that waited longest.").expect("a String takes every text");
    }
    let mut kinds = vec!["from arrival into a batch"];
    if is_queued {
        kinds.insert(0, "at the gateway");
    }
    let rows = rows.into_iter().map(|(name, gateway, scheduling)| {
        let waits = [is_queued.then_some(gateway), Some(scheduling)];
        Row {
            name: name.to_owned(),
            ranges: waits.into_iter().flatten().map(Range::of).collect(),
        }
    });
    RangeChart {
        id: "waits",
        title: "Waits by tenant",
        note,
        kinds,
        rows: rows.collect(),
    }
    .svg()
}

/// A figure with its plot: caption, legend, SVG, and what the script shows at the pointer.
fn framed(id: &str, title: &str, note: &str, legend: &str, svg: &str, data: &str) -> String {
    format!(
        "<figure id=\"{id}\">\n<figcaption><h3>{title}</h3>{note}</figcaption>\n{legend}{svg}{data}</figure>\n",
        note = match note {
            "" => String::new(),
            note => format!("<p>{}</p>", escaped(note)),
        },
    )
}

/// Swatches with names, for the colours from the first.
fn legend<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let items = names.into_iter().enumerate();
    let items: String = items
        .map(|(at, name)| {
            format!(
                "<li class=\"c{0}\" title=\"{1}\">{1}</li>",
                at % MOST_LINES,
                escaped(name)
            )
        })
        .collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::record::Series;
    use crate::sim::report::testing::{completed, hand_checkable_run, mixed_run, of_class, of_tenant, request};

    fn page_of(record: &RunRecord, options: &ReportOptions) -> String {
        page(record, &Metrics::of(record, options), options, None)
    }

    #[test]
    fn a_page_asks_nothing_of_the_network() {
        let page = page_of(&mixed_run(), &ReportOptions::default());

        for what in ["http://", "https://", "src=", "href=", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(what);
            assert!(!found, "the page has `{what}`");
        }
    }

    #[test]
    fn names_of_clients_stay_text() {
        let hostile = "</script><script>alert('1')</script>\"&";
        let record = RunRecord {
            requests: vec![
                of_class(of_tenant(completed(0, 5_000, 9_000), hostile), hostile),
                completed(1, 6_000, 9_000),
            ],
            instances: vec![Default::default()],
            itl: vec![(Arc::from(hostile), Counts::default())],
            end_us: 10_000,
            ..RunRecord::default()
        };
        let options = ReportOptions {
            title: hostile.to_owned(),
            instance_names: vec![hostile.to_owned()],
            settings: vec![(hostile.to_owned(), hostile.into())],
            ..ReportOptions::default()
        };
        let page = page_of(&record, &options);

        assert!(!page.contains("<script>alert"));
        assert!(page.contains("&lt;script&gt;alert"));
    }

    #[test]
    fn a_run_in_which_nothing_happened_has_a_page_without_plots() {
        let page = page_of(&RunRecord::default(), &ReportOptions::default());

        assert!(!page.contains("<svg"));
        assert!(page.contains("Simulated run"));
    }

    #[test]
    fn a_run_that_serves_nobody_has_no_latencies_on_its_tiles() {
        let record = RunRecord {
            requests: vec![request(0), request(1)],
            end_us: 10_000,
            ..RunRecord::default()
        };
        let page = page_of(&record, &ReportOptions::default());

        for name in ["First token, p99", "Between tokens, p99", "Last token, p99"] {
            let tile = format!("<dt>{name}</dt><dd>–</dd><dd class=\"note\">nothing was measured</dd>");
            assert!(page.contains(&tile), "{name}");
        }
    }

    #[test]
    fn too_many_endpoints_for_lines_are_a_heat_map() {
        let (mut record, options) = hand_checkable_run();
        record.instances = vec![Default::default(); 8];
        record.series = Series {
            every_us: 1_000,
            judge: Judge::Detector,
            samples: vec![
                Sample {
                    instances: vec![InstanceSample::default(); 8],
                    ..Sample::default()
                };
                3
            ],
        };
        let page = page_of(&record, &options);
        let waiting = page
            .split("<figure")
            .find(|figure| figure.contains("id=\"waiting\""))
            .unwrap();

        assert_eq!(waiting.matches("class=\"cell\"").count(), 8 * 3);
    }

    #[test]
    fn plots_of_saturation_say_if_nothing_waits_for_it() {
        let (mut record, options) = hand_checkable_run();
        let said = "As a utilization detector would say; nothing waits for it here.";
        record.series = Series {
            every_us: 1_000,
            judge: Judge::Detector,
            samples: vec![Sample::default(); 3],
        };
        let by_the_detector = page_of(&record, &options);
        record.series.judge = Judge::Onlooker;
        let by_an_onlooker = page_of(&record, &options);

        assert_eq!(by_the_detector.matches(said).count(), 0);
        assert_eq!(by_an_onlooker.matches(said).count(), 2);
    }

    #[test]
    fn the_same_run_has_the_same_page() {
        let (record, options) = hand_checkable_run();

        assert_eq!(page_of(&record, &options), page_of(&record, &options));
    }
}
