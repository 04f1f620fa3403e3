//! Fetching pages over HTTP.

use std::error::Error;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Body;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::LOOK_TIMEOUT;
use super::page::PageReader;
use super::tls::{self, TlsError};
use crate::engine::config::data_layer::Transport;
use crate::engine::pool::health::ScrapeFailure;
use crate::engine::time::Timestamp;

/// The longest page that is read.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

/// The shortest time that an idle connection is kept.
const KEEP_IDLE: Duration = Duration::from_secs(10);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// It took too long.
    #[error("no whole page within {LOOK_TIMEOUT:?}")]
    Timeout,
    /// There was no connection, or no answer on it.
    #[error("cannot get the page")]
    Request(#[from] legacy::Error),
    /// The answer is not a page.
    #[error("the server answers {0} instead of 200")]
    Status(StatusCode),
    /// The answer broke off.
    #[error("the page breaks off")]
    Body(#[from] hyper::Error),
    /// The page is longer than any page should be.
    #[error("the page is longer than {MAX_PAGE_BYTES} bytes")]
    TooLong,
}

impl ScrapeError {
    /// What this says of the endpoint.
    pub(super) fn failure(&self) -> ScrapeFailure {
        match self {
            Self::Timeout => ScrapeFailure::Timeout,
            Self::Status(status) => ScrapeFailure::Status(status.as_u16()),
            Self::TooLong => ScrapeFailure::TooLong,
            Self::Request(error) => of_connection(error),
            Self::Body(error) => of_connection(error),
        }
    }
}

/// What an error of a connection says. What is wrong with TLS, or with HTTP, comes from somebody who is there.
fn of_connection(error: &(dyn Error + 'static)) -> ScrapeFailure {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => ScrapeFailure::Refused,
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => ScrapeFailure::Unreadable,
                _ => ScrapeFailure::Reset,
            };
        }
        if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return ScrapeFailure::Unreadable;
        }
        next = cause.source();
    }
    ScrapeFailure::Reset
}

/// Fetches pages from all endpoints over connections that stay open. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Client {
    /// A client for looks that are `period` apart.
    ///
    /// # Errors
    ///
    /// If the files for TLS cannot be used.
    pub fn new(transport: &Transport, period: Duration) -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = HttpsConnector::from((tcp, tls::client_config(transport)?));
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(2)
            .pool_idle_timeout(KEEP_IDLE.max(period * 2))
            .build(connector);
        Ok(Self { http })
    }

    /// Fetches a page and gives it to `reader`, piece by piece. Returns what `now` said when the answer began.
    ///
    /// # Errors
    ///
    /// See [`ScrapeError`]. The reader then has part of a page, or nothing.
    pub async fn fetch(
        &self,
        uri: &Uri,
        reader: &mut PageReader,
        now: impl Fn() -> Timestamp,
    ) -> Result<Timestamp, ScrapeError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri.clone();
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("text/plain"));
        let response = self.http.request(request).await?;
        let at = now();
        if response.status() != StatusCode::OK {
            return Err(ScrapeError::Status(response.status()));
        }
        let mut body = response.into_body();
        if body.size_hint().lower() > MAX_PAGE_BYTES as u64 {
            return Err(ScrapeError::TooLong);
        }
        let mut room = MAX_PAGE_BYTES;
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame?.into_data() else { continue };
            room = room.checked_sub(piece.len()).ok_or(ScrapeError::TooLong)?;
            reader.feed(&piece);
        }
        Ok(at)
    }
}
