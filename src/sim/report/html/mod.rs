//! A run as one page for people: figures, plots and tables in a single HTML file that fetches nothing.
//!
//! The plots are SVG and complete without a script; the script adds what the pointer is over. Colours follow the reader's
//! light or dark setting, and can be told apart with any kind of sight. Every name is escaped: it may come from a client.

mod axis;
mod decisions;
mod escape;
mod heat;
mod latencies;
mod lines;
mod number;
mod over_time;
mod ranges;
mod tables;
mod waits;

use std::collections::BTreeMap;
use std::fmt::Write;

use escape::escaped;

use super::metrics::Metrics;
use super::options::ReportOptions;
use super::saturation::Level;
use crate::sim::record::RunRecord;

/// Lines beyond these could not be told apart: more endpoints make a heat map.
const MOST_LINES: usize = 7;
/// Columns of a heat map.
const MOST_COLUMNS: usize = 48;

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
    section(&mut body, "Latency", &latencies::plots(record));
    section(&mut body, "Endpoints over time", &over_time::plots(record, &names));
    let who = [decisions::map(record, &names), waits::plot(metrics)];
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
    use crate::sim::record::{Counts, InstanceSample, Judge, Sample, Series};
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
