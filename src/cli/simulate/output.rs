//! What is said of a run, and where it is written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use forebay::engine::journal::{Entry, FORMAT, Header, Recorder};
use forebay::sim::cluster::{DecisionRecord, DecisionSink, Summary, TraceOptions, instance_name};
use forebay::sim::record::RunRecord;
use forebay::sim::report::calibrate::{results_of, write_results};
use forebay::sim::report::saturation::Detectors;
use forebay::sim::report::{self, Dimension, FitnessWeights, GoodputTargets, Metrics, ReportOptions, TraceSummary};
use forebay::sim::trace::Row;
use forebay::sim::workload::spec::GoodputTarget;
use serde::Serialize;

use super::args::{Format, OutputArgs, TraceLevel};
use super::requests::Requests;
use super::setup::Setup;

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
    journal: Option<Lines>,
}

/// A file that will be written as a whole.
#[derive(Debug)]
pub(in crate::cli) struct Target {
    path: PathBuf,
    file: File,
}

impl Target {
    /// Opens a file that is to be made. What it had stays until something is written.
    ///
    /// # Errors
    ///
    /// If it is there and may not be replaced, or cannot be written.
    pub(in crate::cli) fn open(path: &Path, replace: bool) -> anyhow::Result<Self> {
        let is_device = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let mut options = OpenOptions::new();
        options.write(true).truncate(false);
        if replace || is_device {
            options.create(true);
        } else {
            options.create_new(true);
        }
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow!(
                "{} is there already; give `--force` to write over it, or another name",
                path.display()
            ),
            _ => anyhow::Error::new(error).context(format!("{} cannot be written", path.display())),
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub(in crate::cli) fn write(self, text: &str) -> anyhow::Result<()> {
        self.write_with(|mut file| file.write_all(text.as_bytes()))
    }

    pub(in crate::cli) fn write_with(
        self,
        write: impl FnOnce(BufWriter<&File>) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let written = self.empty().and_then(|()| write(BufWriter::new(&self.file)));
        written.with_context(|| format!("{} cannot be written", self.path.display()))
    }

    fn empty(&self) -> io::Result<()> {
        match self.file.metadata()?.is_file() {
            true => self.file.set_len(0),
            false => Ok(()),
        }
    }
}

/// Lines of JSON.
#[derive(Debug)]
struct Lines {
    file: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Lines {
    /// What the file had is gone.
    fn to(target: Target) -> Self {
        Self {
            failed: target.empty().err(),
            file: BufWriter::new(target.file),
        }
    }

    fn add(&mut self, value: &impl Serialize) {
        if self.failed.is_none() {
            let written = serde_json::to_writer(&mut self.file, value).map_err(io::Error::from);
            self.failed = written.and_then(|()| self.file.write_all(b"\n")).err();
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.failed.take().map_or_else(|| self.file.flush(), Err)
    }
}

impl DecisionSink for Lines {
    fn take(&mut self, record: &DecisionRecord) {
        self.add(record);
    }
}

impl Recorder for Lines {
    fn note(&mut self, entry: Entry) {
        self.add(&entry);
    }
}

impl Outputs {
    /// Opens every file that is asked for, and understands what is asked of the reports.
    ///
    /// # Errors
    ///
    /// If a file is there already, or a flag makes no sense. No file is left behind then.
    pub(in crate::cli) fn open(args: &OutputArgs, requests: &Requests) -> anyhow::Result<Self> {
        let fitness = args
            .fitness_weights
            .as_deref()
            .map(str::parse::<FitnessWeights>)
            .transpose();
        let detectors = (!args.detectors.is_empty()).then(|| args.detectors.join(",").parse::<Detectors>());
        let mut detectors = detectors.transpose().context("`--detectors`")?;
        if let Some(detectors) = &mut detectors {
            detectors.final_window_s = args.saturation_final_window;
        }
        ensure!(
            args.saturation_report.is_none() || detectors.is_some(),
            "`--saturation-report` needs `--detectors`"
        );
        let fitness = fitness.context("`--fitness-weights`")?;
        let goodput = goodput(args, requests)?;
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
            if target.is_err() && !args.force {
                // What was made for nothing is taken away again.
                opened.iter().for_each(|made| drop(std::fs::remove_file(made)));
            }
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
        let saturation = open(&args.saturation_report)?;
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
            decisions: decisions.map(Lines::to),
            journal: journal.map(Lines::to),
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
        if let Some(journal) = &mut self.journal {
            journal.add(&Header {
                format: FORMAT,
                seed: setup.scenario.seed,
                config: setup.config.text().to_owned(),
            });
        }
        TraceOptions {
            sink: self.decisions.as_mut().map(|lines| lines as &mut dyn DecisionSink),
            journal: self.journal.as_mut().map(|lines| lines as &mut dyn Recorder),
            candidates: self.args.counterfactual_k.filter(|&k| k > 0),
            regret: setup.regret,
            summary: None,
        }
    }

    pub(in crate::cli) fn sinks_written(&mut self) -> io::Result<()> {
        let mut sinks = [&mut self.decisions, &mut self.journal].into_iter().flatten();
        sinks.try_for_each(Lines::finish)
    }

    /// Says everything.
    ///
    /// # Errors
    ///
    /// If requests were lost or invented, or something cannot be written.
    pub(in crate::cli) fn write(self, told: &Told<'_>) -> anyhow::Result<()> {
        let Told {
            setup,
            requests,
            record,
            rows,
            summary,
        } = told;
        let instances = setup.scenario.instances;
        let summary = summary.as_ref().map(trace_summary);
        let options = ReportOptions {
            title: format!("{instances} × {}", setup.scenario.model),
            num_requests: record.requests.len() as u64,
            scheduler: setup.scenario.instance.scheduler.name().to_owned(),
            instance_names: (0..instances).map(instance_name).collect(),
            fitness: self.fitness,
            goodput: self.goodput,
            trace: summary,
            settings: setup.settings.clone(),
            workload: requests.settings().clone(),
        };
        let metrics = Metrics::of(record, &options);
        let promised = metrics.goodput.iter().flat_map(|goodput| &goodput.per_class);
        for (class, _) in promised.filter(|(_, kept)| kept.count == 0) {
            eprintln!("warning: latencies are promised to the SLO class `{class}`, of which there was no request");
        }
        let levels = self.detectors.as_ref().map(|detectors| detectors.final_levels(record));
        match self.args.output {
            Format::Json => print(&format!(
                "{}\n",
                report::json::document(&metrics, &options, levels.as_ref())
            ))?,
            Format::Text => {
                let quiet = ReportOptions {
                    trace: options.trace.clone().filter(|_| self.args.summarize_trace),
                    ..options.clone()
                };
                print(&report::text::summary(&metrics, &quiet, levels.as_ref()))?;
            }
        }
        if let Some(target) = self.metrics {
            target.write(&report::json::metrics_file(record, &metrics, &options, levels.as_ref()))?;
        }
        if let Some(target) = self.results {
            target.write(&write_results(&results_of(record)))?;
        }
        if let (Some((header, data)), Some(rows)) = (self.trace, rows) {
            header.write(&requests.header(&setup.server).to_yaml())?;
            data.write_with(|file| forebay::sim::trace::write_rows(file, rows))?;
        }
        if let (Some(target), Some(detectors)) = (self.saturation, &self.detectors) {
            target.write(&detectors.report(record))?;
        }
        if let Some(target) = self.report {
            target.write(&report::html::page(record, &metrics, &options, levels.as_ref()))?;
        }
        metrics
            .conservation
            .map_err(|violation| anyhow!("this is a defect of the simulator: {violation}"))?;
        Ok(())
    }
}

/// Prints to standard output. Whoever reads it may have seen enough.
pub(in crate::cli) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("standard output cannot be written"))
        }
        _ => Ok(()),
    }
}

/// When a request of a run counts as good.
pub(in crate::cli) fn goodput(args: &OutputArgs, requests: &Requests) -> anyhow::Result<GoodputTargets> {
    let flags = [
        ("slo-ttft", Dimension::Ttft, &args.slo_ttft),
        ("slo-itl", Dimension::Itl, &args.slo_itl),
        ("slo-e2e", Dimension::E2e, &args.slo_e2e),
    ];
    targets(&flags, requests.targets())
}

/// Targets as flags give them, and where they give none, as a file does.
pub(in crate::cli) fn targets(
    flags: &[(&str, Dimension, &Option<String>)],
    written: &BTreeMap<String, GoodputTarget>,
) -> anyhow::Result<GoodputTargets> {
    let mut given = GoodputTargets::default();
    for (flag, dimension, text) in flags {
        if let Some(text) = text {
            given.add(*dimension, text).with_context(|| format!("`--{flag}`"))?;
        }
    }
    let mut others = GoodputTargets::default();
    for (class, target) in written {
        let dimensions = [
            (Dimension::Ttft, target.ttft_ms),
            (Dimension::Itl, target.itl_ms),
            (Dimension::E2e, target.e2e_ms),
        ];
        for (dimension, ms) in dimensions {
            if let Some(ms) = ms {
                others.set(class, dimension, ms * 1000.0);
            }
        }
    }
    Ok(given.or(&others))
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
