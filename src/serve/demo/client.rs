//! An HTTP client for pages and answers of loopback servers.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// The client; a clone uses the same connections.
#[derive(Clone, Debug)]
pub(super) struct Client(legacy::Client<HttpConnector, Full<Bytes>>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The request is none.
    #[error("`{url}` cannot be asked for")]
    Request {
        /// Where it should go.
        url: String,
        /// Why not.
        source: http::Error,
    },
    /// The server does not answer.
    #[error("no answer from `{url}`")]
    Send {
        /// Where the request went.
        url: String,
        /// Why not.
        source: legacy::Error,
    },
    /// The answer broke off.
    #[error("the answer broke off")]
    Body(#[from] hyper::Error),
    /// The answer is not what was asked for.
    #[error("`{url}` answers something else than decisions")]
    Document {
        /// Where the request went.
        url: String,
        /// What it answers.
        source: serde_json::Error,
    },
}

impl Client {
    pub(super) fn new() -> Self {
        Self(legacy::Client::builder(TokioExecutor::new()).build_http())
    }

    /// The page at `url`.
    pub(super) async fn fetch(&self, url: &str) -> Result<(StatusCode, String), ClientError> {
        let request = Request::get(url)
            .body(Full::default())
            .map_err(|source| ClientError::Request {
                url: url.to_owned(),
                source,
            })?;
        let response = self.send(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Sends a request, and returns when the head of the answer has come.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let url = request.uri().to_string();
        let response = self.0.request(request).await;
        response.map_err(|source| ClientError::Send { url, source })
    }
}
