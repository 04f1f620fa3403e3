//! What the flags of a workload describe, or the file that they name.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
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
            let (flags, warnings) = flags(args)?;
            return Ok(Self {
                spec: flags.spec(),
                settings: settings::of_flags(&args.workload, &flags),
                warnings,
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

/// What the flags say, where there is no file, and what is probably not meant so.
fn flags(args: &WorkloadArgs) -> anyhow::Result<(FlagWorkload, Vec<String>)> {
    let mut warnings = Vec::new();
    let lengths = match args.workload.as_str() {
        "distribution" => FlagWorkload {
            prompt: range("prompt", lengths_of_prompts(args), &mut warnings)?,
            output: range("output", lengths_of_answers(args), &mut warnings)?,
            ..FlagWorkload::default()
        },
        name => {
            let lengths = FlagWorkload::of(name.parse::<Preset>().context("`--workload`")?);
            for (what, given) in [
                ("prompt", lengths_of_prompts(args)),
                ("output", lengths_of_answers(args)),
            ] {
                if let Some(flag) = given.first_given() {
                    bail!(
                        "`--{what}-tokens{flag}` is for `--workload distribution`, and this is `{name}`, which has lengths of \
                         its own"
                    );
                }
            }
            lengths
        }
    };
    let users = args.concurrency.and_then(NonZeroU32::new);
    let think_time_ms = args.think_time_ms.unwrap_or(0);
    ensure!(
        think_time_ms == 0 || users.is_some(),
        "`--think-time-ms` is for users; give their number with `--concurrency`"
    );
    ensure!(
        args.arrival.is_none() || users.is_none(),
        "`--arrival` is for requests at a rate; the users of `--concurrency` send when they are answered"
    );
    let workload = FlagWorkload {
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
    };
    Ok((workload, warnings))
}

/// The flags for the lengths of prompts, or of answers.
#[derive(Clone, Copy, Debug)]
struct GivenLengths {
    mean: Option<f64>,
    std_dev: Option<f64>,
    min: Option<u32>,
    max: Option<u32>,
}

fn lengths_of_prompts(args: &WorkloadArgs) -> GivenLengths {
    GivenLengths {
        mean: args.prompt_tokens,
        std_dev: args.prompt_tokens_stdev,
        min: args.prompt_tokens_min,
        max: args.prompt_tokens_max,
    }
}

fn lengths_of_answers(args: &WorkloadArgs) -> GivenLengths {
    GivenLengths {
        mean: args.output_tokens,
        std_dev: args.output_tokens_stdev,
        min: args.output_tokens_min,
        max: args.output_tokens_max,
    }
}

impl GivenLengths {
    /// The end of the name of the first flag that is given.
    fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("", self.mean.is_some()),
            ("-stdev", self.std_dev.is_some()),
            ("-min", self.min.is_some()),
            ("-max", self.max.is_some()),
        ];
        given.iter().find(|(_, is_given)| *is_given).map(|(end, _)| *end)
    }
}

fn range(what: &str, given: GivenLengths, warnings: &mut Vec<String>) -> anyhow::Result<TokenRange> {
    let default = TokenRange::default();
    let range = TokenRange {
        mean: given.mean.unwrap_or(default.mean),
        std_dev: given.std_dev.unwrap_or(default.std_dev),
        min: given.min.map_or(default.min, f64::from),
        max: given.max.map_or(default.max, f64::from),
    };
    let TokenRange { mean, min, max, .. } = range;
    ensure!(
        min <= max,
        "`--{what}-tokens-min` is {min}, above `--{what}-tokens-max`, which is {max}"
    );
    if !(min..=max).contains(&mean) {
        let bound = if mean < min { min } else { max };
        warnings.push(format!(
            "`--{what}-tokens` is {mean}, outside of `--{what}-tokens-min` and `-max`, {min} to {max}: most will have \
             {bound} tokens"
        ));
    }
    Ok(range)
}

fn timeout_us(seconds: i64) -> anyhow::Result<i64> {
    ensure!(
        seconds != 0,
        "`--timeout` must not be 0: below 0 is no timeout, above 0 are seconds"
    );
    Ok(seconds.saturating_mul(1_000_000))
}
