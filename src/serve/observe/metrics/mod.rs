//! The `/metrics` page.
//!
//! Values are kept once, in a registry of this instance's own. Sizes and depths are read from their owner when the page
//! is asked for. Label values that clients can invent are bounded. Families and their older names are in [`family`].

mod bound;
pub mod family;
mod flow;
mod pool;
mod render;
mod requests;
mod scheduler;

use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};

use bound::Bounds;
use flow::FlowMetrics;
pub use pool::PoolLabels;
pub use scheduler::SchedulerProbe;

use super::record::RequestRecord;
use crate::engine::Engine;
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::serve::clock::Clock;
use crate::serve::datalayer::scrape::ScrapeStats;
use crate::version;

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: requests::RequestMetrics,
    scrapes: Arc<ScrapeStats>,
    bounds: Bounds,
}

impl Metrics {
    /// Fresh metrics, all zero, and the probe that fills those about the engine. Those about scraping are read from
    /// `scrapes`. Those about flow control are only there if requests may wait, for the pool of that name.
    ///
    /// # Errors
    ///
    /// If two families have the same name: a defect.
    pub fn register(
        clock: Clock,
        scrapes: Arc<ScrapeStats>,
        flow_control: Option<String>,
    ) -> prometheus::Result<(Self, SchedulerProbe)> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let info = family::INFO.gauge(&registry)?;
        info.with_label_values(&[version::COMMIT, version::VERSION]).set(1);
        let bounds = Bounds::default();
        let probe = SchedulerProbe::register(&registry, clock, bounds.fairness_ids.clone(), flow_control.as_deref())?;
        let flow = match flow_control {
            Some(pool) => Some((pool, FlowMetrics::register(&registry)?)),
            None => None,
        };
        let metrics = Self {
            requests: requests::RequestMetrics::register(&registry, bounds.clone(), flow)?,
            bounds,
            scrapes,
            registry,
        };
        Ok((metrics, probe))
    }

    /// A request was sent on.
    pub fn request_routed(&self, record: &RequestRecord, decision: &Decision) {
        self.requests.routed(record, decision);
    }

    /// Chunks of a streamed response came, each so long after the one before.
    pub fn response_chunks(&self, record: &RequestRecord, gaps: &[Duration]) {
        self.requests.chunks(record, gaps);
    }

    /// A request ended.
    pub fn request_ended(&self, record: &RequestRecord) {
        self.requests.ended(record);
    }

    /// The gateway answered a client by itself.
    pub fn local_reply(&self, record: &RequestRecord) {
        self.requests.local_reply(record);
    }

    /// Tells these models apart whatever clients ask for.
    pub fn pin_models<'m>(&self, models: impl Iterator<Item = &'m Arc<str>>) {
        models.for_each(|model| self.bounds.models.pin(model));
    }

    /// The families about the pool, as it is at `now`.
    ///
    /// # Errors
    ///
    /// If a family could not be made: a defect.
    pub fn pool_families(
        &self,
        engine: &Engine,
        now: Timestamp,
        labels: &PoolLabels,
    ) -> prometheus::Result<Vec<MetricFamily>> {
        let mut page = pool::collect(engine, now, labels, &self.bounds)?;
        page.extend(flow::collect(engine, now, labels, &self.bounds)?);
        Ok(page)
    }

    /// The family of panics that were caught, of which there were so many.
    ///
    /// # Errors
    ///
    /// If it could not be made: a defect.
    pub fn panics(caught: u64) -> prometheus::Result<Vec<MetricFamily>> {
        let panics = family::PANICS.counted()?;
        panics.with_label_values::<&str>(&[]).inc_by(caught);
        Ok(panics.collect())
    }

    /// The page, in the text format 0.0.4, with the families about the pool that `pool` makes.
    ///
    /// What is counted is read before what is there: a request that is counted as ended is not shown as waiting.
    ///
    /// # Errors
    ///
    /// If a family could not be written: a defect.
    pub fn page(&self, pool: impl FnOnce() -> prometheus::Result<Vec<MetricFamily>>) -> prometheus::Result<String> {
        let mut gathered = self.registry.gather();
        gathered.extend(pool()?);
        gathered.extend(self.scrape_families()?);
        // The encoder takes a family without series for a mistake. A pool without endpoints has some.
        gathered.retain(|family| !family.get_metric().is_empty());
        TextEncoder::new().encode_to_string(&render::with_old_names(gathered))
    }

    fn scrape_families(&self) -> prometheus::Result<Vec<MetricFamily>> {
        let polls = family::POLL_ERRORS.counted()?;
        polls
            .with_label_values(&[ScrapeStats::SOURCE_TYPE])
            .inc_by(self.scrapes.poll_errors());
        let extracts = family::EXTRACT_ERRORS.counted()?;
        extracts
            .with_label_values(&[ScrapeStats::SOURCE_TYPE, ScrapeStats::EXTRACTOR_TYPE])
            .inc_by(self.scrapes.extract_errors());
        Ok([polls.collect(), extracts.collect()].concat())
    }
}

#[cfg(test)]
mod tests;
