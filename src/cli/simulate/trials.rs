//! Several runs: other seeds, other values of flags, other configurations. They share the cores, and their results are put
//! together in the order in which they were asked for.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use forebay::sim::cluster::{Scenario, TraceOptions, run as run_cluster};
use forebay::sim::report::compare::{Comparison, Configuration, Figures, compare};
use forebay::sim::report::{FitnessWeights, GoodputTargets, Metrics, ReportOptions};

use super::args::Format;
use super::requests::Requests;
use super::setup::Setup;
use super::sweep::swept;
use super::{SimulateArgs, setup, unservable, values, warnings_of};
use crate::cli::print::print;
use crate::cli::{units, with_negative_numbers};

/// What is run more than once.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Several runs")]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(in crate::cli) runs: RunsArgs,
    /// Runs with each of these values of a flag, such as `rate=10,20,40`; may be repeated, for all combinations. The
    /// first one is what the others are compared with. Values that have commas are divided by semicolons
    #[arg(long, value_name = "FLAG=V1,V2,...")]
    pub(in crate::cli) sweep: Vec<String>,
}

/// How often each configuration is run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Several runs")]
pub(crate) struct RunsArgs {
    /// Runs with each of these seeds, such as `1..10` or `1,5,7`, and says how much the results vary
    #[arg(long, value_name = "SEEDS", value_parser = values::seeds)]
    pub(in crate::cli) seeds: Option<Seeds>,
    /// Runs that go on at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroUsize>)]
    pub(in crate::cli) jobs: Option<NonZeroUsize>,
}

/// Seeds, ascending.
pub(in crate::cli) type Seeds = values::Seeds;

impl TrialArgs {
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.runs.seeds.is_some() || !self.sweep.is_empty()
    }
}

impl RunsArgs {
    /// The seeds, or the one that a configuration says itself.
    fn seeds(&self) -> Vec<Option<u64>> {
        match &self.seeds {
            Some(values::Seeds(seeds)) => seeds.iter().copied().map(Some).collect(),
            None => vec![None],
        }
    }
}

/// The command line of a run, without the program and the command.
#[derive(Debug, Parser)]
#[command(name = "forebay simulate", args_override_self = true)]
struct RunLine {
    #[command(flatten)]
    args: SimulateArgs,
}

/// Reads flags of `simulate`.
///
/// # Errors
///
/// If they are not understood.
pub(in crate::cli) fn parse(flags: &[String]) -> anyhow::Result<SimulateArgs> {
    let line = std::iter::once("simulate").chain(flags.iter().map(String::as_str));
    let matches = with_negative_numbers(RunLine::command()).try_get_matches_from(line);
    let RunLine { args } = matches
        .and_then(|matches| RunLine::from_arg_matches(&matches))
        .map_err(|error| {
            let text = error.to_string();
            anyhow::anyhow!("{}", text.trim_start_matches("error: ").trim_end())
        })?;
    Ok(args)
}

/// One of the things that are compared.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Variant {
    pub(in crate::cli) name: String,
    pub(in crate::cli) args: SimulateArgs,
}

/// A configuration that can be run with every seed.
#[derive(Debug)]
struct Prepared {
    name: String,
    requests: Requests,
    setup: Setup,
    fitness: Option<FitnessWeights>,
    goodput: GoodputTargets,
}

/// Runs the seeds and sweeps of a `simulate` command.
pub(in crate::cli) fn run(args: &SimulateArgs, flags: &[String]) -> anyhow::Result<anyhow::Result<()>> {
    let variants = swept(args, flags)?;
    compared(&variants, &args.trials.runs, args.output.output)
}

/// Runs every variant with every seed, and prints how they compare with the first.
///
/// # Errors
///
/// If a variant makes no sense; nothing has been run then. Inside, if a run failed.
pub(in crate::cli) fn compared(
    variants: &[Variant],
    runs: &RunsArgs,
    format: Format,
) -> anyhow::Result<anyhow::Result<()>> {
    let prepared = variants
        .iter()
        .map(|variant| match (Prepared::of(variant, runs), variants.len()) {
            (prepared, 1) => prepared,
            (prepared, _) => prepared.with_context(|| called(&variant.name)),
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    if let ([first, others @ ..], None) = (prepared.as_slice(), &runs.seeds) {
        let seed = first.requests.seed();
        if let Some(other) = others.iter().find(|other| other.requests.seed() != seed) {
            bail!(
                "{} has seed {seed}, and {} has {}; they would not have the same requests. Give `--seeds`",
                called(&first.name),
                called(&other.name),
                other.requests.seed(),
            );
        }
    }
    warn(&prepared);
    Ok(all_runs(&prepared, runs).and_then(|(comparison, unservable)| {
        match format {
            Format::Text => print(&comparison.to_string())?,
            Format::Json => print(&format!("{}\n", comparison.json()))?,
        }
        ensure!(unservable.is_empty(), "{}", unservable.join("\n"));
        Ok(())
    }))
}

/// A configuration, in a message.
fn called(name: &str) -> String {
    format!("configuration `{name}`")
}

/// Prints what is probably not meant so, each warning once, with the names of those that it is about.
fn warn(prepared: &[Prepared]) {
    let warnings = |one: &Prepared| -> Vec<String> {
        let all = one.requests.warnings().iter().chain(&one.setup.warnings);
        all.cloned().collect()
    };
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for one in prepared {
        for warning in warnings(one) {
            match told.iter_mut().find(|(text, _)| *text == warning) {
                Some((_, names)) => names.push(&one.name),
                None => told.push((warning, vec![&one.name])),
            }
        }
    }
    for (warning, names) in told {
        if prepared.len() == 1 {
            eprintln!("warning: {warning}");
            continue;
        }
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        eprintln!("warning: {}: {warning}", names.join(", "));
    }
}

/// Runs everything. Beside the comparison it tells of configurations that could serve no request with any seed.
fn all_runs(prepared: &[Prepared], runs: &RunsArgs) -> anyhow::Result<(Comparison, Vec<String>)> {
    let mut unservable = Vec::new();
    let seeds = runs.seeds();
    let jobs: Vec<(&Prepared, Option<u64>)> = prepared
        .iter()
        .flat_map(|one| seeds.iter().map(move |&seed| (one, seed)))
        .collect();
    let mut results = in_parallel(runs.jobs, &jobs, |(one, seed)| {
        one.run(*seed).with_context(|| called(&one.name))
    })
    .into_iter();
    let configurations = prepared
        .iter()
        .map(|one| {
            let done: Vec<Done> = results.by_ref().take(seeds.len()).collect::<anyhow::Result<_>>()?;
            // What one run shows, those with the other seeds show in other numbers.
            if let Some(first) = done.iter().find(|done| !done.warnings.is_empty()) {
                let warnings = first.warnings.iter();
                warnings.for_each(|warning| eprintln!("warning: `{}`, seed {}: {warning}", one.name, first.seed));
            }
            if done.iter().all(|done| done.unservable.is_some()) {
                let why = done.iter().find_map(|done| done.unservable.clone()).unwrap_or_default();
                unservable.push(format!("{}: {why}", called(&one.name)));
            }
            Ok(Configuration {
                name: one.name.clone(),
                runs: done.into_iter().map(|done| (done.seed, done.figures)).collect(),
            })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok((compare(&configurations)?, unservable))
}

/// What comes of a run with a seed.
#[derive(Debug)]
struct Done {
    seed: u64,
    figures: Figures,
    warnings: Vec<String>,
    /// Why nothing at all could be served.
    unservable: Option<String>,
}

impl Prepared {
    /// Finds out whether a variant can be run.
    fn of(variant: &Variant, runs: &RunsArgs) -> anyhow::Result<Self> {
        let args = &variant.args;
        refuse_what_is_for_one_run(args)?;
        ensure!(
            args.cluster.seed.is_none() || runs.seeds.is_none(),
            "`--seed` and `--seeds` both say where chance comes from; give one of them"
        );
        let requests = Requests::described(&args.workload, args.cluster.seed)?;
        let setup = setup::setup(&args.cluster, &requests)?;
        requests.workload(&setup.scenario)?;
        Ok(Self {
            name: variant.name.clone(),
            fitness: args.output.fitness()?,
            goodput: args.output.goodput.targets(requests.targets())?,
            requests,
            setup,
        })
    }

    /// Runs it with a seed, or else with its own.
    fn run(&self, seed: Option<u64>) -> anyhow::Result<Done> {
        let requests = match seed {
            Some(seed) => self.requests.with_seed(seed),
            None => self.requests.clone(),
        };
        let scenario = Scenario {
            seed: requests.seed(),
            ..self.setup.scenario.clone()
        };
        let mut workload = requests.workload(&scenario)?;
        let (plan, _) = self.setup.config.plan()?;
        let record = run_cluster(&scenario, plan, &mut workload, TraceOptions::default());
        let options = ReportOptions {
            num_requests: record.requests.len() as u64,
            scheduler: scenario.instance.scheduler.name().to_owned(),
            fitness: self.fitness.clone(),
            goodput: self.goodput.clone(),
            ..ReportOptions::default()
        };
        let metrics = Metrics::of(&record, &options);
        if let Err(violation) = &metrics.conservation {
            bail!("this is a defect of the simulator: {violation}");
        }
        Ok(Done {
            seed: scenario.seed,
            figures: Figures::of(&metrics),
            warnings: warnings_of(&scenario, self.setup.flow.as_ref(), &record),
            unservable: unservable(&record),
        })
    }
}

/// Does `work` on each of `jobs`, several at once. The results are in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(
    at_once: Option<NonZeroUsize>,
    jobs: &[J],
    work: impl Fn(&J) -> anyhow::Result<R> + Sync,
) -> Vec<anyhow::Result<R>> {
    let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = at_once.unwrap_or_else(cores).get().min(jobs.len());
    let next = AtomicUsize::new(0);
    let some_jobs = || {
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let jobs = taken.map_while(|at| Some((at, jobs.get(at)?)));
        jobs.map(|(at, job)| (at, work(job))).collect::<Vec<_>>()
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(some_jobs)).collect();
        let done = workers.into_iter().map(|worker| match worker.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Refuses what is told of one run only.
fn refuse_what_is_for_one_run(args: &SimulateArgs) -> anyhow::Result<()> {
    let output = &args.output;
    let flags = [
        ("report", output.report.is_some()),
        ("metrics-path", output.metrics_path.is_some()),
        ("results-path", output.results_path.is_some()),
        ("trace-output", output.trace_output.is_some()),
        ("decision-trace", output.decision_trace.is_some()),
        ("journal", output.journal.is_some()),
        ("trace-level", output.trace_level.is_some()),
        ("counterfactual-k", output.counterfactual_k.is_some()),
        ("summarize-trace", output.summarize_trace),
        ("detectors", !output.saturation.detectors.is_empty()),
        ("saturation-report", output.saturation.saturation_report.is_some()),
        ("show-config", output.show_config),
    ];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        bail!("`--{flag}` is for a single run, and these are several");
    }
    Ok(())
}
