//! One address for several replicas, as a Service is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay::serve::ext_proc::wire::grpc::health::v1::HealthCheckRequest;
use forebay::serve::ext_proc::wire::grpc::health::v1::health_check_response::ServingStatus;
use forebay::serve::ext_proc::wire::grpc::health::v1::health_client::HealthClient;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Endpoint;

/// Leads each new connection to a replica that is ready, in turn if there are several. Connections stay where they are.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// Where a replica is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replica {
    /// Where connections are led to.
    pub(crate) target: SocketAddr,
    /// Where it is asked whether it is ready.
    pub(crate) health: SocketAddr,
}

impl Service {
    pub(crate) async fn start(replicas: Vec<Replica>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (replicas, turn) = (Arc::<[Replica]>::from(replicas), Arc::<AtomicUsize>::default());
        let task = tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (replicas, turn) = (Arc::clone(&replicas), Arc::clone(&turn));
                tokio::spawn(lead(near, replicas, turn));
            }
        });
        Self {
            address,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

/// Where nobody is ready, the connection is closed.
async fn lead(mut near: TcpStream, replicas: Arc<[Replica]>, turn: Arc<AtomicUsize>) {
    let ready = ready(&replicas).await;
    let Some(next) = turn.fetch_add(1, Ordering::Relaxed).checked_rem(ready.len()) else {
        return;
    };
    let Ok(mut far) = TcpStream::connect(ready[next]).await else {
        return;
    };
    // Either side may end it in whatever way.
    let _ = copy_bidirectional(&mut near, &mut far).await;
}

/// Those that are ready, in order. One that hangs is not waited for once another one has answered.
async fn ready(replicas: &[Replica]) -> Vec<SocketAddr> {
    const GRACE: Duration = Duration::from_millis(200);
    let probe = |(place, &replica): (usize, &Replica)| async move {
        let is_ready = is_ready(replica.health).await;
        is_ready.then_some((place, replica.target))
    };
    let mut probes: FuturesUnordered<_> = replicas.iter().enumerate().map(probe).collect();
    let mut ready = Vec::new();
    loop {
        let next = match ready.is_empty() {
            true => probes.next().await,
            false => timeout(GRACE, probes.next()).await.unwrap_or_default(),
        };
        match next {
            Some(found) => ready.extend(found),
            None => break,
        }
    }
    ready.sort_unstable();
    ready.into_iter().map(|(_, target)| target).collect()
}

/// Whether the replica with this health service says that requests should come.
pub(crate) async fn is_ready(health: SocketAddr) -> bool {
    // A process that hangs takes connections and does not answer.
    const PATIENCE: Duration = Duration::from_secs(3);
    let Ok(channel) = Endpoint::from_shared(format!("http://{health}"))
        .unwrap()
        .timeout(PATIENCE)
        .connect()
        .await
    else {
        return false;
    };
    let asked = HealthCheckRequest {
        service: "readiness".to_owned(),
    };
    let answer = HealthClient::new(channel).check(asked).await;
    answer.is_ok_and(|answer| answer.into_inner().status() == ServingStatus::Serving)
}
