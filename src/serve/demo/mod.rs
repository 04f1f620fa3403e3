//! The demonstration: model servers, Envoy and Forebay on one machine, and real requests. One scene shows why each
//! request went where it went, the other what becomes of requests that are too many.
//!
//! Everything runs as a process of its own, as it would in production, and ends with the demonstration in whatever way
//! that ends. Only loopback addresses are listened on.
//!
//! [`run`] is the whole of it. The parts serve the tests of the whole program too: an Envoy's bootstrap ([`envoy`]),
//! processes that end with their owner ([`children`]), and waiting ([`wait`]).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::cluster::{Cluster, Programs};
use self::ports::Ports;
use self::progress::Progress;
use crate::serve::client::{Client, ClientError};
use crate::serve::shutdown::Signals;

pub mod children;
mod cluster;
pub mod envoy;
mod install;
mod load;
mod overload;
mod ports;
mod progress;
mod table;
pub mod wait;

pub use install::ENVOY_VERSION;
pub use ports::DEFAULT_BASE_PORT;

/// What is demonstrated, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is shown.
    pub scene: Scene,
    /// The `forebay` program.
    pub forebay: PathBuf,
    /// The Envoy to run. One is looked for, and installed if there is none, unless it is said.
    pub envoy: Option<PathBuf>,
    /// The first of the ports, which follow each other.
    pub base_port: u16,
    /// Where the picker keeps its journal, if it does; an absolute path.
    pub journal: Option<PathBuf>,
    /// What happens once the table is shown.
    pub afterwards: Afterwards,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A small mixed load, and why each request went where it went.
    Picks,
    /// More requests than the pool can take: who waits, who is turned away, and what each tenant gets.
    Overload {
        /// How long they come.
        load_time: Duration,
    },
}

/// What happens once the table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The demonstration is over.
    End,
    /// Everything runs until a signal comes, for more requests.
    Stay,
}

/// Why there was no demonstration, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A port cannot be had.
    #[error(transparent)]
    Port(#[from] ports::PortError),
    /// There is no Envoy.
    #[error(transparent)]
    Envoy(#[from] install::InstallError),
    /// A process is not there.
    #[error(transparent)]
    Child(#[from] children::ChildError),
    /// A process did not become ready.
    #[error("{error}\nthe last words of {name}:\n{tail}")]
    NotReady {
        /// What it is.
        name: String,
        /// What was waited for.
        error: wait::TimedOut,
        /// The end of what it printed.
        tail: String,
    },
    /// Files or the terminal cannot be written.
    #[error("cannot write {what}")]
    Write {
        /// What.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A page cannot be fetched.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Requests did not go as they should.
    #[error("{failed} of {sent} requests did not go as they should; see the table")]
    Requests {
        /// Those that failed, or were served by an endpoint that was not picked.
        failed: usize,
        /// All.
        sent: usize,
    },
    /// The end of the terminal cannot be waited for.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    /// Somebody wanted it to end.
    #[error("stopped by a signal before the end of the demonstration")]
    Stopped,
}

/// Starts everything, sends requests, writes the table to `out`, and ends everything, at the latest when a signal comes.
///
/// Progress goes to the standard error. A second signal ends everything at once.
///
/// # Errors
///
/// If something does not start, or a request fails. Nothing is left running in any case.
pub async fn run(options: Options, signals: Signals, out: &mut (dyn Write + Send)) -> Result<(), DemoError> {
    let directory = TempDir::with_prefix("forebay-demo-").map_err(|source| DemoError::Write {
        what: "to a temporary directory",
        source,
    })?;
    let mut stops = Stops {
        signals,
        hangup: signal(SignalKind::hangup()).map_err(DemoError::Signals)?,
    };
    let mut cluster = Cluster::default();
    let result = tokio::select! {
        result = demonstrate(options, directory.path(), &mut cluster, out) => result,
        () = stops.next() => Err(DemoError::Stopped),
    };
    let result = match result {
        Ok(Afterwards::Stay) => tokio::select! {
            error = cluster.unexpected_end() => Err(error.into()),
            () = stops.next() => Ok(()),
        },
        Ok(Afterwards::End) => Ok(()),
        Err(error) => Err(error),
    };
    tokio::select! {
        () = cluster.stop() => {}
        // What has not ended by then is killed as it is dropped.
        () = stops.next() => {}
    }
    result
}

/// What ends the demonstration early. A terminal that is closed does not tell the children, which are in groups of their
/// own.
struct Stops {
    signals: Signals,
    hangup: Signal,
}

impl Stops {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.signals.next() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

async fn demonstrate(
    options: Options,
    directory: &Path,
    cluster: &mut Cluster,
    out: &mut (dyn Write + Send),
) -> Result<Afterwards, DemoError> {
    let progress = Progress::new();
    let layout = match options.scene {
        Scene::Picks => load::layout(),
        Scene::Overload { .. } => overload::layout(),
    };
    let ports = Ports::checked(options.base_port, layout.model_servers)?;
    let envoy = install::find_or_install(options.envoy, &progress).await?;
    let programs = Programs {
        forebay: &options.forebay,
        envoy: &envoy,
        journal: options.journal.as_deref(),
    };
    let client = Client::plain();
    cluster
        .start(programs, &layout, &ports, directory, &client, &progress)
        .await?;

    match options.scene {
        Scene::Picks => show_picks(&client, &ports, &progress, out).await?,
        Scene::Overload { load_time } => overload::show(load_time, &client, &ports, &progress, out).await?,
    }
    if options.afterwards == Afterwards::Stay {
        write!(out, "{}", invitation(&ports)).map_err(unwritten)?;
    }
    out.flush().map_err(unwritten)?;
    Ok(options.afterwards)
}

async fn show_picks(
    client: &Client,
    ports: &Ports,
    progress: &Progress,
    out: &mut (dyn Write + Send),
) -> Result<(), DemoError> {
    let asks = load::asks();
    let sent = asks.len();
    let step = progress.begin(format!("{sent} requests through Envoy"));
    let answers = load::send(asks, client, ports.ingress()).await;
    let rows = table::rows(answers, client, ports.metrics()).await?;
    step.done();

    write!(out, "{}", table::Report(&rows)).map_err(unwritten)?;
    match rows.iter().filter(|row| row.is_wrong()).count() {
        0 => Ok(()),
        failed => Err(DemoError::Requests { failed, sent }),
    }
}

fn unwritten(source: io::Error) -> DemoError {
    DemoError::Write {
        what: "the table",
        source,
    }
}

/// What to try while everything runs.
fn invitation(ports: &Ports) -> String {
    let (ingress, metrics, model) = (ports.ingress(), ports.metrics(), cluster::MODEL);
    format!(
        r#"
Everything is running. Try it:

  # a chat through Envoy; the header x-served-by says who answered
  curl -i http://{ingress}/v1/chat/completions -H 'content-type: application/json' -H 'x-request-id: mine' \
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Why there?"}}], "max_tokens": 16}}'

  # why it went there
  curl -s 'http://{metrics}/debug/decisions?request_id=mine'

  # what Prometheus sees
  curl -s http://{metrics}/metrics | grep llm_d_epp_

Ctrl-C stops everything.
"#
    )
}
