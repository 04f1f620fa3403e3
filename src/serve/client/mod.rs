//! The client's side of HTTP and of OpenAI's APIs: for who asks model servers, or a gateway before them.
//!
//! - [`Client`]: requests and pages over connections that stay open
//! - [`Events`]: the events of a stream that comes in pieces
//! - [`Piece`]: what one document of an answer says
//!
//! The demonstration and the [`observer`](super::observer) ask this way.

mod events;
mod piece;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use events::{Events, MAX_EVENT_BYTES, TooLong};
pub use piece::Piece;

use super::datalayer::scrape::{TlsError, client_config};
use crate::engine::config::data_layer::{TlsSettings, Transport, Trust};

/// The client; a clone uses the same connections.
#[derive(Clone, Debug)]
pub struct Client(legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

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

impl ClientError {
    /// True if there is no connection to the server at all.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Send { source, .. } if source.is_connect())
    }
}

impl Client {
    /// A client of servers in plain text, and of servers with TLS whom the system trusts.
    ///
    /// # Errors
    ///
    /// If the system's certificate authorities cannot be loaded.
    pub fn trusting_system() -> Result<Self, TlsError> {
        Self::over(&Transport::Tls(TlsSettings {
            trust: Trust::System,
            identity: None,
        }))
    }

    /// A client of servers in plain text.
    pub fn plain() -> Self {
        Self::over(&Transport::Plain).expect("no file is needed for plain text")
    }

    fn over(transport: &Transport) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(matches!(transport, Transport::Plain));
        tcp.set_nodelay(true);
        let connector = HttpsConnector::from((tcp, client_config(transport)?));
        let mut client = legacy::Client::builder(TokioExecutor::new());
        Ok(Self(client.pool_timer(TokioTimer::new()).build(connector)))
    }

    /// The page at `url`.
    ///
    /// # Errors
    ///
    /// See [`ClientError`]. Every status is a page.
    pub async fn fetch(&self, url: &str) -> Result<(StatusCode, String), ClientError> {
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
    ///
    /// # Errors
    ///
    /// If there is no connection, or no answer on it.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let url = request.uri().to_string();
        let response = self.0.request(request).await;
        response.map_err(|source| ClientError::Send { url, source })
    }
}
