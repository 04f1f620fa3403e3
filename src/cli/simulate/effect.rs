//! Flags that are given and can change nothing beside the others. Somebody meant something by them, so each is told of.

use forebay::sim::latency::{Backend, Resolved};
use forebay::sim::policy::{Detector, DispatchOrder, Flow};

use super::args::{ClusterArgs, DetectorName, Format, OutputArgs, PolicyArgs, TraceLevel};

/// A flag, and whether it is given and asks for something.
type Given = (&'static str, bool);

/// One warning for each flag that is given, with the reason why it has no effect.
fn idle(flags: impl IntoIterator<Item = Given>, why: &str) -> Vec<String> {
    let given = flags.into_iter().filter(|(_, is_given)| *is_given);
    given
        .map(|(flag, _)| format!("`--{flag}` has no effect {why}"))
        .collect()
}

/// Flags of the cluster and its policies without effect. `wants_cache` tells whether a policy asks what is in the KV
/// caches.
pub(super) fn of_cluster(
    args: &ClusterArgs,
    flow: Option<&Flow>,
    resolved: &Resolved,
    wants_cache: bool,
) -> Vec<String> {
    let policy = &args.policy;
    let mut warnings = match (flow, &policy.config) {
        // Beside a configuration, flags for policies are an error.
        (_, Some(_)) => Vec::new(),
        (None, None) => idle(of_gateway_queue(policy), "without `--flow-control`"),
        (Some(flow), None) => of_flow(policy, flow),
    };
    warnings.extend(idle(
        [(
            "allow-experimental-plugins",
            policy.allow_experimental_plugins && policy.config.is_none(),
        )],
        "without `--config`",
    ));
    let ticks = policy.dispatch_tick_interval.is_some_and(|us| ![0, 1000].contains(&us));
    warnings.extend(idle(
        [("dispatch-tick-interval", ticks)],
        "on a gateway that acts when something happens, not at ticks",
    ));
    let delayed = args.cache_signal_delay.is_some_and(|us| us > 0);
    warnings.extend(idle(
        [("cache-signal-delay", delayed && !wants_cache)],
        "because no policy asks what is in the KV caches, as `precise-prefix-cache` and `no-hit-lru` do",
    ));
    warnings.extend(of_servers(args, resolved));
    warnings.extend(args.reference.warnings());
    warnings
}

/// Flags about requests that wait at the gateway. Values that ask for nothing do not count as given.
fn of_gateway_queue(policy: &PolicyArgs) -> [Given; 13] {
    let detects = policy
        .saturation_detector
        .is_some_and(|name| name != DetectorName::Never);
    let above_zero = |limit: Option<u64>| limit.is_some_and(|limit| limit > 0);
    let [queue, kv, concurrency] = of_detectors(policy);
    [
        ("saturation-detector", detects),
        queue,
        kv,
        concurrency,
        ("dispatch-order", policy.dispatch_order.is_some()),
        ("fairness-policy", policy.fairness_policy.is_some()),
        ("max-gateway-queue-depth", above_zero(policy.max_gateway_queue_depth)),
        ("per-band-capacity", above_zero(policy.per_band_capacity)),
        ("request-ttl", above_zero(policy.request_ttl)),
        (
            "usage-limit-threshold",
            policy.usage_limit_threshold.is_some_and(|share| share < 1.0),
        ),
        ("queue-shedding", policy.queue_shedding),
        ("in-flight-eviction", policy.in_flight_eviction),
        ("slo-targets", policy.slo_targets.is_some()),
    ]
}

fn of_detectors(policy: &PolicyArgs) -> [Given; 3] {
    [
        ("queue-depth-threshold", policy.queue_depth_threshold.is_some()),
        ("kv-cache-util-threshold", policy.kv_cache_util_threshold.is_some()),
        ("max-concurrency", policy.max_concurrency.is_some()),
    ]
}

fn of_flow(policy: &PolicyArgs, flow: &Flow) -> Vec<String> {
    if flow.detector == Detector::Never {
        return idle(
            of_gateway_queue(policy),
            "because `--saturation-detector never` finds room for every request, so that none waits",
        );
    }
    let [queue, kv, concurrency] = of_detectors(policy);
    let mut warnings = match flow.detector {
        Detector::Concurrency { .. } => idle([queue, kv], "with `--saturation-detector concurrency`"),
        _ => idle([concurrency], "without `--saturation-detector concurrency`"),
    };
    let bounded = flow.max_requests > 0 || flow.max_band_requests > 0;
    warnings.extend(idle(
        [("queue-shedding", flow.shedding && !bounded)],
        "without `--max-gateway-queue-depth` or `--per-band-capacity`: a queue without a limit is never full",
    ));
    warnings.extend(idle(
        [(
            "slo-targets",
            policy.slo_targets.is_some() && flow.order != DispatchOrder::SloDeadline,
        )],
        "without `--dispatch-order slo-deadline`",
    ));
    warnings
}

fn of_servers(args: &ClusterArgs, resolved: &Resolved) -> Vec<String> {
    let mut warnings = Vec::new();
    let tokens = args.max_num_batched_tokens.map_or(2048, u32::from);
    let long = args.long_prefill_token_threshold.is_some_and(|most| most >= tokens);
    warnings.extend(idle(
        [("long-prefill-token-threshold", long)],
        "unless it is below `--max-num-batched-tokens`",
    ));
    let replicas = args.dp.is_some_and(|dp| dp.get() > 1);
    warnings.extend(idle(
        [("moe-comm-backend", args.moe_comm_backend.is_some() && !replicas)],
        "without `--dp` above 1",
    ));
    let utilization = ("gpu-memory-utilization", args.gpu_memory_utilization.is_some());
    let hardware = [
        ("hardware", args.hardware.as_ref().is_some_and(|name| !name.is_empty())),
        ("hardware-config", args.hardware_config.is_some()),
        ("tp", args.tp.is_some_and(|gpus| gpus > 0)),
    ];
    match (resolved.backend, args.total_kv_blocks, &resolved.server) {
        (Backend::Linear, Some(_), _) => {
            let why = "with `--latency-model linear` and `--total-kv-blocks`";
            warnings.extend(idle(hardware.into_iter().chain([utilization]), why));
        }
        (Backend::Linear, None, None) => {
            let why = "with `--latency-model linear`, unless model, hardware and `--tp` together say how large the KV cache is";
            warnings.extend(idle(hardware.into_iter().chain([utilization]), why));
        }
        (_, Some(_), _) => warnings.extend(idle(
            [utilization],
            "beside `--total-kv-blocks`, which says how many blocks there are",
        )),
        _ => {}
    }
    warnings
}

/// Flags of the output of a run without effect.
pub(in crate::cli) fn of_output(args: &OutputArgs) -> Vec<String> {
    let top = args.counterfactual_k.is_some_and(|k| k > 0);
    let mut warnings = idle(
        [("counterfactual-k", top && args.decision_trace.is_none())],
        "without `--decision-trace`",
    );
    let shown =
        args.summarize_trace || args.decision_trace.is_some() || args.report.is_some() || args.output == Format::Json;
    warnings.extend(match args.trace_level {
        Some(TraceLevel::Decisions) => idle(
            [("trace-level", !shown)],
            "by itself: add `--summarize-trace`, `--decision-trace FILE` or `--output json`",
        ),
        Some(TraceLevel::None) => idle(
            [("trace-level", args.summarize_trace || args.decision_trace.is_some())],
            "where `--summarize-trace` or `--decision-trace` asks for the decisions",
        ),
        None => Vec::new(),
    });
    warnings
}
