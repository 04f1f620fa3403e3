//! What a service is started with.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::engine::config::data_layer::FileDiscoveryParams;
use crate::engine::config::{LoadOptions, Plan};
use crate::engine::scheduling::Explain;
use crate::engine::seed::Seed;
use crate::serve::configuration::Text;
use crate::serve::datalayer::discovery::Follow;
use crate::serve::ext_proc::tls::Tls;
use crate::serve::ext_proc::{Scores, SubsetHints};
use crate::serve::journal::Journal;
use crate::serve::kube::lease::Timing;
use crate::serve::kube::{Pace, Target};
use crate::serve::limits::ProcessLimits;
use crate::serve::logs::LeftOut;
use crate::serve::observe::metrics::{Limits, PoolLabels};

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
    /// When certificates are read again.
    pub certificates: Follow,
    /// What the process may use.
    pub limits: ProcessLimits,
    /// Log lines that were left out.
    pub left_out: LeftOut,
    /// Whether health checks are answered on the ext_proc port too.
    pub health_on_grpc_port: bool,
    /// Threads that serve streams. One for each core if it is not said.
    pub workers: Option<NonZeroUsize>,
    /// The largest request body.
    pub max_body_bytes: usize,
    /// The longest silence within a request body.
    pub body_timeout: Duration,
    /// The largest message. What the largest body needs if it is not said.
    pub max_message_bytes: Option<usize>,
    /// Whether the gateway's subset hint counts.
    pub subset_hints: SubsetHints,
    /// Whether the scores go to the gateway.
    pub scores: Scores,
    /// How much of each decision is written down.
    pub explain: Explain,
    /// What series with labels from requests may take.
    pub metrics_limits: Limits,
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
