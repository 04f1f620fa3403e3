//! The header of a trace: where it came from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::config::{ConfigErrors, SourceName, read_strictly};

use super::super::workload::spec::{ContextGrowth, GoodputTarget};
use super::super::yaml;

/// The version that is written, and the newest one that is read.
pub const TRACE_VERSION: u32 = 3;

/// Where a trace came from.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Header {
    /// Version of the format: 1 to [`TRACE_VERSION`].
    pub trace_version: u32,
    /// What times are counted in.
    pub time_unit: TimeUnit,
    /// When it was made. For readers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub created_at: String,
    /// How it was made.
    pub mode: Mode,
    /// Requests at the start that were sent to warm up.
    #[serde(skip_serializing_if = "is_zero")]
    pub warm_up_requests: u64,
    /// The seed of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_seed: Option<i64>,
    /// The workload. For readers: here its text, in traces of the reference where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_spec: Option<Value>,
    /// Whether prompts of a conversation begin with what was said before.
    #[serde(skip_serializing_if = "is_none")]
    pub session_context_growth: ContextGrowth,
    /// The server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerNote>,
    /// The way to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkNote>,
    /// Latencies by SLO class at which a request counts as good.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub goodput_slo_targets: BTreeMap<String, GoodputTarget>,
    /// How KV blocks were moved out of the GPU. Kept as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_offload: Option<Value>,
    /// What the server said of its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kv_metrics: Option<KvMetrics>,
}

/// What times are counted in. Both names are for microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// In traces of the simulator.
    #[default]
    Microseconds,
    /// In traces of real servers.
    Us,
}

/// How a trace was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By sending requests to a server.
    Real,
    /// By a simulated run.
    #[default]
    Generated,
    /// By a simulated run of another trace.
    Replayed,
}

/// What is known of the server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names are those of the server's own flags")]
pub struct ServerNote {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_num_seqs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_utilization: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_len: Option<u32>,
}

/// What is known of the way to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkNote {
    /// Round trip in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_rtt_ms: Option<f64>,
}

/// What the server said of its cache.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvMetrics {
    /// Where these numbers are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Share of blocks that were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<f64>,
    /// Blocks that were found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_hits: Option<f64>,
    /// Blocks that were looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_queries: Option<f64>,
    /// Time of reading from slower memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_time_total: Option<f64>,
    /// Time of writing to slower memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_time_total: Option<f64>,
    /// The version of vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vllm_commit: Option<String>,
}

impl Header {
    /// The header of a new trace.
    pub fn new(mode: Mode) -> Self {
        Self {
            trace_version: TRACE_VERSION,
            mode,
            ..Self::default()
        }
    }

    /// Reads the text of a header.
    ///
    /// # Errors
    ///
    /// All errors in the text, not only the first, each with its line.
    pub fn read(text: &str, source: &SourceName) -> Result<Self, ConfigErrors> {
        let (header, mut report) = read_strictly::<Self>(text, source)?;
        let header = header.unwrap_or_default();
        if !(1..=TRACE_VERSION).contains(&header.trace_version) {
            let version = header.trace_version;
            report.error(
                "trace_version",
                format!("is {version}; versions 1 to {TRACE_VERSION} are known here"),
            );
        }
        report.finish()?;
        Ok(header)
    }

    /// The text of the header.
    pub fn to_yaml(&self) -> String {
        yaml::write(self)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_none(growth: &ContextGrowth) -> bool {
    *growth == ContextGrowth::None
}
