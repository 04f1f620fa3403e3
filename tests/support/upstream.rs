//! A model server that tells what it was sent.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The server. It answers every request with two cookies, and with the trailer `x-checksum` where the client takes
/// trailers.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _server: AbortOnDropHandle<()>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let router = Router::new()
            .route("/metrics", get(async || "vllm:num_requests_waiting{} 0\n"))
            .fallback(any(answer))
            .with_state(seen.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            seen,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// What came so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The only request that came.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen.into_iter().next().unwrap()
    }
}

async fn answer(State(seen): State<Arc<Mutex<Vec<Seen>>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap();
    seen.lock().push(Seen {
        headers: head.headers,
        trailers: body.trailers().cloned(),
        body: body.to_bytes(),
    });
    let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), HeaderValue::from_static("2a"))]);
    let frames = [Frame::data(Bytes::from_static(b"{}")), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, std::convert::Infallible>)));
    let cookies = AppendHeaders([("set-cookie", "a=1"), ("set-cookie", "b=2")]);
    let headers = [("content-type", "application/json"), ("trailer", "x-checksum")];
    (cookies, headers, Body::new(body)).into_response()
}
