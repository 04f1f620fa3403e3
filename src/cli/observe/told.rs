//! What is printed of an observed run.

use std::fmt::{self, Write};

use forebay::serve::observer::{KvCounters, Lateness, Observed, Options};
use forebay::sim::report::saturation::Detectors;
use forebay::sim::report::{self, GoodputTargets, Metrics, ReportOptions};
use forebay::sim::trace::Status;
use serde_json::json;

use super::args::ObserveArgs;
use crate::cli::simulate::args::Format;
use crate::cli::simulate::settings::Settings;
use crate::cli::target::Target;

/// Kinds of errors that are shown.
const ERRORS_SHOWN: usize = 5;

/// A run, and what there is to say of it.
pub(super) struct Told<'t> {
    pub(super) args: &'t ObserveArgs,
    /// What was to be sent.
    pub(super) workload: Settings,
    pub(super) seed: u64,
    pub(super) options: &'t Options,
    pub(super) observed: &'t Observed,
    pub(super) goodput: GoodputTargets,
    pub(super) detectors: Option<&'t Detectors>,
    pub(super) kv: Option<KvCounters>,
}

impl Told<'_> {
    /// All that is printed: what a simulated run prints, and what went otherwise than planned. Writes the page with plots
    /// on the way, if there is a place for it.
    ///
    /// # Errors
    ///
    /// If the page cannot be written.
    pub(super) fn text(&self, page: Option<Target>) -> anyhow::Result<String> {
        let mut record = self.observed.run_record();
        if let (Some(kv), Some(server)) = (self.kv, record.instances.first_mut()) {
            server.block_hits = kv.hits as u64;
            server.block_misses = (kv.queries - kv.hits).max(0.0) as u64;
        }
        let options = ReportOptions {
            title: format!("{} at {}", self.args.server.model, self.args.server.server_url),
            num_requests: record.requests.len() as u64,
            instance_names: vec![self.args.server.server_url.clone()],
            goodput: self.goodput.clone(),
            settings: self.settings(),
            workload: self.workload.clone(),
            ..ReportOptions::default()
        };
        let metrics = Metrics::of(&record, &options);
        let levels = self.detectors.map(|detectors| detectors.final_levels(&record));
        if let Some(page) = page {
            page.write(&report::html::page(&record, &metrics, &options, levels.as_ref()))?;
        }
        Ok(match self.args.output.output {
            Format::Json => format!("{}\n", report::json::document(&metrics, &options, levels.as_ref())),
            Format::Text => {
                let mut text = report::text::summary(&metrics, &options, levels.as_ref());
                self.section(&mut text).expect("a String takes every text");
                text
            }
        })
    }

    fn settings(&self) -> Settings {
        let Self { args, observed, .. } = self;
        let settings = [
            ("server_url", json!(args.server.server_url)),
            ("model", json!(args.server.model)),
            ("api_format", json!(args.server.api_format.name())),
            ("streaming", json!(self.options.streaming)),
            ("max_concurrency", json!(self.options.max_concurrency)),
            ("seed", json!(self.seed)),
            ("horizon_us", json!(args.pace.horizon)),
            ("tokens_per_word", json!(self.options.words.tokens_per_word())),
            (
                "observed",
                json!({
                    "warmed_up": observed.warmed_up,
                    "ok": observed.count(Status::Ok),
                    "error": observed.count(Status::Error),
                    "timeout": observed.count(Status::Timeout),
                    "incomplete": observed.count(Status::Incomplete),
                    "late_requests": observed.lateness.late,
                    "late_for_want_of_a_place": observed.lateness.waited,
                    "latest_us": observed.lateness.most_us,
                    "cut_short": observed.cut_short,
                }),
            ),
        ];
        settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn section(&self, out: &mut String) -> fmt::Result {
        let observed = self.observed;
        writeln!(out, "=== Observation ===")?;
        if observed.cut_short {
            writeln!(out, "Cut short: the run was stopped before its end")?;
        }
        let seconds = observed.end_us as f64 / 1e6;
        writeln!(out, "Requests: {} in {seconds:.1} s", observed.stories.len())?;
        if observed.warmed_up > 0 {
            writeln!(out, "Requests to warm up: {}", observed.warmed_up)?;
        }
        for status in [Status::Ok, Status::Error, Status::Timeout, Status::Incomplete] {
            let count = observed.count(status);
            if count > 0 || status == Status::Ok {
                writeln!(out, "  {status}: {count}")?;
            }
        }
        let errors = observed.errors();
        for (count, message) in errors.iter().take(ERRORS_SHOWN) {
            writeln!(out, "  {count} x {message}")?;
        }
        if errors.len() > ERRORS_SHOWN {
            writeln!(out, "  and {} other errors; see the trace", errors.len() - ERRORS_SHOWN)?;
        }
        if observed.lateness.late > 0 {
            let Lateness { late, waited, most_us } = observed.lateness;
            let (latest_ms, most) = (most_us as f64 / 1000.0, self.options.max_concurrency);
            writeln!(
                out,
                "Sent late: {late}, by {latest_ms:.0} ms at most; latencies count from sending"
            )?;
            if waited > 0 {
                writeln!(
                    out,
                    "  {waited} waited for a place: {most} were under way (`--max-concurrency`)"
                )?;
            }
            if late > waited {
                writeln!(out, "  {} because this machine was busy", late - waited)?;
            }
        }
        if self.args.server.unconstrained_output {
            let limited = observed.stories.iter();
            let limited = limited.filter(|story| &*story.row.finish_reason == "length").count();
            if limited > 0 {
                writeln!(out, "Cut off by a limit of the server: {limited} answers")?;
            }
        }
        Ok(())
    }
}
