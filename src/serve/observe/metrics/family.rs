//! The families of the metrics page: their names, labels, buckets and meaning, each said once.
//!
//! Every family has a name that begins with `llm_d_epp_`. Most have an older name too, with fewer labels; dashboards
//! still read it. Values are kept under the first name alone, and the page is rendered with both (see
//! `render`).

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// What the names of families begin with.
pub(super) const PREFIX: &str = "llm_d_epp_";

/// One family.
#[derive(Debug)]
pub struct Family {
    /// The name, in full.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// What it tells, with its unit.
    pub help: &'static str,
    /// The older name of the same values.
    pub old: Option<Old>,
}

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations, by these upper bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word of the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// An older name of a family.
#[derive(Debug)]
pub struct Old {
    /// The name, in full.
    pub name: &'static str,
    /// Each label of the old family, and the label of the new one that it is taken from. Series that are equal in
    /// these are added up.
    pub labels: &'static [(&'static str, &'static str)],
    /// A label of the new family and a value of it: only these series are shown under the old name. For values of which
    /// the sum means nothing.
    pub only: Option<(&'static str, &'static str)>,
}

impl Old {
    const fn new(name: &'static str, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            name,
            labels,
            only: None,
        }
    }
}

impl Family {
    /// The help text on the page.
    pub(super) fn page_help(&self) -> String {
        format!("[ALPHA] {}", self.help)
    }

    /// The help text of the older name on the page.
    pub(super) fn older_help(&self) -> String {
        format!("[ALPHA] [Deprecated: Use {}] {}", self.name, self.help)
    }

    fn opts(&self) -> Opts {
        Opts::new(self.name, self.page_help())
    }

    pub(super) fn counter(&self, registry: &Registry) -> prometheus::Result<IntCounterVec> {
        let family = IntCounterVec::new(self.opts(), self.labels)?;
        registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn gauge(&self, registry: &Registry) -> prometheus::Result<IntGaugeVec> {
        let family = IntGaugeVec::new(self.opts(), self.labels)?;
        registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    pub(super) fn histogram(&self, registry: &Registry) -> prometheus::Result<HistogramVec> {
        let Kind::Histogram(buckets) = self.kind else {
            unreachable!("{} is no histogram", self.name)
        };
        let opts = HistogramOpts::from(self.opts()).buckets(buckets.to_vec());
        let family = HistogramVec::new(opts, self.labels)?;
        registry.register(Box::new(family.clone()))?;
        Ok(family)
    }

    /// A counter whose value is read from its owner when the page is asked for.
    pub(super) fn counted(&self) -> prometheus::Result<IntCounterVec> {
        IntCounterVec::new(self.opts(), self.labels)
    }

    /// A gauge whose value is read from its owner when the page is asked for.
    pub(super) fn snapshot(&self) -> prometheus::Result<GaugeVec> {
        GaugeVec::new(self.opts(), self.labels)
    }
}

/// Every family, in the order of the reference page.
pub const FAMILIES: &[&Family] = &[
    &REQUESTS,
    &REQUEST_ERRORS,
    &REQUEST_DURATION,
    &REQUEST_SIZE,
    &RESPONSE_SIZE,
    &INPUT_TOKENS,
    &OUTPUT_TOKENS,
    &CACHED_TOKENS,
    &RUNNING,
    &NTPOT,
    &TTFT,
    &TPOT,
    &ITL,
    &ESTIMATED_TOKENS,
    &OUTCOMES,
    &LOCAL_REPLIES,
    &POOL_KV,
    &POOL_QUEUE,
    &POOL_RUNNING,
    &POOL_KV_DEVIATION,
    &POOL_QUEUE_DEVIATION,
    &POOL_RUNNING_DEVIATION,
    &POOL_READY,
    &POOL_ENDPOINT_QUEUE,
    &POOL_ENDPOINTS,
    &ENDPOINT_STATE,
    &ENDPOINT_FAILURES,
    &EJECTIONS,
    &INFLIGHT_REQUESTS,
    &INFLIGHT_TOKENS,
    &PANICS,
    &REQUEST_MEMORY,
    &REQUEST_MEMORY_LIMIT,
    &CONNECTIONS,
    &CONNECTIONS_DISPLACED,
    &LOG_LINES_LEFT_OUT,
    &SERIES_REMOVED,
    &SERIES_OVERFLOWS,
    &SCHEDULER_DURATION,
    &SCHEDULER_ATTEMPTS,
    &PLUGIN_DURATION,
    &REQUEST_PROCESSING,
    &RESPONSE_PROCESSING,
    &QUEUE_DURATION,
    &DISPATCH_DURATION,
    &ENQUEUE_DURATION,
    &QUEUE_SIZE,
    &QUEUE_BYTES,
    &POOL_SATURATION,
    &STALE_ENDPOINTS,
    &BAND_REQUESTS,
    &BAND_BYTES,
    &GLOBAL_REQUESTS,
    &GLOBAL_BYTES,
    &QUEUE_OUTCOMES,
    &REVOCATIONS_ISSUED,
    &REVOCATIONS,
    &RECLAIM_TARGET,
    &PENDING_RECLAIM,
    &REVOCATION_CONFIRMATION,
    &PROGRAM_FAIRNESS,
    &PROGRAM_WAIT,
    &PROGRAM_SERVICE,
    &MODEL_REWRITES,
    &PREFIX_SIZE,
    &PREFIX_HIT_RATIO,
    &PREFIX_HIT_BYTES,
    &POLL_ERRORS,
    &EXTRACT_ERRORS,
    &INFO,
];

const MF: &[&str] = &["model_name", "target_model_name", "fairness_id", "priority"];
const M: &[(&str, &str)] = &[("model_name", "model_name"), ("target_model_name", "target_model_name")];
const NAME: &[(&str, &str)] = &[("name", "name")];

pub(super) const MODEL_REWRITES: Family = Family {
    name: "llm_d_epp_model_rewrite_decisions_total",
    kind: Kind::Counter,
    labels: &["model_rewrite_name", "model_name", "target_model"],
    help: "Requests whose model was chosen by a rule of an InferenceModelRewrite.",
    old: Some(Old::new(
        "inference_extension_model_rewrite_decisions_total",
        &[
            ("model_rewrite_name", "model_rewrite_name"),
            ("model_name", "model_name"),
            ("target_model", "target_model"),
        ],
    )),
};

pub(super) const REQUESTS: Family = Family {
    name: "llm_d_epp_request_total",
    kind: Kind::Counter,
    labels: MF,
    help: "Requests that were given an endpoint.",
    old: Some(Old::new(
        "inference_objective_request_total",
        &[
            ("model_name", "model_name"),
            ("target_model_name", "target_model_name"),
            ("priority", "priority"),
        ],
    )),
};

pub(super) const REQUEST_ERRORS: Family = Family {
    name: "llm_d_epp_request_error_total",
    kind: Kind::Counter,
    labels: &[
        "model_name",
        "target_model_name",
        "fairness_id",
        "priority",
        "error_code",
    ],
    help: "Requests that failed, by canonical code.",
    old: Some(Old::new(
        "inference_objective_request_error_total",
        &[
            ("model_name", "model_name"),
            ("target_model_name", "target_model_name"),
            ("error_code", "error_code"),
        ],
    )),
};

pub(super) const REQUEST_DURATION: Family = Family {
    name: "llm_d_epp_request_duration_seconds",
    kind: Kind::Histogram(buckets::GENERAL),
    labels: MF,
    help: "Seconds from the headers of the request to the end of the response.",
    old: Some(Old::new("inference_objective_request_duration_seconds", M)),
};

pub(super) const REQUEST_SIZE: Family = Family {
    name: "llm_d_epp_request_size_bytes",
    kind: Kind::Histogram(buckets::REQUEST_SIZE),
    labels: MF,
    help: "Bytes of the request body that was sent on.",
    old: Some(Old::new("inference_objective_request_sizes", M)),
};

pub(super) const RESPONSE_SIZE: Family = Family {
    name: "llm_d_epp_response_size_bytes",
    kind: Kind::Histogram(buckets::RESPONSE_SIZE),
    labels: MF,
    help: "Bytes of the response body.",
    old: Some(Old::new("inference_objective_response_sizes", M)),
};

pub(super) const INPUT_TOKENS: Family = Family {
    name: "llm_d_epp_request_input_tokens",
    kind: Kind::Histogram(buckets::INPUT_TOKENS),
    labels: MF,
    help: "Prompt tokens, as the model server counted them, or estimated where it did not.",
    old: Some(Old::new("inference_objective_input_tokens", M)),
};

pub(super) const OUTPUT_TOKENS: Family = Family {
    name: "llm_d_epp_request_output_tokens",
    kind: Kind::Histogram(buckets::OUTPUT_TOKENS),
    labels: MF,
    help: "Completion tokens, as the model server counted them, or estimated where it did not.",
    old: Some(Old::new("inference_objective_output_tokens", M)),
};

pub(super) const CACHED_TOKENS: Family = Family {
    name: "llm_d_epp_request_cached_tokens",
    kind: Kind::Histogram(buckets::INPUT_TOKENS),
    labels: MF,
    help: "Prompt tokens that the model server read from its cache, as it reported.",
    old: Some(Old::new("inference_objective_prompt_cached_tokens", M)),
};

pub(super) const RUNNING: Family = Family {
    name: "llm_d_epp_request_running",
    kind: Kind::Gauge,
    labels: MF,
    help: "Requests that were sent on and whose response has not ended.",
    old: Some(Old::new(
        "inference_objective_running_requests",
        &[("model_name", "model_name")],
    )),
};

pub(super) const NTPOT: Family = Family {
    name: "llm_d_epp_request_ntpot_seconds",
    kind: Kind::Histogram(buckets::NTPOT),
    labels: MF,
    help: "Normalized time per output token: duration in seconds divided by output tokens.",
    old: Some(Old::new(
        "inference_objective_normalized_time_per_output_token_seconds",
        M,
    )),
};

pub(super) const TTFT: Family = Family {
    name: "llm_d_epp_request_ttft_seconds",
    kind: Kind::Histogram(buckets::TTFT),
    labels: &[
        "model_name",
        "target_model_name",
        "fairness_id",
        "priority",
        "streaming",
    ],
    help: "Time to first token: seconds from the headers of the request to the first byte of the response body.",
    old: None,
};

pub(super) const TPOT: Family = Family {
    name: "llm_d_epp_request_streaming_tpot_seconds",
    kind: Kind::Histogram(buckets::TPOT),
    labels: MF,
    help: "Time per output token after the first, in seconds, of streamed responses.",
    old: None,
};

pub(super) const ITL: Family = Family {
    name: "llm_d_epp_request_streaming_itl_seconds",
    kind: Kind::Histogram(buckets::ITL),
    labels: MF,
    help: "Inter-token latency: seconds between consecutive chunks of streamed responses.",
    old: None,
};

pub(super) const ESTIMATED_TOKENS: Family = Family {
    name: "forebay_request_estimated_tokens_total",
    kind: Kind::Counter,
    labels: &[
        "model_name",
        "target_model_name",
        "fairness_id",
        "priority",
        "direction",
    ],
    help: "Tokens that the model server did not count and that were estimated: `input` by the size of the prompt, \
           `output` by the chunks of a stream or the bytes of a document. Those of answers that were cut off are among \
           them.",
    old: None,
};

pub(super) const OUTCOMES: Family = Family {
    name: "forebay_requests_ended_total",
    kind: Kind::Counter,
    labels: &["outcome"],
    help: "Requests that ended, by how they did; each is counted once.",
    old: None,
};

pub(super) const LOCAL_REPLIES: Family = Family {
    name: "forebay_local_replies_total",
    kind: Kind::Counter,
    labels: &["status"],
    help: "Responses that the gateway made by itself, such as refusals by its other filters; they passed through and \
           count as no request.",
    old: None,
};

pub(super) const POOL_KV: Family = Family {
    name: "llm_d_epp_average_kv_cache_utilization",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Mean KV-cache utilization of endpoints with fresh metrics, 0 to 1.",
    old: Some(Old::new("inference_pool_average_kv_cache_utilization", NAME)),
};

pub(super) const POOL_QUEUE: Family = Family {
    name: "llm_d_epp_average_queue_size",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Mean number of waiting requests of endpoints with fresh metrics.",
    old: Some(Old::new("inference_pool_average_queue_size", NAME)),
};

pub(super) const POOL_RUNNING: Family = Family {
    name: "llm_d_epp_average_running_requests",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Mean number of running requests of endpoints with fresh metrics.",
    old: Some(Old::new("inference_pool_average_running_requests", NAME)),
};

pub(super) const POOL_KV_DEVIATION: Family = Family {
    name: "llm_d_epp_std_dev_kv_cache_utilization",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Sample standard deviation of the KV-cache utilization.",
    old: None,
};

pub(super) const POOL_QUEUE_DEVIATION: Family = Family {
    name: "llm_d_epp_std_dev_queue_size",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Sample standard deviation of the number of waiting requests.",
    old: None,
};

pub(super) const POOL_RUNNING_DEVIATION: Family = Family {
    name: "llm_d_epp_std_dev_running_requests",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Sample standard deviation of the number of running requests.",
    old: None,
};

pub(super) const POOL_READY: Family = Family {
    name: "llm_d_epp_ready_endpoints",
    kind: Kind::Gauge,
    labels: &["name"],
    help: "Endpoints with fresh metrics.",
    old: Some(Old::new("inference_pool_ready_pods", NAME)),
};

pub(super) const POOL_ENDPOINT_QUEUE: Family = Family {
    name: "llm_d_epp_per_endpoint_queue_size",
    kind: Kind::Gauge,
    labels: &["name", "model_server_endpoint"],
    help: "Waiting requests of each endpoint, as it last reported.",
    old: Some(Old::new(
        "inference_pool_per_pod_queue_size",
        &[("name", "name"), ("model_server_pod", "model_server_endpoint")],
    )),
};

const INFLIGHT: &[&str] = &["endpoint_name", "namespace", "producer_name", "fairness_id", "priority"];

pub(super) const INFLIGHT_REQUESTS: Family = Family {
    name: "llm_d_epp_inflight_requests",
    kind: Kind::Gauge,
    labels: INFLIGHT,
    help: "Requests that were sent to an endpoint and have not ended.",
    old: None,
};

pub(super) const INFLIGHT_TOKENS: Family = Family {
    name: "llm_d_epp_inflight_tokens",
    kind: Kind::Gauge,
    labels: INFLIGHT,
    help: "Prompt tokens, as estimated, of requests that were sent to an endpoint and whose answer has not begun.",
    old: None,
};

pub(super) const POOL_ENDPOINTS: Family = Family {
    name: "forebay_pool_endpoints",
    kind: Kind::Gauge,
    labels: &["name", "state"],
    help: "Endpoints by their state: `healthy`; `unscraped` (metrics never read), `stale` (metrics old), `ejected` (requests \
           failed) and `unreachable`, which are the last choice.",
    old: None,
};

pub(super) const ENDPOINT_STATE: Family = Family {
    name: "forebay_endpoint_state_seconds",
    kind: Kind::Gauge,
    labels: &["name", "model_server_endpoint", "state", "reason"],
    help: "Seconds since an endpoint that is not healthy is in its state, and why; one series for each such endpoint.",
    old: None,
};

pub(super) const ENDPOINT_FAILURES: Family = Family {
    name: "forebay_endpoint_failures_total",
    kind: Kind::Counter,
    labels: &["name", "reason"],
    help: "Requests that failed at an endpoint before an answer began.",
    old: None,
};

pub(super) const EJECTIONS: Family = Family {
    name: "forebay_endpoint_ejections_total",
    kind: Kind::Counter,
    labels: &["name", "reason"],
    help: "Ejections of endpoints, by the reason of the last of the consecutive failures.",
    old: None,
};

pub(super) const PANICS: Family = Family {
    name: "forebay_panics_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Panics that were caught: defects of Forebay, each of which failed one request.",
    old: None,
};

pub(super) const REQUEST_MEMORY: Family = Family {
    name: "forebay_request_memory_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Memory that open streams and their request bodies use, of `forebay_request_memory_limit_bytes`.",
    old: None,
};

pub(super) const REQUEST_MEMORY_LIMIT: Family = Family {
    name: "forebay_request_memory_limit_bytes",
    kind: Kind::Gauge,
    labels: &[],
    help: "Memory that open streams and their request bodies may use: half of `--memory-limit`. What needs more is refused as \
           `memory-exhausted`.",
    old: None,
};

pub(super) const CONNECTIONS: Family = Family {
    name: "forebay_connections",
    kind: Kind::Gauge,
    labels: &["port"],
    help: "Open connections of a port.",
    old: None,
};

pub(super) const CONNECTIONS_DISPLACED: Family = Family {
    name: "forebay_connections_displaced_total",
    kind: Kind::Counter,
    labels: &["port"],
    help: "Connections that were closed, or not taken, because the port had as many as it may (`--max-connections`).",
    old: None,
};

pub(super) const LOG_LINES_LEFT_OUT: Family = Family {
    name: "forebay_log_lines_left_out_total",
    kind: Kind::Counter,
    labels: &["reason"],
    help: "Log lines that were not written: `repeated` ones said the same too often in a second, `unwritten` ones found nobody \
           who reads the log.",
    old: None,
};

pub(super) const SERIES_REMOVED: Family = Family {
    name: "forebay_metrics_combinations_removed_total",
    kind: Kind::Counter,
    labels: &["table", "reason"],
    help: "Combinations of label values that were removed from this page: `folded` ones were counted under `other` before any \
           page showed them, `replaced` ones were idle while others wanted their place, `idle` ones were idle for long.",
    old: None,
};

pub(super) const SERIES_OVERFLOWS: Family = Family {
    name: "forebay_metrics_overflows_total",
    kind: Kind::Counter,
    labels: &["table"],
    help: "Values that were counted under `other` because there was no room for another series (`--metrics-series-limit`).",
    old: None,
};

pub(super) const SCHEDULER_DURATION: Family = Family {
    name: "llm_d_epp_scheduler_e2e_duration_seconds",
    kind: Kind::Histogram(buckets::FAST),
    labels: &[],
    help: "Seconds that choosing an endpoint took.",
    old: Some(Old::new("inference_extension_scheduler_e2e_duration_seconds", &[])),
};

pub(super) const SCHEDULER_ATTEMPTS: Family = Family {
    name: "llm_d_epp_scheduler_attempts_total",
    kind: Kind::Counter,
    labels: &["status", "target_model_name", "endpoint_name", "namespace", "port"],
    help: "Attempts to choose an endpoint, with the first one chosen; empty if there was none.",
    old: Some(Old::new(
        "inference_extension_scheduler_attempts_total",
        &[
            ("status", "status"),
            ("target_model_name", "target_model_name"),
            ("pod_name", "endpoint_name"),
            ("namespace", "namespace"),
            ("port", "port"),
        ],
    )),
};

pub(super) const PLUGIN_DURATION: Family = Family {
    name: "llm_d_epp_plugin_duration_seconds",
    kind: Kind::Histogram(buckets::FAST),
    labels: &["extension_point", "plugin_type", "plugin_name"],
    help: "Seconds that one call of a plugin took.",
    old: Some(Old::new(
        "inference_extension_plugin_duration_seconds",
        &[
            ("extension_point", "extension_point"),
            ("plugin_type", "plugin_type"),
            ("plugin_name", "plugin_name"),
        ],
    )),
};

pub(super) const REQUEST_PROCESSING: Family = Family {
    name: "llm_d_epp_request_processing_duration_seconds",
    kind: Kind::Histogram(buckets::REQUEST_PROCESSING),
    labels: &[],
    help: "Seconds from the headers of the request to the verdict, waiting included.",
    old: None,
};

pub(super) const RESPONSE_PROCESSING: Family = Family {
    name: "llm_d_epp_response_processing_duration_seconds",
    kind: Kind::Histogram(buckets::RESPONSE_PROCESSING),
    labels: &[],
    help: "Seconds that the picker itself spent on one response.",
    old: None,
};

const FQ: &[&str] = &[
    "fairness_id",
    "priority",
    "inference_pool",
    "model_name",
    "target_model_name",
];

/// Labels that the older name has too.
macro_rules! same {
    ($($label:literal),*) => {
        &[$(($label, $label)),*]
    };
}

pub(super) const QUEUE_DURATION: Family = Family {
    name: "llm_d_epp_flow_control_request_queue_duration_seconds",
    kind: Kind::Histogram(buckets::QUEUE),
    labels: &[
        "fairness_id",
        "priority",
        "outcome",
        "inference_pool",
        "model_name",
        "target_model_name",
    ],
    help: "Seconds that requests waited before they were released or turned away.",
    old: Some(Old::new(
        "inference_extension_flow_control_request_queue_duration_seconds",
        same!(
            "fairness_id",
            "priority",
            "outcome",
            "inference_pool",
            "model_name",
            "target_model_name"
        ),
    )),
};

pub(super) const DISPATCH_DURATION: Family = Family {
    name: "llm_d_epp_flow_control_dispatch_cycle_duration_seconds",
    kind: Kind::Histogram(buckets::FAST),
    labels: &[],
    help: "Seconds that looking for a request to release took, routing it included.",
    old: Some(Old::new(
        "inference_extension_flow_control_dispatch_cycle_duration_seconds",
        &[],
    )),
};

pub(super) const ENQUEUE_DURATION: Family = Family {
    name: "llm_d_epp_flow_control_request_enqueue_duration_seconds",
    kind: Kind::Histogram(buckets::FAST),
    labels: &["fairness_id", "priority", "outcome"],
    help: "Seconds that taking a request into its queue took; the outcome is `NotYetFinalized` if it waits there.",
    old: Some(Old::new(
        "inference_extension_flow_control_request_enqueue_duration_seconds",
        same!("fairness_id", "priority", "outcome"),
    )),
};

pub(super) const QUEUE_SIZE: Family = Family {
    name: "llm_d_epp_flow_control_queue_size",
    kind: Kind::Gauge,
    labels: FQ,
    help: "Requests that wait.",
    old: Some(Old::new(
        "inference_extension_flow_control_queue_size",
        same!(
            "fairness_id",
            "priority",
            "inference_pool",
            "model_name",
            "target_model_name"
        ),
    )),
};

pub(super) const QUEUE_BYTES: Family = Family {
    name: "llm_d_epp_flow_control_queue_bytes",
    kind: Kind::Gauge,
    labels: FQ,
    help: "Bytes of the bodies of requests that wait.",
    old: Some(Old::new(
        "inference_extension_flow_control_queue_bytes",
        same!(
            "fairness_id",
            "priority",
            "inference_pool",
            "model_name",
            "target_model_name"
        ),
    )),
};

pub(super) const POOL_SATURATION: Family = Family {
    name: "llm_d_epp_flow_control_pool_saturation",
    kind: Kind::Gauge,
    labels: &["inference_pool", "stage"],
    help: "How full the pool is: 0 idle, 1 full. The stage `effective` is the one that counts.",
    old: Some(Old {
        name: "inference_extension_flow_control_pool_saturation",
        labels: same!("inference_pool"),
        only: Some(("stage", "effective")),
    }),
};

pub(super) const STALE_ENDPOINTS: Family = Family {
    name: "llm_d_epp_flow_control_stale_endpoints",
    kind: Kind::Gauge,
    labels: &["detector"],
    help: "Endpoints that count as full because their metrics are missing or old.",
    old: None,
};

pub(super) const BAND_REQUESTS: Family = Family {
    name: "llm_d_epp_flow_control_capacity_utilization_requests",
    kind: Kind::Gauge,
    labels: &["priority", "inference_pool"],
    help: "Requests that wait in a band, as a share of its limit.",
    old: None,
};

pub(super) const BAND_BYTES: Family = Family {
    name: "llm_d_epp_flow_control_capacity_utilization_bytes",
    kind: Kind::Gauge,
    labels: &["priority", "inference_pool"],
    help: "Bytes that wait in a band, as a share of its limit.",
    old: None,
};

pub(super) const GLOBAL_REQUESTS: Family = Family {
    name: "llm_d_epp_flow_control_global_capacity_utilization_requests",
    kind: Kind::Gauge,
    labels: &["inference_pool"],
    help: "Requests that wait in all bands, as a share of the limit, if there is one.",
    old: None,
};

pub(super) const GLOBAL_BYTES: Family = Family {
    name: "llm_d_epp_flow_control_global_capacity_utilization_bytes",
    kind: Kind::Gauge,
    labels: &["inference_pool"],
    help: "Bytes that wait in all bands, as a share of the limit, if there is one.",
    old: None,
};

pub(super) const QUEUE_OUTCOMES: Family = Family {
    name: "llm_d_epp_flow_control_requests_total",
    kind: Kind::Counter,
    labels: &["outcome", "priority", "inference_pool"],
    help: "Requests that left flow control, by how they did.",
    old: None,
};

pub(super) const REVOCATIONS_ISSUED: Family = Family {
    name: "llm_d_epp_flow_control_revocations_issued_total",
    kind: Kind::Counter,
    labels: &["priority", "inference_pool"],
    help: "Requests in flight that were cut off, by the priority of those for which they were.",
    old: None,
};

pub(super) const REVOCATIONS: Family = Family {
    name: "llm_d_epp_flow_control_revocations_total",
    kind: Kind::Counter,
    labels: &["outcome", "inference_pool"],
    help: "Requests that were cut off and have ended (`confirmed`), or were given up waiting for (`timed_out`).",
    old: None,
};

pub(super) const RECLAIM_TARGET: Family = Family {
    name: "llm_d_epp_flow_control_reclaim_target",
    kind: Kind::Gauge,
    labels: &["inference_pool"],
    help: "How far the saturation was above the ceiling when requests were cut off last.",
    old: None,
};

pub(super) const PENDING_RECLAIM: Family = Family {
    name: "llm_d_epp_flow_control_pending_reclaim",
    kind: Kind::Gauge,
    labels: &["inference_pool"],
    help: "Saturation that was reclaimed from requests and does not show yet.",
    old: None,
};

pub(super) const REVOCATION_CONFIRMATION: Family = Family {
    name: "llm_d_epp_flow_control_revocation_confirmation_seconds",
    kind: Kind::Histogram(buckets::CONFIRM),
    labels: &["inference_pool"],
    help: "Seconds from cutting a request off to the end of its stream.",
    old: None,
};

pub(super) const PROGRAM_FAIRNESS: Family = Family {
    name: "llm_d_epp_program_aware_jains_fairness_index",
    kind: Kind::Gauge,
    labels: &[],
    help: "Jain's index over the mean waits of programs: 1 if all wait alike. The lowest of all instances of the policy.",
    old: None,
};

pub(super) const PROGRAM_WAIT: Family = Family {
    name: "llm_d_epp_program_aware_avg_wait_time_milliseconds",
    kind: Kind::Gauge,
    labels: &["program_id"],
    help: "Mean wait of the requests of a program before they were released. The longest, where several programs or \
           instances of the policy share a series.",
    old: None,
};

pub(super) const PROGRAM_SERVICE: Family = Family {
    name: "llm_d_epp_program_aware_attained_service_tokens",
    kind: Kind::Gauge,
    labels: &["program_id"],
    help: "Weighted tokens that a program got, of which the older ones count less.",
    old: None,
};

const PLUGIN: &[&str] = &["plugin_name", "plugin_type"];

pub(super) const PREFIX_SIZE: Family = Family {
    name: "llm_d_epp_prefix_indexer_size",
    kind: Kind::Gauge,
    labels: PLUGIN,
    help: "Prefix blocks remembered, counted once for each endpoint that served them.",
    old: Some(Old::new("inference_extension_prefix_indexer_size", &[])),
};

pub(super) const PREFIX_HIT_RATIO: Family = Family {
    name: "llm_d_epp_prefix_indexer_hit_ratio",
    kind: Kind::Histogram(buckets::RATIO),
    labels: PLUGIN,
    help: "Share of the prompt that the chosen endpoint served before, 0 to 1.",
    old: Some(Old::new("inference_extension_prefix_indexer_hit_ratio", &[])),
};

pub(super) const PREFIX_HIT_BYTES: Family = Family {
    name: "llm_d_epp_prefix_indexer_hit_bytes",
    kind: Kind::Histogram(buckets::HIT_BYTES),
    labels: PLUGIN,
    help: "Bytes of the prompt that the chosen endpoint served before, four for each token.",
    old: Some(Old::new("inference_extension_prefix_indexer_hit_bytes", &[])),
};

pub(super) const POLL_ERRORS: Family = Family {
    name: "llm_d_epp_datalayer_poll_errors_total",
    kind: Kind::Counter,
    labels: &["source_type"],
    help: "Scrapes of an endpoint that failed.",
    old: Some(Old::new(
        "llm_d_inference_scheduler_datalayer_poll_errors_total",
        &[("source_type", "source_type")],
    )),
};

pub(super) const EXTRACT_ERRORS: Family = Family {
    name: "llm_d_epp_datalayer_extract_errors_total",
    kind: Kind::Counter,
    labels: &["source_type", "extractor_type"],
    help: "Scrapes in which a wanted series was missing or could not be read.",
    old: Some(Old::new(
        "llm_d_inference_scheduler_datalayer_extract_errors_total",
        &[("source_type", "source_type"), ("extractor_type", "extractor_type")],
    )),
};

pub(super) const INFO: Family = Family {
    name: "llm_d_epp_info",
    kind: Kind::Gauge,
    labels: &["commit", "build_ref"],
    help: "Always 1; the labels tell which build this is.",
    old: Some(Old::new(
        "inference_extension_info",
        &[("commit", "commit"), ("build_ref", "build_ref")],
    )),
};

/// Upper bounds of histogram buckets: the reference's, so that existing queries keep their meaning (spec, metrics 2).
mod buckets {
    pub(super) const GENERAL: &[f64] = &[
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0,
        30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
    ];
    pub(super) const TTFT: &[f64] = GENERAL.split_at(24).0;
    pub(super) const TPOT: &[f64] = &[
        0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0,
    ];
    pub(super) const ITL: &[f64] = &[
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0,
    ];
    pub(super) const NTPOT: &[f64] = &[
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
    ];
    pub(super) const REQUEST_SIZE: &[f64] = &powers_of_two();
    /// The 32778 is the reference's.
    pub(super) const RESPONSE_SIZE: &[f64] = INPUT_TOKENS.split_at(15).0;
    pub(super) const INPUT_TOKENS: &[f64] = &[
        1.0,
        8.0,
        16.0,
        32.0,
        64.0,
        128.0,
        256.0,
        512.0,
        1024.0,
        2048.0,
        4096.0,
        8192.0,
        16384.0,
        32778.0,
        65536.0,
        131_072.0,
        262_144.0,
        524_288.0,
        1_048_576.0,
    ];
    pub(super) const OUTPUT_TOKENS: &[f64] = INPUT_TOKENS.split_at(12).0;
    pub(super) const FAST: &[f64] = &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];
    pub(super) const QUEUE: &[f64] = &[
        0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ];
    pub(super) const CONFIRM: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    pub(super) const REQUEST_PROCESSING: &[f64] = &[
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ];
    pub(super) const RESPONSE_PROCESSING: &[f64] = &[
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    ];
    pub(super) const RATIO: &[f64] = &[0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
    pub(super) const HIT_BYTES: &[f64] = &[
        0.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0,
    ];

    /// 2⁶ to 2³⁰.
    const fn powers_of_two() -> [f64; 25] {
        let mut bounds = [0.0; 25];
        let mut at = 0;
        while at < bounds.len() {
            bounds[at] = (64_u32 << at) as f64;
            at += 1;
        }
        bounds
    }
}
