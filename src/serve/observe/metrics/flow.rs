//! Families about flow control (spec, metrics 6). Depths are read from the queue when the page is asked for.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{HistogramVec, IntCounterVec, Registry};

use super::PoolLabels;
use super::bound::Bounds;
use super::family;
use crate::engine::Engine;
use crate::engine::flow::EvictionCounts;
use crate::engine::flow::fairness::Accounts;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::request::DEFAULT_FAIRNESS_ID;
use crate::engine::time::Timestamp;
use crate::serve::observe::record::RequestRecord;

/// What is counted as requests leave.
#[derive(Debug)]
pub(super) struct FlowMetrics {
    durations: HistogramVec,
    outcomes: IntCounterVec,
}

impl FlowMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            durations: family::QUEUE_DURATION.histogram(registry)?,
            outcomes: family::QUEUE_OUTCOMES.counter(registry)?,
        })
    }

    /// A request left flow control, with these labels: model, target model, fairness id and priority.
    pub(super) fn left(&self, record: &RequestRecord, outcome: &str, labels: [&str; 4], pool: &str) {
        let [model, target_model, fairness_id, priority] = labels;
        self.outcomes.with_label_values(&[outcome, priority, pool]).inc();
        if let Some(waited) = record.waited {
            let labels = [fairness_id, priority, outcome, pool, model, target_model];
            self.durations.with_label_values(&labels).observe(waited.as_secs_f64());
        }
    }
}

/// What flow control calls the end of a request that was not released; none if it had no part in it. A request that
/// `waited` was taken in before.
pub(super) fn outcome_of(outcome: Outcome, waited: Option<Duration>) -> Option<&'static str> {
    let Outcome::Refused(refusal) = outcome else {
        return None;
    };
    match refusal {
        Refusal::QueueFull | Refusal::Oversized => Some("RejectedCapacity"),
        Refusal::QueueFullNoEndpoints => Some("RejectedNoEndpoints"),
        // Not in the reference, which takes nobody out of a full queue.
        Refusal::Shed => Some("EvictedCapacity"),
        Refusal::Displaced => Some("EvictedDisplaced"),
        Refusal::Expired => Some("EvictedTTL"),
        Refusal::ExpiredNoEndpoints => Some("EvictedNoEndpoints"),
        // A client that left before it had said everything was never here.
        Refusal::Cancelled => waited.map(|_| "EvictedContextCancelled"),
        Refusal::ShuttingDown if waited.is_none() => Some("RejectedOther"),
        Refusal::ShuttingDown => Some("EvictedOther"),
        // Released, and then no endpoint would do.
        Refusal::NoEndpoints | Refusal::FilteredOut | Refusal::NotCached | Refusal::Unschedulable => Some(RELEASED),
        Refusal::Malformed
        | Refusal::TooLarge
        | Refusal::BodyTimeout
        | Refusal::NotAdmitted
        | Refusal::NeverAdmitted
        | Refusal::Saturated
        | Refusal::Internal => None,
    }
}

/// What flow control calls a request that was taken in and waits.
pub(super) const WAITING: &str = "NotYetFinalized";

/// What flow control calls a request that was released.
pub(super) const RELEASED: &str = "Dispatched";

pub(super) fn collect(
    engine: &Engine,
    now: Timestamp,
    labels: &PoolLabels,
    bounds: &Bounds,
) -> prometheus::Result<Vec<MetricFamily>> {
    let pool = labels.name.as_str();
    let mut page = Vec::new();

    let stale = family::STALE_ENDPOINTS.snapshot()?;
    stale
        .with_label_values(&[&**engine.detector_name()])
        .set(engine.stale_endpoints(now) as f64);
    page.extend(stale.collect());

    // Without flow control, too: who is shed then is decided by it.
    let saturation = family::POOL_SATURATION.snapshot()?;
    for (stage, value) in engine.saturation(now).stages() {
        saturation.with_label_values(&[pool, stage]).set(value);
    }
    page.extend(saturation.collect());

    let Some(flow) = engine.flow() else { return Ok(page) };

    let (sizes, bytes) = (family::QUEUE_SIZE.snapshot()?, family::QUEUE_BYTES.snapshot()?);
    for (priority, depth) in flow.depths() {
        let priority = priority.to_string();
        let fairness_id = bounds.fairness_ids.admit(depth.flow);
        let (model, target_model) = (
            bounds.models.admit(depth.model),
            bounds.models.admit(depth.target_model),
        );
        let labels = [&*fairness_id, &*priority, pool, &*model, &*target_model];
        // Values beyond the bounds share one series.
        sizes.with_label_values(&labels).add(depth.load.requests as f64);
        bytes.with_label_values(&labels).add(depth.load.bytes as f64);
    }
    // Who scales by these must be able to tell nothing from unknown.
    for (band, _) in flow.bands().filter(|(_, load)| load.requests == 0) {
        let priority = band.priority.to_string();
        let labels = [DEFAULT_FAIRNESS_ID, &*priority, pool, "", ""];
        sizes.with_label_values(&labels).set(0.0);
        bytes.with_label_values(&labels).set(0.0);
    }
    page.extend(sizes.collect());
    page.extend(bytes.collect());

    let (requests, bytes) = (family::BAND_REQUESTS.snapshot()?, family::BAND_BYTES.snapshot()?);
    for (band, load) in flow.bands() {
        let priority = band.priority.to_string();
        let labels = [&*priority, pool];
        requests
            .with_label_values(&labels)
            .set(load.requests as f64 / band.max_requests as f64);
        bytes
            .with_label_values(&labels)
            .set(load.bytes as f64 / band.max_bytes as f64);
    }
    page.extend(requests.collect());
    page.extend(bytes.collect());

    let (held, limits) = (flow.held(), flow.limits());
    for (family, held, limit) in [
        (&family::GLOBAL_REQUESTS, held.requests, limits.requests),
        (&family::GLOBAL_BYTES, held.bytes, limits.bytes),
    ] {
        let Some(limit) = limit else { continue };
        let gauge = family.snapshot()?;
        gauge.with_label_values(&[pool]).set(held as f64 / limit as f64);
        page.extend(gauge.collect());
    }
    if let Some((counts, pending)) = flow.eviction() {
        page.extend(eviction(counts, pending, pool)?);
    }
    page.extend(programs(
        flow.fairness().filter_map(|policy| policy.accounts(now)),
        bounds,
    )?);
    Ok(page)
}

/// What fairness policies that keep accounts have noted. Programs beyond the bound of labels share a series.
fn programs(accounts: impl Iterator<Item = Accounts>, bounds: &Bounds) -> prometheus::Result<Vec<MetricFamily>> {
    let index = family::PROGRAM_FAIRNESS.snapshot()?;
    let (waits, services) = (family::PROGRAM_WAIT.snapshot()?, family::PROGRAM_SERVICE.snapshot()?);
    let mut lowest: Option<f64> = None;
    for Accounts {
        fairness_index,
        programs,
    } in accounts
    {
        lowest = Some(lowest.map_or(fairness_index, |lowest| lowest.min(fairness_index)));
        for program in programs {
            let id = bounds.fairness_ids.admit(&program.id);
            let wait = waits.with_label_values(&[&*id]);
            wait.set(wait.get().max(program.mean_wait_ms));
            services.with_label_values(&[&*id]).add(program.attained_service);
        }
    }
    if let Some(lowest) = lowest {
        let no_labels: &[&str] = &[];
        index.with_label_values(no_labels).set(lowest);
    }
    Ok([index.collect(), waits.collect(), services.collect()].concat())
}

fn eviction(counts: &EvictionCounts, pending: f64, pool: &str) -> prometheus::Result<Vec<MetricFamily>> {
    let issued = family::REVOCATIONS_ISSUED.counted()?;
    for (priority, count) in &counts.issued {
        issued.with_label_values(&[&*priority.to_string(), pool]).inc_by(*count);
    }
    let ended = family::REVOCATIONS.counted()?;
    for (outcome, count) in [("confirmed", counts.confirmed), ("timed_out", counts.timed_out)] {
        ended.with_label_values(&[outcome, pool]).inc_by(count);
    }
    let (target, pending_reclaim) = (family::RECLAIM_TARGET.snapshot()?, family::PENDING_RECLAIM.snapshot()?);
    target.with_label_values(&[pool]).set(counts.target);
    pending_reclaim.with_label_values(&[pool]).set(pending);
    Ok([
        issued.collect(),
        ended.collect(),
        target.collect(),
        pending_reclaim.collect(),
    ]
    .concat())
}
