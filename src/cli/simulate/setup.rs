//! From flags to a cluster that can run.

use std::num::NonZeroU32;

use anyhow::{Context, anyhow, bail, ensure};
use forebay::engine::Engine;
use forebay::engine::config::plan::EnginePlan;
use forebay::engine::config::{LoadOptions, Loaded, SourceName, load};
use forebay::engine::scheduling::{Explain, NoProbe};
use forebay::engine::seed::Seed;
use forebay::sim::bundle::Bundle;
use forebay::sim::cluster::{RegretBasis, Scenario};
use forebay::sim::instance::InstanceConfig;
use forebay::sim::latency::{self, Resolved};
use forebay::sim::policy::{DispatchOrder, Flow, Routing};
use forebay::sim::trace::ServerNote;

use super::args::ClusterArgs;
use super::effect;
use super::endpoints::{self, Instances};
use super::faults;
use super::policies::{self, Policies};
use super::requests::Requests;
use super::settings::{self, Settings};
use crate::cli::source;

/// The most KV blocks of all instances together. Each takes some 20 bytes, so that these take as much as large machines
/// have.
const MOST_KV_BLOCKS: u64 = 1 << 31;

/// A cluster that can run, as often as it takes.
#[derive(Debug)]
pub(in crate::cli) struct Setup {
    pub(in crate::cli) scenario: Scenario,
    pub(in crate::cli) config: ConfigText,
    pub(in crate::cli) regret: RegretBasis,
    /// How requests wait at the gateway, if flags say so.
    pub(in crate::cli) flow: Option<Flow>,
    /// The settings with which it runs, defaults included.
    pub(in crate::cli) settings: Settings,
    /// What a trace of a run says of the servers.
    pub(in crate::cli) server: ServerNote,
    pub(in crate::cli) warnings: Vec<String>,
}

/// The configuration of the gateway.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ConfigText {
    text: String,
    source: SourceName,
    allow_experimental_plugins: bool,
}

impl ConfigText {
    /// A plan of its own for one run.
    pub(in crate::cli) fn plan(&self) -> anyhow::Result<(EnginePlan, Vec<String>)> {
        let options = LoadOptions {
            allow_experimental_plugins: self.allow_experimental_plugins,
            cache_source: true,
            ..LoadOptions::default()
        };
        let Loaded { plan, warnings } = load(&self.text, &self.source, &options)
            .map_err(|errors| anyhow!("the configuration cannot be used\n{errors}"))?;
        Ok((plan.engine, warnings.iter().map(ToString::to_string).collect()))
    }

    pub(in crate::cli) fn text(&self) -> &str {
        &self.text
    }
}

/// Names the policy bundle, if there is one, with an error that may be its.
fn in_bundle<T>(args: &ClusterArgs, result: anyhow::Result<T>) -> anyhow::Result<T> {
    match &args.policy.policy_config {
        Some(path) => result.with_context(|| format!("with the policy bundle {}", path.display())),
        None => result,
    }
}

/// Makes a cluster of what flags say, for these requests.
pub(in crate::cli) fn setup(args: &ClusterArgs, requests: &Requests) -> anyhow::Result<Setup> {
    let bundle = bundle(args)?;
    let policies = in_bundle(args, policies::gateway(&args.policy, &bundle))?;
    let resolved = resolve(args)?;
    let instance = in_bundle(args, instance(args, &bundle, &resolved))?;
    let config = config(args, &policies, &instance)?;
    let (plan, mut findings) = config.plan()?;
    let wants_cache = Engine::new(plan, Seed(0), Box::new(NoProbe), Explain::Best(0)).wants_cache();
    if args.policy.config.is_none() {
        // Nobody wrote that configuration.
        findings.clear();
    }
    let has_scores = matches!(policies.gateway.routing, Routing::Weighted(_)) || args.policy.config.is_some();
    let instances = endpoints::instances(args)?;
    let mut warnings: Vec<String> = without_effect(&bundle).chain(findings).collect();
    warnings.extend(effect::of_cluster(
        args,
        policies.gateway.flow.as_ref(),
        &resolved,
        wants_cache,
    ));
    warnings.extend(policies.warnings.iter().cloned());
    warnings.extend(instances.warnings.iter().cloned());
    let scenario = scenario(args, requests, &policies, &resolved, instance, instances)?;
    warnings.extend(unreachable(&scenario));
    Ok(Setup {
        settings: settings::of_cluster(
            &scenario,
            args,
            &resolved,
            gpu_memory_utilization(args),
            &policies.gateway,
        ),
        server: server_note(args, &scenario, &resolved),
        warnings,
        flow: policies.gateway.flow.clone(),
        scenario,
        config,
        regret: match has_scores {
            true => RegretBasis::Scores,
            false => RegretBasis::Load,
        },
    })
}

fn bundle(args: &ClusterArgs) -> anyhow::Result<Bundle> {
    let Some(path) = &args.policy.policy_config else {
        return Ok(Bundle::default());
    };
    let text = source::text(path, "policy-config")?;
    Bundle::read(&text).map_err(|error| source::placed(path, error.line(), &error))
}

fn scenario(
    args: &ClusterArgs,
    requests: &Requests,
    policies: &Policies,
    resolved: &Resolved,
    instance: InstanceConfig,
    instances: Instances,
) -> anyhow::Result<Scenario> {
    let blocks = u64::from(instances.count) * u64::from(instance.kv_blocks.get());
    ensure!(
        blocks <= MOST_KV_BLOCKS,
        "{} instances of {} KV blocks have {blocks} blocks together; {MOST_KV_BLOCKS} at most can be simulated: lower \
         `--num-instances` or `--total-kv-blocks`",
        instances.count,
        instance.kv_blocks
    );
    let flow = policies.gateway.flow.as_ref();
    Ok(Scenario {
        faults: faults::of_cluster(&args.fault, instances.count)?,
        instances: instances.count,
        labels: instances.labels,
        instance,
        latency: resolved.latency.clone(),
        model: args.model.clone().unwrap_or_default().into(),
        classes: policies.classes.clone(),
        slo_targets_us: policies.slo_targets_us.clone(),
        one_queue: flow.is_some_and(|flow| flow.order == DispatchOrder::Fifo),
        seed: requests.seed(),
        admission_latency_us: args.admission_latency.unwrap_or(0),
        routing_latency_us: args.routing_latency.unwrap_or(0),
        snapshot_refresh_us: args.snapshot_refresh_interval.unwrap_or(0),
        cache_signal_delay_us: args.cache_signal_delay.unwrap_or(0),
        horizon_us: args.horizon.or(requests.horizon_us()),
    })
}

fn without_effect(bundle: &Bundle) -> impl Iterator<Item = String> {
    let sections = bundle.without_effect().into_iter();
    sections.map(|section| format!("`{section}` of the policy bundle has no effect here"))
}

/// What to say if the run ends before a request can have come to an instance.
fn unreachable(scenario: &Scenario) -> Option<String> {
    let horizon = scenario.horizon_us?;
    (horizon
        < scenario
            .admission_latency_us
            .saturating_add(scenario.routing_latency_us))
    .then(|| {
        format!(
            "the horizon of {horizon} µs is shorter than the latencies of admission and routing: no request can reach \
             an instance"
        )
    })
}

fn server_note(args: &ClusterArgs, scenario: &Scenario, resolved: &Resolved) -> ServerNote {
    let server = resolved.server.as_ref();
    ServerNote {
        kind: Some("simulated".to_owned()),
        model: Some(scenario.model.to_string()).filter(|model| !model.is_empty()),
        tensor_parallel: server.map(|server| server.parallelism.tp.get()),
        max_num_seqs: Some(scenario.instance.max_num_seqs.get()),
        block_size: Some(scenario.instance.block_tokens.get()),
        gpu_memory_utilization: server.map(|_| gpu_memory_utilization(args)),
        max_model_len: scenario.instance.max_model_len.map(NonZeroU32::get),
    }
}

fn gpu_memory_utilization(args: &ClusterArgs) -> f64 {
    args.gpu_memory_utilization
        .unwrap_or_else(|| latency::Spec::default().gpu_memory_utilization)
}

fn resolve(args: &ClusterArgs) -> anyhow::Result<Resolved> {
    let folder = args.model_config_folder.as_ref();
    let folder = folder.map(|folder| folder.join("config.json"));
    let model_config = match (&folder, &args.model_config) {
        (Some(path), _) => Some(source::text(path, "model-config-folder")?),
        (None, Some(path)) => Some(source::text(path, "model-config")?),
        (None, None) => None,
    };
    let hardware_rows = args.hardware_config.as_ref();
    let hardware_rows = hardware_rows.map(|path| source::text(path, "hardware-config"));
    let hardware_rows = hardware_rows.transpose()?;
    let backend = args.latency_model.unwrap_or_default();
    if args.model.is_none() && model_config.is_none() && backend != latency::Backend::Linear {
        bail!(
            "`--model` is missing; known models: {}; others are described by `--model-config FILE`",
            latency::known_models().collect::<Vec<_>>().join(", ")
        );
    }
    let defaults = latency::Spec::default();
    let spec = latency::Spec {
        model: args.model.as_deref().unwrap_or(""),
        model_config: model_config.as_deref(),
        hardware: args.hardware.as_deref().filter(|name| !name.is_empty()),
        hardware_rows: hardware_rows.as_deref(),
        tp: args.tp.and_then(NonZeroU32::new),
        dp: args.dp.unwrap_or(NonZeroU32::MIN),
        backend,
        alpha: args.alpha_coeffs.as_deref(),
        beta: args.beta_coeffs.as_deref(),
        moe_communication: args.moe_comm_backend.unwrap_or_default(),
        gpu_memory_utilization: gpu_memory_utilization(args),
        reserved_gib: 0.0,
        block_tokens: args.block_size_in_tokens.unwrap_or(defaults.block_tokens),
        max_model_len: args.max_model_len.and_then(NonZeroU32::new),
        total_kv_blocks: args.total_kv_blocks,
    };
    latency::resolve(&spec).with_context(|| {
        let files = [
            folder.as_ref().or(args.model_config.as_ref()),
            args.hardware_config.as_ref(),
        ];
        let files: Vec<_> = files
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        match files.is_empty() {
            true => "the model servers cannot be simulated".to_owned(),
            false => format!("the model servers cannot be simulated as {} says", files.join(" and ")),
        }
    })
}

fn instance(args: &ClusterArgs, bundle: &Bundle, resolved: &Resolved) -> anyhow::Result<InstanceConfig> {
    let defaults = InstanceConfig::default();
    Ok(InstanceConfig {
        max_num_seqs: args.max_num_seqs.unwrap_or(defaults.max_num_seqs),
        max_num_batched_tokens: args.max_num_batched_tokens.unwrap_or(defaults.max_num_batched_tokens),
        long_prefill_token_threshold: args.long_prefill_token_threshold.and_then(NonZeroU32::new),
        max_model_len: resolved.max_model_len,
        scheduler: policies::scheduler(args.scheduler, bundle)?,
        preemption_policy: policies::preemption(args.preemption_policy, bundle)?,
        max_waiting: NonZeroU32::MAX,
        block_tokens: args.block_size_in_tokens.unwrap_or(defaults.block_tokens),
        kv_blocks: resolved.kv_blocks,
        max_loras: NonZeroU32::MAX,
    })
}

fn config(args: &ClusterArgs, policies: &Policies, instance: &InstanceConfig) -> anyhow::Result<ConfigText> {
    let policy = &args.policy;
    let Some(path) = &policy.config else {
        let (block, places) = (instance.block_tokens.get(), instance.max_num_seqs.get());
        let document = policies.gateway.document(block, places);
        return Ok(ConfigText {
            text: serde_json::to_string_pretty(&document).context("a configuration can always be written")?,
            source: SourceName::Flag,
            allow_experimental_plugins: true,
        });
    };
    let replaced = [
        ("admission-policy", policy.admission_policy.is_some()),
        ("token-bucket-capacity", policy.token_bucket_capacity.is_some()),
        ("token-bucket-refill-rate", policy.token_bucket_refill_rate.is_some()),
        ("routing-policy", policy.routing_policy.is_some()),
        ("routing-scorers", policy.routing_scorers.is_some()),
        ("flow-control", policy.flow_control),
        ("saturation-detector", policy.saturation_detector.is_some()),
        ("queue-depth-threshold", policy.queue_depth_threshold.is_some()),
        ("kv-cache-util-threshold", policy.kv_cache_util_threshold.is_some()),
        ("max-concurrency", policy.max_concurrency.is_some()),
        ("fairness-policy", policy.fairness_policy.is_some()),
        ("dispatch-order", policy.dispatch_order.is_some()),
        ("max-gateway-queue-depth", policy.max_gateway_queue_depth.is_some()),
        ("per-band-capacity", policy.per_band_capacity.is_some()),
        ("request-ttl", policy.request_ttl.is_some()),
        ("usage-limit-threshold", policy.usage_limit_threshold.is_some()),
        ("queue-shedding", policy.queue_shedding),
        ("in-flight-eviction", policy.in_flight_eviction),
    ];
    if let Some((flag, _)) = replaced.iter().find(|(_, given)| *given) {
        bail!("`--{flag}` and `--config` both say what the gateway does; write it in the configuration");
    }
    let (text, source) = source::configuration(path)?;
    Ok(ConfigText {
        text,
        source,
        allow_experimental_plugins: policy.allow_experimental_plugins,
    })
}
