//! Connections of the pages: HTTP/1.1, in plain text or under TLS.

use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::serve::connections::{Connections, Kept, Use};
use crate::serve::ext_proc::tls::Tls;

/// A reader has this long for the head of a request, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Serves `router` over some `connections`, for as long as it is polled. No connection waits for another one's handshake.
pub(super) async fn serve(listener: TcpListener, connections: Connections, tls: Option<Tls>, router: Router) {
    let tls = tls.map(|tls| TlsAcceptor::from(tls.config));
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            (stream, place) = connections.accept(&listener) => {
                let stream = Kept::new(stream, place);
                open.spawn(converse(stream, tls.clone(), router.clone()));
            }
        }
    }
}

/// Whatever is wrong with a connection is its end, and nobody else's affair.
async fn converse(stream: Kept<TcpStream>, tls: Option<TlsAcceptor>, router: Router) {
    let requests = stream.for_requests();
    match tls {
        None => answer(stream, requests, router).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                answer(stream, requests, router).await;
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, requests: Use, router: Router) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (under_way, response) = (requests.begin(), router.call(request));
        async move {
            let response = response.await;
            drop(under_way);
            response
        }
    });
    let ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the pages has ended");
    }
}
