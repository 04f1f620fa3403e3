//! The `/metrics` page.
//!
//! Values are kept once, in a registry of this instance's own; those whose labels come from requests in the `series`
//! table, which has a bound. Sizes and depths are read from their owner when the page is asked for. Families and their
//! older names are in [`family`].

mod bound;
pub mod family;
mod flow;
mod pool;
mod process;
mod render;
mod requests;
mod scheduler;
mod series;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::Registry;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;

pub use pool::{PoolLabels, PoolView};
pub use process::Process;
pub use scheduler::SchedulerProbe;
pub use series::Limits;
use series::{Pressure, SeriesTable, Shown};
pub use text::{Page, media_type};

use super::record::RequestRecord;
use crate::engine::scheduling::Decision;
use crate::serve::clock::Clock;
use crate::serve::datalayer::scrape::ScrapeStats;
use crate::version;

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    clock: Clock,
    series: Arc<Mutex<SeriesTable>>,
    shown: Vec<Shown>,
    limits: Limits,
    has_warned_of_the_bound: AtomicBool,
    requests: requests::RequestMetrics,
    scrapes: Arc<ScrapeStats>,
}

/// Rows that are read for a page while those who count something wait: some microseconds.
const READ_AT_ONCE: usize = 32;

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
        limits: Limits,
    ) -> prometheus::Result<(Self, SchedulerProbe)> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let info = family::INFO.gauge(&registry)?;
        info.with_label_values(&[version::COMMIT, version::VERSION]).set(1);
        let series = Arc::new(Mutex::new(SeriesTable::new(limits)));
        let probe = SchedulerProbe::register(&registry, clock, series.clone(), flow_control.as_deref())?;
        let metrics = Self {
            requests: requests::RequestMetrics::register(&registry, clock, series.clone(), flow_control)?,
            shown: Shown::all(limits.older_names),
            has_warned_of_the_bound: AtomicBool::new(false),
            clock,
            series,
            limits,
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

    /// Tells these models, and no others, apart even if there is no room for more.
    pub fn pin_models<'m>(&self, models: impl Iterator<Item = &'m Arc<str>>) {
        self.series.lock().pin(models.cloned());
    }

    /// The page, with the families about the pool as `pool` shows it, told by `labels`, and those about the process.
    ///
    /// What is counted is read before what is there: a request that is counted as ended is not shown as waiting.
    ///
    /// # Errors
    ///
    /// If a family could not be made: a defect.
    pub fn page(
        &self,
        labels: &PoolLabels,
        pool: impl FnOnce() -> PoolView,
        process: &Process,
    ) -> prometheus::Result<Page> {
        let mut reading = Some(self.series.lock().begin_page(self.clock.now()));
        let mut rows = Vec::new();
        while let Some(next) = reading {
            reading = self.series.lock().read(next, READ_AT_ONCE, &mut rows);
        }
        let pressure: Vec<_> = self.series.lock().pressure().collect();
        let mut small = self.registry.gather();
        small.extend(pool().families(labels)?);
        small.extend(self.scrape_families()?);
        small.extend(pressure_families(&pressure)?);
        small.extend(process.families()?);
        if self.limits.older_names {
            small = render::with_old_names(small);
        }
        self.warn_of_the_bound(&pressure);
        Ok(Page::new(small, &self.shown, rows, labels.name.clone()))
    }

    /// Warns once, when something was counted as `other` for the first time.
    fn warn_of_the_bound(&self, pressure: &[(series::Schema, Pressure)]) {
        let is_felt = pressure.iter().any(|(_, felt)| felt.overflows > 0 || felt.folded > 0);
        if is_felt && !self.has_warned_of_the_bound.swap(true, Ordering::Relaxed) {
            let limit_bytes = self.limits.bytes;
            tracing::warn!(
                limit_bytes,
                "metrics have more combinations of model, tenant and priority than `--metrics-series-limit` has room for; \
                 those used least recently are counted under the label value `other`"
            );
        }
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

fn pressure_families(pressure: &[(series::Schema, Pressure)]) -> prometheus::Result<Vec<MetricFamily>> {
    let (removed, overflows) = (family::SERIES_REMOVED.counted()?, family::SERIES_OVERFLOWS.counted()?);
    for (schema, felt) in pressure {
        let table = schema.name();
        for (reason, count) in [
            ("folded", felt.folded),
            ("replaced", felt.replaced),
            ("idle", felt.expired),
        ] {
            removed.with_label_values(&[table, reason]).inc_by(count);
        }
        overflows.with_label_values(&[table]).inc_by(felt.overflows);
    }
    Ok([removed.collect(), overflows.collect()].concat())
}

#[cfg(test)]
mod tests;
