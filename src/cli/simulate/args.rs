//! The flags of simulated runs. Names and meanings are those of the reference simulator's `run` (spec, simulator 31).
//!
//! A flag that is not given leaves the value to the policy bundle, and else to the default that its help names.

use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use forebay::sim::instance::{PreemptionPolicy, Scheduler};
use forebay::sim::latency::{Backend, MoeCommunication};
use forebay::sim::policy::Scorers;
use forebay::sim::report::FitnessWeights;
use forebay::sim::workload::spec::ProcessName;

use super::endpoints::InstanceLabels;
use super::faults::FaultFlag;
use super::reference::ReferenceArgs;
use super::values;
use crate::cli::goodput::GoodputArgs;
use crate::cli::saturation::SaturationArgs;
use crate::cli::switch::Switch as _;
use crate::cli::units;

/// The cluster: instances, policies, signals.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// The model, such as `qwen/qwen3-14b`
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) model: Option<String>,
    /// A `config.json` of Hugging Face that describes the model, if it is none of the built-in ones
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) model_config: Option<PathBuf>,
    /// A folder with such a `config.json`
    #[arg(long, value_name = "DIR", conflicts_with = "model_config")]
    pub(in crate::cli) model_config_folder: Option<PathBuf>,
    /// The GPU: H100, A100-SXM, A100-80 or L40S [default: by model]
    #[arg(long, value_name = "GPU")]
    pub(in crate::cli) hardware: Option<String>,
    /// A file that describes other GPUs
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) hardware_config: Option<PathBuf>,
    /// GPUs that share a model's layers; 0 is the model's default [default: 0]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) tp: Option<u32>,
    /// Data-parallel degree, for mixtures of experts [default: 1]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) dp: Option<NonZeroU32>,
    /// How step times are computed: trained-physics, roofline or linear [default: trained-physics]
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) latency_model: Option<Backend>,
    /// Coefficients of overheads, in the place of the built-in ones
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(in crate::cli) alpha_coeffs: Option<Vec<f64>>,
    /// Coefficients of step times, in the place of the built-in ones
    #[arg(long, value_name = "A,B,...", value_delimiter = ',')]
    pub(in crate::cli) beta_coeffs: Option<Vec<f64>>,
    /// How experts on several GPUs talk to each other
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) moe_comm_backend: Option<MoeCommunication>,
    /// The longest sequence; 0 is the model's own limit [default: 0]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) max_model_len: Option<u32>,
    /// Share of a GPU's memory that is used [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    pub(in crate::cli) gpu_memory_utilization: Option<f64>,
    /// KV blocks of an instance [default: what fits into its memory]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) total_kv_blocks: Option<NonZeroU32>,
    /// Tokens of a KV block [default: 16]
    #[arg(long, value_name = "TOKENS", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) block_size_in_tokens: Option<NonZeroU32>,
    /// Requests that an instance runs at once [default: 256]
    #[arg(long, value_name = "N", alias = "max-num-running-reqs", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) max_num_seqs: Option<NonZeroU32>,
    /// Tokens that a step may process [default: 2048]
    #[arg(long, value_name = "N", alias = "max-num-scheduled-tokens", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) max_num_batched_tokens: Option<NonZeroU32>,
    /// Tokens of one prompt that a step may process; 0 is no limit [default: 0]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) long_prefill_token_threshold: Option<u32>,
    /// Who of an instance's queue goes first: fcfs, priority-fcfs, sjf or reverse-priority [default: fcfs]
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) scheduler: Option<Scheduler>,
    /// Who loses its place when an instance runs out of KV blocks: fcfs or priority [default: fcfs]
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) preemption_policy: Option<PreemptionPolicy>,
    /// Number of instances [default: 1]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) num_instances: Option<NonZeroU32>,
    /// Labels of instances, which filters by label or role go by: `0..1: llm-d.ai/role=decode,example.com/gpu=h100`, with
    /// instances counted from 0, or `all: key=value`; may be repeated
    #[arg(long, value_name = "INSTANCES: KEY=VALUE,...")]
    pub(in crate::cli) instance_labels: Vec<InstanceLabels>,
    /// The endpoints file of a picker: as many instances as it lists endpoints, with their labels, in order of their names
    #[arg(long, value_name = "FILE", conflicts_with = "num_instances")]
    pub(in crate::cli) endpoints_file: Option<PathBuf>,
    /// Instances that fail for a time: `1: dead 10s..30s`, `0..2: hung 10s..` or `all: failing 10s..1m`. A dead one refuses
    /// connections and loses what it has, a hung one stands still, a failing one answers with errors; may be repeated
    #[arg(long, value_name = "INSTANCES: KIND FROM..[TO]")]
    pub(in crate::cli) fault: Vec<FaultFlag>,
    /// From the arrival of a request to the decision whether to let it in [default: 0]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) admission_latency: Option<u64>,
    /// From the choice of an instance to the arrival there [default: 0]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) routing_latency: Option<u64>,
    /// How old the gateway's signals of an instance may be; 0 reads them for each decision [default: 0]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) snapshot_refresh_interval: Option<u64>,
    /// How old the gateway's picture of the KV caches may be [default: 0]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) cache_signal_delay: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) policy: PolicyArgs,
    /// All chance follows from this number [default: 42, or the seed of the workload file]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) seed: Option<u64>,
    /// When the run ends, whatever is under way [default: when nothing is left to do]
    #[arg(long, value_name = "US", value_parser = values::micros_above_zero)]
    pub(in crate::cli) horizon: Option<u64>,
    #[command(flatten)]
    pub(super) reference: ReferenceArgs,
}

/// The policies of the gateway.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Policies")]
pub(crate) struct PolicyArgs {
    /// An `EndpointPickerConfig`: what serves, simulated. It takes the place of the flags for policies
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) config: Option<PathBuf>,
    /// A policy bundle of the reference simulator; flags come before what it says
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(in crate::cli) policy_config: Option<PathBuf>,
    /// Accept plugins of alpha stability in `--config`
    #[arg(long)]
    pub(in crate::cli) allow_experimental_plugins: bool,
    /// What may come in [default: always-admit]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) admission_policy: Option<AdmissionName>,
    /// Tokens of a full bucket [default: 10000]
    #[arg(long, value_name = "TOKENS", value_parser = values::positive)]
    pub(in crate::cli) token_bucket_capacity: Option<f64>,
    /// Tokens that come back each second [default: 1000]
    #[arg(long, value_name = "TOKENS", value_parser = values::positive)]
    pub(in crate::cli) token_bucket_refill_rate: Option<f64>,
    /// Which instance a request goes to [default: round-robin]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) routing_policy: Option<RoutingName>,
    /// Scorers of `weighted` and their weights [default: prefix-affinity:3,queue-depth:2,kv-utilization:2]
    #[arg(long, value_name = "NAME:WEIGHT,...")]
    pub(in crate::cli) routing_scorers: Option<Scorers>,
    /// Requests wait at the gateway while the pool is full
    #[arg(long, switch = false)]
    pub(in crate::cli) flow_control: bool,
    /// How full the pool is [default: never; utilization with --flow-control]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) saturation_detector: Option<DetectorName>,
    /// Waiting requests at which an instance is full [default: 5]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) queue_depth_threshold: Option<NonZeroU32>,
    /// Share of the KV cache at which an instance is full [default: 0.8]
    #[arg(long, value_name = "SHARE", value_parser = values::share)]
    pub(in crate::cli) kv_cache_util_threshold: Option<f64>,
    /// Requests in flight at which an instance is full [default: 100]
    #[arg(long, value_name = "N", value_parser = units::count::<NonZeroU32>)]
    pub(in crate::cli) max_concurrency: Option<NonZeroU32>,
    /// Which request of the gateway's queue goes next [default: priority]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) dispatch_order: Option<DispatchName>,
    /// Which tenant goes next [default: global-strict]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) fairness_policy: Option<FairnessName>,
    /// Requests that may wait at the gateway; 0 is no limit [default: 0]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) max_gateway_queue_depth: Option<u64>,
    /// Requests of one priority that may wait at the gateway; 0 is no limit [default: 0]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) per_band_capacity: Option<u64>,
    /// How long a request may wait at the gateway; 0 is no limit [default: 0]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) request_ttl: Option<u64>,
    /// How full the pool may be for the lowest priority; 1 is full [default: 1]
    #[arg(long, value_name = "SHARE", value_parser = values::share)]
    pub(in crate::cli) usage_limit_threshold: Option<f64>,
    /// Accepted: the gateway acts when something happens, not at ticks
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(in crate::cli) dispatch_tick_interval: Option<u64>,
    /// A request that finds the gateway's queue full turns out a less urgent one that may be shed
    #[arg(long, switch = false)]
    pub(in crate::cli) queue_shedding: bool,
    /// Requests in flight that may be shed are cut off for more urgent ones that wait
    #[arg(long, switch = false)]
    pub(in crate::cli) in_flight_eviction: bool,
    /// Latency that the requests of a class hope for, for `--dispatch-order slo-deadline`
    #[arg(long, value_name = "CLASS=US,...", value_delimiter = ',')]
    pub(in crate::cli) slo_targets: Option<Vec<String>>,
}

/// An admission policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AdmissionName {
    AlwaysAdmit,
    TokenBucket,
    RejectAll,
    TierShed,
    GaieLegacy,
}

/// A routing policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoutingName {
    RoundRobin,
    LeastLoaded,
    Weighted,
    AlwaysBusiest,
}

/// A saturation detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DetectorName {
    Never,
    Utilization,
    Concurrency,
}

/// An order of the gateway's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DispatchName {
    Priority,
    Fifo,
    SloDeadline,
}

/// An order of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FairnessName {
    GlobalStrict,
    RoundRobin,
}

/// The requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArgs {
    /// A workload file (version 2); it takes the place of the flags for rates, lengths and users
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "workload", "rate", "arrival", "concurrency", "think_time_ms", "prefix_tokens",
        "prompt_tokens", "prompt_tokens_stdev", "prompt_tokens_min", "prompt_tokens_max",
        "output_tokens", "output_tokens_stdev", "output_tokens_min", "output_tokens_max",
    ])]
    pub(in crate::cli) workload_spec: Option<PathBuf>,
    /// Lengths: `distribution`, by the flags, or those of `chatbot`, `summarization`, `contentgen` or `multidoc`
    #[arg(long, value_name = "NAME", default_value = "distribution")]
    pub(in crate::cli) workload: String,
    /// Requests a second [default: 1]
    #[arg(long, value_name = "N", value_parser = values::rate)]
    pub(in crate::cli) rate: Option<f64>,
    /// How requests follow each other [default: constant]
    #[arg(long, value_enum, value_name = "NAME")]
    pub(in crate::cli) arrival: Option<Process>,
    /// Number of requests [default: 100, or what the workload file says]
    #[arg(long, value_name = "N")]
    pub(in crate::cli) num_requests: Option<u64>,
    /// Users that send a request whenever their last one is answered; in the place of a rate [default: 0]
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pub(in crate::cli) concurrency: Option<u32>,
    /// Time that a user thinks between two requests [default: 0]
    #[arg(long, value_name = "MS")]
    pub(in crate::cli) think_time_ms: Option<u64>,
    /// Tokens that all prompts begin with [default: 0]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) prefix_tokens: Option<u32>,
    /// Tokens of a prompt on average [default: 512]
    #[arg(long, value_name = "TOKENS", value_parser = units::not_negative)]
    pub(in crate::cli) prompt_tokens: Option<f64>,
    /// Standard deviation of prompts [default: 256]
    #[arg(long, value_name = "TOKENS", value_parser = units::not_negative)]
    pub(in crate::cli) prompt_tokens_stdev: Option<f64>,
    /// The shortest prompt [default: 2]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) prompt_tokens_min: Option<u32>,
    /// The longest prompt [default: 7000]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) prompt_tokens_max: Option<u32>,
    /// Tokens of an answer on average [default: 512]
    #[arg(long, value_name = "TOKENS", value_parser = units::not_negative)]
    pub(in crate::cli) output_tokens: Option<f64>,
    /// Standard deviation of answers [default: 256]
    #[arg(long, value_name = "TOKENS", value_parser = units::not_negative)]
    pub(in crate::cli) output_tokens_stdev: Option<f64>,
    /// The shortest answer [default: 2]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) output_tokens_min: Option<u32>,
    /// The longest answer [default: 7000]
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) output_tokens_max: Option<u32>,
    /// Seconds after which a client gives up; below 0 is never [default: 300]
    #[arg(long, value_name = "S")]
    pub(in crate::cli) timeout: Option<i64>,
    /// Accepted: requests are always made one by one, as they arrive
    #[arg(long, switch = false)]
    pub(in crate::cli) lazy_generation: bool,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Process {
    Constant,
    Poisson,
    Gamma,
    Weibull,
}

impl From<Process> for ProcessName {
    fn from(process: Process) -> Self {
        match process {
            Process::Constant => Self::Constant,
            Process::Poisson => Self::Poisson,
            Process::Gamma => Self::Gamma,
            Process::Weibull => Self::Weibull,
        }
    }
}

/// What is said of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// What is printed: the text with JSON blocks that the reference prints, or one document of JSON with everything
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(in crate::cli) output: Format,
    /// Writes one page with plots, to be opened in a browser
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) report: Option<PathBuf>,
    /// Writes the metrics of the cluster and of each request
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) metrics_path: Option<PathBuf>,
    /// Writes the latencies of each completed request, for `calibrate`
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) results_path: Option<PathBuf>,
    /// Writes the requests as a trace: `<PREFIX>.yaml` and `<PREFIX>.csv`
    #[arg(long, value_name = "PREFIX")]
    pub(in crate::cli) trace_output: Option<PathBuf>,
    /// Writes every decision, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) decision_trace: Option<PathBuf>,
    /// Writes everything that the picker is asked and answers, as a service with `--journal` does
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) journal: Option<PathBuf>,
    /// What is noted of decisions [default: none, or decisions if another flag needs them]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub(in crate::cli) trace_level: Option<TraceLevel>,
    /// Candidates that are written down of each decision; 0 is all [default: 0]
    #[arg(long, value_name = "K")]
    pub(in crate::cli) counterfactual_k: Option<usize>,
    /// Prints a summary of the decisions
    #[arg(long, switch = false)]
    pub(in crate::cli) summarize_trace: bool,
    /// What the fitness of a run is made of, such as `throughput:0.5,p99_ttft:0.5`
    #[arg(long, value_name = "KEY:WEIGHT,...")]
    pub(in crate::cli) fitness_weights: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) goodput: GoodputArgs,
    #[command(flatten)]
    pub(in crate::cli) saturation: SaturationArgs,
    /// Prints the configuration that the flags for policies stand for, and ends
    #[arg(long)]
    pub(in crate::cli) show_config: bool,
    /// Writes over files that are there
    #[arg(long)]
    pub(in crate::cli) force: bool,
}

impl OutputArgs {
    /// Fails if a file is asked for, which would not be written for this reason.
    pub(in crate::cli) fn refuse_files(&self, why: &str) -> anyhow::Result<()> {
        let files = [
            ("report", self.report.is_some()),
            ("metrics-path", self.metrics_path.is_some()),
            ("results-path", self.results_path.is_some()),
            ("trace-output", self.trace_output.is_some()),
            ("decision-trace", self.decision_trace.is_some()),
            ("journal", self.journal.is_some()),
            ("saturation-report", self.saturation.saturation_report.is_some()),
        ];
        match files.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => bail!("{why}, and `--{flag}` would not be written; leave one of them out"),
            None => Ok(()),
        }
    }

    /// What the fitness of a run is made of, if that is asked.
    ///
    /// # Errors
    ///
    /// If the weights cannot be read.
    pub(in crate::cli) fn fitness(&self) -> anyhow::Result<Option<FitnessWeights>> {
        let weights = self.fitness_weights.as_deref().map(str::parse).transpose();
        weights.context("`--fitness-weights`")
    }
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text with blocks of JSON.
    Text,
    /// One document of JSON.
    Json,
}

/// What is noted of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceLevel {
    /// Nothing.
    None,
    /// Each of them.
    Decisions,
}
