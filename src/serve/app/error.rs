//! Why a service does not start, or ends.

use std::io;
use std::net::SocketAddr;

use tokio::task::JoinError;

use crate::serve::datalayer::discovery::LoadError;
use crate::serve::datalayer::scrape::SourceError;
use crate::serve::ext_proc::server::ServerError;
use crate::serve::kube::client::ClientError;

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
    /// A part of the service broke down: a defect.
    #[error("a part of the service broke down")]
    Panicked(#[from] JoinError),
    /// A part of the service ended by itself.
    #[error("{0} ended though nobody asked it to")]
    Ended(&'static str),
}
