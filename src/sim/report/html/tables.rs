//! The parts of the page that are text and tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::escape::escaped;
use super::number::{counted, counted_of, duration, figure, percent};
use crate::sim::record::End;
use crate::sim::report::distribution::{Distribution, Latency};
use crate::sim::report::metrics::{Block, GroupMetrics, Metrics};
use crate::sim::report::options::ReportOptions;
use crate::sim::report::saturation::Level;
use crate::sim::report::tally::Tally;

const TAKEN: &str = "a String takes every text";

pub(super) fn heading(out: &mut String, title: &str, metrics: &Metrics) {
    let (cluster, instances) = (&metrics.cluster, metrics.instances.len());
    let summary = format!(
        "{}, {}, {} of simulated time",
        counted_of(cluster.tally.total(), "request"),
        counted_of(instances as u64, "instance"),
        duration(cluster.duration_s * 1e6),
    );
    writeln!(out, "<h1>{}</h1>\n<p class=\"lead\">{summary}</p>", escaped(title)).expect(TAKEN);
    match &metrics.conservation {
        Ok(_) => {}
        Err(violation) => {
            let violation = violation.to_string();
            writeln!(
                out,
                "<p class=\"alarm\" role=\"alert\">Do not trust these figures: {}.</p>",
                escaped(&violation)
            )
            .expect(TAKEN);
        }
    }
}

pub(super) fn key_figures(out: &mut String, metrics: &Metrics, saturation: Option<&BTreeMap<String, Level>>) {
    let cluster = &metrics.cluster;
    let total = cluster.tally.total();
    let completed = cluster.tally[End::Completed];
    let p50_and_p99 = |of: &Distribution| {
        let note = match of.count {
            0 => "nothing was measured".to_owned(),
            _ => format!("median {}", duration(of.p50.us())),
        };
        (latency(of, of.p99), note)
    };
    let mut tiles = vec![
        (
            "Completed",
            percent(completed as f64 / total.max(1) as f64),
            format!("{} of {}", counted(completed), counted(total)),
        ),
        (
            "Throughput",
            format!("{} /s", figure(cluster.responses_per_sec)),
            format!("{} tokens/s", figure(cluster.tokens_per_sec)),
        ),
    ];
    for (name, of) in [
        ("First token, p99", &cluster.ttft),
        ("Between tokens, p99", &cluster.itl),
        ("Last token, p99", &cluster.e2e),
    ] {
        let (p99, p50) = p50_and_p99(of);
        tiles.push((name, p99, p50));
    }
    tiles.push((
        "KV blocks found",
        percent(metrics.kv.cache_hit_rate),
        counted_of(cluster.preemptions, "preemption"),
    ));
    if let Some(goodput) = &metrics.goodput {
        let rps = format!("{} /s good", figure(goodput.rps));
        tiles.push(("Promises kept", percent(goodput.attainment), rps));
    }
    if let Some(jain) = metrics.jain {
        let tenants = format!("Jain, {} tenants", counted(metrics.tenants.len() as u64));
        tiles.push(("Fairness", figure(jain), tenants));
    }
    if let Some(fitness) = &metrics.fitness {
        let parts: Vec<_> = fitness.components.keys().copied().collect();
        tiles.push(("Fitness", figure(fitness.score), parts.join(", ")));
    }
    for (detector, level) in saturation.into_iter().flatten() {
        let level = match level {
            Level::Stable => "stable",
            Level::Backlogged => "backlogged",
            Level::Overloaded => "overloaded",
        };
        tiles.push(("Load, in hindsight", level.to_owned(), detector.clone()));
    }
    writeln!(out, "<dl class=\"tiles\">").expect(TAKEN);
    for (name, value, note) in tiles {
        writeln!(
            out,
            "<div><dt>{name}</dt><dd>{}</dd><dd class=\"note\">{}</dd></div>",
            escaped(&value),
            escaped(&note)
        )
        .expect(TAKEN);
    }
    writeln!(out, "</dl>").expect(TAKEN);
}

/// Tables of classes, tenants, models and instances, those with something in them.
pub(super) fn groups(out: &mut String, metrics: &Metrics) {
    group(out, "By SLO class", "classes", "class", &metrics.classes);
    group(out, "By tenant", "tenants", "tenant", &metrics.tenants);
    if metrics.models.len() > 1 {
        group(out, "By model", "models", "model", &metrics.models);
    }
    instances(out, &metrics.instances);
}

fn group(out: &mut String, title: &str, id: &str, kind: &str, groups: &BTreeMap<String, GroupMetrics>) {
    if groups.is_empty() {
        return;
    }
    let mut columns = vec![
        "requests",
        "completed",
        "turned away",
        "tokens",
        "req/s",
        "TTFT p50",
        "TTFT p99",
    ];
    let with_itl = groups.values().any(|group| group.itl.is_some());
    if with_itl {
        columns.push("ITL p99");
    }
    columns.extend(["E2E p50", "E2E p99", "gateway wait p99"]);
    let rows = groups.iter().map(|(name, group)| {
        let mut cells = vec![
            counted(group.tally.total()),
            counted(group.tally[End::Completed]),
            counted(turned_away(&group.tally)),
            counted(group.tokens_served),
            figure(group.responses_per_sec),
            latency(&group.ttft, group.ttft.p50),
            latency(&group.ttft, group.ttft.p99),
        ];
        if with_itl {
            let itl = group.itl.as_ref();
            cells.push(itl.map_or_else(|| "–".to_owned(), |itl| latency(itl, itl.p99)));
        }
        cells.extend([
            latency(&group.e2e, group.e2e.p50),
            latency(&group.e2e, group.e2e.p99),
            latency(&group.gateway_delay, group.gateway_delay.p99),
        ]);
        (name.as_str(), cells)
    });
    table(out, title, id, kind, &columns, rows);
}

/// Requests that got no token because the gateway said no.
fn turned_away(tally: &Tally) -> u64 {
    let ends = [
        End::Rejected,
        End::RoutingRejected,
        End::GatewayShed,
        End::GatewayRejected,
        End::GatewayExpired,
    ];
    ends.into_iter().map(|end| tally[end]).sum()
}

fn instances(out: &mut String, blocks: &[Block]) {
    let columns = [
        "requests",
        "completed",
        "tokens out",
        "TTFT p99",
        "E2E p99",
        "mean queue",
        "preemptions",
        "KV found",
        "peak KV blocks",
    ];
    let rows = blocks.iter().map(|block| {
        let cells = vec![
            counted(block.tally.total()),
            counted(block.tally[End::Completed]),
            counted(block.output_tokens),
            latency(&block.ttft, block.ttft.p99),
            latency(&block.e2e, block.e2e.p99),
            figure(block.mean_waiting),
            counted(block.preemptions),
            percent(block.cache_hit_rate),
            counted(u64::from(block.peak_kv_blocks)),
        ];
        (block.name.as_str(), cells)
    });
    if !blocks.is_empty() {
        table(out, "By endpoint", "instances", "endpoint", &columns, rows);
    }
}

/// A latency, or a dash where nothing was measured.
fn latency(of: &Distribution, latency: Latency) -> String {
    match of.count {
        0 => "–".to_owned(),
        _ => duration(latency.us()),
    }
}

fn table<'a>(
    out: &mut String,
    title: &str,
    id: &str,
    kind: &str,
    columns: &[&str],
    rows: impl Iterator<Item = (&'a str, Vec<String>)>,
) {
    let columns: String = columns
        .iter()
        .map(|column| format!("<th scope=\"col\">{column}</th>"))
        .collect();
    writeln!(
        out,
        "<h2>{title}</h2>\n<div class=\"scroll\"><table id=\"{id}\">\n<thead><tr><th scope=\"col\">{kind}</th>{columns}</tr></thead>\n<tbody>"
    )
    .expect(TAKEN);
    for (name, cells) in rows {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        writeln!(out, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escaped(name)).expect(TAKEN);
    }
    writeln!(out, "</tbody></table></div>").expect(TAKEN);
}

/// Where requests ended, and what should not have happened.
pub(super) fn outcomes_and_anomalies(out: &mut String, metrics: &Metrics) {
    let tally = &metrics.cluster.tally;
    let total = tally.total().max(1) as f64;
    writeln!(
        out,
        "<div class=\"columns\">\n<section>\n<h2>Where requests ended</h2>\n<table id=\"outcomes\">\n<tbody>"
    )
    .expect(TAKEN);
    for (end, count) in tally.iter().filter(|&(_, count)| count > 0) {
        let share = count as f64 / total;
        writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"share\"><span style=\"width:{:.2}%\"></span></td><td>{}</td><td>{}</td></tr>",
            end.name(),
            share * 100.0,
            counted(count),
            percent(share),
        )
        .expect(TAKEN);
    }
    writeln!(
        out,
        "</tbody></table>\n</section>\n<section>\n<h2>Anomaly counters</h2>\n<table id=\"anomalies\">\n<tbody>"
    )
    .expect(TAKEN);
    let (always, sometimes) = metrics.anomalies.named();
    let rejected = ("Rejected Requests (Admission)", metrics.anomalies.rejected_admission);
    for (name, count) in always.into_iter().chain([rejected]).chain(sometimes) {
        let mark = if count > 0 { " class=\"some\"" } else { "" };
        writeln!(
            out,
            "<tr{mark}><th scope=\"row\">{name}</th><td>{}</td></tr>",
            counted(count)
        )
        .expect(TAKEN);
    }
    for (class, count) in &metrics.anomalies.shed_by_class {
        writeln!(
            out,
            "<tr class=\"some\"><th scope=\"row\">Shed ({})</th><td>{}</td></tr>",
            escaped(class),
            counted(*count)
        )
        .expect(TAKEN);
    }
    writeln!(out, "</tbody></table>\n</section>\n</div>").expect(TAKEN);
}

pub(super) fn settings(out: &mut String, options: &ReportOptions) {
    list(out, "Settings", &options.settings);
    list(out, "Workload", &options.workload);
}

fn list(out: &mut String, title: &str, settings: &[(String, Value)]) {
    if settings.is_empty() {
        return;
    }
    writeln!(out, "<h2>{title}</h2>\n<dl class=\"settings\">").expect(TAKEN);
    for (name, value) in settings {
        let value = match value {
            Value::String(text) if text.is_empty() => "–".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(&value)).expect(TAKEN);
    }
    writeln!(out, "</dl>").expect(TAKEN);
}
