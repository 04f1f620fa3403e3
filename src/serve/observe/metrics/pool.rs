//! Families about the pool, read from the engine when the page is asked for (spec, metrics 4).
//!
//! While the engine is looked at, decisions wait. So what the families need is copied then, and the families are made of
//! that afterwards.

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

use super::bound::Bound;
use super::family::{self, Family};
use super::flow::FlowView;
use crate::engine::Engine;
use crate::engine::pool::Endpoint;
use crate::engine::pool::age_of;
use crate::engine::pool::health::{EndpointState, Reason};
use crate::engine::request::DEFAULT_FAIRNESS_ID;
use crate::engine::scheduling::PluginName;
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

/// What the page shows of the engine, as it was at one moment.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub struct PoolView {
    now: Timestamp,
    endpoints: Vec<EndpointView>,
    loads: Vec<LoadView>,
    failures: Vec<(&'static str, u64)>,
    ejections: Vec<(&'static str, u64)>,
    prefix_blocks: Vec<(PluginName, usize)>,
    flow: FlowView,
}

#[derive(Debug)]
struct EndpointView {
    endpoint: Arc<Endpoint>,
    waiting: u32,
    running: u32,
    kv_usage: f64,
    reported: Option<Timestamp>,
    state: EndpointState,
    reason: Option<Reason>,
    since: Timestamp,
    in_flight: u32,
}

/// What a tenant has in flight to an endpoint; without a tenant, what all have that are not told apart.
#[derive(Debug)]
struct LoadView {
    endpoint: Arc<Endpoint>,
    fairness_id: Option<Arc<str>>,
    priority: i32,
    requests: u64,
    tokens: u64,
}

impl PoolView {
    /// Copies what the page shows.
    pub fn of(engine: &Engine, now: Timestamp) -> Self {
        let pool = engine.pool();
        let endpoints = pool.iter().map(|(_, member)| EndpointView {
            endpoint: member.endpoint.clone(),
            waiting: member.signals.waiting,
            running: member.signals.running,
            kv_usage: member.signals.kv_usage,
            reported: member.signals.at,
            state: member.health.state(),
            reason: member.health.reason(),
            since: member.health.since(),
            in_flight: member.in_flight.requests,
        });
        let loads = engine.loads().map(|load| LoadView {
            endpoint: pool[load.slot].endpoint.clone(),
            fairness_id: load.fairness_id.cloned(),
            priority: load.priority,
            requests: load.requests,
            tokens: load.tokens,
        });
        let blocks = engine
            .prefix_blocks()
            .map(|(producer, blocks)| (producer.clone(), blocks));
        Self {
            now,
            endpoints: endpoints.collect(),
            loads: loads.collect(),
            failures: pool.request_failures().collect(),
            ejections: pool.ejections().collect(),
            prefix_blocks: blocks.collect(),
            flow: FlowView::of(engine, now),
        }
    }

    /// The families.
    pub(super) fn families(&self, labels: &PoolLabels) -> prometheus::Result<Vec<MetricFamily>> {
        let name = labels.name.as_str();
        let mut page = Vec::new();

        let queues = family::POOL_ENDPOINT_QUEUE.snapshot()?;
        for view in &self.endpoints {
            let labels = [name, view.endpoint.id.name()];
            queues.with_label_values(&labels).set(f64::from(view.waiting));
        }
        page.extend(queues.collect());
        page.extend(self.in_flight()?);
        page.extend(self.health(name)?);
        page.extend(self.averages(labels)?);
        page.extend(self.flow.families(name)?);

        let prefix = family::PREFIX_SIZE.snapshot()?;
        for (producer, blocks) in &self.prefix_blocks {
            let labels = [&*producer.name, producer.type_name];
            prefix.with_label_values(&labels).set(*blocks as f64);
        }
        page.extend(prefix.collect());
        Ok(page)
    }

    fn averages(&self, labels: &PoolLabels) -> prometheus::Result<Vec<MetricFamily>> {
        let name = labels.name.as_str();
        let is_fresh = |view: &&EndpointView| age_of(view.reported, self.now) <= labels.staleness;
        let fresh: Vec<&EndpointView> = self.endpoints.iter().filter(is_fresh).collect();
        let ready = family::POOL_READY.snapshot()?;
        ready.with_label_values(&[name]).set(fresh.len() as f64);
        let mut page = ready.collect();
        if fresh.is_empty() {
            // Nothing is known of the pool: no series rather than old values.
            return Ok(page);
        }
        let mut add = |value: fn(&EndpointView) -> f64, mean_of: &Family, deviation_of: &Family| {
            let (mean, deviation) = mean_and_deviation(fresh.iter().map(|view| value(view)));
            for (family, value) in [(mean_of, mean), (deviation_of, deviation)] {
                let gauge = family.snapshot()?;
                gauge.with_label_values(&[name]).set(value);
                page.extend(gauge.collect());
            }
            prometheus::Result::Ok(())
        };
        add(|view| view.kv_usage, &family::POOL_KV, &family::POOL_KV_DEVIATION)?;
        add(
            |view| view.waiting.into(),
            &family::POOL_QUEUE,
            &family::POOL_QUEUE_DEVIATION,
        )?;
        add(
            |view| view.running.into(),
            &family::POOL_RUNNING,
            &family::POOL_RUNNING_DEVIATION,
        )?;
        Ok(page)
    }

    fn health(&self, name: &str) -> prometheus::Result<Vec<MetricFamily>> {
        let (endpoints, states) = (family::POOL_ENDPOINTS.snapshot()?, family::ENDPOINT_STATE.snapshot()?);
        for state in EndpointState::ALL {
            endpoints.with_label_values(&[name, state.name()]).set(0.0);
        }
        for view in &self.endpoints {
            endpoints.with_label_values(&[name, view.state.name()]).inc();
            if view.state != EndpointState::Healthy {
                let reason = view.reason.map_or("", Reason::name);
                let labels = [name, view.endpoint.id.name(), view.state.name(), reason];
                let since = self.now.since(view.since);
                states.with_label_values(&labels).set(since.as_secs_f64());
            }
        }
        let (failures, ejections) = (family::ENDPOINT_FAILURES.counted()?, family::EJECTIONS.counted()?);
        for (reason, count) in &self.failures {
            failures.with_label_values(&[name, reason]).inc_by(*count);
        }
        for (reason, count) in &self.ejections {
            ejections.with_label_values(&[name, reason]).inc_by(*count);
        }
        Ok([
            endpoints.collect(),
            states.collect(),
            failures.collect(),
            ejections.collect(),
        ]
        .concat())
    }

    /// What is in flight, by endpoint, tenant and priority.
    fn in_flight(&self) -> prometheus::Result<Vec<MetricFamily>> {
        let (requests, tokens) = (
            family::INFLIGHT_REQUESTS.snapshot()?,
            family::INFLIGHT_TOKENS.snapshot()?,
        );
        let add = |endpoint: &Endpoint, fairness_id: &str, priority: i32, load: (u64, u64)| {
            let priority = priority.to_string();
            let labels = [
                &endpoint.name,
                endpoint.id.namespace(),
                IN_FLIGHT_PRODUCER,
                fairness_id,
                &*priority,
            ];
            // Tenants that are not told apart share one series.
            requests.with_label_values(&labels).add(load.0 as f64);
            tokens.with_label_values(&labels).add(load.1 as f64);
        };
        // Who scales by these must be able to tell nothing from unknown.
        for view in self.endpoints.iter().filter(|view| view.in_flight == 0) {
            add(&view.endpoint, DEFAULT_FAIRNESS_ID, 0, (0, 0));
        }
        let mut bound = Bound::default();
        let mut loads: Vec<&LoadView> = self.loads.iter().collect();
        loads.sort_by_key(|load| std::cmp::Reverse(load.requests));
        for load in loads {
            let label = bound.label([load.fairness_id.as_deref()]);
            add(&load.endpoint, label[0], load.priority, (load.requests, load.tokens));
        }
        Ok([requests.collect(), tokens.collect()].concat())
    }
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
