//! Serving: what the binary does without a subcommand.
//!
//! The flags are those of the reference picker, so that Forebay can take its place in a pod spec (spec, config 10).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use forebay::engine::config::data_layer::FileDiscoveryParams;
use forebay::engine::config::{LoadOptions, Loaded, Plan, SourceName, load};
use forebay::engine::journal::{self, Header};
use forebay::engine::scheduling::Explain;
use forebay::engine::seed::Seed;
use forebay::serve::app::{App, Discovery, Settings};
use forebay::serve::configuration::Text;
use forebay::serve::connections;
use forebay::serve::datalayer::discovery::Follow;
use forebay::serve::datalayer::scrape::SHORTEST_PERIOD;
use forebay::serve::ext_proc::tls::{Protocol, Purpose, Tls};
use forebay::serve::ext_proc::{Scores, SubsetHints};
use forebay::serve::journal::Journal;
use forebay::serve::limits::{self, MemoryLimit, ProcessLimits};
use forebay::serve::logs::LeftOut;
use forebay::serve::observe::metrics::{Limits, PoolLabels};
use forebay::serve::shutdown::Signals;

use super::cluster::{ClusterArgs, Surroundings};
use super::logging::LoggingArgs;
use super::reference::{Replaced, WithoutEffect};
use super::switch::Switch as _;
use super::{source, units};

/// What a gateway sends in one message unless it is told otherwise: Envoy takes headers of 60 KiB, and pieces of a body of
/// up to 64 KiB.
const SMALLEST_MESSAGE: usize = 64 << 10;

/// The most threads that serve streams: each takes memory and a descriptor, and none beyond the cores helps.
const MOST_WORKERS: usize = 1024;

/// Largest request body unless the user says otherwise.
const DEFAULT_MAX_BODY: &str = "32Mi";

/// Bytes that series with labels from requests may take unless the user says otherwise.
const DEFAULT_SERIES_LIMIT: &str = "8Mi";
/// Connections of each port unless the user says otherwise.
const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(connections::DEFAULT_LIMIT).unwrap();

/// Flags of the service.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServeArgs {
    /// File with an EndpointPickerConfig; without one, the built-in default profile is used
    #[arg(long, value_name = "FILE", value_parser = units::path(), conflicts_with = "config_text")]
    config_file: Option<PathBuf>,
    /// Text of an EndpointPickerConfig, YAML or JSON
    #[arg(long, value_name = "TEXT")]
    config_text: Option<String>,
    /// File with the endpoints, watched for changes; short for a `file-discovery` plugin in the configuration
    #[arg(long, value_name = "FILE")]
    endpoints_file: Option<PathBuf>,
    /// File with InferenceObjectives, read again whenever the file of endpoints is; short for `objectivesPath` of a
    /// `file-discovery` plugin
    #[arg(long, value_name = "FILE")]
    objectives_file: Option<PathBuf>,
    /// Lets the configuration use plugins of alpha stability
    #[arg(long, switch = false)]
    allow_experimental_plugins: bool,
    /// Address that all ports listen on; every one of this machine unless set
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,
    /// Port of the ext_proc service
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port of the gRPC health service
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Port of `/metrics`, `/debug/decisions` and `/debug/endpoints`
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Largest message that is read, such as `64Mi`; a request body must fit into `--max-request-body` besides
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    grpc_max_recv_msg_size: Option<usize>,
    /// Largest request body, such as `32Mi`; a larger one is answered with 413
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = DEFAULT_MAX_BODY)]
    max_request_body: usize,
    /// Longest silence within a request body; a request whose body stays unfinished is answered with 408
    #[arg(long, value_name = "DURATION", value_parser = units::seconds_above_zero, default_value = "30s")]
    request_body_timeout: Duration,
    /// Memory that the process may use, such as `2Gi`. Requests may use half of it, and what would go beyond is answered with
    /// 503. That of the control group, or else of the machine, unless set
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    memory_limit: Option<usize>,
    /// Connections of each port; one that has no request under way makes room for another
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_CONNECTIONS)]
    max_connections: NonZeroUsize,
    /// Threads that serve streams; one for each core unless set
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<NonZeroUsize>,
    /// Serves the ext_proc port over TLS
    #[arg(long, switch = true)]
    secure_serving: bool,
    /// Directory with `tls.crt` and `tls.key`; without one, a self-signed certificate is made at start
    #[arg(long, value_name = "DIR", value_parser = units::path())]
    cert_path: Option<PathBuf>,
    /// Reads certificates again when their files change, and not only after SIGHUP
    #[arg(long, switch = true)]
    enable_cert_reload: bool,
    /// Oldest TLS version that is spoken on the ext_proc port and on that of `/metrics`: `VersionTLS12` (also meant by
    /// older ones, which are not spoken) or `VersionTLS13`
    #[arg(long, value_name = "VERSION", default_value = "")]
    tls_min_version: String,
    /// Cipher suites of TLS 1.2, by their names in Go; every one that is safe unless set. TLS 1.3 is not affected
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Directory with `tls.crt` and `tls.key` for `/metrics`, which is served in plain text without one
    #[arg(long, value_name = "DIR", value_parser = units::path())]
    metrics_cert_dir: Option<PathBuf>,
    /// File with the authorities whose certificates callers of `/metrics` have to show; needs `--metrics-cert-dir`
    #[arg(long, value_name = "FILE", value_parser = units::path(), requires = "metrics_cert_dir")]
    metrics_client_ca_file: Option<PathBuf>,
    /// Answers health checks on the ext_proc port too
    #[arg(long, switch = false)]
    health_checking: bool,
    /// Ignores the subset of endpoints that the gateway asks for
    #[arg(long, switch = false)]
    disable_endpoint_subset_filter: bool,
    /// Tells the gateway the total score of each endpoint, as dynamic metadata
    #[arg(long, switch = false)]
    emit_endpoint_scores: bool,
    /// Time between two looks at an endpoint's metrics; at least 50ms
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "50ms")]
    refresh_metrics_interval: Duration,
    /// Age from which an endpoint's metrics are left out of the pool's averages
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    metrics_staleness_threshold: Duration,
    /// Bytes of the metrics page, about, that series with labels from requests (models, tenants) may take; what has no room
    /// is counted under the label value `other`
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = DEFAULT_SERIES_LIMIT)]
    metrics_series_limit: usize,
    /// Time after which series with labels from requests are dropped if nothing is counted in them
    #[arg(long, value_name = "DURATION", value_parser = units::seconds_above_zero, default_value = "1h")]
    metrics_series_idle: Duration,
    /// Shows metrics under their older names too, those of the Gateway API Inference Extension
    #[arg(long, switch = true)]
    metrics_older_names: bool,
    /// Time that requests have to finish after SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "30s")]
    drain_timeout: Duration,
    /// Quiet time on the ext_proc port after SIGTERM that counts as the end of all requests
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "5s")]
    drain_quiet: Duration,
    /// Seed of all random choices; a fresh one at each start unless set
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Writes down, in a new file, everything that the engine is asked and answers: enough to make every decision again
    /// with `forebay replay --from-journal`. The file grows by about the size of the prompts' hashes with each request
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    logging: LoggingArgs,
    #[command(flatten)]
    without_effect: WithoutEffect,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    replaced: Replaced,
}

/// Serves until SIGTERM or Ctrl-C, and then until the requests under way have ended. A second signal ends at once.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.replaced.refuse()?;
    let log = args.logging.start()?;
    for flag in args.without_effect.given() {
        tracing::warn!(flag, "flag has no effect in this version");
    }
    let mut doubts = Vec::new();
    let settings = args.into_settings(log.left_out.clone(), &mut doubts);
    for doubt in doubts {
        tracing::warn!("{doubt}");
    }
    let settings = settings?;
    // Control work only: discovery, scraping and pages. Streams have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let signals = Signals::install()?;
        let app = App::bind(settings).await?;
        app.run(signals).await?;
        anyhow::Ok(())
    });
    runtime.shutdown_background();
    result
}

impl ServeArgs {
    /// What the flags come to. `doubts` gets what is accepted and probably not meant so.
    fn into_settings(self, left_out: LeftOut, doubts: &mut Vec<String>) -> anyhow::Result<Settings> {
        let surroundings = Surroundings::of_this_process();
        doubts.extend(self.doubts());
        self.refuse_equal_ports()?;
        let text = self.text()?;
        let options = LoadOptions {
            allow_experimental_plugins: self.allow_experimental_plugins,
            refresh: Some(self.refresh_metrics_interval.max(SHORTEST_PERIOD)),
            ..LoadOptions::default()
        };
        let limits = self.limits();
        doubts.extend(limits.doubts());
        let Loaded { plan, warnings } = load(&text.text, &text.source, &options)
            .map_err(|errors| anyhow!("the configuration cannot be used\n{errors}"))?;
        for warning in warnings {
            tracing::warn!(%warning, "configuration");
        }
        let discovery = self.discovery(&plan, &surroundings)?;
        doubts.extend(self.cluster.doubts(matches!(discovery, Discovery::Files(_))));
        let seed = self.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        let header = Header {
            format: journal::FORMAT,
            seed,
            cache_source: options.cache_source,
            config: text.text.clone(),
        };
        let journal = self.journal.as_deref().map(|path| Journal::create(path, &header));
        Ok(Settings {
            journal: journal.transpose()?,
            // Standard input is read once.
            config_file: given(self.config_file.as_deref())
                .filter(|path| *path != Path::new("-"))
                .map(Path::to_owned),
            text,
            options,
            metrics_tls: self.metrics_tls(&discovery)?,
            discovery,
            address: self.bind_address.unwrap_or_else(every_address),
            grpc_port: self.grpc_port,
            health_port: self.grpc_health_port,
            metrics_port: self.metrics_port,
            tls: self.tls()?,
            certificates: match self.enable_cert_reload {
                true => Follow::Changes,
                false => Follow::OnDemand,
            },
            limits,
            left_out,
            health_on_grpc_port: self.health_checking,
            workers: self.workers,
            max_body_bytes: self.max_request_body,
            body_timeout: self.request_body_timeout,
            max_message_bytes: self.grpc_max_recv_msg_size,
            subset_hints: if self.disable_endpoint_subset_filter {
                SubsetHints::Ignored
            } else {
                SubsetHints::Honoured
            },
            scores: if self.emit_endpoint_scores {
                Scores::Told
            } else {
                Scores::Hidden
            },
            explain: if self.emit_endpoint_scores {
                Explain::All
            } else {
                Explain::default()
            },
            metrics_limits: Limits {
                bytes: self.metrics_series_limit,
                idle: self.metrics_series_idle,
                older_names: self.metrics_older_names,
            },
            pool: PoolLabels {
                name: self.cluster.pool_label(&surroundings),
                staleness: self.metrics_staleness_threshold,
            },
            refresh: self.refresh_metrics_interval,
            drain_timeout: self.drain_timeout,
            drain_quiet: self.drain_quiet,
            seed: Seed(seed),
            plan,
        })
    }

    /// Where endpoints and objectives are found: in files if one is named, or else in a cluster.
    fn discovery(&self, plan: &Plan, surroundings: &Surroundings) -> anyhow::Result<Discovery> {
        let mut files = match (&self.endpoints_file, &plan.data_layer.discovery) {
            (Some(file), None) => FileDiscoveryParams {
                path: file.to_string_lossy().into_owned(),
                watch_file: true,
                ..FileDiscoveryParams::default()
            },
            (None, Some(discovery)) => discovery.clone(),
            (Some(_), Some(_)) => bail!(
                "endpoints are given twice: by `--endpoints-file` and by `dataLayer.discovery` in the configuration; \
                 use one of them"
            ),
            (None, None) if self.objectives_file.is_some() => {
                bail!("`--objectives-file` goes with `--endpoints-file`; in a cluster, objectives are objects")
            }
            (None, None) => return Ok(Discovery::Kubernetes(Box::new(self.cluster.cluster(surroundings)?))),
        };
        self.cluster.refuse_with_files()?;
        if let Some(file) = &self.objectives_file {
            if !files.objectives_path.is_empty() {
                bail!(
                    "objectives are given twice: by `--objectives-file` and by `objectivesPath` in the configuration; \
                     use one of them"
                );
            }
            files.objectives_path = file.to_string_lossy().into_owned();
        }
        Ok(Discovery::Files(files))
    }

    fn limits(&self) -> ProcessLimits {
        let memory = match self.memory_limit {
            Some(bytes) => Some(MemoryLimit {
                bytes: bytes as u64,
                source: "--memory-limit",
            }),
            None => MemoryLimit::of_this_process(),
        };
        ProcessLimits::new(memory, self.max_connections.get(), limits::raise_descriptors())
    }

    fn text(&self) -> anyhow::Result<Text> {
        let (text, source) = match (given(self.config_file.as_deref()), &self.config_text) {
            (Some(path), _) => source::configuration(path)?,
            (None, Some(text)) => (text.clone(), SourceName::Flag),
            (None, None) => (String::new(), SourceName::BuiltIn),
        };
        Ok(Text { text, source })
    }

    fn metrics_tls(&self, discovery: &Discovery) -> anyhow::Result<Option<Tls>> {
        let Some(directory) = given(self.metrics_cert_dir.as_deref()) else {
            return Ok(None);
        };
        let authorities = given(self.metrics_client_ca_file.as_deref());
        let is_checked = matches!(discovery, Discovery::Kubernetes(cluster) if cluster.authenticated_pages);
        if authorities.is_none() && !is_checked {
            bail!(
                "\"metrics-cert-dir\" enables metrics TLS without authentication; give `--metrics-client-ca-file` too, or \
                 leave `--metrics-endpoint-auth` on"
            );
        }
        Ok(Some(Tls::from_directory(
            directory,
            Purpose::Readers(authorities),
            &self.tls_protocol()?,
        )?))
    }

    fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let protocol = self.tls_protocol()?;
        Ok(match (self.secure_serving, given(self.cert_path.as_deref())) {
            (false, _) => None,
            (true, Some(directory)) => Some(Tls::from_directory(directory, Purpose::Gateways, &protocol)?),
            (true, None) => Some(Tls::self_signed(&protocol)?),
        })
    }

    fn tls_protocol(&self) -> anyhow::Result<Protocol> {
        Protocol::parse(&self.tls_min_version, &self.tls_cipher_suites)
            .map_err(|error| anyhow!("flags `--tls-min-version` and `--tls-cipher-suites`: {error}"))
    }

    /// Fails if two services are to listen on one port. Port 0 is a free one each time.
    fn refuse_equal_ports(&self) -> anyhow::Result<()> {
        let ports = [
            ("grpc-port", self.grpc_port),
            ("grpc-health-port", self.grpc_health_port),
            ("metrics-port", self.metrics_port),
        ];
        for (at, (flag, port)) in ports.iter().enumerate() {
            if let Some((other, _)) = ports[..at].iter().find(|(_, other)| other == port && *port != 0) {
                bail!("`--{other}` and `--{flag}` are both {port}; each needs a port of its own");
            }
        }
        Ok(())
    }

    /// What is accepted and probably not meant so, whatever the endpoints are.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.refresh_metrics_interval < SHORTEST_PERIOD {
            doubts.push(format!(
                "`--refresh-metrics-interval` is {:?}, which counts as {SHORTEST_PERIOD:?}",
                self.refresh_metrics_interval
            ));
        }
        if self.metrics_staleness_threshold <= self.refresh_metrics_interval {
            doubts.push(format!(
                "`--metrics-staleness-threshold` ({:?}) is not above `--refresh-metrics-interval` ({:?}): between two \
                 scrapes no endpoint counts in the averages of the pool",
                self.metrics_staleness_threshold, self.refresh_metrics_interval
            ));
        }
        let is_plain = !self.secure_serving;
        if is_plain && given(self.cert_path.as_deref()).is_some() {
            doubts.push("`--cert-path` has no effect with `--secure-serving=false`".to_owned());
        }
        let asks_for_tls = !self.tls_min_version.is_empty() || !self.tls_cipher_suites.is_empty();
        if asks_for_tls && is_plain && given(self.metrics_cert_dir.as_deref()).is_none() {
            doubts.push(
                "`--tls-min-version` and `--tls-cipher-suites` have no effect: nothing is served over TLS".to_owned(),
            );
        }
        if self.tls_min_version == "VersionTLS13" && !self.tls_cipher_suites.is_empty() {
            doubts.push(
                "`--tls-cipher-suites` has no effect with `--tls-min-version=VersionTLS13`: it is for TLS 1.2"
                    .to_owned(),
            );
        }
        if self.grpc_max_recv_msg_size.is_some_and(|size| size < SMALLEST_MESSAGE) {
            doubts.push(format!(
                "`--grpc-max-recv-msg-size` is below {} KiB: messages with the headers of a request, or with a piece of its \
                 body, can be larger, and end the stream",
                SMALLEST_MESSAGE >> 10
            ));
        }
        doubts.extend(self.logging.doubt());
        if self.drain_quiet > self.drain_timeout {
            doubts.push(format!(
                "`--drain-quiet` ({:?}) has no effect: `--drain-timeout` ({:?}) is over before",
                self.drain_quiet, self.drain_timeout
            ));
        }
        doubts
    }
}

/// Reads a number of threads.
fn workers(text: &str) -> Result<NonZeroUsize, String> {
    let number = text
        .parse::<NonZeroUsize>()
        .ok()
        .filter(|number| number.get() <= MOST_WORKERS);
    number.ok_or_else(|| format!("found `{text}`; it must be a whole number from 1 to {MOST_WORKERS}"))
}

/// A path that is not empty.
fn given(path: Option<&Path>) -> Option<&Path> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Every address of this machine: of both families, where there is IPv6.
fn every_address() -> IpAddr {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) {
        Ok(_) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod odd_values;
#[cfg(test)]
mod tests;
