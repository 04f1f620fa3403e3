//! Several runs: other seeds, other values of flags, other configurations. They share the cores, and their results are put
//! together in the order in which they were asked for.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};
use clap::{Args, Parser};
use forebay::sim::cluster::{TraceOptions, run as run_cluster};
use forebay::sim::report::compare::{Configuration, Figures, compare};
use forebay::sim::report::{Metrics, ReportOptions};

use super::args::Format;
use super::requests::Requests;
use super::{SimulateArgs, output, setup, values};

/// What is run more than once.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Several runs")]
pub(crate) struct TrialArgs {
    /// Runs with each of these seeds, such as `1..10` or `1,5,7`, and says how much the results vary
    #[arg(long, value_name = "SEEDS", value_parser = values::seeds)]
    pub(in crate::cli) seeds: Option<Seeds>,
    /// Runs with each of these values of a flag, such as `rate=10,20,40`; may be repeated, for all combinations. The
    /// first one is what the others are compared with
    #[arg(long, value_name = "FLAG=V1,V2,...")]
    pub(in crate::cli) sweep: Vec<String>,
    /// Runs that go on at once [default: one for each core]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) jobs: Option<NonZeroUsize>,
}

/// Seeds, ascending.
pub(in crate::cli) type Seeds = values::Seeds;

impl TrialArgs {
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.seeds.is_some() || !self.sweep.is_empty()
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
    let RunLine { args } = RunLine::try_parse_from(line).map_err(|error| {
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

/// Runs the seeds and sweeps of a `simulate` command.
pub(in crate::cli) fn run(args: &SimulateArgs, flags: &[String]) -> anyhow::Result<anyhow::Result<()>> {
    ensure!(
        args.cluster.seed.is_none() || args.trials.seeds.is_none(),
        "`--seed` and `--seeds` both say where chance comes from; give one of them"
    );
    refuse_files(args)?;
    let variants = swept(args, flags)?;
    Ok(compared(&variants, &args.trials, args.output.output))
}

/// All combinations of the values of the sweeps.
fn swept(args: &SimulateArgs, flags: &[String]) -> anyhow::Result<Vec<Variant>> {
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for sweep in &args.trials.sweep {
        let Some((flag, list)) = sweep.split_once('=') else {
            bail!("`--sweep {sweep}` has no values; write it as `flag=value,value`, such as `rate=10,20`");
        };
        let flag = flag.trim().trim_start_matches('-');
        combinations = combinations
            .iter()
            .flat_map(|before| {
                list.split(',').map(move |value| {
                    let mut with = before.clone();
                    with.push((flag.to_owned(), value.trim().to_owned()));
                    with
                })
            })
            .collect();
    }
    combinations
        .into_iter()
        .map(|values| {
            let more = values.iter().map(|(flag, value)| format!("--{flag}={value}"));
            let line: Vec<String> = flags.iter().cloned().chain(more).collect();
            let name: Vec<String> = values.iter().map(|(flag, value)| format!("{flag}={value}")).collect();
            Ok(Variant {
                args: parse(&line).with_context(|| format!("`--sweep` with {}", name.join(" ")))?,
                name: match name.is_empty() {
                    true => "as given".to_owned(),
                    false => name.join(" "),
                },
            })
        })
        .collect()
}

/// Runs every variant with every seed, and prints how they compare with the first.
pub(in crate::cli) fn compared(variants: &[Variant], trials: &TrialArgs, format: Format) -> anyhow::Result<()> {
    let seeds: Vec<Option<u64>> = match &trials.seeds {
        Some(values::Seeds(seeds)) => seeds.iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let jobs: Vec<(&Variant, Option<u64>)> = variants
        .iter()
        .flat_map(|variant| seeds.iter().map(move |&seed| (variant, seed)))
        .collect();
    let mut results = in_parallel(trials.jobs, &jobs, |(variant, seed)| {
        figures(&variant.args, *seed).with_context(|| variant.name.clone())
    })
    .into_iter();
    let configurations = variants
        .iter()
        .map(|variant| {
            Ok(Configuration {
                name: variant.name.clone(),
                runs: results.by_ref().take(seeds.len()).collect::<anyhow::Result<_>>()?,
            })
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let comparison = compare(&configurations)?;
    match format {
        Format::Text => output::print(&comparison.to_string()),
        Format::Json => output::print(&format!("{}\n", comparison.json())),
    }
}

/// What comes of a run with a seed.
fn figures(args: &SimulateArgs, seed: Option<u64>) -> anyhow::Result<(u64, Figures)> {
    let requests = Requests::described(&args.workload, seed.or(args.cluster.seed))?;
    let setup = setup::setup(&args.cluster, &requests)?;
    let mut workload = requests.workload(&setup.scenario)?;
    let (plan, _) = setup.config.plan()?;
    let record = run_cluster(&setup.scenario, plan, &mut workload, TraceOptions::default());
    let fitness = args.output.fitness_weights.as_deref().map(str::parse);
    let options = ReportOptions {
        num_requests: record.requests.len() as u64,
        scheduler: setup.scenario.instance.scheduler.name().to_owned(),
        fitness: fitness.transpose().context("`--fitness-weights`")?,
        goodput: output::goodput(&args.output, &requests)?,
        ..ReportOptions::default()
    };
    let metrics = Metrics::of(&record, &options);
    if let Err(violation) = &metrics.conservation {
        bail!("this is a defect of the simulator: {violation}");
    }
    Ok((setup.scenario.seed, Figures::of(&metrics)))
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

/// Refuses what makes sense for one run only.
pub(in crate::cli) fn refuse_files(args: &SimulateArgs) -> anyhow::Result<()> {
    let output = &args.output;
    let files = [
        ("report", output.report.is_some()),
        ("metrics-path", output.metrics_path.is_some()),
        ("results-path", output.results_path.is_some()),
        ("trace-output", output.trace_output.is_some()),
        ("decision-trace", output.decision_trace.is_some()),
        ("journal", output.journal.is_some()),
        ("saturation-report", output.saturation_report.is_some()),
    ];
    let given = files.iter().find(|(_, given)| *given);
    ensure!(
        given.is_none(),
        "`--{}` is for a single run, and these are several",
        given.map_or("", |(flag, _)| flag)
    );
    Ok(())
}
