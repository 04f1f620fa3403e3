//! Metrics of endpoints: fetched, read, and told as signals.
//!
//! A [`Scraper`] looks at every endpoint once in each period, at a moment of the period that is the endpoint's own, so
//! that many endpoints are not looked at together. One endpoint is never looked at twice at a time. After a look that fails
//! what was known stays, and gets older; the sink is told of the failure ([`PoolChange::Scrape`]), and of the first success
//! after it.
//!
//! Each endpoint has a task. `benches/scrape_load.rs` compares that with one task for all: 100 endpoints every 50 ms
//! cost 0.085 of a core with a task each, and 0.094 with one task (one thread, pages of 45 KB, of which reading takes
//! 6 µs and the rest is HTTP and the kernel).

mod client;
mod names;
mod page;
mod series;
mod set;
mod stats;
mod tls;
mod total;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::{InvalidUri, PathAndQuery};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

pub use client::{Client, MAX_PAGE_BYTES, ScrapeError};
pub use page::{Page, PageReader};
pub use set::{Scrapers, Set, SourceError};
pub use stats::ScrapeStats;
pub use tls::TlsError;
pub(in crate::serve) use tls::client_config;
pub use total::total;

use super::{Objectives, PoolSink};
use crate::engine::config::data_layer::{MetricsSource, Transport};
use crate::engine::config::engine_metrics::EngineMapping;
use crate::engine::pool::health::{Scrape, ScrapeFailure};
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::engine::time::Timestamp;

/// The shortest time between two looks at an endpoint.
pub const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// How long one look may take.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a scraper cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The path is none that can be asked for.
    #[error("path `{path}` cannot be part of a URL")]
    Path {
        /// The path.
        path: String,
        /// Why not.
        source: InvalidUri,
    },
    /// The settings for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Looks at the endpoints that pass through it on the way to another sink.
#[derive(Debug)]
pub struct Scraper<S> {
    shared: Arc<Shared<S>>,
    /// What is looked at, and the tasks that do it.
    watches: Arc<Mutex<BTreeMap<EndpointId, Watch>>>,
}

#[derive(Debug)]
struct Shared<S> {
    source: MetricsSource,
    path: PathAndQuery,
    period: Duration,
    mapping: EngineMapping,
    client: Client,
    stats: Arc<ScrapeStats>,
    /// Whether the sink is told that looks fail.
    tells_health: bool,
    sink: S,
}

#[derive(Debug)]
struct Watch {
    endpoint: Arc<Endpoint>,
    _task: AbortOnDropHandle<()>,
}

impl<S: PoolSink> Scraper<S> {
    /// A scraper that looks at `source` of every endpoint, reads it by `mapping` and tells `sink`.
    ///
    /// The period is the source's interval, or else `refresh`; never less than [`SHORTEST_PERIOD`].
    ///
    /// # Errors
    ///
    /// If the path is no path, or the files for TLS cannot be used.
    pub fn new(
        source: MetricsSource,
        mapping: EngineMapping,
        refresh: Duration,
        stats: Arc<ScrapeStats>,
        sink: S,
    ) -> Result<Self, SetupError> {
        let period = source.interval.unwrap_or(refresh).max(SHORTEST_PERIOD);
        let path = PathAndQuery::try_from(source.path.as_str()).map_err(|error| SetupError::Path {
            path: source.path.clone(),
            source: error,
        })?;
        let shared = Shared {
            path,
            client: Client::new(&source.transport, period)?,
            source,
            period,
            mapping,
            stats,
            tells_health: true,
            sink,
        };
        Ok(Self {
            shared: Arc::new(shared),
            watches: Arc::default(),
        })
    }

    /// The same scraper, which does not say of endpoints that they cannot be scraped: where an endpoint has several pages, one
    /// of them is enough to tell whether it is there, and the others may come from elsewhere. To be said before the first
    /// endpoint comes.
    #[must_use]
    pub fn without_health(mut self) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.tells_health = false;
        }
        self
    }

    /// Counters of what it does.
    pub fn stats(&self) -> &Arc<ScrapeStats> {
        &self.shared.stats
    }

    fn watch(&self, endpoint: &Arc<Endpoint>) {
        let mut watches = self.watches.lock();
        if watches
            .get(&endpoint.id)
            .is_some_and(|watch| watch.endpoint == *endpoint)
        {
            return;
        }
        let look = Look::new(endpoint, &self.shared);
        let task = tokio::spawn(follow(look, Arc::clone(&self.shared)));
        let watch = Watch {
            endpoint: Arc::clone(endpoint),
            _task: AbortOnDropHandle::new(task),
        };
        watches.insert(endpoint.id.clone(), watch);
    }
}

impl<S> Clone for Scraper<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            watches: Arc::clone(&self.watches),
        }
    }
}

/// A scraper passes everything on, and looks at the endpoints that are there. Needs a tokio runtime.
impl<S: PoolSink> PoolSink for Scraper<S> {
    fn now(&self) -> Timestamp {
        self.shared.sink.now()
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        // An endpoint that leaves is not looked at any more when that is passed on; one that comes is known by then.
        for change in &changes {
            if let PoolChange::Remove(id) = change {
                self.watches.lock().remove(id);
            }
        }
        let here: Vec<_> = changes.iter().filter_map(upserted).collect();
        self.shared.sink.changed(changes);
        for endpoint in here {
            self.watch(&endpoint);
        }
    }

    fn objectives(&self, objectives: Objectives) {
        self.shared.sink.objectives(objectives);
    }
}

fn upserted(change: &PoolChange) -> Option<Arc<Endpoint>> {
    match change {
        PoolChange::Upsert(endpoint) => Some(Arc::clone(endpoint)),
        PoolChange::Remove(_) | PoolChange::Report(..) | PoolChange::Scrape(..) => None,
    }
}

/// What is needed to look at one endpoint, again and again.
#[derive(Debug)]
struct Look {
    id: EndpointId,
    uri: Uri,
    /// The page is on the port that requests go to.
    is_on_its_port: bool,
    reader: PageReader,
    reach: Reach,
}

/// How the last look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Unknown,
    Answers,
    Fails,
}

impl Look {
    fn new<S>(endpoint: &Endpoint, shared: &Shared<S>) -> Self {
        Self {
            id: endpoint.id.clone(),
            uri: page_uri(shared, endpoint),
            is_on_its_port: shared.source.port.is_none_or(|port| port == endpoint.port),
            reader: PageReader::new(shared.mapping.engine_of(&endpoint.labels)),
            reach: Reach::Unknown,
        }
    }

    async fn once<S: PoolSink>(&mut self, shared: &Shared<S>) {
        self.reader.forget();
        let began = shared.sink.now();
        let fetched = timeout(
            LOOK_TIMEOUT,
            shared.client.fetch(&self.uri, &mut self.reader, || shared.sink.now()),
        )
        .await;
        match fetched.unwrap_or(Err(ScrapeError::Timeout)) {
            Ok(at) => self.fetched(began, at, shared),
            Err(error) => {
                shared.stats.failed();
                self.failed(began, error.failure(), &error, shared);
            }
        }
    }

    fn fetched<S: PoolSink>(&mut self, began: Timestamp, at: Timestamp, shared: &Shared<S>) {
        let Page {
            mut signals,
            missing,
            malformed,
        } = self.reader.finish();
        let complete = missing.is_empty() && malformed == 0;
        shared.stats.looked(complete);
        if !complete {
            debug!(endpoint = %self.id, ?missing, malformed, "metrics page is incomplete");
        }
        if signals.is_empty() {
            let nothing = NothingWanted { missing };
            return self.failed(began, ScrapeFailure::Unreadable, &nothing, shared);
        }
        signals.at = at;
        let mut changes = vec![PoolChange::Report(self.id.clone(), signals)];
        if self.reach != Reach::Answers {
            // Fails => Answers is news; at the start it is what everybody expects.
            if self.reach == Reach::Fails {
                debug!(endpoint = %self.id, uri = %self.uri, "metrics can be read again");
            }
            self.reach = Reach::Answers;
            if shared.tells_health {
                changes.push(PoolChange::Scrape(self.id.clone(), Scrape::Succeeded));
            }
        }
        shared.sink.changed(changes);
    }

    fn failed<S: PoolSink>(
        &mut self,
        began: Timestamp,
        failure: ScrapeFailure,
        error: &(dyn std::error::Error + 'static),
        shared: &Shared<S>,
    ) {
        // (Unknown | Answers) => Fails. What follows for the endpoint is said by who knows all of it.
        if self.reach == Reach::Fails {
            debug!(endpoint = %self.id, error, "scrape failed");
        } else {
            info!(endpoint = %self.id, uri = %self.uri, error, "metrics cannot be read");
            self.reach = Reach::Fails;
        }
        if shared.tells_health {
            let failure = match failure {
                // Who refuses there need not be who refuses requests.
                ScrapeFailure::Refused if !self.is_on_its_port => ScrapeFailure::Reset,
                failure => failure,
            };
            let scrape = Scrape::Failed { failure, began };
            shared.sink.changed(vec![PoolChange::Scrape(self.id.clone(), scrape)]);
        }
    }
}

/// A page that has nothing to say.
#[derive(Debug, thiserror::Error)]
#[error("the page has none of the wanted series: {missing:?} are missing")]
struct NothingWanted {
    missing: Vec<&'static str>,
}

/// Looks at one endpoint in every period, without end.
async fn follow<S: PoolSink>(mut look: Look, shared: Arc<Shared<S>>) {
    let start = Instant::now();
    let phase = Phase::of(&look.id);
    if shared.period > SHORTEST_PERIOD {
        // An endpoint that was never seen looks idle: the first look does not wait for its turn in a long period.
        sleep_until(start + phase.within(SHORTEST_PERIOD)).await;
        look.once(&shared).await;
    }
    let mut turns = interval_at(start + phase.within(shared.period), shared.period);
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        turns.tick().await;
        look.once(&shared).await;
    }
}

/// The moment within a period at which an endpoint is looked at: a part of 2^32.
#[derive(Clone, Copy, Debug)]
struct Phase(u32);

impl Phase {
    /// Spread evenly over endpoints, and the same for one endpoint at all times.
    fn of(id: &EndpointId) -> Self {
        let hash = twox_hash::XxHash64::oneshot(0, id.as_str().as_bytes());
        Self((hash >> 32) as u32)
    }

    fn within(self, period: Duration) -> Duration {
        period.mul_f64(f64::from(self.0) / f64::from(u32::MAX))
    }
}

fn page_uri<S>(shared: &Shared<S>, endpoint: &Endpoint) -> Uri {
    let mut socket = endpoint.socket();
    socket.set_port(shared.source.port.unwrap_or(endpoint.port));
    let scheme = match shared.source.transport {
        Transport::Plain => "http",
        Transport::Tls(_) => "https",
    };
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(socket.to_string())
        .path_and_query(shared.path.clone());
    uri.build().expect("a scheme, a socket address and a path make a URL")
}

#[cfg(test)]
mod tests;
