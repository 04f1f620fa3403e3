//! What is said of a run, and where it is written.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::anyhow;
use forebay::engine::journal::{FORMAT, Header, Recorder};
use forebay::sim::cluster::{DecisionSink, Summary, TraceOptions};
use forebay::sim::record::{RunRecord, instance_name};
use forebay::sim::report::calibrate::{results_of, write_results};
use forebay::sim::report::saturation::{Detectors, Level};
use forebay::sim::report::{self, FitnessWeights, GoodputTargets, Metrics, ReportOptions, TraceSummary};
use forebay::sim::trace::{Row, write_rows};

use super::args::{Format, OutputArgs, TraceLevel};
use super::lines::{JournalLines, Lines};
use super::requests::Requests;
use super::setup::Setup;
use crate::cli::print::print;
use crate::cli::target::Target;

/// What a run is said to have been.
#[derive(Debug)]
pub(in crate::cli) struct Told<'t> {
    pub(in crate::cli) setup: &'t Setup,
    pub(in crate::cli) requests: &'t Requests,
    pub(in crate::cli) record: &'t RunRecord,
    pub(in crate::cli) rows: Option<Vec<Row>>,
    pub(in crate::cli) summary: Option<Summary>,
}

/// Where everything goes that is said of a run. Files are opened before it begins.
#[derive(Debug)]
pub(in crate::cli) struct Outputs {
    args: OutputArgs,
    fitness: Option<FitnessWeights>,
    goodput: GoodputTargets,
    detectors: Option<Detectors>,
    report: Option<Target>,
    metrics: Option<Target>,
    results: Option<Target>,
    trace: Option<(Target, Target)>,
    saturation: Option<Target>,
    decisions: Option<Lines>,
    journal: Option<JournalLines>,
}

impl Outputs {
    /// Opens every file that is asked for, and understands what is asked of the reports.
    ///
    /// # Errors
    ///
    /// If a file is there already, or a flag makes no sense. No file is left behind then.
    pub(in crate::cli) fn open(args: &OutputArgs, requests: &Requests) -> anyhow::Result<Self> {
        let fitness = args.fitness()?;
        let detectors = args.saturation.asked()?;
        let goodput = args.goodput.targets(requests.targets())?;
        let mut opened: Vec<PathBuf> = Vec::new();
        let mut open = |path: &Option<PathBuf>| -> anyhow::Result<Option<Target>> {
            let Some(path) = path else { return Ok(None) };
            let target = match opened.contains(path) {
                true => Err(anyhow!(
                    "{} is named for two outputs; each needs a file of its own",
                    path.display()
                )),
                false => Target::open(path, args.force),
            };
            opened.push(path.clone());
            target.map(Some)
        };
        let report = open(&args.report)?;
        let metrics = open(&args.metrics_path)?;
        let results = open(&args.results_path)?;
        let with = |suffix: &str| {
            let prefix = args.trace_output.as_ref()?;
            Some(PathBuf::from(format!("{}.{suffix}", prefix.display())))
        };
        let trace = open(&with("yaml"))?.zip(open(&with("csv"))?);
        let saturation = open(&args.saturation.saturation_report)?;
        let decisions = open(&args.decision_trace)?;
        let journal = open(&args.journal)?;
        Ok(Self {
            args: args.clone(),
            fitness,
            goodput,
            detectors,
            report,
            metrics,
            results,
            trace,
            saturation,
            // Nothing is refused any more.
            decisions: decisions.map(Lines::to).transpose()?,
            journal: journal.map(Lines::to).transpose()?.map(JournalLines::new),
        })
    }

    pub(in crate::cli) fn wants_rows(&self) -> bool {
        self.trace.is_some()
    }

    pub(in crate::cli) fn wants_summary(&self) -> bool {
        self.args.summarize_trace
            || self.args.trace_level == Some(TraceLevel::Decisions)
            || self.args.report.is_some()
            || self.args.output == Format::Json
    }

    /// Where the decisions of a run of `setup` go, while it is under way.
    pub(in crate::cli) fn sinks(&mut self, setup: &Setup) -> TraceOptions<'_> {
        if let Some(journal) = &self.journal {
            journal.add(&Header {
                format: FORMAT,
                seed: setup.scenario.seed,
                cache_source: true,
                config: setup.config.text().to_owned(),
            });
        }
        TraceOptions {
            sink: self.decisions.as_mut().map(|lines| lines as &mut dyn DecisionSink),
            journal: self.journal.clone().map(|lines| Box::new(lines) as Box<dyn Recorder>),
            candidates: self.args.counterfactual_k.filter(|&k| k > 0),
            regret: setup.regret,
            summary: None,
        }
    }

    pub(in crate::cli) fn sinks_written(&mut self) -> io::Result<()> {
        self.decisions.as_mut().map_or(Ok(()), Lines::finish)?;
        self.journal.as_ref().map_or(Ok(()), JournalLines::finish)
    }

    /// Says everything.
    ///
    /// # Errors
    ///
    /// If requests were lost or invented, or something cannot be written.
    pub(in crate::cli) fn write(self, told: &Told<'_>) -> anyhow::Result<()> {
        let options = self.report_options(told);
        let metrics = Metrics::of(told.record, &options);
        warn_of_empty_promises(&metrics);
        let levels = self.detectors.as_ref();
        let levels = levels.map(|detectors| detectors.final_levels(told.record));
        self.print(&metrics, &options, levels.as_ref())?;
        self.write_files(told, &metrics, &options, levels.as_ref())?;
        metrics
            .conservation
            .map_err(|violation| anyhow!("this is a defect of the simulator: {violation}"))?;
        Ok(())
    }

    fn report_options(&self, told: &Told<'_>) -> ReportOptions {
        let scenario = &told.setup.scenario;
        ReportOptions {
            title: format!("{} × {}", scenario.instances, scenario.model),
            num_requests: told.record.requests.len() as u64,
            scheduler: scenario.instance.scheduler.name().to_owned(),
            fitness: self.fitness.clone(),
            goodput: self.goodput.clone(),
            trace: told.summary.as_ref().map(trace_summary),
            settings: told.setup.settings.clone(),
            workload: told.requests.settings().clone(),
            ..ReportOptions::default()
        }
    }

    fn print(&self, metrics: &Metrics, options: &ReportOptions, levels: Option<&Levels>) -> anyhow::Result<()> {
        match self.args.output {
            Format::Json => print(&format!("{}\n", report::json::document(metrics, options, levels))),
            Format::Text => {
                let quiet = ReportOptions {
                    trace: options.trace.clone().filter(|_| self.args.summarize_trace),
                    ..options.clone()
                };
                print(&report::text::summary(metrics, &quiet, levels))
            }
        }
    }

    fn write_files(
        self,
        told: &Told<'_>,
        metrics: &Metrics,
        options: &ReportOptions,
        levels: Option<&Levels>,
    ) -> anyhow::Result<()> {
        let record = told.record;
        if let Some(target) = self.metrics {
            target.write(&report::json::metrics_file(record, metrics, options, levels))?;
        }
        if let Some(target) = self.results {
            target.write(&write_results(&results_of(record)))?;
        }
        if let (Some((header, data)), Some(rows)) = (self.trace, &told.rows) {
            header.write(&told.requests.header(&told.setup.server).to_yaml())?;
            data.write_with(|file| write_rows(file, rows))?;
        }
        if let (Some(target), Some(detectors)) = (self.saturation, &self.detectors) {
            target.write(&detectors.report(record))?;
        }
        if let Some(target) = self.report {
            target.write(&report::html::page(record, metrics, options, levels))?;
        }
        Ok(())
    }
}

/// What the detectors said in the end, by their names.
type Levels = BTreeMap<String, Level>;

fn warn_of_empty_promises(metrics: &Metrics) {
    let promised = metrics.goodput.iter().flat_map(|goodput| &goodput.per_class);
    for (class, _) in promised.filter(|(_, kept)| kept.count == 0) {
        eprintln!("warning: latencies are promised to the SLO class `{class}`, of which there was no request");
    }
}

fn trace_summary(summary: &Summary) -> TraceSummary {
    let mut distribution: Vec<(String, u64)> = summary
        .targets
        .iter()
        .map(|(&instance, &count)| (instance_name(instance), count))
        .collect();
    distribution.sort();
    TraceSummary {
        decisions: summary.decisions,
        admitted: summary.admitted,
        rejected: summary.rejected,
        unique_targets: summary.targets.len() as u64,
        mean_regret: summary.mean_regret(),
        max_regret: summary.regret_max,
        distribution,
    }
}
