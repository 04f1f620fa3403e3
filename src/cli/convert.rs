//! `forebay convert` and `forebay compose`: workload files from other things.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use forebay::engine::config::Severity;
use forebay::sim::workload::convert;
use forebay::sim::workload::flags::Preset;
use forebay::sim::workload::spec::{self, Loaded, Problem, WorkloadSpec};

use super::print::print;
use super::simulate::{description, exit, values};
use super::units;

/// Makes a workload file of something else, and prints it
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A preset at a rate
    Preset {
        /// The preset: chatbot, summarization, contentgen or multidoc
        #[arg(long)]
        name: Preset,
        /// Requests a second
        #[arg(long, default_value_t = 1.0, value_parser = values::rate)]
        rate: f64,
        /// Number of requests
        #[arg(long, default_value = "100", value_parser = units::count::<NonZeroU64>)]
        num_requests: NonZeroU64,
    },
    /// A workload file that describes its load in the terms of inference-perf
    #[command(alias = "infperf")]
    InferencePerf {
        /// The file
        #[arg(long, value_name = "FILE")]
        spec: PathBuf,
    },
}

/// Puts workload files together, and prints the whole
///
/// Rates add up, and every client keeps its share of its file's rate. Files with different seeds are refused.
#[derive(Debug, Args)]
pub(crate) struct ComposeArgs {
    /// A workload file; may be repeated
    #[arg(long, value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
}

/// Converts.
pub(crate) fn run(args: &ConvertArgs) -> ExitCode {
    let converted = match &args.what {
        What::Preset {
            name,
            rate,
            num_requests,
        } => Ok(convert::preset(*name, *rate, num_requests.get())),
        What::InferencePerf { spec: path } => load(path, "spec").map(|spec| {
            if spec.inference_perf.is_none() {
                eprintln!(
                    "warning: {} has no `inference_perf`; it is printed as it was read",
                    path.display()
                );
            }
            convert::inference_perf(&spec)
        }),
    };
    exit(converted.map(|spec| print(&spec.to_yaml())))
}

/// Composes.
pub(crate) fn compose(args: &ComposeArgs) -> ExitCode {
    let specs: anyhow::Result<Vec<WorkloadSpec>> = args.from.iter().map(|path| load(path, "from")).collect();
    if args.from.len() == 1 {
        eprintln!("warning: `--from` names one workload; it is printed as it was read. Give another `--from`");
    }
    let composed = specs.and_then(|specs| {
        let whole = convert::compose(&specs).context("the workloads do not go together")?;
        if let Some(lost) = convert::lost(&specs) {
            eprintln!("warning: {lost}");
        }
        Ok(whole)
    });
    exit(composed.and_then(sound).map(|spec| print(&spec.to_yaml())))
}

/// What is made of sound workloads, if it is one itself.
fn sound(spec: WorkloadSpec) -> anyhow::Result<WorkloadSpec> {
    let (errors, warnings): (Vec<Problem>, Vec<Problem>) = spec::check(&spec)
        .into_iter()
        .partition(|problem| problem.severity == Severity::Error);
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let errors: Vec<String> = errors.iter().map(Problem::to_string).collect();
    ensure!(
        errors.is_empty(),
        "the workloads do not go together:\n{}",
        errors.join("\n")
    );
    Ok(spec)
}

/// The workload of a file, whose warnings are printed.
fn load(path: &Path, flag: &str) -> anyhow::Result<WorkloadSpec> {
    let Loaded { spec, warnings } = description::load(path, flag)?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    Ok(spec)
}
