//! Serving: what the binary does without a subcommand.
//!
//! The flags are those of the reference picker, so that Forebay can take its place in a pod spec (spec, config 10).
//! Those that only have a meaning with Kubernetes are refused for as long as Forebay does not talk to it.

use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args, ValueEnum};
use forebay::engine::config::data_layer::FileDiscoveryParams;
use forebay::engine::config::quantity::Quantity;
use forebay::engine::config::{LoadOptions, Loaded, SourceName, load};
use forebay::engine::scheduling::Explain;
use forebay::engine::seed::Seed;
use forebay::serve::app::{App, Settings};
use forebay::serve::ext_proc::tls::Tls;
use forebay::serve::ext_proc::{Scores, SubsetHints};
use forebay::serve::observe::metrics::PoolLabels;
use forebay::serve::shutdown::Signals;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use super::{source, units};

/// Largest request body unless the user says otherwise.
const DEFAULT_MAX_BODY: &str = "32Mi";

/// Flags of the service.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServeArgs {
    /// File with an EndpointPickerConfig; without one, the built-in default profile is used
    #[arg(long, value_name = "FILE", conflicts_with = "config_text")]
    config_file: Option<PathBuf>,
    /// Text of an EndpointPickerConfig, YAML or JSON
    #[arg(long, value_name = "TEXT")]
    config_text: Option<String>,
    /// File with the endpoints, watched for changes; short for a `file-discovery` plugin in the configuration
    #[arg(long, value_name = "FILE")]
    endpoints_file: Option<PathBuf>,
    /// Lets the configuration use plugins of alpha stability
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    allow_experimental_plugins: bool,
    /// Address that all ports listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Port of the ext_proc service
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// Port of the gRPC health service
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// Port of `/metrics` and `/debug/decisions`
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// Largest message that is read, such as `64Mi`; a request body must fit into `--max-request-body` besides
    #[arg(long, value_name = "SIZE", value_parser = size)]
    grpc_max_recv_msg_size: Option<usize>,
    /// Largest request body, such as `32Mi`; a larger one is answered with 413
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = DEFAULT_MAX_BODY)]
    max_request_body: usize,
    /// Threads that serve streams; one for each core unless set
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Serves the ext_proc port over TLS
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    secure_serving: bool,
    /// Directory with `tls.crt` and `tls.key`; without one, a self-signed certificate is made at start
    #[arg(long, value_name = "DIR")]
    cert_path: Option<PathBuf>,
    /// Answers health checks on the ext_proc port too
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    health_checking: bool,
    /// Name of the pool, for metrics
    #[arg(long, value_name = "NAME", default_value = "epp")]
    pool_name: String,
    /// Namespace of the pool
    #[arg(long, value_name = "NAME", env = "NAMESPACE", default_value = "default")]
    pool_namespace: String,
    /// Ignores the subset of endpoints that the gateway asks for
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_endpoint_subset_filter: bool,
    /// Tells the gateway the total score of each endpoint, as dynamic metadata
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    emit_endpoint_scores: bool,
    /// Time between two looks at an endpoint's metrics; at least 50ms
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "50ms")]
    refresh_metrics_interval: Duration,
    /// Age from which an endpoint's metrics are left out of the pool's averages
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    metrics_staleness_threshold: Duration,
    /// Time that requests have to finish after SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "30s")]
    drain_timeout: Duration,
    /// Quiet time on the ext_proc port after SIGTERM that counts as the end of all requests
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "5s")]
    drain_quiet: Duration,
    /// Seed of all random choices; a fresh one at each start unless set
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// How much is logged: 2 what changes, 4 every request off the happy path, 5 everything
    #[arg(
        short = 'v',
        long = "v",
        value_name = "LEVEL",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    verbosity: i32,
    /// How log lines are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Encoder::Console)]
    zap_encoder: Encoder,
    /// How much is logged, in words; goes before `-v`
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    #[command(flatten)]
    without_effect: WithoutEffect,
    #[command(flatten)]
    kubernetes: Kubernetes,
    #[command(flatten)]
    replaced: Replaced,
}

/// Flags of the reference that change nothing here.
#[derive(Debug, Args)]
struct WithoutEffect {
    #[arg(long, hide = true)]
    pool_group: Option<String>,
    #[arg(long, hide = true)]
    grpc_max_send_msg_size: Option<String>,
    #[arg(long, hide = true)]
    refresh_prometheus_metrics_interval: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_cert_reload: Option<String>,
    #[arg(long, hide = true)]
    tls_min_version: Option<String>,
    #[arg(long, hide = true)]
    tls_cipher_suites: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    metrics_endpoint_auth: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_pprof: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_grpc_stream_metrics: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tracing: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<String>,
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

impl WithoutEffect {
    /// The flags that were given and whose value asks for something that is not done.
    fn given(&self) -> Vec<&'static str> {
        let asks = |value: &Option<String>| value.as_deref().is_some_and(|value| value != "false");
        [
            ("grpc-max-send-msg-size", &self.grpc_max_send_msg_size),
            ("enable-cert-reload", &self.enable_cert_reload),
            ("tls-min-version", &self.tls_min_version),
            ("tls-cipher-suites", &self.tls_cipher_suites),
            ("metrics-endpoint-auth", &self.metrics_endpoint_auth),
            ("enable-pprof", &self.enable_pprof),
            ("enable-grpc-stream-metrics", &self.enable_grpc_stream_metrics),
            ("tracing", &self.tracing),
        ]
        .into_iter()
        .filter_map(|(flag, value)| asks(value).then_some(flag))
        .collect()
    }
}

/// Flags that need Kubernetes.
#[derive(Debug, Args)]
struct Kubernetes {
    #[arg(long, hide = true)]
    endpoint_selector: Option<String>,
    #[arg(long, hide = true)]
    endpoint_target_ports: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ha_enable_leader_election: Option<String>,
    #[arg(long, hide = true)]
    metrics_cert_dir: Option<String>,
    #[arg(long, hide = true)]
    metrics_client_ca_file: Option<String>,
}

impl Kubernetes {
    fn refuse(&self) -> anyhow::Result<()> {
        let flags = [
            ("endpoint-selector", &self.endpoint_selector),
            ("endpoint-target-ports", &self.endpoint_target_ports),
            ("ha-enable-leader-election", &self.ha_enable_leader_election),
            ("metrics-cert-dir", &self.metrics_cert_dir),
            ("metrics-client-ca-file", &self.metrics_client_ca_file),
        ];
        for (flag, value) in flags {
            if value.as_deref().is_some_and(|value| value != "false") {
                bail!("flag `--{flag}` is not supported by this version, which does not talk to Kubernetes yet");
            }
        }
        Ok(())
    }
}

/// Flags that the configuration has replaced, in the reference too.
#[derive(Debug, Args)]
struct Replaced {
    #[arg(long, hide = true)]
    total_queued_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    total_running_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    kv_cache_usage_percentage_metric: Option<String>,
    #[arg(long, hide = true)]
    lora_info_metric: Option<String>,
    #[arg(long, hide = true)]
    cache_info_metric: Option<String>,
}

impl Replaced {
    fn refuse(&self) -> anyhow::Result<()> {
        let flags = [
            ("total-queued-requests-metric", &self.total_queued_requests_metric),
            ("total-running-requests-metric", &self.total_running_requests_metric),
            (
                "kv-cache-usage-percentage-metric",
                &self.kv_cache_usage_percentage_metric,
            ),
            ("lora-info-metric", &self.lora_info_metric),
            ("cache-info-metric", &self.cache_info_metric),
        ];
        for (flag, value) in flags {
            if value.is_some() {
                bail!(
                    "flag \"{flag}\" is deprecated and cannot be used; configure metrics via engineConfigs in \
                     EndpointPickerConfig instead"
                );
            }
        }
        Ok(())
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Encoder {
    /// For people
    Console,
    /// One JSON object a line
    Json,
}

/// Serves until SIGTERM or Ctrl-C, and then until the requests under way have ended. A second signal ends at once.
pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.replaced.refuse()?;
    args.kubernetes.refuse()?;
    args.start_logging()?;
    for flag in args.without_effect.given() {
        tracing::warn!(flag, "flag has no effect in this version");
    }
    let settings = args.into_settings()?;
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
    fn start_logging(&self) -> anyhow::Result<()> {
        let level = match self.verbosity {
            i32::MIN..=3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            5.. => LevelFilter::TRACE,
        };
        let words = match self.zap_log_level.as_deref() {
            Some("panic") => "error".to_owned(),
            Some(number) if number.parse::<u32>().is_ok() => "debug".to_owned(),
            Some(words) => words.to_owned(),
            None => format!("{},forebay={level}", level.min(LevelFilter::INFO)),
        };
        let filter = EnvFilter::builder()
            .with_default_directive(LevelFilter::INFO.into())
            .parse(std::env::var("RUST_LOG").unwrap_or(words))
            .context("the log level is one of `error`, `warn`, `info`, `debug`, `trace`, or a filter of such")?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        match self.zap_encoder {
            Encoder::Console => lines.with_ansi(std::io::stderr().is_terminal()).init(),
            Encoder::Json => lines.json().flatten_event(true).init(),
        }
        Ok(())
    }

    fn into_settings(self) -> anyhow::Result<Settings> {
        let Loaded { plan, warnings } = self.plan()?;
        for warning in warnings {
            tracing::warn!(%warning, "configuration");
        }
        let discovery = match (&self.endpoints_file, &plan.data_layer.discovery) {
            (Some(file), None) => FileDiscoveryParams {
                path: file.to_string_lossy().into_owned(),
                watch_file: true,
            },
            (None, Some(discovery)) => discovery.clone(),
            (Some(_), Some(_)) => bail!(
                "endpoints are given twice: by `--endpoints-file` and by `dataLayer.discovery` in the configuration; \
                 use one of them"
            ),
            (None, None) => bail!(
                "no endpoints: give `--endpoints-file FILE`, or a `file-discovery` plugin and `dataLayer.discovery` in \
                 the configuration; this version does not find pods through Kubernetes yet"
            ),
        };
        Ok(Settings {
            discovery,
            address: self.bind_address,
            grpc_port: self.grpc_port,
            health_port: self.grpc_health_port,
            metrics_port: self.metrics_port,
            tls: self.tls()?,
            health_on_grpc_port: self.health_checking,
            workers: self.workers,
            max_body_bytes: self.max_request_body,
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
            pool: PoolLabels {
                name: self.pool_name,
                staleness: self.metrics_staleness_threshold,
            },
            refresh: self.refresh_metrics_interval,
            drain_timeout: self.drain_timeout,
            drain_quiet: self.drain_quiet,
            seed: Seed(self.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0)),
            plan,
        })
    }

    fn plan(&self) -> anyhow::Result<Loaded> {
        let (text, source) = match (&self.config_file, &self.config_text) {
            (Some(path), _) => source::read(path)?,
            (None, Some(text)) => (text.clone(), SourceName::Flag),
            (None, None) => (String::new(), SourceName::BuiltIn),
        };
        let options = LoadOptions {
            allow_experimental_plugins: self.allow_experimental_plugins,
        };
        load(&text, &source, &options).context("the configuration cannot be used")
    }

    fn tls(&self) -> anyhow::Result<Option<Tls>> {
        Ok(match (self.secure_serving, &self.cert_path) {
            (false, _) => None,
            (true, Some(directory)) => Some(Tls::from_directory(directory)?),
            (true, None) => Some(Tls::self_signed()?),
        })
    }
}

/// Reads a size in bytes such as `64Mi`, `10MiB` or `25MB`.
fn size(text: &str) -> Result<usize, String> {
    let quantity = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let Quantity(bytes) = Quantity::parse(quantity).map_err(|error| error.to_string())?;
    usize::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("`{text}` is not a size; a number of bytes above 0 is needed, such as `64Mi`"))
}
