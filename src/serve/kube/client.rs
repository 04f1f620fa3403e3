//! The client of the API server.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::{Client, Config};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing says where the API server is.
    #[error(
        "no API server: neither `KUBECONFIG` nor `~/.kube/config` nor the service account of a pod tells where one is"
    )]
    Config(#[source] Box<kube::config::InferConfigError>),
    /// What was said cannot be used.
    #[error("the API server cannot be spoken to as configured")]
    Client(#[source] kube::Error),
}

/// The file in which a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Who asks, for the API server's logs. What is before the `/` is the manager of the fields that are written.
const PROGRAM: &str = concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION"));

/// How long an answer may be silent. Longer than a watch lasts; without a bound, a connection that died without a word would
/// hold up whoever asked over it for as long as the system believes in it.
const SILENCE: Duration = Duration::from_secs(90);

/// A client by `KUBECONFIG`, by `~/.kube/config`, or by the service account of the pod. Nobody is asked yet.
///
/// # Errors
///
/// Nothing tells where the API server is, or the certificates cannot be used.
pub async fn connect() -> Result<Client, ClientError> {
    let mut config = Config::infer()
        .await
        .map_err(|error| ClientError::Config(Box::new(error)))?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(PROGRAM)));
    config.read_timeout = Some(SILENCE);
    // The silence of a connection at rest is nobody's.
    config.reset_reader_on_write = true;
    tracing::debug!(server = %config.cluster_url, "API server");
    Client::try_from(config).map_err(ClientError::Client)
}

/// The namespace of the pod that this runs in, if it runs in one.
pub fn own_namespace() -> Option<String> {
    let text = std::fs::read_to_string(Path::new(NAMESPACE_FILE)).ok()?;
    Some(text.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}
