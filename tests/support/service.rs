//! One address for several replicas, as a Service is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay::serve::ext_proc::wire::grpc::health::v1::HealthCheckRequest;
use forebay::serve::ext_proc::wire::grpc::health::v1::health_check_response::ServingStatus;
use forebay::serve::ext_proc::wire::grpc::health::v1::health_client::HealthClient;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
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
    let mut ready = Vec::new();
    for replica in replicas.iter() {
        if is_ready(replica.health).await {
            ready.push(replica.target);
        }
    }
    let Some(next) = turn.fetch_add(1, Ordering::Relaxed).checked_rem(ready.len()) else {
        return;
    };
    let Ok(mut far) = TcpStream::connect(ready[next]).await else {
        return;
    };
    // Either side may end it in whatever way.
    let _ = copy_bidirectional(&mut near, &mut far).await;
}

/// Whether the replica with this health service says that requests should come.
pub(crate) async fn is_ready(health: SocketAddr) -> bool {
    let Ok(channel) = Endpoint::from_shared(format!("http://{health}"))
        .unwrap()
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
