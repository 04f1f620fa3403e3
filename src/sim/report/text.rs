//! The figures as the text that a run prints (spec, simulator 28.2 and 28.3).

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::json;
use super::metrics::{Metrics, SessionMetrics};
use super::options::{ReportOptions, TraceSummary};
use super::saturation::Level;

/// Everything that a run prints: JSON blocks, of each instance if there are several and of the cluster, then the
/// sections that have something to say. `saturation` is what the detectors said in the end, if any looked.
pub fn summary(metrics: &Metrics, options: &ReportOptions, saturation: Option<&BTreeMap<String, Level>>) -> String {
    let mut text = String::new();
    if metrics.instances.len() > 1 {
        for block in &metrics.instances {
            text += &metrics_block(&json::instance_block(block));
        }
    }
    text += &metrics_block(&json::cluster_block(metrics, saturation));
    sections(&mut text, metrics, options).expect("a String takes every text");
    text
}

fn metrics_block(json: &str) -> String {
    format!("=== Simulation Metrics ===\n{json}\n")
}

fn sections(out: &mut String, metrics: &Metrics, options: &ReportOptions) -> fmt::Result {
    fitness(out, metrics)?;
    anomalies(out, metrics)?;
    kv_cache(out, metrics)?;
    classes(out, metrics)?;
    models(out, metrics)?;
    tenants(out, metrics)?;
    if let Some(metrics) = &metrics.sessions {
        sessions(out, metrics)?;
    }
    if let Some(summary) = &options.trace {
        trace(out, summary)?;
    }
    Ok(())
}

fn fitness(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let Some(fitness) = &metrics.fitness else { return Ok(()) };
    writeln!(out, "=== Fitness Evaluation ===")?;
    writeln!(out, "Score: {:.6}", fitness.score)?;
    for (name, value) in &fitness.components {
        writeln!(out, "  {name}: {value:.6}")?;
    }
    Ok(())
}

fn anomalies(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let anomalies = &metrics.anomalies;
    if anomalies.is_empty() {
        return Ok(());
    }
    writeln!(out, "=== Anomaly Counters ===")?;
    let (always, sometimes) = anomalies.named();
    let (before, after) = always.split_at(2);
    for (name, count) in before {
        writeln!(out, "{name}: {count}")?;
    }
    writeln!(out, "Rejected Requests (Admission): {}", anomalies.rejected_admission)?;
    for (class, count) in &anomalies.shed_by_class {
        writeln!(out, "  Shed ({class}): {count}")?;
    }
    for (name, count) in after.iter().chain(sometimes.iter().filter(|&&(_, count)| count > 0)) {
        writeln!(out, "{name}: {count}")?;
    }
    Ok(())
}

fn kv_cache(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let kv = &metrics.kv;
    let rates = [
        ("Preemption Rate", kv.preemption_rate),
        ("Cache Hit Rate", kv.cache_hit_rate),
        ("KV Thrashing Rate", kv.thrashing_rate),
    ];
    if rates.iter().all(|&(_, rate)| rate == 0.0) {
        return Ok(());
    }
    writeln!(out, "=== KV Cache Metrics ===")?;
    for (name, rate) in rates {
        writeln!(out, "{name}: {rate:.4}")?;
    }
    Ok(())
}

fn classes(out: &mut String, metrics: &Metrics) -> fmt::Result {
    if metrics.classes.is_empty() || (metrics.classes.len() == 1 && metrics.goodput.is_none()) {
        return Ok(());
    }
    writeln!(out, "=== Per-SLO Metrics ===")?;
    for (class, figures) in &metrics.classes {
        writeln!(out, "  {class}:")?;
        for (name, latency) in [
            ("TTFT:", &figures.ttft),
            ("ITL: ", &figures.mean_itl),
            ("E2E: ", &figures.e2e),
        ] {
            let (mean, p99, n) = (latency.mean.us(), latency.p99.us(), latency.count);
            writeln!(out, "    {name} mean={mean:.2} p99={p99:.2} (n={n})")?;
        }
    }
    Ok(())
}

fn models(out: &mut String, metrics: &Metrics) -> fmt::Result {
    if metrics.models.is_empty() {
        return Ok(());
    }
    writeln!(out, "=== Per-Model Metrics ===")?;
    for (model, figures) in &metrics.models {
        writeln!(out, "  {model}:")?;
        for (name, latency) in [("TTFT:", &figures.ttft), ("E2E: ", &figures.e2e)] {
            let (p50, p99, n) = (latency.p50.us(), latency.p99.us(), latency.count);
            writeln!(out, "    {name} p50={p50:.2} p99={p99:.2} (n={n})")?;
        }
        let (requests, tokens) = (figures.responses_per_sec, figures.tokens_per_sec);
        writeln!(out, "    Throughput: {requests:.2} req/s, {tokens:.2} tok/s")?;
    }
    Ok(())
}

fn tenants(out: &mut String, metrics: &Metrics) -> fmt::Result {
    let Some(jain) = metrics.jain else { return Ok(()) };
    writeln!(out, "=== Per-Tenant Metrics ===")?;
    for (tenant, figures) in &metrics.tenants {
        let (requests, tokens) = (figures.e2e.count, figures.tokens_served);
        writeln!(out, "  {tenant}: requests={requests}, tokens={tokens}")?;
    }
    writeln!(out, "  Jain Fairness Index: {jain:.4}")
}

fn sessions(out: &mut String, sessions: &SessionMetrics) -> fmt::Result {
    writeln!(out, "=== Session Metrics ===")?;
    writeln!(out, "  Sessions: {}", sessions.sessions)?;
    let rows = [
        ("TTFT cold (round 0):", &sessions.ttft_cold),
        ("TTFT warm (round≥1):", &sessions.ttft_warm),
        ("Session duration:   ", &sessions.duration),
    ];
    for (name, latency) in rows.into_iter().filter(|(_, latency)| latency.count > 0) {
        let [mean, p50, p95, p99] = [latency.mean, latency.p50, latency.p95, latency.p99].map(super::Latency::ms);
        let n = latency.count;
        writeln!(
            out,
            "  {name} mean={mean:.2} p50={p50:.2} p95={p95:.2} p99={p99:.2} ms (n={n})"
        )?;
    }
    Ok(())
}

fn trace(out: &mut String, trace: &TraceSummary) -> fmt::Result {
    writeln!(out, "=== Trace Summary ===")?;
    writeln!(out, "Total Decisions: {}", trace.decisions)?;
    writeln!(out, "  Admitted: {}", trace.admitted)?;
    writeln!(out, "  Rejected: {}", trace.rejected)?;
    writeln!(out, "Unique Targets: {}", trace.unique_targets)?;
    if !trace.distribution.is_empty() {
        writeln!(out, "Target Distribution:")?;
        for (instance, count) in &trace.distribution {
            writeln!(out, "  {instance}: {count}")?;
        }
    }
    writeln!(out, "Mean Regret: {:.6}", trace.mean_regret)?;
    writeln!(out, "Max Regret: {:.6}", trace.max_regret)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sim::report::goodput::Dimension;
    use crate::sim::report::testing::{hand_checkable_run, mixed_run, of_model};
    use crate::sim::request::SessionRound;

    #[test]
    fn a_run_of_one_instance_prints_one_block_and_what_is_worth_a_section() {
        let (record, options) = hand_checkable_run();

        insta::assert_snapshot!(summary(&Metrics::of(&record, &options), &options, None));
    }

    #[test]
    fn a_run_with_something_of_everything_prints_every_section_in_order() {
        let mut record = mixed_run();
        record.requests[0] = of_model(record.requests[0].clone(), "qwen/qwen3-14b");
        record.requests[0].session = Some(SessionRound {
            session: Arc::from("talk"),
            round: 0,
            context_tokens: 0,
            think_us: 0,
        });
        let mut options = ReportOptions {
            num_requests: 13,
            fitness: Some("p99_ttft:1,throughput:0.5".parse().unwrap()),
            trace: Some(TraceSummary {
                decisions: 12,
                admitted: 11,
                rejected: 1,
                unique_targets: 2,
                distribution: vec![("instance_0".to_owned(), 2), ("instance_1".to_owned(), 4)],
                mean_regret: 4.09,
                max_regret: 15.0,
            }),
            ..ReportOptions::default()
        };
        options.goodput.add(Dimension::Ttft, "critical=100ms").unwrap();
        let saturation = BTreeMap::from([("composite".to_owned(), Level::Stable)]);

        insta::assert_snapshot!(summary(&Metrics::of(&record, &options), &options, Some(&saturation)));
    }
}
