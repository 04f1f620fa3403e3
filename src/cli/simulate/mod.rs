//! `forebay simulate`: a cluster in invented time.

pub(in crate::cli) mod args;
pub(in crate::cli) mod output;
mod policies;
pub(in crate::cli) mod setup;
pub(in crate::cli) mod values;

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use forebay::sim::cluster::{Summary, TraceOptions, run as run_cluster};
use forebay::sim::record::RunRecord;
use forebay::sim::request::Arrivals;
use forebay::sim::workload::{PlanOptions, spec::WorkloadSpec};

use args::{ClusterArgs, OutputArgs, WorkloadArgs};
use output::{Outputs, Told};
use setup::Setup;

/// Simulates a cluster of model servers behind this picker, and says how it did
///
/// The gateway of the simulated cluster runs the very code that serves: admission, flow control and routing. The flags
/// are those of the reference simulator; a configuration that serves may take the place of the ones for policies.
/// Equal flags and seeds give equal output, byte by byte.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(in crate::cli) cluster: ClusterArgs,
    #[command(flatten)]
    pub(in crate::cli) workload: WorkloadArgs,
    #[command(flatten)]
    pub(in crate::cli) output: OutputArgs,
}

/// How a command about simulated runs ends: 0; 1 if a run failed; 2 if what was asked for makes no sense.
pub(in crate::cli) fn exit(result: anyhow::Result<anyhow::Result<()>>) -> ExitCode {
    match result {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Simulates one run.
pub(crate) fn run(args: &SimulateArgs) -> ExitCode {
    exit(prepare(args).map(|prepared| prepared.map_or(Ok(()), Prepared::run)))
}

/// A run that can begin. The outer error is for what was asked.
struct Prepared {
    args: SimulateArgs,
    setup: Setup,
    spec: WorkloadSpec,
    outputs: Outputs,
}

fn prepare(args: &SimulateArgs) -> anyhow::Result<Option<Prepared>> {
    let (spec, mut warnings) = setup::workload(&args.workload)?;
    let mut args = args.clone();
    args.cluster.horizon = args.cluster.horizon.or(spec.horizon);
    let seed = seed(&args, &spec);
    let setup = setup::setup(&args.cluster, seed)?;
    warnings.extend(setup.warnings.iter().cloned());
    if args.output.show_config {
        output::print(&format!("{}\n", setup.config.text()))?;
        return Ok(None);
    }
    // An impossible workload is found before any file is made.
    setup::requests(&spec, &args.workload, &setup.scenario, args.cluster.seed)?;
    let outputs = Outputs::open(&args.output, &spec)?;
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    Ok(Some(Prepared {
        args,
        setup,
        spec,
        outputs,
    }))
}

/// The seed that holds: the flag's, or that of the workload file, or the default.
fn seed(args: &SimulateArgs, spec: &WorkloadSpec) -> u64 {
    let options = PlanOptions {
        seed: args.cluster.seed,
        ..PlanOptions::new(std::num::NonZeroU32::MIN)
    };
    options.seed_for(spec)
}

impl Prepared {
    fn run(self) -> anyhow::Result<()> {
        let Self {
            args,
            setup,
            spec,
            mut outputs,
        } = self;
        let mut workload = setup::requests(&spec, &args.workload, &setup.scenario, args.cluster.seed)?;
        let (record, summary) = simulate(&setup, &mut workload, &mut outputs)?;
        outputs.write(&Told {
            setup: &setup,
            record: &record,
            sessions: workload.sessions(),
            summary,
        })
    }
}

/// Runs requests on a cluster, and writes its decisions down as they are made.
pub(in crate::cli) fn simulate(
    setup: &Setup,
    arrivals: &mut dyn Arrivals,
    outputs: &mut Outputs,
) -> anyhow::Result<(RunRecord, Option<Summary>)> {
    let (plan, _) = setup.config.plan()?;
    let mut summary = outputs.wants_summary().then(Summary::default);
    let trace = TraceOptions {
        summary: summary.as_mut(),
        candidates: outputs.candidates(),
        regret: setup.regret,
        sink: outputs.decisions(),
    };
    let record = run_cluster(&setup.scenario, plan, arrivals, trace);
    outputs
        .decisions_written()
        .context("the decision trace cannot be written")?;
    Ok((record, summary))
}
