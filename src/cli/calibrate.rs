//! `forebay calibrate`: how well a simulation tells what a server does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use forebay::sim::report::calibrate::{
    Accuracy, CalibrateOptions, Calibration, HitRates, Quality, Setting, TraceRow, calibrate, read_results,
};
use forebay::sim::trace::{Header, Row, Status, read_itl};
use serde_json::Value;

use super::goodput::GoodputArgs;
use super::print::print;
use super::simulate::exit;
use super::simulate::requests::read_trace;
use super::source;
use super::target::Target;
use super::units;

/// The difference of hit rates that is tolerated where nothing is said, in percentage points.
const HIT_RATE_TOLERANCE_PP: f64 = 5.0;

/// Compares a trace of a real server with a simulation of it
///
/// The trace is what `observe` wrote, the results are what `replay --results-path` made of it.
#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// The header of the trace
    #[arg(long, value_name = "FILE")]
    trace_header: PathBuf,
    /// The requests of the trace
    #[arg(long, value_name = "FILE")]
    trace_data: PathBuf,
    /// The results of the simulation, of `--results-path`
    #[arg(long, value_name = "FILE")]
    sim_results: PathBuf,
    /// Where the report is written
    #[arg(long, value_name = "FILE")]
    report: PathBuf,
    /// The times of the pieces of the answers, of `observe --itl-output`
    #[arg(long, value_name = "FILE")]
    itl_data: Option<PathBuf>,
    /// What else the simulation said, of `--metrics-path` or `--output json`: hit rate and settings are compared
    #[arg(long, value_name = "FILE")]
    sim_metrics: Option<PathBuf>,
    /// Requests at the start that are left out; below 0 is what the trace says
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    warmup_requests: i64,
    /// Round trip to the server in microseconds; below 0 is what the trace says
    #[arg(long, value_name = "US", default_value_t = -1.0, allow_negative_numbers = true, value_parser = units::finite)]
    network_rtt_us: f64,
    /// Bandwidth to the server; 0 is without end
    #[arg(long, value_name = "MBPS", default_value_t = 0.0, value_parser = units::not_negative)]
    network_bandwidth_mbps: f64,
    /// The mean error of the time to first token that is tolerated, as a fraction
    #[arg(long, value_name = "SHARE", default_value_t = 0.15, value_parser = units::fraction)]
    ttft_mape_threshold: f64,
    /// The difference of the hit rates that is tolerated, in percentage points [default: 5]
    #[arg(long, value_name = "PP", value_parser = units::not_negative)]
    hit_rate_tolerance_pp: Option<f64>,
    #[command(flatten)]
    goodput: GoodputArgs,
    /// Writes over a report that is there
    #[arg(long)]
    force: bool,
}

/// Compares.
pub(crate) fn run(args: &CalibrateArgs) -> ExitCode {
    exit(compared(args).map(|(report, unanswered, target)| {
        target.write(&format!("{}\n", report.json()))?;
        print(&told(&report, unanswered))
    }))
}

/// The report, how many requests of the trace had no answer, and where the report goes.
fn compared(args: &CalibrateArgs) -> anyhow::Result<(Calibration, usize, Target)> {
    let (header, rows) = read_trace(&args.trace_header, &args.trace_data)?;
    let text = source::text(&args.sim_results, "sim-results")?;
    let results = read_results(&text).with_context(|| format!("{}", args.sim_results.display()))?;
    let gaps = gaps(args)?;
    let recorded = rows.len();
    let rows: Vec<TraceRow> = rows
        .iter()
        .filter(|row| row.status == Status::Ok)
        .map(|row| traced(row, gaps.get(&row.request_id).copied()))
        .collect();
    let said: Value = match &args.sim_metrics {
        None => Value::Null,
        Some(path) => serde_json::from_str(&source::text(path, "sim-metrics")?)
            .with_context(|| format!("{} is no JSON", path.display()))?,
    };
    if let Some(path) = &args.sim_metrics {
        ensure!(
            said.get("settings").is_some() || sim_hit_rate(&said).is_some(),
            "`--sim-metrics`: {} has neither `settings` nor `cache_hit_rate`; give what `--metrics-path` or `--output json` \
             wrote",
            path.display()
        );
    }
    let hit_rates = hit_rates(&header, &said);
    if args.hit_rate_tolerance_pp.is_some() && hit_rates.is_none() {
        eprintln!(
            "warning: `--hit-rate-tolerance-pp` has no effect: hit rates are compared if the trace has one (`observe \
             --scrape-kv-metrics`) and `--sim-metrics` is given"
        );
    }
    let options = CalibrateOptions {
        warm_up_requests: u64::try_from(args.warmup_requests).unwrap_or(header.warm_up_requests),
        network_rtt_us: match args.network_rtt_us {
            given if given >= 0.0 => given,
            _ => {
                header
                    .network
                    .and_then(|network| network.measured_rtt_ms)
                    .unwrap_or(0.0)
                    * 1000.0
            }
        },
        network_bandwidth_mbps: Some(args.network_bandwidth_mbps).filter(|&bandwidth| bandwidth > 0.0),
        ttft_mape_threshold: args.ttft_mape_threshold,
        hit_rate_tolerance_pp: args.hit_rate_tolerance_pp.unwrap_or(HIT_RATE_TOLERANCE_PP),
        hit_rates,
        goodput: args.goodput.targets(&header.goodput_slo_targets)?,
        settings: settings(&header, &said),
        known_limitations: Vec::new(),
    };
    let report = calibrate(&rows, &results, &options);
    ensure!(
        !rows.is_empty(),
        "no request of {} was answered",
        args.trace_data.display()
    );
    ensure!(
        report.trace_info.warm_up_excluded < rows.len() as u64,
        "every request of {} that was answered was one of the {} to warm up",
        args.trace_data.display(),
        options.warm_up_requests
    );
    ensure!(
        report.trace_info.matched_pairs > 0,
        "no request of the trace is in the results: {} and {} do not belong together",
        args.trace_data.display(),
        args.sim_results.display()
    );
    Ok((report, recorded - rows.len(), Target::open(&args.report, args.force)?))
}

/// A request of the trace, as the comparison wants it. Times of a trace fit into 63 bits.
fn traced(row: &Row, itl_mean_us: Option<f64>) -> TraceRow {
    TraceRow {
        request_id: row.request_id,
        sent_us: row.sent_us().cast_signed(),
        first_chunk_us: row.first_chunk_time_us.cast_signed(),
        last_chunk_us: row.last_chunk_time_us.cast_signed(),
        input_tokens: row.prompt_tokens(),
        output_tokens: row.output_tokens,
        itl_mean_us,
        slo_class: row.slo_class.to_string(),
    }
}

/// The mean time between the pieces of each answer.
fn gaps(args: &CalibrateArgs) -> anyhow::Result<BTreeMap<u64, f64>> {
    let Some(path) = &args.itl_data else {
        return Ok(BTreeMap::new());
    };
    let text = source::text(path, "itl-data")?;
    let rows = read_itl(text.as_bytes(), &path.display().to_string())?;
    let mut spans: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    for row in rows {
        let span = spans
            .entry(row.request_id)
            .or_insert((row.timestamp_us, row.timestamp_us, 0));
        span.1 = row.timestamp_us;
        span.2 += 1;
    }
    let mean = |(id, (first, last, count)): (u64, (u64, u64, u64))| {
        (count > 1).then(|| (id, (last as f64 - first as f64) / (count - 1) as f64))
    };
    Ok(spans.into_iter().filter_map(mean).collect())
}

fn hit_rates(header: &Header, said: &Value) -> Option<HitRates> {
    let observed = header.observed_kv_metrics.as_ref()?;
    Some(HitRates {
        real: observed.hit_rate?,
        sim: sim_hit_rate(said)?,
        source: observed.source.clone().unwrap_or_default(),
    })
}

/// The hit rate that a simulation reported, ours or that of the reference.
fn sim_hit_rate(said: &Value) -> Option<f64> {
    let rate = said.get("cache_hit_rate");
    rate.or_else(|| said.pointer("/kv_cache/cache_hit_rate"))?.as_f64()
}

/// What the header says of the server, beside what was simulated.
fn settings(header: &Header, said: &Value) -> Vec<Setting> {
    let server = header.server.clone().unwrap_or_default();
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    let pairs = [
        ("model", server.model),
        ("tp", text(server.tensor_parallel)),
        ("max_num_seqs", text(server.max_num_seqs)),
        ("block_size_in_tokens", text(server.block_size)),
        (
            "gpu_memory_utilization",
            server.gpu_memory_utilization.map(|share| share.to_string()),
        ),
        ("max_model_len", text(server.max_model_len)),
    ];
    pairs
        .into_iter()
        .filter_map(|(name, traced)| {
            let simulated = match said.pointer("/settings").and_then(|settings| settings.get(name))? {
                Value::String(text) => text.clone(),
                Value::Null => return None,
                other => other.to_string(),
            };
            Some(Setting {
                name: name.to_owned(),
                traced,
                simulated,
            })
        })
        .collect()
}

/// The report in a few lines.
fn told(report: &Calibration, unanswered: usize) -> String {
    let info = &report.trace_info;
    let all = info.num_requests + unanswered as u64;
    let mut text = format!("matched requests: {} of {all}", info.matched_pairs);
    if info.warm_up_excluded > 0 {
        text += &format!("; {} were sent to warm up", info.warm_up_excluded);
    }
    if unanswered > 0 {
        text += &format!("; {unanswered} had no answer");
    }
    text.push('\n');
    for (metric, accuracy) in &report.metrics {
        let Accuracy {
            workload_level,
            request_level,
            ..
        } = accuracy;
        let quality = match request_level.quality {
            Quality::Excellent => "excellent",
            Quality::Good => "good",
            Quality::Fair => "fair",
            Quality::Poor => "poor",
        };
        text += &format!(
            "{metric:>5}: mean {:.1} ms real, {:.1} ms simulated; MAPE {:.1} %, Pearson r {:.3}: {quality}\n",
            workload_level.real_mean / 1000.0,
            workload_level.sim_mean / 1000.0,
            100.0 * request_level.mape,
            request_level.pearson_r,
        );
    }
    text
}
