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

mod discovery;
mod drain;
mod emptiness;
mod error;
mod leading;
mod pool;
mod readiness;
mod running;
mod settings;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::discovery::{Followed, Found};
use self::drain::Drain;
pub use self::error::AppError;
use self::pool::ServedPool;
use self::readiness::{Announced, Conditions, tell_fitness};
use self::running::Running;
pub use self::settings::{Cluster, Discovery, Election, Settings};
use super::admin::{Admin, Pages};
use super::clock::Clock;
use super::configuration::file::ConfigFile;
use super::configuration::{LiveConfiguration, Parts};
use super::connections::Connections;
use super::datalayer::discovery::Follow;
use super::datalayer::scrape::{ScrapeStats, Scrapers};
use super::driver::Driver;
use super::ext_proc;
use super::ext_proc::health::Health;
use super::ext_proc::server::{Drained, Server, ServerOptions};
use super::ext_proc::service::Front;
use super::ext_proc::tls::Tls;
use super::logs::{self, LeftOut};
use super::memory::Budget;
use super::observe::Telemetry;
use super::observe::metrics::{Metrics, Process};
use super::parse::Parsers;
use super::shutdown::Signals;
use crate::engine::Engine;
use crate::engine::config::Plan;
use crate::engine::prefix::HashKey;
use crate::version;

/// Time that refusals have to be written when the drain is over, and connections to be closed in good order.
const GOODBYE: Duration = Duration::from_secs(1);

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
    certificates: Vec<(Tls, Follow)>,
    announced: Announced,
    drain: Drain,
    about: About,
    health_connections: Connections,
    left_out: LeftOut,
}

/// What the log says of the service when it starts.
#[derive(Debug)]
struct About {
    pool: String,
    configuration: String,
    plugins: String,
    limits: String,
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
        let announced = Announced::default();
        let health = Health::new(announced.readiness.subscribe());
        let ports = Ports::new(settings.limits.connections);
        let server_options = server_options(&settings, &health, &announced, &ports);
        let certificates = certificates(&settings);
        let drain = Drain {
            timeout: settings.drain_timeout,
            quiet: settings.drain_quiet,
        };
        let about = About {
            pool: settings.pool.name.clone(),
            configuration: settings.text.source.to_string(),
            plugins: names_of(&settings.plan),
            limits: settings.limits.to_string(),
        };
        let memory = Arc::new(Budget::new(settings.limits.requests));
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
        let health_listener = listen("health checks", "grpc-health-port", health_address).await?;
        let discovery = Found::find(discovery, health_listener.local_addr().unwrap_or(health_address)).await?;
        let clock = Clock::new();
        let stats = Arc::<ScrapeStats>::default();
        // Flow control may be switched on later, where the configuration can change.
        let may_queue =
            plan.engine.flow.is_some() || config_file.is_some() || matches!(&discovery, Found::Kubernetes(_));
        let (metrics, probe) = Metrics::register(
            clock,
            stats.clone(),
            may_queue.then(|| labels.name.clone()),
            settings.metrics_limits,
        )?;
        let telemetry = Arc::new(Telemetry::new(metrics));
        let engine = Engine::new(plan.engine, settings.seed, Box::new(probe), settings.explain);
        let driver = Driver::new(engine, clock);
        if let Some(journal) = settings.journal {
            driver.write_down(journal);
        }
        let scrapers = Scrapers::new(plan.data_layer.sources, settings.refresh, stats, driver.clone())?;

        let grpc_address = SocketAddr::new(address, settings.grpc_port);
        let grpc = Server::bind(grpc_address, server_options).await.map_err(bind_error(
            "ext_proc",
            "grpc-port",
            grpc_address,
        ))?;
        let metrics_address = SocketAddr::new(address, settings.metrics_port);
        let metrics_listener = listen("metrics", "metrics-port", metrics_address).await?;

        let admin = Admin {
            pages: Pages::default(),
            driver: driver.clone(),
            telemetry: telemetry.clone(),
            pool: labels,
            gatekeeper: discovery.gatekeeper(),
            tls: settings.metrics_tls,
            connections: ports.pages.clone(),
            process: Process {
                panics: Arc::clone(driver.panics()),
                memory: Arc::clone(&memory),
                ports: ports.all().into(),
                left_out: settings.left_out.clone(),
            },
        };
        let for_streams = Arc::new(ArcSwap::from_pointee(ext_proc::Settings {
            parsers: Parsers::new(plan.parsers),
            responses: plan.responses,
            max_body_bytes: settings.max_body_bytes,
            max_message_bytes: settings.max_message_bytes,
            body_timeout: settings.body_timeout,
            memory,
            scores: settings.scores,
            subset_hints: settings.subset_hints,
            rewrites: Arc::default(),
            hash_key: HashKey(uuid::Uuid::new_v4().as_u64_pair().0),
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
            streams: TaskTracker::new(),
            panics: Arc::clone(driver.panics()),
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
            announced,
            drain,
            about,
            health_connections: ports.health,
            left_out: settings.left_out,
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
            let About {
                pool,
                configuration,
                plugins,
                limits,
            } = &self.about;
            let (version, commit) = (version::VERSION, version::COMMIT);
            tracing::info!(
                version, commit, pool, configuration, plugins, %grpc, %health, %metrics,
                "listening"
            );
            tracing::info!("limits: {limits}");
        }
        let (driver, streams) = (self.pool.driver.clone(), self.front.streams.clone());
        let stop_streams = CancellationToken::new();
        let Serving {
            mut running,
            conditions,
            candidacy,
            announced,
            drain,
        } = self.start(stop_streams.clone());

        let endpoints = || driver.inspect(|engine| engine.pool().len());
        let stop = tokio::select! {
            // A part that fails is worth telling even in the moment of a signal.
            biased;
            error = running.broken() => return Err(error),
            stop = signals.next() => stop,
            never = conditions.announce(&announced, endpoints) => match never {},
        };

        let taken = || driver.inspect(|engine| engine.tally().submitted);
        tokio::select! {
            biased;
            error = running.broken() => return Err(error),
            _ = signals.next() => {
                tracing::warn!(cut = streams.len(), "second signal");
                return Ok(());
            }
            () = drain.run(stop, candidacy, &announced, &streams, taken) => {}
        }

        let waiting = driver.inspect(Engine::waiting);
        if waiting > 0 {
            tracing::warn!(waiting, "the drain is over; requests that still wait are refused");
        }
        // Those who wait are answered while the streams have their last second.
        driver.close();
        stop_streams.cancel();
        match running.drained().await? {
            Drained { cut: 0 } => tracing::info!("drained"),
            Drained { cut } => tracing::warn!(cut, "drain cut short"),
        }
        Ok(())
    }

    /// Has everything run. Streams are served until `stop_streams`.
    fn start(self, stop_streams: CancellationToken) -> Serving {
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
            announced,
            drain,
            about,
            health_connections,
            left_out,
        } = self;
        let mut running = Running::default();
        let driver = pool.driver.clone();
        let watched = driver.clone();
        let endpoints = move || watched.inspect(|engine| engine.pool().len());
        running.add("the watch for an empty pool", emptiness::watch(about.pool, endpoints));
        running.add("the timer", async move { driver.keep_time().await });
        let telemetry = pool.telemetry.clone();
        running.add(
            "the summaries of the log",
            async move { telemetry.summary.write().await },
        );

        running.add("the count of log lines that were left out", logs::tell(left_out));

        let (tell_fit, is_fit) = watch::channel(false);
        let pool_state = pool.state.subscribe();
        let Followed {
            is_configured,
            role,
            candidacy,
        } = discovery.follow(pool, &live, is_fit.clone(), &mut running);
        running.add("the readiness", tell_fitness(pool_state, is_configured, tell_fit));
        for (certificate, follow) in certificates {
            running.add("the watch of a certificate", certificate.follow(follow));
        }
        if let Some(file) = config_file {
            running.add("the watch of the configuration", file.follow(live));
        }

        running.add("the metrics port", admin.serve(admin_listener));
        let stay = announced.stay.subscribe();
        running.try_add("the health service", async move {
            let never = std::future::pending();
            Ok(health.serve(health_listener, health_connections, stay, never).await?)
        });
        running.add_streams(grpc.serve(front, stop_streams));
        Serving {
            running,
            conditions: Conditions { is_fit, role },
            candidacy,
            announced,
            drain,
        }
    }
}

/// A service that runs.
struct Serving {
    running: Running,
    conditions: Conditions,
    candidacy: Option<leading::Candidacy>,
    announced: Announced,
    drain: Drain,
}

/// The connections of each port.
#[derive(Debug)]
struct Ports {
    ext_proc: Connections,
    health: Connections,
    pages: Connections,
}

impl Ports {
    fn new(limit: usize) -> Self {
        Self {
            ext_proc: Connections::new(limit),
            health: Connections::new(limit),
            pages: Connections::new(limit),
        }
    }

    fn all(&self) -> [(&'static str, Connections); 3] {
        [
            ("ext_proc", self.ext_proc.clone()),
            ("health", self.health.clone()),
            ("metrics", self.pages.clone()),
        ]
    }
}

/// The plugins of a plan, by the names of their instances.
fn names_of(plan: &Plan) -> String {
    let names: Vec<&str> = plan.plugins().into_iter().map(|plugin| &*plugin.name).collect();
    names.join(", ")
}

/// How streams are served.
fn server_options(settings: &Settings, health: &Health, announced: &Announced, ports: &Ports) -> ServerOptions {
    let defaults = ServerOptions::default();
    ServerOptions {
        max_message_bytes: settings
            .max_message_bytes
            .unwrap_or_else(|| ServerOptions::message_bytes_for(settings.max_body_bytes)),
        tls: settings.tls.clone(),
        health: settings.health_on_grpc_port.then(|| health.clone()),
        stay: announced.stay.subscribe(),
        workers: settings.workers.unwrap_or(defaults.workers),
        connections: ports.ext_proc.clone(),
        grace: GOODBYE,
        ..defaults
    }
}

/// The certificates, and when they are read again.
fn certificates(settings: &Settings) -> Vec<(Tls, Follow)> {
    let all = settings.tls.iter().chain(&settings.metrics_tls);
    all.map(|tls| (tls.clone(), settings.certificates)).collect()
}

async fn listen(purpose: &'static str, flag: &'static str, address: SocketAddr) -> Result<TcpListener, AppError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(bind_error(purpose, flag, address))
}

fn bind_error(purpose: &'static str, flag: &'static str, address: SocketAddr) -> impl FnOnce(io::Error) -> AppError {
    move |source| AppError::Bind {
        purpose,
        flag,
        address,
        source,
    }
}
