//! From flags and a policy bundle to the policies of a run. Flags come before the bundle, and that before the defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;
use forebay::sim::bundle::Bundle;
use forebay::sim::classes::Classes;
use forebay::sim::instance::{PreemptionPolicy, Scheduler};
use forebay::sim::policy::{Admission, Detector, DispatchOrder, Fairness, Flow, PolicySettings, Routing, Scorers};

use super::args::{AdmissionName, DetectorName, DispatchName, FairnessName, PolicyArgs, RoutingName};

/// What flags and a bundle say of policies.
#[derive(Debug)]
pub(in crate::cli) struct Policies {
    pub(in crate::cli) gateway: PolicySettings,
    pub(in crate::cli) classes: Classes,
    pub(in crate::cli) slo_targets_us: BTreeMap<Arc<str>, u64>,
    /// What the bundle says and has no effect.
    pub(in crate::cli) warnings: Vec<String>,
}

/// Reads the name of a policy that stands in a bundle.
fn named<T: ValueEnum>(name: Option<&str>, place: &str) -> anyhow::Result<Option<T>> {
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let known = || {
        let names = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| format!("`{}`", value.get_name())).collect();
        names.join(", ")
    };
    match T::from_str(name, false) {
        Ok(value) => Ok(Some(value)),
        Err(_) => bail!("`{place}`: found `{name}`; known are {}", known()),
    }
}

/// What a value is called on the command line.
fn name_of(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The order of an instance's queue.
pub(in crate::cli) fn scheduler(flag: Option<Scheduler>, bundle: &Bundle) -> anyhow::Result<Scheduler> {
    let bundled = bundle.scheduler.as_deref().map(str::parse).transpose();
    Ok(flag.or(bundled.context("`scheduler`")?).unwrap_or_default())
}

/// The choice of victims.
pub(in crate::cli) fn preemption(flag: Option<PreemptionPolicy>, bundle: &Bundle) -> anyhow::Result<PreemptionPolicy> {
    let name = bundle.preemption.as_ref().and_then(|section| section.policy.as_deref());
    let bundled = name.map(str::parse).transpose().context("`preemption.policy`")?;
    Ok(flag.or(bundled).unwrap_or_default())
}

/// The policies of the gateway.
pub(in crate::cli) fn gateway(args: &PolicyArgs, bundle: &Bundle) -> anyhow::Result<Policies> {
    let mut classes = Classes::default();
    for (class, priority) in &bundle.admission.slo_priorities {
        classes
            .set(class, *priority)
            .with_context(|| format!("`admission.slo_priorities.{class}`"))?;
    }
    for (tenant, budget) in &bundle.tenant_budgets {
        ensure!(
            (0.0..=1.0).contains(budget),
            "`tenant_budgets.{tenant}` must be from 0 to 1, found `{budget}`"
        );
    }
    let gateway = PolicySettings {
        admission: admission(args, bundle)?,
        tenant_budgets: bundle.tenant_budgets.clone(),
        routing: routing(args, bundle)?,
        flow: args.flow_control.then(|| flow(args, &classes)),
    };
    Ok(Policies {
        warnings: of_other_policies(&gateway, bundle),
        gateway,
        slo_targets_us: slo_targets(args, bundle)?,
        classes,
    })
}

/// What a bundle says of policies that do not run.
fn of_other_policies(gateway: &PolicySettings, bundle: &Bundle) -> Vec<String> {
    let (section, admission) = (&bundle.admission, gateway.admission.name());
    let said = [
        (
            "token_bucket_capacity",
            "token-bucket",
            section.token_bucket_capacity.is_some(),
        ),
        (
            "token_bucket_refill_rate",
            "token-bucket",
            section.token_bucket_refill_rate.is_some(),
        ),
        (
            "tier_shed_threshold",
            "tier-shed",
            section.tier_shed_threshold.is_some(),
        ),
        (
            "tier_shed_min_priority",
            "tier-shed",
            section.tier_shed_min_priority.is_some(),
        ),
        ("gaie_qd_threshold", "gaie-legacy", section.gaie_qd_threshold.is_some()),
        ("gaie_kv_threshold", "gaie-legacy", section.gaie_kv_threshold.is_some()),
    ];
    let idle = said
        .iter()
        .filter(|(_, policy, is_said)| *is_said && *policy != admission);
    let mut warnings: Vec<String> = idle
        .map(|(key, policy, _)| {
            format!("`admission.{key}` of the policy bundle is for `{policy}`, and has no effect with `{admission}`")
        })
        .collect();
    let routing = gateway.routing.name();
    if !bundle.routing.scorers.is_empty() && !matches!(gateway.routing, Routing::Weighted(_)) {
        warnings.push(format!(
            "`routing.scorers` of the policy bundle is for `weighted`, and has no effect with `{routing}`"
        ));
    }
    let by_deadline = gateway
        .flow
        .as_ref()
        .is_some_and(|flow| flow.order == DispatchOrder::SloDeadline);
    if !section.slo_targets.is_empty() && !by_deadline {
        warnings.push(
            "`admission.slo_targets` of the policy bundle has no effect without `--flow-control --dispatch-order \
             slo-deadline`"
                .to_owned(),
        );
    }
    warnings
}

fn admission(args: &PolicyArgs, bundle: &Bundle) -> anyhow::Result<Admission> {
    let section = &bundle.admission;
    let bundled = named(section.policy.as_deref(), "admission.policy")?;
    let policy = args.admission_policy.or(bundled).unwrap_or(AdmissionName::AlwaysAdmit);
    let of_buckets = [
        ("capacity", args.token_bucket_capacity, section.token_bucket_capacity),
        (
            "refill_rate",
            args.token_bucket_refill_rate,
            section.token_bucket_refill_rate,
        ),
    ];
    for (name, flag, bundled) in of_buckets {
        ensure!(
            flag.is_none() || policy == AdmissionName::TokenBucket,
            "`--token-bucket-{}` is for `--admission-policy token-bucket`, and this is `{}`",
            name.replace('_', "-"),
            name_of(&policy)
        );
        ensure!(
            bundled.is_none_or(|number| number > 0.0 && number.is_finite()),
            "`admission.token_bucket_{name}` must be above 0, found `{}`",
            bundled.unwrap_or_default()
        );
    }
    Ok(match policy {
        AdmissionName::AlwaysAdmit => Admission::Always,
        AdmissionName::RejectAll => Admission::RejectAll,
        AdmissionName::TokenBucket => Admission::TokenBucket {
            capacity: args
                .token_bucket_capacity
                .or(section.token_bucket_capacity)
                .unwrap_or(10_000.0),
            refill_rate: args
                .token_bucket_refill_rate
                .or(section.token_bucket_refill_rate)
                .unwrap_or(1000.0),
        },
        AdmissionName::TierShed => Admission::TierShed {
            threshold: section.tier_shed_threshold.unwrap_or(0),
            min_priority: section.tier_shed_min_priority.unwrap_or(3),
        },
        AdmissionName::GaieLegacy => Admission::GaieLegacy {
            queue_depth: section.gaie_qd_threshold.unwrap_or(5.0),
            kv_utilization: section.gaie_kv_threshold.unwrap_or(0.8),
        },
    })
}

fn routing(args: &PolicyArgs, bundle: &Bundle) -> anyhow::Result<Routing> {
    let section = &bundle.routing;
    let bundled = named(section.policy.as_deref(), "routing.policy")?;
    let policy = args.routing_policy.or(bundled).unwrap_or(RoutingName::RoundRobin);
    if policy != RoutingName::Weighted {
        ensure!(
            args.routing_scorers.is_none(),
            "`--routing-scorers` is for `--routing-policy weighted`, and this is `{}`",
            name_of(&policy)
        );
    }
    Ok(match policy {
        RoutingName::RoundRobin => Routing::RoundRobin,
        RoutingName::LeastLoaded => Routing::LeastLoaded,
        RoutingName::AlwaysBusiest => Routing::AlwaysBusiest,
        RoutingName::Weighted => {
            let mut scorers = Scorers::none();
            for (scorer, at) in section.scorers.iter().zip(0..) {
                scorers
                    .add(&scorer.name, scorer.weight)
                    .with_context(|| format!("`routing.scorers[{at}]`"))?;
            }
            let bundled = Some(scorers).filter(|scorers| !scorers.is_empty());
            Routing::Weighted(args.routing_scorers.clone().or(bundled).unwrap_or_default())
        }
    })
}

fn flow(args: &PolicyArgs, classes: &Classes) -> Flow {
    let mut priorities: Vec<i32> = classes.objectives().into_values().collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    Flow {
        detector: detector(args),
        order: match args.dispatch_order.unwrap_or(DispatchName::Priority) {
            DispatchName::Priority => DispatchOrder::Priority,
            DispatchName::Fifo => DispatchOrder::Fifo,
            DispatchName::SloDeadline => DispatchOrder::SloDeadline,
        },
        fairness: match args.fairness_policy.unwrap_or(FairnessName::GlobalStrict) {
            FairnessName::GlobalStrict => Fairness::GlobalStrict,
            FairnessName::RoundRobin => Fairness::RoundRobin,
        },
        max_requests: args.max_gateway_queue_depth.unwrap_or(0),
        max_band_requests: args.per_band_capacity.unwrap_or(0),
        ttl_us: args.request_ttl.unwrap_or(0),
        usage_limit: args.usage_limit_threshold.unwrap_or(1.0),
        shedding: args.queue_shedding,
        eviction: args.in_flight_eviction,
        priorities,
    }
}

fn detector(args: &PolicyArgs) -> Detector {
    match args.saturation_detector.unwrap_or(DetectorName::Utilization) {
        DetectorName::Never => Detector::Never,
        DetectorName::Utilization => Detector::Utilization {
            queue_depth: args.queue_depth_threshold.map_or(5, u32::from),
            kv_utilization: args.kv_cache_util_threshold.unwrap_or(0.8),
        },
        DetectorName::Concurrency => Detector::Concurrency {
            max: args.max_concurrency.map_or(100, u32::from),
        },
    }
}

fn slo_targets(args: &PolicyArgs, bundle: &Bundle) -> anyhow::Result<BTreeMap<Arc<str>, u64>> {
    let mut targets: BTreeMap<Arc<str>, u64> = bundle
        .admission
        .slo_targets
        .iter()
        .map(|(class, target)| (class.as_str().into(), *target))
        .collect();
    for entry in args.slo_targets.iter().flatten() {
        let target = entry
            .split_once('=')
            .and_then(|(class, target)| Some((class, super::values::micros(target).ok()?)));
        let Some((class, target)) = target else {
            bail!("`--slo-targets`: found `{entry}`; write it as `class=microseconds`, such as `critical=100000`");
        };
        targets.insert(class.into(), target);
    }
    Ok(targets)
}
