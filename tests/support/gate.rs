//! A model server that answers when a test says so.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::soon;

/// The server. Requests come one by one through [`next`](Self::next), in the order in which they came here.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    came: mpsc::UnboundedReceiver<Held>,
    _server: AbortOnDropHandle<()>,
}

/// A request that is being worked on. Dropped, it is answered.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) headers: HeaderMap,
    begin: oneshot::Sender<()>,
    _end: oneshot::Sender<()>,
}

/// A request that is answered in part. Dropped, it is answered wholly.
#[derive(Debug)]
pub(crate) struct Begun {
    _end: oneshot::Sender<()>,
}

impl Gate {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, came) = mpsc::unbounded_channel();
        let router = Router::new()
            .route("/metrics", get(async || "vllm:num_requests_waiting{} 0\n"))
            .fallback(any(hold))
            .with_state(tell);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            came,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// The next request that comes.
    pub(crate) async fn next(&mut self) -> Held {
        let held = soon("a request comes to the model server", self.came.recv()).await;
        held.expect("the server is there")
    }

    /// True if no request has come that was not fetched.
    pub(crate) fn is_idle(&self) -> bool {
        self.came.is_empty()
    }
}

impl Held {
    /// What the client calls it.
    pub(crate) fn id(&self) -> &str {
        self.headers["x-request-id"].to_str().unwrap()
    }

    /// Lets the client have its answer.
    pub(crate) fn answer(self) {}

    /// Lets the client have the beginning of its answer.
    pub(crate) fn begin(self) -> Begun {
        // A client that has left does not listen.
        let _ = self.begin.send(());
        Begun { _end: self._end }
    }
}

impl Begun {
    /// Lets the client have the rest of its answer.
    pub(crate) fn end(self) {}
}

async fn hold(State(tell): State<mpsc::UnboundedSender<Held>>, request: Request) -> Response {
    let (begin, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let held = Held {
        headers: request.headers().clone(),
        begin,
        _end: end,
    };
    // A test that is over does not listen, and its requests are answered.
    let _ = tell.send(held);
    if begun.await.is_err() {
        return "{}".into_response();
    }
    let rest = async {
        let _ = ended.await;
        "}"
    };
    let parts = stream::once(async { "{" }).chain(stream::once(rest));
    Body::from_stream(parts.map(Ok::<_, Infallible>)).into_response()
}
