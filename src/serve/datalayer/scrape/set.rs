//! All scrapers of a service, which another configuration can replace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{ScrapeStats, Scraper, SetupError};
use crate::engine::config::plan::SourcePlan;
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::engine::time::Timestamp;
use crate::serve::datalayer::{Objectives, PoolSink};

/// Why a source of metrics cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("data source `{name}` cannot be used")]
pub struct SourceError {
    /// Its instance name.
    pub name: Arc<str>,
    /// Why not.
    pub source: SetupError,
}

/// The scrapers of all sources, before one sink.
#[derive(Clone, Debug)]
pub struct Scrapers<S> {
    sink: S,
    refresh: Duration,
    stats: Arc<ScrapeStats>,
    current: Arc<Mutex<Current<S>>>,
}

#[derive(Debug)]
struct Current<S> {
    set: Set<S>,
    /// What passed through, for scrapers that come later.
    endpoints: BTreeMap<EndpointId, Arc<Endpoint>>,
}

/// Scrapers that can be put to work.
#[derive(Debug)]
pub struct Set<S> {
    sources: Vec<SourcePlan>,
    scrapers: Vec<Scraper<S>>,
}

impl<S: PoolSink> Scrapers<S> {
    /// Scrapers of `sources` that tell `sink`. The other arguments are those of [`Scraper::new`].
    ///
    /// # Errors
    ///
    /// A source cannot be used.
    pub fn new(
        sources: Vec<SourcePlan>,
        refresh: Duration,
        stats: Arc<ScrapeStats>,
        sink: S,
    ) -> Result<Self, SourceError> {
        let set = made(sources, refresh, &stats, &sink)?;
        Ok(Self {
            sink,
            refresh,
            stats,
            current: Arc::new(Mutex::new(Current {
                set,
                endpoints: BTreeMap::new(),
            })),
        })
    }

    /// Makes the scrapers of other sources, which look at nothing yet.
    ///
    /// # Errors
    ///
    /// A source cannot be used.
    pub fn prepare(&self, sources: Vec<SourcePlan>) -> Result<Set<S>, SourceError> {
        made(sources, self.refresh, &self.stats, &self.sink)
    }

    /// Lets other scrapers take over, unless they are for the same sources. What was learnt stays.
    pub fn replace(&self, set: Set<S>) {
        let mut current = self.current.lock();
        if current.set.sources == set.sources {
            return;
        }
        let arrivals: Vec<_> = current.endpoints.values().cloned().map(PoolChange::Upsert).collect();
        for scraper in &set.scrapers {
            scraper.changed(arrivals.clone());
        }
        current.set = set;
    }
}

fn made<S: PoolSink>(
    sources: Vec<SourcePlan>,
    refresh: Duration,
    stats: &Arc<ScrapeStats>,
    sink: &S,
) -> Result<Set<S>, SourceError> {
    let mut scrapers: Vec<Scraper<S>> = Vec::new();
    for source in &sources {
        for extractor in &source.extractors {
            let (fetch, mapping) = (source.source.clone(), extractor.mapping.clone());
            let scraper = Scraper::new(fetch, mapping, refresh, Arc::clone(stats), sink.clone());
            let scraper = scraper.map_err(|error| SourceError {
                name: Arc::clone(&source.name),
                source: error,
            })?;
            scrapers.push(match scrapers.is_empty() {
                true => scraper,
                false => scraper.without_health(),
            });
        }
    }
    Ok(Set { sources, scrapers })
}

impl<S: PoolSink> PoolSink for Scrapers<S> {
    fn now(&self) -> Timestamp {
        self.sink.now()
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        let mut current = self.current.lock();
        for change in &changes {
            match change {
                PoolChange::Upsert(endpoint) => {
                    current.endpoints.insert(endpoint.id.clone(), Arc::clone(endpoint));
                }
                PoolChange::Remove(id) => {
                    current.endpoints.remove(id);
                }
                PoolChange::Report(..) | PoolChange::Scrape(..) => {}
            }
        }
        if current.set.scrapers.is_empty() {
            self.sink.changed(changes);
            return;
        }
        for scraper in &current.set.scrapers {
            // Each passes on what it hears; hearing it again changes nothing for the engine.
            scraper.changed(changes.clone());
        }
    }

    fn objectives(&self, objectives: Objectives) {
        // Scrapers have no use for them.
        self.sink.objectives(objectives);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::engine::config::{LoadOptions, SourceName, load};
    use crate::serve::datalayer::testing::{Recorded, endpoint, recorder};

    fn sources(path: &str) -> Vec<SourcePlan> {
        let text = format!(
            "{{plugins: [{{type: metrics-data-source, parameters: {{path: {path}}}}}, {{type: core-metrics-extractor}}, {{type: queue-scorer}}], \
             dataLayer: {{sources: [{{pluginRef: metrics-data-source, extractors: [{{pluginRef: \
             core-metrics-extractor}}]}}]}}}}"
        );
        let loaded = load(&text, &SourceName::Flag, &LoadOptions::default());
        loaded.unwrap().plan.data_layer.sources
    }

    #[tokio::test]
    async fn scrapers_that_take_over_look_at_the_endpoints_that_are_there() {
        let (sink, mut told) = recorder();
        let scrapers = Scrapers::new(sources("/a"), Duration::from_secs(1), Arc::default(), sink).unwrap();
        let [here, gone] = ["here", "gone"].map(|name| endpoint(name, SocketAddr::from(([127, 0, 0, 1], 9)), &[]));
        scrapers.changed(vec![PoolChange::Upsert(here), PoolChange::Upsert(gone.clone())]);
        scrapers.changed(vec![PoolChange::Remove(gone.id.clone())]);
        for _ in 0..3 {
            next(&mut told).await;
        }

        let same = scrapers.prepare(sources("/a")).unwrap();
        scrapers.replace(same);
        let other = scrapers.prepare(sources("/b")).unwrap();
        scrapers.replace(other);

        // The same sources changed nothing: it is told once, and not before.
        assert_eq!(next(&mut told).await, "+ default/here 127.0.0.1:9");
        while let Some(rest) = told.try_next() {
            assert!(matches!(rest, PoolChange::Scrape(..)), "{rest:?}");
        }
    }

    /// What is told next but that nobody can be scraped.
    async fn next(told: &mut Recorded) -> String {
        loop {
            let next = told.next().await;
            if !next.contains("cannot be scraped") {
                return next;
            }
        }
    }

    #[tokio::test]
    async fn a_source_that_cannot_be_used_is_named() {
        let (sink, _told) = recorder();

        let error = Scrapers::new(sources("'/a b'"), Duration::from_secs(1), Arc::default(), sink).unwrap_err();

        assert_eq!(&*error.name, "metrics-data-source");
    }
}
