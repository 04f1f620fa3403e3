//! What is said of a run, and where it is written.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use forebay::engine::journal::{Entry, FORMAT, Header, Recorder};
use forebay::sim::cluster::{DecisionRecord, DecisionSink, Summary, TraceOptions, instance_name};
use forebay::sim::record::RunRecord;
use forebay::sim::report::calibrate::{results_of, write_results};
use forebay::sim::report::saturation::Detectors;
use forebay::sim::report::{self, FitnessWeights, GoodputTargets, Metrics, ReportOptions, TraceSummary};
use forebay::sim::trace::Row;
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

/// A file that will be written, when there is something to write: nothing is made before, and what is there stays.
#[derive(Debug)]
pub(in crate::cli) struct Target {
    path: PathBuf,
    place: Place,
}

/// What is at the path of a target.
#[derive(Debug)]
enum Place {
    /// Nothing, and a file can be made.
    Free,
    /// A file that may be replaced, or a device.
    Taken(File),
}

impl Target {
    /// Finds out whether a file can be made, or written over with `replace`.
    ///
    /// # Errors
    ///
    /// If it is there and may not be replaced, or cannot be written.
    pub(in crate::cli) fn open(path: &Path, replace: bool) -> anyhow::Result<Self> {
        let is_device = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let opened = if path.symlink_metadata().is_err() {
            make(path)
                .and_then(|_| std::fs::remove_file(path))
                .map(|()| Place::Free)
        } else if replace || is_device {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.open(path).map(Place::Taken)
        } else {
            bail!(
                "{} is there already; give `--force` to write over it, or another name",
                path.display()
            );
        };
        Ok(Self {
            place: opened.with_context(|| format!("{} cannot be written", path.display()))?,
            path: path.to_owned(),
        })
    }

    pub(in crate::cli) fn write(self, text: &str) -> anyhow::Result<()> {
        self.write_with(|mut file| file.write_all(text.as_bytes()))
    }

    pub(in crate::cli) fn write_with(
        self,
        write: impl FnOnce(BufWriter<&File>) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { path, place } = self;
        let written = place.empty(&path).and_then(|file| write(BufWriter::new(&file)));
        written.with_context(|| format!("{} cannot be written", path.display()))
    }
}

impl Place {
    /// A file without contents.
    fn empty(self, path: &Path) -> io::Result<File> {
        match self {
            Self::Free => make(path),
            Self::Taken(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                Ok(file)
            }
        }
    }
}

/// Makes a file that is not there.
fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Lines of JSON.
#[derive(Debug)]
struct Lines {
    file: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Lines {
    /// What the file had is gone.
    fn to(Target { path, place }: Target) -> anyhow::Result<Self> {
        let file = place.empty(&path);
        Ok(Self {
            file: BufWriter::new(file.with_context(|| format!("{} cannot be written", path.display()))?),
            failed: None,
        })
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
            journal: journal.map(Lines::to).transpose()?,
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_made_when_there_is_something_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");

        let target = Target::open(&path, false).unwrap();
        let made_at_once = path.exists();
        target.write("text").unwrap();

        assert!(!made_at_once, "a run that is cut short leaves an empty file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn what_is_there_stays_until_something_is_written_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        std::fs::write(&path, "precious").unwrap();

        let refused = Target::open(&path, false).unwrap_err().to_string();
        let target = Target::open(&path, true).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        target.write("new").unwrap();

        assert!(refused.contains("is there already; give `--force`"), "{refused}");
        assert_eq!(before, "precious");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_file_that_came_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late");

        let target = Target::open(&path, false).unwrap();
        std::fs::write(&path, "of another run").unwrap();

        assert!(target.write("text").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another run");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("null");
        symlink("/dev/null", &path).unwrap();

        Target::open(&path, false).unwrap().write("text").unwrap();

        assert!(path.symlink_metadata().unwrap().is_symlink());
    }
}
