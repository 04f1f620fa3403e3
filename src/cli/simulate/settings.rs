//! What ran, defaults included: the settings of a run as reports list them.

use std::path::Path;

use forebay::sim::cluster::{Fault, Scenario};
use forebay::sim::latency::Resolved;
use forebay::sim::policy::{Admission, Detector, Flow, PolicySettings, Routing};
use forebay::sim::trace::SessionMode;
use forebay::sim::workload::flags::{FlagWorkload, Load, TokenRange};
use forebay::sim::workload::spec::WorkloadSpec;
use forebay::sim::workload::think::Think;
use serde_json::{Value, json};

use super::args::{ClusterArgs, WorkloadArgs};

/// Names and values, in the order in which they are shown.
pub(in crate::cli) type Settings = Vec<(String, Value)>;

fn named<const N: usize>(settings: [(&str, Value); N]) -> impl Iterator<Item = (String, Value)> + use<N> {
    settings.map(|(name, value)| (name.to_owned(), value)).into_iter()
}

fn one(name: &str, value: Value) -> (String, Value) {
    (name.to_owned(), value)
}

fn path(path: &Path) -> Value {
    json!(path.display().to_string())
}

/// The settings of the cluster and its gateway.
pub(super) fn of_cluster(
    scenario: &Scenario,
    args: &ClusterArgs,
    resolved: &Resolved,
    gpu_memory_utilization: f64,
    gateway: &PolicySettings,
) -> Settings {
    let instance = &scenario.instance;
    let mut settings: Settings = named([
        ("model", json!(&*scenario.model)),
        ("latency_model", json!(resolved.backend.to_string())),
    ])
    .collect();
    if let Some(server) = &resolved.server {
        settings.extend(named([
            ("hardware", json!(server.hardware.name)),
            ("tp", json!(server.parallelism.tp)),
            ("gpu_memory_utilization", json!(gpu_memory_utilization)),
        ]));
    }
    let given = [
        ("dp", json!(args.dp)),
        ("alpha_coeffs", json!(args.alpha_coeffs)),
        ("beta_coeffs", json!(args.beta_coeffs)),
    ];
    settings.extend(named(given).filter(|(_, value)| !value.is_null()));
    settings.extend(named([("num_instances", json!(scenario.instances))]));
    if let Some(file) = &args.endpoints_file {
        settings.push(one("endpoints_file", path(file)));
    }
    if scenario.labels.iter().any(|labels| !labels.is_empty()) {
        settings.push(one("instance_labels", json!(scenario.labels)));
    }
    if !scenario.faults.is_empty() {
        let fault = |fault: &Fault| {
            json!({
                "instance": fault.instance,
                "kind": fault.kind.name(),
                "from_us": fault.from_us,
                "until_us": fault.until_us,
            })
        };
        settings.push(one("faults", scenario.faults.iter().map(fault).collect()));
    }
    settings.extend(named([
        ("max_model_len", json!(instance.max_model_len)),
        ("total_kv_blocks", json!(instance.kv_blocks)),
        ("block_size_in_tokens", json!(instance.block_tokens)),
        ("max_num_seqs", json!(instance.max_num_seqs)),
        ("max_num_batched_tokens", json!(instance.max_num_batched_tokens)),
        (
            "long_prefill_token_threshold",
            json!(instance.long_prefill_token_threshold),
        ),
        ("scheduler", json!(instance.scheduler.name())),
        ("preemption_policy", json!(instance.preemption_policy.name())),
    ]));
    if let Some(bundle) = &args.policy.policy_config {
        settings.push(one("policy_config", path(bundle)));
    }
    match &args.policy.config {
        Some(config) => settings.push(one("config", path(config))),
        None => of_gateway(&mut settings, gateway),
    }
    settings.push(one("slo_priorities", json!(scenario.classes.objectives())));
    if !scenario.slo_targets_us.is_empty() {
        settings.push(one("slo_targets_us", json!(scenario.slo_targets_us)));
    }
    settings.extend(named([
        ("admission_latency_us", json!(scenario.admission_latency_us)),
        ("routing_latency_us", json!(scenario.routing_latency_us)),
        ("snapshot_refresh_interval_us", json!(scenario.snapshot_refresh_us)),
        ("cache_signal_delay_us", json!(scenario.cache_signal_delay_us)),
        ("seed", json!(scenario.seed)),
        ("horizon_us", json!(scenario.horizon_us)),
    ]));
    settings
}

fn of_gateway(settings: &mut Settings, gateway: &PolicySettings) {
    settings.push(one("admission_policy", json!(gateway.admission.name())));
    match gateway.admission {
        Admission::Always | Admission::RejectAll => {}
        Admission::TokenBucket { capacity, refill_rate } => settings.extend(named([
            ("token_bucket_capacity", json!(capacity)),
            ("token_bucket_refill_rate", json!(refill_rate)),
        ])),
        Admission::TierShed {
            threshold,
            min_priority,
        } => settings.extend(named([
            ("tier_shed_threshold", json!(threshold)),
            ("tier_shed_min_priority", json!(min_priority)),
        ])),
        Admission::GaieLegacy {
            queue_depth,
            kv_utilization,
        } => settings.extend(named([
            ("gaie_qd_threshold", json!(queue_depth)),
            ("gaie_kv_threshold", json!(kv_utilization)),
        ])),
    }
    if !gateway.tenant_budgets.is_empty() {
        settings.push(one("tenant_budgets", json!(gateway.tenant_budgets)));
    }
    settings.push(one("routing_policy", json!(gateway.routing.name())));
    if let Routing::Weighted(scorers) = &gateway.routing {
        settings.push(one("routing_scorers", json!(scorers.to_string())));
    }
    settings.push(one("flow_control", json!(gateway.flow.is_some())));
    if let Some(flow) = &gateway.flow {
        of_flow(settings, flow);
    }
}

fn of_flow(settings: &mut Settings, flow: &Flow) {
    settings.push(one("saturation_detector", json!(flow.detector.name())));
    match flow.detector {
        Detector::Never => {}
        Detector::Utilization {
            queue_depth,
            kv_utilization,
        } => settings.extend(named([
            ("queue_depth_threshold", json!(queue_depth)),
            ("kv_cache_util_threshold", json!(kv_utilization)),
        ])),
        Detector::Concurrency { max } => settings.push(one("max_concurrency", json!(max))),
    }
    settings.extend(named([
        ("dispatch_order", json!(flow.order.name())),
        ("fairness_policy", json!(flow.fairness.name())),
        ("max_gateway_queue_depth", json!(flow.max_requests)),
        ("per_band_capacity", json!(flow.max_band_requests)),
        ("request_ttl_us", json!(flow.ttl_us)),
        ("usage_limit_threshold", json!(flow.usage_limit)),
        ("queue_shedding", json!(flow.shedding)),
        ("in_flight_eviction", json!(flow.eviction)),
    ]));
}

/// What requests a file describes.
pub(super) fn of_workload_file(file: &Path, args: &WorkloadArgs, spec: &WorkloadSpec) -> Settings {
    let mut settings: Settings = named([
        ("workload_spec", path(file)),
        ("num_requests", json!(args.num_requests.or(spec.num_requests))),
    ])
    .collect();
    if let Some(seconds) = args.timeout {
        settings.push(one("timeout_s", json!(seconds)));
    }
    settings
}

/// What requests flags describe.
pub(super) fn of_flags(name: &str, flags: &FlagWorkload) -> Settings {
    let mut settings = vec![one("workload", json!(name))];
    match flags.load {
        Load::Rate { per_second, arrival } => {
            settings.extend(named([("rate", json!(per_second)), ("arrival", json!(arrival.name()))]));
        }
        Load::Users { users, think_time_us } => settings.extend(named([
            ("concurrency", json!(users)),
            ("think_time_ms", json!(think_time_us / 1000)),
        ])),
    }
    settings.extend(named([
        ("num_requests", json!(flags.num_requests)),
        ("prefix_tokens", json!(flags.prefix_tokens)),
    ]));
    for (
        name,
        TokenRange {
            mean,
            std_dev,
            min,
            max,
        },
    ) in [("prompt", flags.prompt), ("output", flags.output)]
    {
        settings.extend([
            (format!("{name}_tokens"), json!(mean)),
            (format!("{name}_tokens_stdev"), json!(std_dev)),
            (format!("{name}_tokens_min"), json!(min)),
            (format!("{name}_tokens_max"), json!(max)),
        ]);
    }
    settings.push(one("timeout_s", json!(flags.timeout_us / 1_000_000)));
    settings
}

/// What trace is replayed.
pub(super) fn of_trace(header: &Path, data: &Path, sessions: SessionMode, think: Think) -> Settings {
    let mut settings: Settings = named([
        ("trace_header", path(header)),
        ("trace_data", path(data)),
        ("session_mode", json!(sessions.name())),
    ])
    .collect();
    if sessions == SessionMode::ClosedLoop {
        settings.push(one("think_time", json!(think.to_string())));
    }
    settings
}
