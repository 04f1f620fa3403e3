//! What the flags of a workload describe, or the file that they name.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use forebay::sim::workload::flags::{DEFAULT_TIMEOUT_S, FlagWorkload, Load, Preset, TokenRange};
use forebay::sim::workload::spec::{self, Loaded, ProcessName, WorkloadSpec};

use super::args::WorkloadArgs;
use super::settings::{self, Settings};
use crate::cli::source;

/// What the workload flags describe.
#[derive(Debug)]
pub(in crate::cli) struct Description {
    pub(in crate::cli) spec: WorkloadSpec,
    /// What reports say of it.
    pub(in crate::cli) settings: Settings,
    pub(in crate::cli) warnings: Vec<String>,
}

impl Description {
    /// Reads the flags, and the file that they name.
    ///
    /// # Errors
    ///
    /// If they make no sense.
    pub(in crate::cli) fn of(args: &WorkloadArgs) -> anyhow::Result<Self> {
        let Some(path) = &args.workload_spec else {
            let flags = flags(args)?;
            return Ok(Self {
                spec: flags.spec(),
                settings: settings::of_flags(&args.workload, &flags),
                warnings: Vec::new(),
            });
        };
        let Loaded { mut spec, warnings } = load(path, "workload-spec")?;
        if let Some(timeout) = args.timeout {
            spec.set_timeout(timeout_us(timeout)?);
        }
        Ok(Self {
            settings: settings::of_workload_file(path, args, &spec),
            spec,
            warnings: warnings.iter().map(ToString::to_string).collect(),
        })
    }
}

/// Reads the workload file that a flag names.
///
/// # Errors
///
/// If it cannot be read, or what it says makes no sense.
pub(in crate::cli) fn load(path: &Path, flag: &str) -> anyhow::Result<Loaded> {
    let text = source::text(path, flag)?;
    spec::load(&text, &source::name(path)).map_err(|errors| anyhow!("the workload cannot be used\n{errors}"))
}

/// What the flags say, where there is no file.
fn flags(args: &WorkloadArgs) -> anyhow::Result<FlagWorkload> {
    let lengths = match args.workload.as_str() {
        "distribution" => FlagWorkload {
            prompt: TokenRange {
                mean: args.prompt_tokens,
                std_dev: args.prompt_tokens_stdev,
                min: args.prompt_tokens_min.into(),
                max: args.prompt_tokens_max.into(),
            },
            output: TokenRange {
                mean: args.output_tokens,
                std_dev: args.output_tokens_stdev,
                min: args.output_tokens_min.into(),
                max: args.output_tokens_max.into(),
            },
            ..FlagWorkload::default()
        },
        name => FlagWorkload::of(name.parse::<Preset>().context("`--workload`")?),
    };
    let users = args.concurrency.and_then(NonZeroU32::new);
    let think_time_ms = args.think_time_ms.unwrap_or(0);
    ensure!(
        think_time_ms == 0 || users.is_some(),
        "`--think-time-ms` is for users; give their number with `--concurrency`"
    );
    Ok(FlagWorkload {
        load: match users {
            Some(users) => Load::Users {
                users,
                think_time_us: think_time_ms.saturating_mul(1000),
            },
            None => Load::Rate {
                per_second: args.rate.unwrap_or(1.0),
                arrival: args.arrival.map_or(ProcessName::Constant, Into::into),
            },
        },
        prefix_tokens: args.prefix_tokens.unwrap_or(0),
        timeout_us: timeout_us(args.timeout.unwrap_or(DEFAULT_TIMEOUT_S))?,
        num_requests: args.num_requests.or(lengths.num_requests),
        ..lengths
    })
}

fn timeout_us(seconds: i64) -> anyhow::Result<i64> {
    ensure!(
        seconds != 0,
        "`--timeout` must not be 0: below 0 is no timeout, above 0 are seconds"
    );
    Ok(seconds.saturating_mul(1_000_000))
}
