//! `forebay compare`: several configurations on one workload.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::simulate::args::Format;
use super::simulate::trials::{self, RunsArgs, Variant};
use super::simulate::{SimulateArgs, exit};

/// Simulates two or more configurations on the same workload, and says by how much they differ and whether that is chance
///
/// Everything behind `--` are flags of `forebay simulate` that hold for all of them. The first configuration is what the
/// others are compared with.
///
/// forebay compare now.yaml then.yaml --seeds 1..10 -- --model qwen/qwen3-14b --num-instances 4 --rate 30
///
/// forebay compare --variant "fair: --fairness-policy round-robin" --variant "strict: --fairness-policy global-strict"
/// --seeds 1..10 -- --model qwen/qwen3-14b --flow-control --rate 30
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompareArgs {
    /// Files with an `EndpointPickerConfig`
    #[arg(value_name = "FILE")]
    configs: Vec<PathBuf>,
    /// A configuration by the flags of `simulate` that make it, with a name before the colon; may be repeated
    #[arg(long, value_name = "NAME: FLAGS")]
    variant: Vec<String>,
    #[command(flatten)]
    runs: RunsArgs,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    output: Format,
    /// Flags of `simulate`
    #[arg(last = true, value_name = "FLAGS")]
    common: Vec<String>,
}

/// Compares.
pub(crate) fn run(args: &CompareArgs) -> ExitCode {
    exit(variants(args).and_then(|variants| trials::compared(&variants, &args.runs, args.output)))
}

fn variants(args: &CompareArgs) -> anyhow::Result<Vec<Variant>> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for path in &args.configs {
        let path = path.display().to_string();
        lines.push((path.clone(), vec!["--config".to_owned(), path]));
    }
    for variant in &args.variant {
        let Some((name, flags)) = variant.split_once(':') else {
            bail!("`--variant {variant}` has no name; write it as `name: --flag value`");
        };
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        let name = name.trim();
        ensure!(
            !name.is_empty(),
            "`--variant {variant}` has an empty name; write it as `name: --flag value`"
        );
        lines.push((name.to_owned(), flags));
    }
    ensure!(
        lines.len() >= 2,
        "a comparison takes two configurations or more, and there are {}; name files, or give `--variant`",
        lines.len()
    );
    let mut names = BTreeSet::new();
    for (name, _) in &lines {
        ensure!(names.insert(name), "configuration `{name}` is given more than once");
    }
    lines
        .iter()
        .map(|(name, flags)| {
            let line: Vec<String> = args.common.iter().chain(flags).cloned().collect();
            let variant = trials::parse(&line).and_then(|args| {
                refuse_flags_of_compare(&args)?;
                Ok(Variant {
                    name: name.clone(),
                    args,
                })
            });
            variant.with_context(|| format!("configuration `{name}`"))
        })
        .collect()
}

/// Refuses flags that say how often the configurations are run and what is told of them, where they would say nothing.
fn refuse_flags_of_compare(args: &SimulateArgs) -> anyhow::Result<()> {
    ensure!(
        args.trials.sweep.is_empty(),
        "`--sweep` is for `forebay simulate`; here, give a `--variant` for each value"
    );
    let flags = [
        ("seeds", args.trials.runs.seeds.is_some()),
        ("jobs", args.trials.runs.jobs.is_some()),
        ("output", args.output.output != Format::Text),
    ];
    if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
        bail!("`--{flag}` holds for all configurations; write it before the `--`");
    }
    Ok(())
}
