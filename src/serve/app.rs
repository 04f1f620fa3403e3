//! The composition root: makes each part once, in order, and ends them in the reverse.
//!
//! ```text
//! discovery ──▶ scrapers ──▶ driver (engine) ◀── ext_proc workers ◀── Envoy
//!                  ▲             ▲ │                   ▲ │
//!                  └─ live configuration ──────────────┘ │
//!                                  └──── admin page ◀────┘ telemetry
//! ```
//!
//! All addresses are taken before anything runs, so that a port in use is an error at start. Whatever ends although
//! nobody asked it to ends the service, with its reason.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin::Admin;
use super::clock::Clock;
use super::configuration::file::ConfigFile;
use super::configuration::{LiveConfiguration, Parts, Text};
use super::datalayer::discovery::{FileDiscovery, LoadError};
use super::datalayer::scrape::{ScrapeStats, Scrapers, SourceError};
use super::datalayer::{Objectives, PoolSink};
use super::driver::{Driver, Picker};
use super::ext_proc::health::{Health, Readiness};
use super::ext_proc::rewrite::Rewrites;
use super::ext_proc::server::{Drained, Server, ServerError, ServerOptions};
use super::ext_proc::service::Front;
use super::ext_proc::stay::Stay;
use super::ext_proc::tls::Tls;
use super::ext_proc::{Scores, SubsetHints};
use super::journal::Journal;
use super::kube::auth::Gatekeeper;
use super::kube::client::{self, ClientError};
use super::kube::config_object::ConfigObject;
use super::kube::lease::{Candidate, Role, Timing};
use super::kube::{ClusterSink, ClusterSource, Pace, PoolState, Target, Wanted};
use super::observe::Telemetry;
use super::observe::metrics::{Metrics, PoolLabels};
use super::parse::Parsers;
use super::shutdown::{Signals, Stop};
use crate::engine::Engine;
use crate::engine::config::data_layer::FileDiscoveryParams;
use crate::engine::config::{LoadOptions, Plan};
use crate::engine::pool::PoolChange;
use crate::engine::scheduling::Explain;
use crate::engine::seed::Seed;
use crate::engine::time::Timestamp;

/// The longest that a leader which is to end is ready without a successor.
const SUCCESSION: Duration = Duration::from_secs(3);

/// Time that gateways, and those who tell them, have to see that another replica is ready, before this one is not. The
/// probes of the chart come every second.
const SETTLING: Duration = Duration::from_secs(2);

/// Time that refusals have to be written when the drain is over, and connections to be closed in good order.
const GOODBYE: Duration = Duration::from_secs(1);

/// Everything that is decided before the start.
#[derive(Debug)]
pub struct Settings {
    /// What runs.
    pub plan: Plan,
    /// The text that it was made of.
    pub text: Text,
    /// The file with that text, which is read again when it changes.
    pub config_file: Option<PathBuf>,
    /// What every text is read with.
    pub options: LoadOptions,
    /// Where the endpoints and objectives are found.
    pub discovery: Discovery,
    /// The address that all ports listen on.
    pub address: IpAddr,
    /// The port of the ext_proc service. Port 0 takes any free one, here as below.
    pub grpc_port: u16,
    /// The port of the health service.
    pub health_port: u16,
    /// The port of the pages.
    pub metrics_port: u16,
    /// The certificate of the ext_proc port; plain text without one.
    pub tls: Option<Tls>,
    /// The certificate of the pages; plain text without one.
    pub metrics_tls: Option<Tls>,
    /// Whether certificates are read again when their files change.
    pub reload_certificates: bool,
    /// Whether health checks are answered on the ext_proc port too.
    pub health_on_grpc_port: bool,
    /// Threads that serve streams. One for each core if it is not said.
    pub workers: Option<NonZeroUsize>,
    /// The largest request body.
    pub max_body_bytes: usize,
    /// The largest message. What the largest body needs if it is not said.
    pub max_message_bytes: Option<usize>,
    /// Whether the gateway's subset hint counts.
    pub subset_hints: SubsetHints,
    /// Whether the scores go to the gateway.
    pub scores: Scores,
    /// How much of each decision is written down.
    pub explain: Explain,
    /// What the pool's metrics are told by.
    pub pool: PoolLabels,
    /// Time between two looks at an endpoint, unless the source has its own.
    pub refresh: Duration,
    /// The most time that requests have to end once a signal came.
    pub drain_timeout: Duration,
    /// Time without a stream that counts as the end of all, after SIGTERM.
    pub drain_quiet: Duration,
    /// All chance follows from it.
    pub seed: Seed,
    /// Where the calls of the engine are written down, if they are.
    pub journal: Option<Journal>,
}

/// Where endpoints and objectives are found.
#[derive(Clone, Debug)]
pub enum Discovery {
    /// In files.
    Files(FileDiscoveryParams),
    /// In a cluster.
    Kubernetes(Box<Cluster>),
}

/// What is wanted of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Which pods are the endpoints.
    pub target: Target,
    /// The `EndpointPickerConfig` that goes before the file, if there is such a name.
    pub config_object: Option<String>,
    /// The lease by which one replica leads; without one, all serve.
    pub election: Option<Election>,
    /// What this replica is called.
    pub identity: String,
    /// Whether the API server is asked who may read the pages.
    pub authenticated_pages: bool,
    /// How soon what fails is tried again.
    pub pace: Pace,
}

/// How a replica comes to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The name of the lease.
    pub lease: String,
    /// How long things take.
    pub timing: Timing,
    /// The address of this replica's pod, if it is known.
    pub pod_ip: Option<IpAddr>,
}

/// Why the service does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An address cannot be had.
    #[error("cannot listen on `{address}` for {purpose}; choose another port with `--{flag}`")]
    Bind {
        /// What it is for.
        purpose: &'static str,
        /// The flag that sets its port.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The endpoints or the objectives cannot be read.
    #[error(transparent)]
    Discovery(#[from] LoadError),
    /// There is no way to the API server.
    #[error(transparent)]
    Kubernetes(#[from] ClientError),
    /// Metrics cannot be fetched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The metrics page cannot be made: a defect.
    #[error("metrics cannot be registered")]
    Metrics(#[from] prometheus::Error),
    /// The ext_proc service failed.
    #[error("the ext_proc service failed")]
    ExtProc(#[from] ServerError),
    /// The health service failed.
    #[error("the health service failed")]
    Health(#[from] tonic::transport::Error),
    /// The pages failed.
    #[error("the metrics port failed")]
    Admin(#[source] io::Error),
    /// A part of the service broke down: a defect.
    #[error("a part of the service broke down")]
    Panicked(#[from] JoinError),
    /// A part of the service ended by itself.
    #[error("{0} ended though nobody asked it to")]
    Ended(&'static str),
}

/// The service, with its addresses taken, and nothing running.
#[derive(Debug)]
pub struct App {
    grpc: Server,
    health: (Health, TcpListener),
    admin: (Admin, TcpListener),
    front: Front<Driver>,
    discovery: Found,
    pool: ServedPool,
    live: LiveConfiguration,
    config_file: Option<ConfigFile>,
    certificates: Vec<Tls>,
    readiness: watch::Sender<Readiness>,
    stay: watch::Sender<Stay>,
    streams: TaskTracker,
    drain: Drain,
}

/// Where endpoints and objectives come from, found and not yet followed.
#[derive(Debug)]
enum Found {
    Files(Box<FileDiscovery>),
    Kubernetes(Box<InCluster>),
}

/// What is done in a cluster.
#[derive(Debug)]
struct InCluster {
    source: ClusterSource,
    candidate: Option<Candidate>,
    config: Option<ConfigObject>,
    gatekeeper: Option<Gatekeeper>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    timeout: Duration,
    quiet: Duration,
}

/// The addresses that were taken.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Of the ext_proc service.
    pub grpc: SocketAddr,
    /// Of the health service.
    pub health: SocketAddr,
    /// Of the pages.
    pub metrics: SocketAddr,
}

impl App {
    /// Makes all parts and takes all addresses.
    ///
    /// # Errors
    ///
    /// If an address cannot be had, or what a setting names cannot be used.
    pub async fn bind(settings: Settings) -> Result<Self, AppError> {
        let Settings {
            plan,
            text,
            config_file,
            discovery,
            address,
            pool: labels,
            ..
        } = settings;
        let health_address = SocketAddr::new(address, settings.health_port);
        let health_listener = TcpListener::bind(health_address).await.map_err(bind_error(
            "health checks",
            "grpc-health-port",
            health_address,
        ))?;
        let discovery = Found::find(discovery, health_listener.local_addr().unwrap_or(health_address)).await?;
        let clock = Clock::new();
        let stats = Arc::<ScrapeStats>::default();
        // Flow control may be switched on later, where the configuration can change.
        let may_queue =
            plan.engine.flow.is_some() || config_file.is_some() || matches!(&discovery, Found::Kubernetes(_));
        let (metrics, probe) = Metrics::register(clock, stats.clone(), may_queue.then(|| labels.name.clone()))?;
        let telemetry = Arc::new(Telemetry::new(metrics));
        let engine = Engine::new(plan.engine, settings.seed, Box::new(probe), settings.explain);
        let driver = Driver::new(engine, clock);
        if let Some(journal) = settings.journal {
            driver.write_down(journal);
        }
        let scrapers = Scrapers::new(plan.data_layer.sources, settings.refresh, stats, driver.clone())?;

        let (readiness, ready) = watch::channel(Readiness::NotReady);
        let health = Health::new(ready);
        let stay = watch::Sender::new(Stay::Unbounded);
        let streams = TaskTracker::new();
        let max_body_bytes = settings.max_body_bytes;
        let certificates = if settings.reload_certificates {
            settings.tls.iter().chain(&settings.metrics_tls).cloned().collect()
        } else {
            Vec::new()
        };
        let defaults = ServerOptions::default();
        let options = ServerOptions {
            max_message_bytes: settings
                .max_message_bytes
                .unwrap_or_else(|| ServerOptions::message_bytes_for(max_body_bytes)),
            tls: settings.tls,
            health: settings.health_on_grpc_port.then(|| health.clone()),
            stay: stay.subscribe(),
            workers: settings.workers.unwrap_or(defaults.workers),
            grace: GOODBYE,
            ..defaults
        };
        let grpc_address = SocketAddr::new(address, settings.grpc_port);
        let grpc =
            Server::bind(grpc_address, options)
                .await
                .map_err(bind_error("ext_proc", "grpc-port", grpc_address))?;
        let metrics_address = SocketAddr::new(address, settings.metrics_port);
        let metrics_listener =
            TcpListener::bind(metrics_address)
                .await
                .map_err(bind_error("metrics", "metrics-port", metrics_address))?;

        let admin = Admin {
            driver: driver.clone(),
            telemetry: telemetry.clone(),
            pool: labels,
            gatekeeper: match &discovery {
                Found::Files(_) => None,
                Found::Kubernetes(cluster) => cluster.gatekeeper.clone(),
            },
            tls: settings.metrics_tls,
        };
        let for_streams = Arc::new(ArcSwap::from_pointee(super::ext_proc::Settings {
            parsers: Parsers::new(plan.parsers),
            max_body_bytes,
            scores: settings.scores,
            subset_hints: settings.subset_hints,
            rewrites: Arc::default(),
        }));
        let parts = Parts {
            options: settings.options,
            driver: driver.clone(),
            front: for_streams.clone(),
            scrapers: scrapers.clone(),
            discovery: plan.data_layer.discovery,
        };
        let config_file = config_file.map(|path| ConfigFile::new(path, text.text.clone()));
        let front = Front {
            settings: for_streams.clone(),
            picker: driver.clone(),
            observer: telemetry.clone(),
            streams: streams.clone(),
        };
        Ok(Self {
            grpc,
            health: (health, health_listener),
            admin: (admin, metrics_listener),
            front,
            discovery,
            pool: ServedPool {
                driver,
                scrapers,
                front: for_streams,
                telemetry,
                state: watch::Sender::default(),
            },
            live: LiveConfiguration::new(parts, text),
            config_file,
            certificates,
            readiness,
            stay,
            streams,
            drain: Drain {
                timeout: settings.drain_timeout,
                quiet: settings.drain_quiet,
            },
        })
    }

    /// The addresses that were taken.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses {
            grpc: self.grpc.local_addr()?,
            health: self.health.1.local_addr()?,
            metrics: self.admin.1.local_addr()?,
        })
    }

    /// Serves until a signal comes, and then until all requests have ended, or the drain timeout is over, or another
    /// signal comes.
    ///
    /// # Errors
    ///
    /// If a part of the service fails.
    pub async fn run(self, mut signals: Signals) -> Result<(), AppError> {
        if let Ok(Addresses { grpc, health, metrics }) = self.addresses() {
            tracing::info!(%grpc, %health, %metrics, "listening");
        }
        let Self {
            grpc,
            health: (health, health_listener),
            admin: (admin, admin_listener),
            front,
            discovery,
            pool,
            live,
            config_file,
            certificates,
            readiness,
            stay,
            streams,
            drain,
        } = self;
        let stop_streams = CancellationToken::new();

        let mut parts: JoinSet<Result<Part, AppError>> = JoinSet::new();
        let timekeeper = pool.driver.clone();
        let counter = pool.driver.clone();
        let taken = move || counter.inspect(|engine| engine.tally().submitted);
        let closer = pool.driver.clone();
        parts.spawn(async move {
            timekeeper.keep_time().await;
            Ok(Part::Other("the timer"))
        });
        let stop_leading = CancellationToken::new();
        let mut role = watch::Sender::new(Role::Leader).subscribe();
        let state = pool.state.subscribe();
        let mut leading = None;
        let fit = watch::Sender::new(false);
        let is_fit = fit.subscribe();
        // Without an object there is nothing to wait for.
        let mut is_configured = watch::Sender::new(true).subscribe();
        match discovery {
            Found::Files(files) => {
                pool.objectives(files.objectives().clone());
                pool.changed(files.arrivals());
                pool.pool_is(PoolState::Known);
                parts.spawn(async move {
                    files.run(pool).await;
                    std::future::pending().await
                });
            }
            Found::Kubernetes(cluster) => {
                let InCluster {
                    source,
                    candidate,
                    config,
                    gatekeeper: _,
                } = *cluster;
                if let Some(candidate) = candidate {
                    let tell = watch::Sender::new(Role::Standby);
                    role = tell.subscribe();
                    let heir = candidate.clone();
                    let running = candidate.run(tell, is_fit.clone(), stop_leading.clone());
                    leading = Some((tokio::spawn(running), heir));
                }
                if let Some(config) = config {
                    let (live, role) = (live.clone(), role.clone());
                    let is_read = watch::Sender::new(false);
                    is_configured = is_read.subscribe();
                    parts.spawn(async move {
                        config.follow(live, role, is_read).await;
                        Ok(Part::Other("the watch of the configuration object"))
                    });
                }
                parts.spawn(async move {
                    source.run(pool).await;
                    Ok(Part::Other("the watch of the pool"))
                });
            }
        }
        for certificate in certificates {
            parts.spawn(async move {
                certificate.follow().await;
                Ok(Part::Other("the watch of a certificate"))
            });
        }
        if let Some(file) = config_file {
            parts.spawn(async move {
                file.follow(live).await;
                Ok(Part::Other("the watch of the configuration"))
            });
        }
        parts.spawn(async move {
            admin.serve(admin_listener).await.map_err(AppError::Admin)?;
            Ok(Part::Other("the metrics port"))
        });
        let health_stay = stay.subscribe();
        parts.spawn(async move {
            health
                .serve(health_listener, health_stay, std::future::pending())
                .await?;
            Ok(Part::Other("the health service"))
        });
        let stop = stop_streams.clone();
        parts.spawn(async move { Ok(Part::Streams(grpc.serve(front, stop).await?)) });
        parts.spawn(async move {
            tell_fitness(state, is_configured, fit).await;
            Ok(Part::Other("the readiness"))
        });
        let mut conditions = Conditions { is_fit, role };
        // Everything that answers for the pool has begun.
        let stop = tokio::select! {
            // A part that fails is worth telling even in the moment of a signal.
            biased;
            ended = ended(&mut parts) => return Err(ended),
            stop = signals.next() => stop,
            () = tell_readiness(&mut conditions, &readiness, &stay, &closer) => return Err(AppError::Ended("the readiness")),
        };
        stop_leading.cancel();
        let mut heir = None;
        if let Some((giving_back, candidate)) = leading {
            // Another replica leads while this one drains.
            giving_back.await?;
            heir = Some(candidate).filter(|_| *readiness.borrow() == Readiness::Ready && stop == Stop::Terminate);
        }
        let hand_over = async {
            let Some(candidate) = heir else {
                readiness.send_replace(Readiness::NotReady);
                return std::future::pending().await;
            };
            let is_settled = async {
                candidate.succeeded().await;
                tokio::time::sleep(SETTLING).await;
            };
            tokio::pin!(is_settled);
            let in_time = tokio::time::timeout(SUCCESSION + SETTLING, &mut is_settled).await;
            readiness.send_replace(Readiness::NotReady);
            if in_time.is_err() {
                // Until somebody leads, gateways are better off here than nowhere.
                is_settled.await;
            }
            tracing::info!("connections are told to go to the replica that leads");
            stay.send_replace(Stay::Brief);
            std::future::pending::<()>().await;
        };
        tracing::info!(?stop, streams = streams.len(), timeout = ?drain.timeout, "draining; a second signal ends at once");
        let quiet = match stop {
            Stop::Terminate => drain.quiet,
            Stop::Interrupt => Duration::ZERO,
        };
        tokio::select! {
            biased;
            ended = ended(&mut parts) => return Err(ended),
            _ = signals.next() => {
                tracing::warn!(cut = streams.len(), "second signal");
                return Ok(());
            }
            () = hand_over => {}
            () = silence(&streams, quiet, taken) => {}
            () = tokio::time::sleep(drain.timeout) => {}
        }
        let waiting = closer.inspect(Engine::waiting);
        if waiting > 0 {
            tracing::warn!(waiting, "the drain is over; requests that still wait are refused");
        }
        // Those who wait are answered while the streams have their last second.
        closer.close();
        stop_streams.cancel();
        match parts
            .join_next()
            .await
            .expect("the server of streams is among the parts")??
        {
            Part::Streams(Drained { cut: 0 }) => tracing::info!("drained"),
            Part::Streams(Drained { cut }) => tracing::warn!(cut, "drain cut short"),
            Part::Other(part) => return Err(AppError::Ended(part)),
        }
        Ok(())
    }
}

/// A part of the service that has ended.
enum Part {
    Streams(Drained),
    Other(&'static str),
}

/// Why a part ended that should not have.
async fn ended(parts: &mut JoinSet<Result<Part, AppError>>) -> AppError {
    match parts.join_next().await {
        None => AppError::Ended("everything"),
        Some(Err(error)) => error.into(),
        Some(Ok(Err(error))) => error,
        Some(Ok(Ok(Part::Streams(_)))) => AppError::Ended("the ext_proc service"),
        Some(Ok(Ok(Part::Other(part)))) => AppError::Ended(part),
    }
}

/// Waits until no stream is open, and `quiet` has passed without a further request. `taken` counts them.
async fn silence(streams: &TaskTracker, quiet: Duration, taken: impl Fn() -> u64) {
    streams.close();
    loop {
        streams.wait().await;
        let before = taken();
        tokio::time::sleep(quiet).await;
        if streams.is_empty() && taken() == before {
            return;
        }
    }
}

fn bind_error(purpose: &'static str, flag: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> AppError {
    move |source| AppError::Bind {
        purpose,
        flag,
        address,
        source,
    }
}

impl Found {
    /// Reads the files, or connects to the cluster. By `health`, where that service listens, other replicas see that this
    /// one lives.
    async fn find(discovery: Discovery, health: SocketAddr) -> Result<Self, AppError> {
        let cluster = match discovery {
            Discovery::Files(params) => return Ok(Self::Files(Box::new(FileDiscovery::load(&params)?))),
            Discovery::Kubernetes(cluster) => *cluster,
        };
        let client = client::connect().await?;
        let namespace = cluster.target.namespace().to_owned();
        let (identity, pace) = (cluster.identity, cluster.pace);
        let in_pod = |ip| SocketAddr::new(ip, health.port());
        let candidate = cluster.election.map(|election| Candidate {
            client: client.clone(),
            namespace: namespace.clone(),
            name: election.lease,
            identity: identity.clone(),
            address: match health.ip().is_unspecified() {
                true => election.pod_ip.map(in_pod),
                false => Some(health),
            },
            timing: election.timing,
            pace,
        });
        let config = cluster.config_object.map(|name| ConfigObject {
            client: client.clone(),
            namespace,
            name,
            identity,
            pace,
        });
        let gatekeeper = cluster.authenticated_pages.then(|| Gatekeeper::new(client.clone()));
        let wanted = Wanted {
            target: cluster.target,
            pace,
        };
        Ok(Self::Kubernetes(Box::new(InCluster {
            source: ClusterSource::new(client, wanted),
            candidate,
            config,
            gatekeeper,
        })))
    }
}

/// Tells whether requests could come here: the pool is known, and the configuration object was right or there is none.
async fn tell_fitness(
    mut pool: watch::Receiver<PoolState>,
    mut is_configured: watch::Receiver<bool>,
    tell: watch::Sender<bool>,
) {
    loop {
        let is_fit = *pool.borrow_and_update() == PoolState::Known && *is_configured.borrow_and_update();
        tell.send_if_modified(|before| std::mem::replace(before, is_fit) != is_fit);
        tokio::select! {
            Ok(()) = pool.changed() => {}
            Ok(()) = is_configured.changed() => {}
            // Nothing changes any more: as it is with files.
            else => std::future::pending::<()>().await,
        }
    }
}

/// What has to be so before requests should come here.
#[derive(Debug)]
struct Conditions {
    /// They could come here.
    is_fit: watch::Receiver<bool>,
    role: watch::Receiver<Role>,
}

/// Tells whether requests should come here, and whether those who send them may stay, whenever that changes.
async fn tell_readiness(
    conditions: &mut Conditions,
    readiness: &watch::Sender<Readiness>,
    stay: &watch::Sender<Stay>,
    driver: &Driver,
) {
    let Conditions { is_fit, role } = conditions;
    loop {
        let leads = *role.borrow_and_update() == Role::Leader;
        if !leads && *readiness.borrow() == Readiness::Ready {
            // Another one has begun to lead in this moment.
            tokio::select! {
                Ok(()) = role.changed() => continue,
                () = tokio::time::sleep(SETTLING) => {}
            }
        }
        let fit = *is_fit.borrow_and_update();
        let now = if fit && leads {
            Readiness::Ready
        } else {
            Readiness::NotReady
        };
        if readiness.send_replace(now) != now {
            let endpoints = driver.inspect(|engine| engine.pool().len());
            match now {
                Readiness::Ready => tracing::info!(endpoints, "ready"),
                Readiness::NotReady => tracing::info!(fit, leads, "not ready"),
            }
        }
        let stays = if leads { Stay::Unbounded } else { Stay::Brief };
        stay.send_if_modified(|before| std::mem::replace(before, stays) != stays);
        tokio::select! {
            Ok(()) = is_fit.changed() => {}
            Ok(()) = role.changed() => {}
            // The other parts have ended.
            else => std::future::pending::<()>().await,
        }
    }
}

/// The engine's pool, those who look at the endpoints in it, and what streams need to know of it.
#[derive(Clone, Debug)]
struct ServedPool {
    driver: Driver,
    scrapers: Scrapers<Driver>,
    front: Arc<ArcSwap<super::ext_proc::Settings>>,
    telemetry: Arc<Telemetry>,
    state: watch::Sender<PoolState>,
}

impl PoolSink for ServedPool {
    fn now(&self) -> Timestamp {
        Picker::now(&self.driver)
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        self.scrapers.changed(changes);
    }

    fn objectives(&self, objectives: Objectives) {
        self.scrapers.objectives(objectives);
    }
}

impl ClusterSink for ServedPool {
    fn rewrites(&self, rewrites: Rewrites) {
        self.telemetry.metrics.pin_models(rewrites.models());
        let rewrites = Arc::new(rewrites);
        self.front.rcu(|settings| super::ext_proc::Settings {
            rewrites: rewrites.clone(),
            ..super::ext_proc::Settings::clone(settings)
        });
    }

    fn pool_is(&self, state: PoolState) {
        self.state.send_replace(state);
    }
}

impl PoolSink for Driver {
    fn now(&self) -> Timestamp {
        Picker::now(self)
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        self.pool_changed(changes);
    }

    fn objectives(&self, objectives: Objectives) {
        self.objectives_changed(objectives);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    const QUIET: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn without_requests_the_end_comes_after_the_quiet_time() {
        let start = Instant::now();

        silence(&TaskTracker::new(), QUIET, || 0).await;

        assert_eq!(start.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_stream_holds_the_end_back() {
        let (start, streams) = (Instant::now(), TaskTracker::new());
        let stream = streams.token();
        let request = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(stream);
        };

        tokio::join!(silence(&streams, QUIET, || 1), request);

        assert_eq!(start.elapsed(), Duration::from_secs(60) + QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_came_and_went_starts_the_quiet_time_anew() {
        let (start, streams, taken) = (Instant::now(), TaskTracker::new(), Cell::new(0));
        let requests = async {
            for _ in 0..3 {
                tokio::time::sleep(QUIET - Duration::from_secs(1)).await;
                taken.set(taken.get() + 1);
            }
        };

        tokio::join!(silence(&streams, QUIET, || taken.get()), requests);

        // The last of them comes after 12 s, in the third quiet time.
        assert_eq!(start.elapsed(), 4 * QUIET);
    }
}
