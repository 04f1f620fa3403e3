//! A model server that answers when a test says so.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
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
    _answer: oneshot::Sender<()>,
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
}

async fn hold(State(tell): State<mpsc::UnboundedSender<Held>>, request: Request) -> Response {
    let (answer, answered) = oneshot::channel();
    let held = Held {
        headers: request.headers().clone(),
        _answer: answer,
    };
    // A test that is over does not listen, and its requests are answered.
    let _ = tell.send(held);
    let _ = answered.await;
    "{}".into_response()
}
