//! Families about the pool, read from the engine when the page is asked for (spec, metrics 4).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

use super::bound::Bounds;
use super::family::{self, Family};
use crate::engine::Engine;
use crate::engine::pool::health::{EndpointState, Reason};
use crate::engine::pool::{Signals, Slot, age_of};
use crate::engine::request::DEFAULT_FAIRNESS_ID;
use crate::engine::time::Timestamp;

/// The name under which what is in flight is counted: the engine counts it once, whatever producers a configuration
/// declares, and this is what the reference calls the one that it adds by itself.
const IN_FLIGHT_PRODUCER: &str = "inflight-load-producer";

/// What the pool families are told by.
#[derive(Clone, Debug)]
pub struct PoolLabels {
    /// The name of the pool.
    pub name: String,
    /// Reports older than this do not count.
    pub staleness: Duration,
}

pub(super) fn collect(
    engine: &Engine,
    now: Timestamp,
    labels: &PoolLabels,
    bounds: &Bounds,
) -> prometheus::Result<Vec<MetricFamily>> {
    let name = labels.name.as_str();
    let mut page = Vec::new();

    let queues = family::POOL_ENDPOINT_QUEUE.snapshot()?;
    for (_, member) in engine.pool().iter() {
        let labels = [name, member.endpoint.id.name()];
        queues.with_label_values(&labels).set(f64::from(member.signals.waiting));
    }
    page.extend(queues.collect());
    page.extend(in_flight(engine, bounds)?);

    page.extend(health(engine, now, name)?);

    let prefix = family::PREFIX_SIZE.snapshot()?;
    for (producer, blocks) in engine.prefix_blocks() {
        let labels = [&*producer.name, producer.type_name];
        prefix.with_label_values(&labels).set(blocks as f64);
    }
    page.extend(prefix.collect());

    let members = engine.pool().iter().map(|(_, member)| &member.signals);
    let fresh: Vec<&Signals> = members
        .filter(|signals| age_of(signals.at, now) <= labels.staleness)
        .collect();
    let ready = family::POOL_READY.snapshot()?;
    ready.with_label_values(&[name]).set(fresh.len() as f64);
    page.extend(ready.collect());
    if fresh.is_empty() {
        // Nothing is known of the pool: no series rather than old values.
        return Ok(page);
    }
    let mut add = |value: fn(&Signals) -> f64, mean_of: &Family, deviation_of: &Family| {
        let (mean, deviation) = mean_and_deviation(fresh.iter().map(|signals| value(signals)));
        for (family, value) in [(mean_of, mean), (deviation_of, deviation)] {
            let gauge = family.snapshot()?;
            gauge.with_label_values(&[name]).set(value);
            page.extend(gauge.collect());
        }
        prometheus::Result::Ok(())
    };
    add(|signals| signals.kv_usage, &family::POOL_KV, &family::POOL_KV_DEVIATION)?;
    add(
        |signals| signals.waiting.into(),
        &family::POOL_QUEUE,
        &family::POOL_QUEUE_DEVIATION,
    )?;
    add(
        |signals| signals.running.into(),
        &family::POOL_RUNNING,
        &family::POOL_RUNNING_DEVIATION,
    )?;
    Ok(page)
}

fn health(engine: &Engine, now: Timestamp, name: &str) -> prometheus::Result<Vec<MetricFamily>> {
    let (endpoints, states) = (family::POOL_ENDPOINTS.snapshot()?, family::ENDPOINT_STATE.snapshot()?);
    for state in EndpointState::ALL {
        endpoints.with_label_values(&[name, state.name()]).set(0.0);
    }
    for (_, member) in engine.pool().iter() {
        let (health, state) = (&member.health, member.health.state());
        endpoints.with_label_values(&[name, state.name()]).inc();
        if state != EndpointState::Healthy {
            let reason = health.reason().map_or("", Reason::name);
            let labels = [name, member.endpoint.id.name(), state.name(), reason];
            let since = now.since(health.since());
            states.with_label_values(&labels).set(since.as_secs_f64());
        }
    }
    let (failures, ejections) = (family::ENDPOINT_FAILURES.counted()?, family::EJECTIONS.counted()?);
    for (reason, count) in engine.pool().request_failures() {
        failures.with_label_values(&[name, reason]).inc_by(count);
    }
    for (reason, count) in engine.pool().ejections() {
        ejections.with_label_values(&[name, reason]).inc_by(count);
    }
    Ok([
        endpoints.collect(),
        states.collect(),
        failures.collect(),
        ejections.collect(),
    ]
    .concat())
}

/// What is in flight, by endpoint, tenant and priority: no more series than requests and endpoints together.
fn in_flight(engine: &Engine, bounds: &Bounds) -> prometheus::Result<Vec<MetricFamily>> {
    // Added up by names that are cheap to compare: this happens while the engine waits.
    let mut loads: BTreeMap<(Slot, &Arc<str>, i32), (u64, u64)> = BTreeMap::new();
    for booked in engine.bookings() {
        let load = loads
            .entry((booked.slot, booked.fairness_id, booked.priority))
            .or_default();
        load.0 += 1;
        load.1 += booked.tokens;
    }
    let (requests, tokens) = (
        family::INFLIGHT_REQUESTS.snapshot()?,
        family::INFLIGHT_TOKENS.snapshot()?,
    );
    let add = |slot: Slot, fairness_id: &Arc<str>, priority: i32, load: (u64, u64)| {
        let endpoint = &engine.pool()[slot].endpoint;
        let fairness_id = bounds.fairness_ids.admit(fairness_id);
        let priority = priority.to_string();
        let labels = [
            &endpoint.name,
            endpoint.id.namespace(),
            IN_FLIGHT_PRODUCER,
            &*fairness_id,
            &*priority,
        ];
        // Values beyond the bounds share one series.
        requests.with_label_values(&labels).add(load.0 as f64);
        tokens.with_label_values(&labels).add(load.1 as f64);
    };
    // Who scales by these must be able to tell nothing from unknown.
    let idle = engine
        .pool()
        .iter()
        .filter(|(_, member)| member.in_flight.requests == 0);
    let nobody = Arc::from(DEFAULT_FAIRNESS_ID);
    idle.for_each(|(slot, _)| add(slot, &nobody, 0, (0, 0)));
    for ((slot, fairness_id, priority), load) in loads {
        add(slot, fairness_id, priority, load);
    }
    Ok([requests.collect(), tokens.collect()].concat())
}

/// Mean and sample standard deviation; the deviation of a single value is 0.
fn mean_and_deviation(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation([2.0, 4.0, 6.0].into_iter()), (4.0, 2.0));
        assert_eq!(mean_and_deviation([5.0].into_iter()), (5.0, 0.0));
    }
}
