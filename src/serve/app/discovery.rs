//! Where endpoints and objectives come from: found before the start, followed from then on.

use std::net::SocketAddr;

use tokio::sync::watch;

use super::leading::Candidacy;
use super::pool::ServedPool;
use super::running::Running;
use super::{AppError, Cluster, Discovery};
use crate::serve::configuration::LiveConfiguration;
use crate::serve::datalayer::PoolSink as _;
use crate::serve::datalayer::discovery::FileDiscovery;
use crate::serve::kube::auth::Gatekeeper;
use crate::serve::kube::client;
use crate::serve::kube::config_object::ConfigObject;
use crate::serve::kube::lease::{Candidate, Role};
use crate::serve::kube::{ClusterSink as _, ClusterSource, PoolState, Wanted};

/// A source of endpoints and objectives, found and not yet followed.
#[derive(Debug)]
pub(super) enum Found {
    Files(Box<FileDiscovery>),
    Kubernetes(Box<InCluster>),
}

/// What is done in a cluster.
#[derive(Debug)]
pub(super) struct InCluster {
    source: ClusterSource,
    candidate: Option<Candidate>,
    config: Option<ConfigObject>,
    gatekeeper: Option<Gatekeeper>,
}

/// What is known of a source that is followed, besides what is in its pool.
pub(super) struct Followed {
    /// What to run is known: the configuration object was right, or there is none.
    pub(super) is_configured: watch::Receiver<bool>,
    /// What this replica is to the others. Without an election, each leads.
    pub(super) role: watch::Receiver<Role>,
    /// Its part in the election, if there is one.
    pub(super) candidacy: Option<Candidacy>,
}

impl Found {
    /// Reads the files, or connects to the cluster. By `health`, where that service listens, other replicas see that this
    /// one lives.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or there is no way to the API server.
    pub(super) async fn find(discovery: Discovery, health: SocketAddr) -> Result<Self, AppError> {
        Ok(match discovery {
            Discovery::Files(params) => Self::Files(Box::new(FileDiscovery::load(&params)?)),
            Discovery::Kubernetes(cluster) => Self::Kubernetes(Box::new(InCluster::find(*cluster, health).await?)),
        })
    }

    /// Whoever lets callers read the pages, if not everybody may.
    pub(super) fn gatekeeper(&self) -> Option<Gatekeeper> {
        match self {
            Self::Files(_) => None,
            Self::Kubernetes(cluster) => cluster.gatekeeper.clone(),
        }
    }

    /// Follows the source among what runs: tells `pool` of endpoints and objectives, and `live` of configurations. `is_fit`
    /// says whether this replica could serve if it led.
    pub(super) fn follow(
        self,
        pool: ServedPool,
        live: &LiveConfiguration,
        is_fit: watch::Receiver<bool>,
        running: &mut Running,
    ) -> Followed {
        match self {
            Self::Files(files) => follow_files(*files, pool, running),
            Self::Kubernetes(cluster) => cluster.follow(pool, live, is_fit, running),
        }
    }
}

fn follow_files(files: FileDiscovery, pool: ServedPool, running: &mut Running) -> Followed {
    pool.objectives(files.objectives().clone());
    pool.changed(files.arrivals());
    pool.pool_is(PoolState::Known);
    running.add("the watch of the endpoints", files.run(pool));
    Followed {
        is_configured: always(true),
        role: always(Role::Leader),
        candidacy: None,
    }
}

impl InCluster {
    async fn find(cluster: Cluster, health: SocketAddr) -> Result<Self, AppError> {
        let client = client::connect().await?;
        let namespace = cluster.target.namespace().to_owned();
        let (identity, pace) = (cluster.identity, cluster.pace);
        let in_pod = |ip| SocketAddr::new(ip, health.port());
        let candidate = cluster.election.map(|election| Candidate {
            client: client.clone(),
            namespace: namespace.clone(),
            name: election.lease,
            pod: identity.clone(),
            process: uuid::Uuid::new_v4().to_string(),
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
        Ok(Self {
            source: ClusterSource::new(client, wanted),
            candidate,
            config,
            gatekeeper,
        })
    }

    fn follow(
        self,
        pool: ServedPool,
        live: &LiveConfiguration,
        is_fit: watch::Receiver<bool>,
        running: &mut Running,
    ) -> Followed {
        let (role, candidacy) = match self.candidate {
            None => (always(Role::Leader), None),
            Some(candidate) => {
                let tell = watch::Sender::default();
                let role = tell.subscribe();
                (role, Some(Candidacy::begin(candidate, tell, is_fit, running)))
            }
        };
        let is_configured = match self.config {
            None => always(true),
            Some(config) => {
                let tell = watch::Sender::new(false);
                let is_configured = tell.subscribe();
                running.add(
                    "the watch of the configuration object",
                    config.follow(live.clone(), role.clone(), tell),
                );
                is_configured
            }
        };
        running.add("the watch of the pool", self.source.run(pool));
        Followed {
            is_configured,
            role,
            candidacy,
        }
    }
}

/// What nobody changes.
fn always<T>(value: T) -> watch::Receiver<T> {
    watch::channel(value).1
}
