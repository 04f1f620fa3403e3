//! `forebay simulate`: a cluster in invented time.

pub(in crate::cli) mod args;
pub(in crate::cli) mod description;
pub(in crate::cli) mod effect;
mod endpoints;
mod faults;
mod keeper;
mod lines;
pub(in crate::cli) mod output;
mod policies;
mod range;
mod reference;
pub(in crate::cli) mod requests;
pub(in crate::cli) mod settings;
pub(in crate::cli) mod setup;
mod sweep;
pub(in crate::cli) mod trials;
pub(in crate::cli) mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use forebay::sim::cluster::{Scenario, Summary, TraceOptions, run as run_cluster};
use forebay::sim::policy::{Fairness, Flow};
use forebay::sim::record::{End, RequestRecord, RunRecord};
use forebay::sim::request::Arrivals;

use args::{ClusterArgs, OutputArgs, WorkloadArgs};
use keeper::Keeper;
use output::{Outputs, Told};
use requests::Requests;
use setup::Setup;
use trials::TrialArgs;

use super::print::print;

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
    pub(in crate::cli) trials: TrialArgs,
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

/// Simulates one run, or several if there are several seeds or values of a flag. `flags` are the words of the command line
/// behind the command.
pub(crate) fn run(args: &SimulateArgs, flags: &[String]) -> ExitCode {
    if args.trials.is_given() {
        return exit(trials::run(args, flags));
    }
    if args.trials.runs.jobs.is_some() {
        eprintln!("warning: `--jobs` has no effect on a single run; give `--seeds` or `--sweep`");
    }
    exit(prepare(args).map(|prepared| prepared.map_or(Ok(()), Prepared::run)))
}

/// A run that can begin.
#[derive(Debug)]
pub(in crate::cli) struct Prepared {
    pub(in crate::cli) setup: Setup,
    pub(in crate::cli) requests: Requests,
    pub(in crate::cli) outputs: Outputs,
}

/// Finds out whether what is asked for can be done. `None` if it is done already.
fn prepare(args: &SimulateArgs) -> anyhow::Result<Option<Prepared>> {
    let requests = Requests::described(&args.workload, args.cluster.seed)?;
    let setup = setup::setup(&args.cluster, &requests)?;
    if args.output.show_config {
        args.output.refuse_files("`--show-config` runs nothing")?;
        print(&format!("{}\n", setup.config.text()))?;
        return Ok(None);
    }
    // An impossible workload is found before any file is made.
    requests.workload(&setup.scenario)?;
    let outputs = Outputs::open(&args.output, &requests)?;
    let of_output = effect::of_output(&args.output);
    let warnings = requests.warnings().iter().chain(&setup.warnings).chain(&of_output);
    warnings.for_each(|warning| eprintln!("warning: {warning}"));
    Ok(Some(Prepared {
        setup,
        requests,
        outputs,
    }))
}

impl Prepared {
    /// Runs it, and says what came of it.
    pub(in crate::cli) fn run(self) -> anyhow::Result<()> {
        let Self {
            setup,
            requests,
            mut outputs,
        } = self;
        let mut workload = requests.workload(&setup.scenario)?;
        let mut keeper = Keeper::new(&mut workload, outputs.wants_rows());
        let (record, summary) = simulate(&setup, &mut keeper, &mut outputs)?;
        for warning in warnings_of(&setup.scenario, setup.flow.as_ref(), &record) {
            eprintln!("warning: {warning}");
        }
        let rows = keeper.into_rows(&record);
        outputs.write(&Told {
            setup: &setup,
            requests: &requests,
            record: &record,
            rows,
            summary,
        })?;
        match unservable(&record) {
            Some(why) => Err(anyhow!(why)),
            None => Ok(()),
        }
    }
}

/// What a run shows that is probably not meant so.
fn warnings_of(scenario: &Scenario, flow: Option<&Flow>, record: &RunRecord) -> Vec<String> {
    let found = [
        nobody(record),
        strangers(scenario, record),
        filtered_out(scenario, record),
        too_large(scenario, record),
        nothing_completed(record),
        faults_that_came_late(scenario, record),
    ];
    let idle = flow.into_iter().flat_map(|flow| idle_policies(scenario, flow, record));
    found.into_iter().flatten().chain(idle).collect()
}

/// What to say if the configuration kept no instance for requests that instances serve.
fn filtered_out(scenario: &Scenario, record: &RunRecord) -> Option<String> {
    let lost = record
        .requests
        .iter()
        .filter(|request| request.end == End::RoutingRejected && scenario.serves(&request.client.model))
        .count();
    let labels = match scenario.labels.iter().all(BTreeMap::is_empty) {
        true => "instances have no labels; filters by label or role need `--instance-labels` or `--endpoints-file`",
        false => "look at the labels that the filters of the configuration ask for",
    };
    (lost > 0).then(|| {
        format!(
            "no endpoint was left for {lost} of {} requests by the filters of the configuration: {labels}",
            record.requests.len()
        )
    })
}

/// What to say if requests came and none was completed, unless that none could be.
fn nothing_completed(record: &RunRecord) -> Option<String> {
    let completed = record.requests.iter().any(|request| request.end == End::Completed);
    if completed || record.requests.is_empty() || unservable(record).is_some() {
        return None;
    }
    Some(format!("no request was completed: {}", ends(record)))
}

/// What to say if the run was over before a fault began.
fn faults_that_came_late(scenario: &Scenario, record: &RunRecord) -> Option<String> {
    let late = scenario.faults.iter().find(|fault| fault.from_us >= record.end_us)?;
    Some(format!(
        "`--fault` had no effect on instance {}: it was to be {} from {} µs on, and the run was over at {} µs",
        late.instance,
        late.kind.name(),
        late.from_us,
        record.end_us
    ))
}

/// Why a run makes no sense in which no request at all could be served.
fn unservable(record: &RunRecord) -> Option<String> {
    let could_not = |request: &RequestRecord| matches!(request.end, End::RoutingRejected | End::Dropped);
    let none = !record.requests.is_empty() && record.requests.iter().all(could_not);
    none.then(|| format!("no request could be served: {}", ends(record)))
}

/// How many requests ended how.
fn ends(record: &RunRecord) -> String {
    let mut counts: BTreeMap<End, usize> = BTreeMap::new();
    for request in &record.requests {
        *counts.entry(request.end).or_default() += 1;
    }
    let told: Vec<String> = counts
        .iter()
        .map(|(end, count)| format!("{count} {}", end.name()))
        .collect();
    told.join(", ")
}

/// Policies of the gateway's queue that made no difference because all requests are alike.
fn idle_policies(scenario: &Scenario, flow: &Flow, record: &RunRecord) -> Vec<String> {
    let tenants: BTreeSet<&str> = record.requests.iter().map(|request| &*request.client.tenant).collect();
    let sheddable = |request: &RequestRecord| scenario.classes.priority(&request.client.slo_class) < 0;
    let none_sheddable = !record.requests.iter().any(sheddable);
    let nobody = "no request has an SLO class below priority 0 (`batch`, `sheddable`, `background`)";
    [
        (
            "fairness-policy round-robin",
            flow.fairness == Fairness::RoundRobin && tenants.len() == 1,
            "all requests are of one tenant",
        ),
        ("queue-shedding", flow.shedding && none_sheddable, nobody),
        ("in-flight-eviction", flow.eviction && none_sheddable, nobody),
    ]
    .into_iter()
    .filter(|(_, is_idle, _)| *is_idle && !record.requests.is_empty())
    .map(|(flag, _, why)| format!("`--{flag}` had no effect: {why}"))
    .collect()
}

/// What to say if there was nothing to simulate.
fn nobody(record: &RunRecord) -> Option<String> {
    record.requests.is_empty().then(|| {
        "no request came before the run ended; look at the rates, the windows and the horizon of the workload"
            .to_owned()
    })
}

/// What to say if requests were rejected because they name another model than the cluster's.
fn strangers(scenario: &Scenario, record: &RunRecord) -> Option<String> {
    let mut strangers = record
        .requests
        .iter()
        .filter(|request| !scenario.serves(&request.client.model));
    let first = strangers.next()?;
    Some(format!(
        "no instance served {} requests, which name another model (such as `{}`) than `{}`",
        1 + strangers.count(),
        first.client.model,
        scenario.model,
    ))
}

/// What to say if requests were dropped because no instance has room for them, however long they wait.
fn too_large(scenario: &Scenario, record: &RunRecord) -> Option<String> {
    let dropped = record.requests.iter().filter(|request| request.end == End::Dropped);
    let dropped = dropped.count();
    let instance = &scenario.instance;
    let (blocks, tokens) = (instance.kv_blocks, instance.block_tokens);
    let longest = instance.max_model_len.map_or_else(String::new, |tokens| {
        format!(", and a sequence may have {tokens} tokens (`--max-model-len`)")
    });
    (dropped > 0).then(|| {
        format!(
            "{dropped} of {} requests can never fit into an instance: it has {blocks} KV blocks of {tokens} tokens \
             (`--total-kv-blocks`){longest}",
            record.requests.len()
        )
    })
}

/// Runs requests on a cluster, and writes its decisions down as they are made.
fn simulate(
    setup: &Setup,
    arrivals: &mut dyn Arrivals,
    outputs: &mut Outputs,
) -> anyhow::Result<(RunRecord, Option<Summary>)> {
    let (plan, _) = setup.config.plan()?;
    let mut summary = outputs.wants_summary().then(Summary::default);
    let trace = TraceOptions {
        summary: summary.as_mut(),
        ..outputs.sinks(setup)
    };
    let record = run_cluster(&setup.scenario, plan, arrivals, trace);
    outputs
        .sinks_written()
        .context("the decision trace or the journal cannot be written")?;
    Ok((record, summary))
}
