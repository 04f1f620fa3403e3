//! How long connections may stay, and how they are told to go.
//!
//! A gateway that reaches the replicas by one address chooses among them once, when it connects, and sends all that
//! comes over that connection. So a replica that no longer leads has to close its connections, in good order: HTTP/2's
//! GOAWAY lets the streams under way go on to their end, and the gateway opens new ones on a connection of its own
//! making, which leads to whoever is ready by then. The address may go on leading here until those who keep it have
//! heard, and so whoever comes meanwhile is served, and told to go a moment later.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _, unfold};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::Server as Transport;
use tonic::transport::server::Connected;

/// How long a connection may stay where none is to stay.
const MOMENT: Duration = Duration::from_secs(1);

/// How long connections may stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stay {
    /// For as long as gateways like.
    #[default]
    Unbounded,
    /// For a second. Those that are here are told to go at once.
    Brief,
}

/// Serves connections until `stop` resolves or no more come, and then until they end.
///
/// They are served in rounds. When a round is over, its connections are told to go, and the next one has begun.
pub(super) async fn host<S, C>(
    transport: Transport,
    services: S,
    incoming: impl Stream<Item = io::Result<C>>,
    mut stay: watch::Receiver<Stay>,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let (mut incoming, mut stop) = (pin!(incoming), pin!(stop));
    let mut rounds = FuturesUnordered::new();
    let mut is_last = false;
    while !is_last {
        let (deal, dealt) = mpsc::unbounded_channel();
        let dealt = unfold(dealt, |mut dealt| async move { Some((dealt.recv().await?, dealt)) });
        // A round is over when it is dealt no more. As tonic sees it, it may be told so beforehand.
        let round = transport
            .clone()
            .serve_with_incoming_shutdown(services.clone(), dealt, pending());
        rounds.push(round);
        let mut over_at = None;
        is_last = loop {
            tokio::select! {
                biased;
                () = &mut stop => break true,
                now = changed(&mut stay) => match now {
                    Stay::Unbounded => over_at = None,
                    Stay::Brief => break false,
                },
                () = reached(over_at) => break false,
                connection = incoming.next() => match connection {
                    None => break true,
                    Some(connection) => {
                        if *stay.borrow() == Stay::Brief {
                            over_at.get_or_insert_with(|| Instant::now() + MOMENT);
                        }
                        // A round that failed says so itself.
                        let _ = deal.send(connection);
                    }
                },
                Some(ended) = rounds.next() => ended?,
            }
        };
    }
    while let Some(ended) = rounds.next().await {
        ended?;
    }
    Ok(())
}

/// What has changed. What nobody is left to change does not.
async fn changed(stay: &mut watch::Receiver<Stay>) -> Stay {
    if stay.changed().await.is_err() {
        pending::<()>().await;
    }
    *stay.borrow_and_update()
}

async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use hyper::client::conn::http2;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::serve::ext_proc::health::{Health, Readiness};
    use crate::serve::ext_proc::wire::grpc::health::v1::health_server::HealthServer;

    /// Not compressed, and of no length.
    const EMPTY_MESSAGE: Bytes = Bytes::from_static(&[0; 5]);

    /// A host of watchers of its readiness, without a network.
    struct Host {
        connect: mpsc::UnboundedSender<io::Result<DuplexStream>>,
        stay: watch::Sender<Stay>,
        readiness: watch::Sender<Readiness>,
        stop: CancellationToken,
        task: AbortOnDropHandle<Result<(), tonic::transport::Error>>,
    }

    /// A connection to it.
    struct Guest {
        requests: http2::SendRequest<Full<Bytes>>,
        /// Ends with the connection.
        connection: JoinHandle<hyper::Result<()>>,
    }

    impl Host {
        fn start(stay: Stay) -> Self {
            let stay = watch::Sender::new(stay);
            let (readiness, told) = watch::channel(Readiness::Ready);
            let (connect, come) = mpsc::unbounded_channel();
            let incoming = unfold(come, |mut come| async move { Some((come.recv().await?, come)) });
            let stop = CancellationToken::new();
            let (services, stays) = (HealthServer::new(Health::new(told)), stay.subscribe());
            let ended = stop.clone().cancelled_owned();
            let task = tokio::spawn(host(Transport::builder(), services, incoming, stays, ended));
            Self {
                connect,
                stay,
                readiness,
                stop,
                task: AbortOnDropHandle::new(task),
            }
        }

        async fn guest(&self) -> Guest {
            let (near, far) = tokio::io::duplex(64 * 1024);
            self.connect.send(Ok(far)).unwrap();
            let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near))
                .await
                .unwrap();
            Guest {
                requests,
                connection: tokio::spawn(connection),
            }
        }
    }

    impl Guest {
        /// Opens a stream that goes on for as long as the host has something to tell.
        async fn watch(&mut self) -> http::Response<hyper::body::Incoming> {
            self.try_watch().await.unwrap()
        }

        async fn try_watch(&mut self) -> hyper::Result<http::Response<hyper::body::Incoming>> {
            let request = http::Request::post("http://host/grpc.health.v1.Health/Watch")
                .header("content-type", "application/grpc")
                .body(Full::new(EMPTY_MESSAGE))
                .unwrap();
            self.requests.ready().await?;
            self.requests.send_request(request).await
        }
    }

    const DAY: Duration = Duration::from_secs(24 * 3600);

    async fn lasts_a_day(guest: Guest) {
        let day = tokio::time::timeout(DAY, guest.connection).await;
        assert!(day.is_err(), "{day:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_stays_for_as_long_as_it_likes() {
        let host = Host::start(Stay::Unbounded);

        lasts_a_day(host.guest().await).await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_go_ends_what_is_under_way_and_begins_nothing() {
        let host = Host::start(Stay::Unbounded);
        let mut guest = host.guest().await;
        let mut statuses = guest.watch().await.into_body();
        statuses.frame().await.unwrap().unwrap();

        host.stay.send_replace(Stay::Brief);
        tokio::time::sleep(DAY).await;
        host.readiness.send_replace(Readiness::NotReady);

        assert!(statuses.frame().await.unwrap().unwrap().is_data());
        assert!(guest.try_watch().await.is_err(), "it takes another stream");
        drop(statuses);
        guest.connection.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_where_none_is_to_stay_is_served_and_told_to_go_a_moment_later() {
        let host = Host::start(Stay::Brief);
        tokio::time::sleep(DAY).await;
        for _ in 0..3 {
            let came = Instant::now();
            let mut guest = host.guest().await;
            assert_eq!(guest.watch().await.status(), 200);

            guest.connection.await.unwrap().unwrap();

            assert!(came.elapsed() >= MOMENT && came.elapsed() < 2 * MOMENT, "{came:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_come_before_all_may_stay_again_stays() {
        let host = Host::start(Stay::Brief);
        let mut guest = host.guest().await;
        let statuses = guest.watch().await;

        host.stay.send_replace(Stay::Unbounded);

        lasts_a_day(guest).await;
        drop(statuses);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_stops_waits_for_those_of_all_rounds() {
        let host = Host::start(Stay::Unbounded);
        let mut guests = Vec::new();
        for stay in [Stay::Brief, Stay::Unbounded] {
            let mut guest = host.guest().await;
            let statuses = guest.watch().await;
            guests.push((guest, statuses));
            host.stay.send_replace(stay);
        }

        host.stop.cancel();
        tokio::time::sleep(DAY).await;
        assert!(!host.task.is_finished());
        drop(guests);

        host.task.await.unwrap().unwrap();
    }
}
