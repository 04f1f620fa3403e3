//! Flags of the reference simulator that are taken as long as they ask for nothing: for what is not simulated here, and
//! for what is so in any case. Command lines that name them with their defaults go on working, and others are told what
//! there is not.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// One of them.
struct Flag {
    name: &'static str,
    /// Values that ask for nothing.
    asks: Asks,
    /// What any other value asks for, or why there is no effect.
    what: &'static str,
}

/// Which values ask for nothing.
#[derive(Clone, Copy)]
enum Asks {
    /// All of them: the flag changes nothing here, or nothing alone. A warning says so.
    Nothing,
    /// All but this one and what is empty.
    Unless(&'static str),
}

const TIERS: &str = "a second tier of KV cache is not simulated";
const DISAGGREGATION: &str = "prefill, decode and encode on different servers are not simulated";

const NO_TIERS: &str = "because a second tier of KV cache is not simulated";
const NOT_DISAGGREGATED: &str = "because prefill and decode on different servers are not simulated";

const FLAGS: [Flag; 32] = [
    nothing("log", "because a simulation writes no log"),
    nothing("enable-expert-parallel", "because no latency model here asks for it"),
    unless(
        "defaults-filepath",
        "",
        "the figures of models are built in; `--model-config` and `--hardware-config` bring others",
    ),
    unless(
        "saturation-config",
        "",
        "detectors have no configuration but their names; see `--detectors`",
    ),
    unless("kv-cpu-blocks", "0", TIERS),
    unless("kv-offload-config", "", TIERS),
    nothing("kv-offload-threshold", NO_TIERS),
    nothing("kv-transfer-bandwidth", NO_TIERS),
    nothing("kv-transfer-base-latency", NO_TIERS),
    unless("lora-config", "", "the loading of LoRA adapters is not simulated"),
    unless("prefill-instances", "0", DISAGGREGATION),
    unless("decode-instances", "0", DISAGGREGATION),
    unless("prefill-decode-instances", "0", DISAGGREGATION),
    unless("encode-instances", "0", DISAGGREGATION),
    unless("pd-decider", "never", DISAGGREGATION),
    unless("encode-decider", "never", DISAGGREGATION),
    nothing("pd-prefix-threshold", NOT_DISAGGREGATED),
    nothing("pd-transfer-bandwidth", NOT_DISAGGREGATED),
    nothing("pd-transfer-base-latency", NOT_DISAGGREGATED),
    nothing("pd-transfer-contention", NOT_DISAGGREGATED),
    unless("prefill-routing-scorers", "", DISAGGREGATION),
    unless("decode-routing-scorers", "", DISAGGREGATION),
    unless("prefill-tp", "0", DISAGGREGATION),
    unless("decode-tp", "0", DISAGGREGATION),
    unless("prefill-hardware", "", DISAGGREGATION),
    unless("decode-hardware", "", DISAGGREGATION),
    unless("prefill-latency-model", "", DISAGGREGATION),
    unless("decode-latency-model", "", DISAGGREGATION),
    unless("prefill-max-model-len", "0", DISAGGREGATION),
    unless("decode-max-model-len", "0", DISAGGREGATION),
    unless("model-autoscaler-interval-us", "0", "autoscaling is not simulated"),
    unless(
        "lora-scorer-weight",
        "0",
        "there is no scorer for LoRA adapters among those of the reference; see `--config`",
    ),
];

const fn nothing(name: &'static str, what: &'static str) -> Flag {
    Flag {
        name,
        asks: Asks::Nothing,
        what,
    }
}

const fn unless(name: &'static str, neutral: &'static str, what: &'static str) -> Flag {
    Flag {
        name,
        asks: Asks::Unless(neutral),
        what,
    }
}

impl Flag {
    fn arg(&self) -> Arg {
        let (asks, what) = (self.asks, self.what);
        let understood = move |value: &str| match asks {
            Asks::Unless(neutral) if value != neutral && !value.is_empty() => Err(what),
            _ => Ok(()),
        };
        let arg = Arg::new(self.name).long(self.name).hide(true).value_parser(understood);
        match self.name {
            // As in Go, such a flag has its value behind an equals sign.
            "enable-expert-parallel" | "pd-transfer-contention" => {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            }
            _ => arg.num_args(1),
        }
    }
}

/// Understands them all, and keeps which of those were given that never change anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReferenceArgs {
    idle: Vec<&'static str>,
}

impl ReferenceArgs {
    /// One warning for each flag that is given and never changes anything.
    pub(super) fn warnings(&self) -> Vec<String> {
        let idle = FLAGS.iter().filter(|flag| self.idle.contains(&flag.name));
        idle.map(|flag| format!("`--{}` has no effect {}", flag.name, flag.what))
            .collect()
    }
}

impl Args for ReferenceArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(Flag::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ReferenceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |flag: &&Flag| matches.value_source(flag.name) == Some(ValueSource::CommandLine);
        let never_changes_anything = |flag: &&Flag| matches!(flag.asks, Asks::Nothing);
        let idle = FLAGS.iter().filter(never_changes_anything).filter(is_given);
        Ok(Self {
            idle: idle.map(|flag| flag.name).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
