//! The flags of observed runs. Names and meanings are those of the reference simulator's `observe` (spec, simulator 31.4).

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay::serve::observer::Api;

use crate::cli::goodput::GoodputArgs;
use crate::cli::saturation::SaturationArgs;
use crate::cli::simulate::args::{Format, WorkloadArgs};
use crate::cli::simulate::values;
use crate::cli::switch::Switch as _;
use crate::cli::units;

/// Sends a workload to a real server with an OpenAI API, and writes down what it did
///
/// The server may be vLLM, `forebay model-server`, or a gateway before a pool of them. Requests carry the headers that
/// Forebay reads: tenant, SLO class and latency target. What was seen is written as a trace, and printed as `forebay
/// simulate` prints a simulated run. Ctrl-C ends the run early; what was seen until then is kept.
#[derive(Clone, Debug, Args)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    #[command(flatten)]
    pub(super) workload: WorkloadArgs,
    #[command(flatten)]
    pub(super) pace: PaceArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// The server, and how it is asked.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct ServerArgs {
    /// Where the server is: `http://host:port`, or `https://host`
    #[arg(long, value_name = "URL")]
    pub(super) server_url: String,
    /// The model to ask for, where the workload names none
    #[arg(long, value_name = "NAME")]
    pub(super) model: String,
    /// The API to use
    #[arg(long, value_enum, value_name = "NAME", default_value = "completions")]
    pub(super) api_format: ApiFormat,
    /// The key that the server wants
    #[arg(long, value_name = "KEY")]
    pub(super) api_key: Option<String>,
    /// What kind of server it is, for the header of the trace
    #[arg(long, value_name = "NAME", default_value = "vllm")]
    pub(super) server_type: String,
    /// Asks for whole answers in the place of streams: first tokens are not seen then
    #[arg(long, switch = false)]
    pub(super) no_streaming: bool,
    /// Lets the model end its answers when it pleases. Else they have the length that the workload says
    #[arg(long, switch = false)]
    pub(super) unconstrained_output: bool,
    /// The round trip to the server, for the header of the trace
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = units::not_negative)]
    pub(super) rtt_ms: f64,
    /// Reads the counters of the server's prefix cache before and after, and puts the hit rate into the header
    #[arg(long, switch = false)]
    pub(super) scrape_kv_metrics: bool,
    /// Where these counters are; may be repeated, for the servers of a pool [default: /metrics of the server]
    #[arg(long, value_name = "URL")]
    pub(super) kv_metrics_url: Vec<String>,
    /// The version of vLLM, for the header of the trace
    #[arg(long, value_name = "COMMIT")]
    pub(super) vllm_commit: Option<String>,
}

/// When requests are sent.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pace")]
pub(super) struct PaceArgs {
    /// Requests that may be under way at once; those that have to wait for a place are sent late
    #[arg(long, value_name = "N", default_value = "256", value_parser = units::count::<NonZeroUsize>)]
    pub(super) max_concurrency: NonZeroUsize,
    /// Requests at the start that are sent and not recorded
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) warmup_requests: u64,
    /// How long the server is kept busy with small requests before the workload; seconds, or a duration such as `90s`
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(super) prewarm_duration: Duration,
    /// All chance follows from this number: arrivals, lengths and the words of prompts [default: 42, or the seed of the
    /// workload file]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// No request arrives later than this; 0 is no limit [default: that of the workload file]
    #[arg(long, value_name = "US", value_parser = values::micros)]
    pub(super) horizon: Option<u64>,
}

/// What is written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Writes where the trace came from (YAML)
    #[arg(long, value_name = "FILE")]
    pub(super) trace_header: PathBuf,
    /// Writes the requests of the trace (CSV)
    #[arg(long, value_name = "FILE")]
    pub(super) trace_data: PathBuf,
    /// Writes when each piece of each answer came, beside the requests: `real.itl.csv` beside `real.csv`
    #[arg(long, switch = false)]
    pub(super) record_itl: bool,
    /// The same, to this file
    #[arg(long, value_name = "FILE")]
    pub(super) itl_output: Option<PathBuf>,
    /// Writes one page with plots, to be opened in a browser
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// What is printed: the text with JSON blocks that the reference prints, or one document of JSON with everything
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(super) output: Format,
    #[command(flatten)]
    pub(super) goodput: GoodputArgs,
    #[command(flatten)]
    pub(super) saturation: SaturationArgs,
    /// Writes over files that are there
    #[arg(long)]
    pub(super) force: bool,
}

/// The API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ApiFormat {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

impl ApiFormat {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Completions => "completions",
            Self::Chat => "chat",
        }
    }
}

impl From<ApiFormat> for Api {
    fn from(format: ApiFormat) -> Self {
        match format {
            ApiFormat::Completions => Self::Completions,
            ApiFormat::Chat => Self::Chat,
        }
    }
}

impl ObserveArgs {
    /// A warning for each flag that is given and has no effect beside the others.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let (server, output) = (&self.server, &self.output);
        let pieces = output.record_itl || output.itl_output.is_some();
        let flags = [
            (
                "kv-metrics-url",
                !server.kv_metrics_url.is_empty() && !server.scrape_kv_metrics,
                "without `--scrape-kv-metrics`",
            ),
            (
                "vllm-commit",
                server.vllm_commit.is_some() && !server.scrape_kv_metrics,
                "without `--scrape-kv-metrics`",
            ),
            (
                if output.record_itl { "record-itl" } else { "itl-output" },
                pieces && server.no_streaming,
                "with `--no-streaming`: an answer that comes whole has no times between its tokens",
            ),
        ];
        let idle = flags.iter().filter(|(_, is_idle, _)| *is_idle);
        idle.map(|(flag, _, why)| format!("`--{flag}` has no effect {why}"))
            .collect()
    }
}

/// Tokens of a KV block, by which the workload hashes what nobody looks at here.
pub(super) const BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("16 is not zero");

/// Reads seconds: a whole number of them, or a duration such as `90s`.
fn seconds(text: &str) -> Result<Duration, String> {
    if let Ok(number) = text.parse() {
        return Ok(Duration::from_secs(number));
    }
    units::duration(text)
        .map_err(|_| format!("`{text}` is neither a whole number of seconds nor a duration such as `90s`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_be_written_as_a_duration() {
        assert_eq!(seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(seconds("1m30s"), Ok(Duration::from_secs(90)));
        assert!(seconds("soon").unwrap_err().contains("`soon`"));
    }
}
