//! The gRPC health service (spec, ext-proc 11).
//!
//! `liveness` always serves: a process that cannot find its pool is not helped by a restart. Every other name,
//! known or not, tells whether requests should be sent here.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::stay::{Stay, host};
use super::wire::grpc::health::v1::health_check_response::ServingStatus;
use super::wire::grpc::health::v1::health_server::{Health as HealthApi, HealthServer};
use super::wire::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse};
use crate::serve::connections::{Connections, Kept, Use};

/// The name by which the ext_proc service is asked for.
pub const EXT_PROC_SERVICE: &str = "envoy.service.ext_proc.v3.ExternalProcessor";

/// Calls at once on a connection of the port for health checks.
const MAX_CALLS: u32 = 100;
/// Headers of such a call, in bytes.
const MAX_HEADER_BYTES: u32 = 16 * 1024;
/// A connection that is silent for so long is asked whether somebody is there.
const PING_AFTER: Duration = Duration::from_secs(30);

const LIVENESS: &str = "liveness";
const READINESS: &str = "readiness";

/// Whether requests should be sent here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet, or no longer.
    #[default]
    NotReady,
    /// The pool is known, and nothing is being shut down.
    Ready,
}

/// Answers health checks from what it is told through a channel.
#[derive(Clone, Debug)]
pub struct Health {
    readiness: watch::Receiver<Readiness>,
}

impl Health {
    /// Answers with the newest value of `readiness`. Once its sender is gone, nothing is ready.
    pub fn new(readiness: watch::Receiver<Readiness>) -> Self {
        Self { readiness }
    }

    /// Serves health checks alone, in plain text, over some `connections`, until `stop` resolves. Connections stay as `stay`
    /// says: a gateway that checks the health of whoever is behind an address is to hear of another one soon.
    ///
    /// # Errors
    ///
    /// The listener failed.
    pub async fn serve(
        self,
        listener: TcpListener,
        connections: Connections,
        stay: watch::Receiver<Stay>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error> {
        let transport = tonic::transport::Server::builder()
            .max_concurrent_streams(MAX_CALLS)
            .http2_max_header_list_size(MAX_HEADER_BYTES)
            .http2_keepalive_interval(Some(PING_AFTER));
        let incoming = stream::unfold((listener, connections), |(listener, connections)| async move {
            let (stream, place) = connections.accept(&listener).await;
            Some((Ok(Kept::new(stream, place)), (listener, connections)))
        });
        host(transport, HealthServer::new(self), incoming, stay, stop).await
    }

    fn status(&self, service: &str) -> ServingStatus {
        let is_told = self.readiness.has_changed().is_ok();
        match *self.readiness.borrow() {
            _ if service == LIVENESS => ServingStatus::Serving,
            Readiness::Ready if is_told => ServingStatus::Serving,
            Readiness::Ready | Readiness::NotReady => ServingStatus::NotServing,
        }
    }
}

#[tonic::async_trait]
impl HealthApi for Health {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let _under_way = request.extensions().get::<Use>().map(Use::begin);
        let status = self.status(&request.get_ref().service);
        Ok(Response::new(response(status)))
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        let statuses: BTreeMap<_, _> = [EXT_PROC_SERVICE, LIVENESS, READINESS]
            .into_iter()
            .map(|service| (service.to_owned(), response(self.status(service))))
            .collect();
        Ok(Response::new(HealthListResponse { statuses }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let mut health = self.clone();
        health.readiness.mark_changed();
        let under_way = request.extensions().get::<Use>().map(Use::begin);
        let start = (health, request.into_inner().service, None, under_way);
        // Tells each status once; the stream ends with the sender of the readiness.
        let statuses = stream::unfold(start, |(mut health, service, told, under_way)| async move {
            loop {
                health.readiness.changed().await.ok()?;
                health.readiness.borrow_and_update();
                let status = health.status(&service);
                if told != Some(status) {
                    return Some((Ok(response(status)), (health, service, Some(status), under_way)));
                }
            }
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    fn asked(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest {
            service: service.to_owned(),
        })
    }

    async fn check(health: &Health, service: &str) -> ServingStatus {
        health.check(asked(service)).await.unwrap().into_inner().status()
    }

    #[tokio::test]
    async fn every_name_but_liveness_follows_readiness() {
        let (tell, readiness) = watch::channel(Readiness::NotReady);
        let health = Health::new(readiness);

        for service in ["", READINESS, EXT_PROC_SERVICE, "inference-extension"] {
            tell.send_replace(Readiness::NotReady);
            assert_eq!(check(&health, service).await, ServingStatus::NotServing, "{service}");
            tell.send_replace(Readiness::Ready);
            assert_eq!(check(&health, service).await, ServingStatus::Serving, "{service}");
        }
    }

    #[tokio::test]
    async fn a_process_that_is_not_ready_is_alive() {
        let (_tell, readiness) = watch::channel(Readiness::NotReady);

        assert_eq!(check(&Health::new(readiness), LIVENESS).await, ServingStatus::Serving);
    }

    #[tokio::test]
    async fn nothing_is_ready_when_nobody_is_left_to_say_so() {
        let (tell, readiness) = watch::channel(Readiness::Ready);
        drop(tell);

        assert_eq!(check(&Health::new(readiness), "").await, ServingStatus::NotServing);
    }

    #[tokio::test]
    async fn a_watcher_hears_the_present_status_and_each_change() {
        let (tell, readiness) = watch::channel(Readiness::NotReady);
        let health = Health::new(readiness);
        let mut statuses = health.watch(asked("")).await.unwrap().into_inner();

        assert_eq!(
            statuses.next().await.unwrap().unwrap().status(),
            ServingStatus::NotServing
        );
        tell.send_replace(Readiness::NotReady);
        tell.send_replace(Readiness::Ready);
        assert_eq!(statuses.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        drop(tell);
        assert!(statuses.next().await.is_none());
    }

    #[tokio::test]
    async fn the_list_has_the_names_that_are_known() {
        let (_tell, readiness) = watch::channel(Readiness::NotReady);

        let list = Health::new(readiness).list(Request::new(HealthListRequest {})).await;

        let statuses = list.unwrap().into_inner().statuses;
        let names: Vec<_> = statuses.keys().map(String::as_str).collect();
        assert_eq!(names, [EXT_PROC_SERVICE, LIVENESS, READINESS]);
        assert_eq!(statuses[LIVENESS].status(), ServingStatus::Serving);
        assert_eq!(statuses[READINESS].status(), ServingStatus::NotServing);
    }
}
