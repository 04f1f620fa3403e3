//! Families about flow control (spec, metrics 6), read from the queues when the page is asked for.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

use super::bound::Bound;
use super::family;
use super::series::OTHER;
use crate::engine::Engine;
use crate::engine::flow::fairness::Accounts;
use crate::engine::flow::{EvictionCounts, FlowControl, Load};
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::request::DEFAULT_FAIRNESS_ID;
use crate::engine::time::Timestamp;

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
        | Refusal::MemoryExhausted
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

/// What the page shows of saturation and flow control, as it was at one moment.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(super) struct FlowView {
    detector: Arc<str>,
    stale_endpoints: usize,
    saturation: Vec<(&'static str, f64)>,
    /// None without flow control.
    queues: Option<QueuesView>,
}

#[derive(Debug)]
struct QueuesView {
    bands: Vec<BandView>,
    depths: Vec<DepthView>,
    /// The load that waits, and its limit if there is one, in requests and in bytes.
    global: [(u64, Option<u64>); 2],
    eviction: Option<(EvictionCounts, f64)>,
    accounts: Vec<Accounts>,
}

#[derive(Debug)]
struct BandView {
    priority: i32,
    load: Load,
    max_requests: u64,
    max_bytes: u64,
}

#[derive(Debug)]
struct DepthView {
    priority: i32,
    /// Tenant, model and target model.
    flow: [Arc<str>; 3],
    load: Load,
}

/// The most queues that are copied, so that the engine is not kept waiting for long. What waits in others is `other`.
const MAX_QUEUES: usize = 4096;

impl FlowView {
    pub(super) fn of(engine: &Engine, now: Timestamp) -> Self {
        Self {
            detector: engine.detector_name().clone(),
            stale_endpoints: engine.stale_endpoints(now),
            saturation: engine.saturation(now).stages().collect(),
            queues: engine.flow().map(|flow| QueuesView::of(flow, now)),
        }
    }

    pub(super) fn families(&self, pool: &str) -> prometheus::Result<Vec<MetricFamily>> {
        let stale = family::STALE_ENDPOINTS.snapshot()?;
        stale
            .with_label_values(&[&*self.detector])
            .set(self.stale_endpoints as f64);
        let mut page = stale.collect();

        // Without flow control, too: who is shed then is decided by it.
        let saturation = family::POOL_SATURATION.snapshot()?;
        for (stage, value) in &self.saturation {
            saturation.with_label_values(&[pool, stage]).set(*value);
        }
        page.extend(saturation.collect());
        if let Some(queues) = &self.queues {
            page.extend(queues.depths(pool)?);
            page.extend(queues.utilization(pool)?);
            if let Some((counts, pending)) = &queues.eviction {
                page.extend(eviction(counts, *pending, pool)?);
            }
            page.extend(programs(&queues.accounts)?);
        }
        Ok(page)
    }
}

impl QueuesView {
    fn of(flow: &FlowControl, now: Timestamp) -> Self {
        let depths = flow.depths().take(MAX_QUEUES).map(|(priority, depth)| DepthView {
            priority,
            flow: [depth.flow, depth.model, depth.target_model].map(Arc::clone),
            load: depth.load,
        });
        let bands = flow.bands().map(|(band, load)| BandView {
            priority: band.priority,
            load,
            max_requests: band.max_requests,
            max_bytes: band.max_bytes,
        });
        let (held, limits) = (flow.held(), flow.limits());
        Self {
            bands: bands.collect(),
            depths: depths.collect(),
            global: [(held.requests, limits.requests), (held.bytes, limits.bytes)],
            eviction: flow.eviction().map(|(counts, pending)| (counts.clone(), pending)),
            accounts: flow.fairness().filter_map(|policy| policy.accounts(now)).collect(),
        }
    }

    /// What waits, by tenant, priority and model: the longest queues, and the others together.
    fn depths(&self, pool: &str) -> prometheus::Result<Vec<MetricFamily>> {
        let (sizes, bytes) = (family::QUEUE_SIZE.snapshot()?, family::QUEUE_BYTES.snapshot()?);
        let add = |[fairness_id, model, target_model]: [&str; 3], priority: i32, load: Load| {
            let labels = [fairness_id, &*priority.to_string(), pool, model, target_model];
            // Queues that are not told apart share one series.
            sizes.with_label_values(&labels).add(load.requests as f64);
            bytes.with_label_values(&labels).add(load.bytes as f64);
        };
        let mut longest: Vec<&DepthView> = self.depths.iter().collect();
        longest.sort_by_key(|depth| Reverse(depth.load.requests));
        let mut bound = Bound::default();
        for depth in longest {
            let labels = bound.label(depth.flow.each_ref().map(|value| Some(&**value)));
            add(labels, depth.priority, depth.load);
        }
        for band in &self.bands {
            if band.load.requests == 0 {
                // Who scales by these must be able to tell nothing from unknown.
                add([DEFAULT_FAIRNESS_ID, "", ""], band.priority, Load::default());
                continue;
            }
            let copied = self.depths.iter().filter(|depth| depth.priority == band.priority);
            let copied = copied.fold(Load::default(), |sum, depth| Load {
                requests: sum.requests + depth.load.requests,
                bytes: sum.bytes + depth.load.bytes,
            });
            if copied.requests < band.load.requests {
                let rest = Load {
                    requests: band.load.requests - copied.requests,
                    bytes: band.load.bytes.saturating_sub(copied.bytes),
                };
                add([OTHER; 3], band.priority, rest);
            }
        }
        Ok([sizes.collect(), bytes.collect()].concat())
    }

    fn utilization(&self, pool: &str) -> prometheus::Result<Vec<MetricFamily>> {
        let (requests, bytes) = (family::BAND_REQUESTS.snapshot()?, family::BAND_BYTES.snapshot()?);
        for band in &self.bands {
            let labels = [&*band.priority.to_string(), pool];
            requests
                .with_label_values(&labels)
                .set(band.load.requests as f64 / band.max_requests as f64);
            bytes
                .with_label_values(&labels)
                .set(band.load.bytes as f64 / band.max_bytes as f64);
        }
        let mut page = [requests.collect(), bytes.collect()].concat();
        let families = [&family::GLOBAL_REQUESTS, &family::GLOBAL_BYTES];
        for (family, (held, limit)) in families.into_iter().zip(self.global) {
            let Some(limit) = limit else { continue };
            let gauge = family.snapshot()?;
            gauge.with_label_values(&[pool]).set(held as f64 / limit as f64);
            page.extend(gauge.collect());
        }
        Ok(page)
    }
}

/// What fairness policies that keep accounts have noted: the programs that got most, and the others together.
fn programs(accounts: &[Accounts]) -> prometheus::Result<Vec<MetricFamily>> {
    let index = family::PROGRAM_FAIRNESS.snapshot()?;
    let (waits, services) = (family::PROGRAM_WAIT.snapshot()?, family::PROGRAM_SERVICE.snapshot()?);
    let lowest = accounts.iter().map(|accounts| accounts.fairness_index).reduce(f64::min);
    let mut programs: Vec<_> = accounts.iter().flat_map(|accounts| &accounts.programs).collect();
    programs.sort_by(|a, b| b.attained_service.total_cmp(&a.attained_service));
    let mut bound = Bound::default();
    for program in programs {
        let labels = bound.label([Some(&*program.id)]);
        let wait = waits.with_label_values(&labels);
        wait.set(wait.get().max(program.mean_wait_ms));
        services.with_label_values(&labels).add(program.attained_service);
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
