//! A client that can do to a server what clients do.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Request, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::soon;

pub(crate) type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

#[derive(Clone)]
pub(crate) struct Client(legacy::Client<HttpConnector, Body>);

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A request to make, by parts.
pub(crate) struct Ask {
    request: http::request::Builder,
    body: Body,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self(legacy::Client::builder(TokioExecutor::new()).build_http())
    }

    /// The page at `url`.
    pub(crate) async fn fetch(&self, url: &str) -> Result<Reply, String> {
        self.try_send(Ask::get(url)).await
    }

    /// The answer to `ask`, which has to come.
    pub(crate) async fn send(&self, ask: Ask) -> Reply {
        soon("the request is answered", self.try_send(ask)).await.unwrap()
    }

    /// The head of the answer to `ask`, and its body to be read, or dropped.
    pub(crate) async fn open(&self, ask: Ask) -> http::Response<Incoming> {
        let request = ask.request.body(ask.body).unwrap();
        soon("the answer begins", self.0.request(request)).await.unwrap()
    }

    /// The answer to `ask`, or why there is none.
    pub(crate) async fn try_send(&self, ask: Ask) -> Result<Reply, String> {
        let request = ask.request.body(ask.body).map_err(|error| format!("{error:?}"))?;
        let response = self.0.request(request).await.map_err(|error| format!("{error:?}"))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| format!("{error:?}"))?;
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            trailers: body.trailers().cloned(),
            body: body.to_bytes(),
        })
    }
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in: {}", self.text()))
    }

    /// The value of a header that comes once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        Some(self.headers.get(name)?.to_str().unwrap())
    }

    /// The model server that answered.
    pub(crate) fn served_by(&self) -> &str {
        assert_eq!(self.status, 200, "{}", self.text());
        self.header("x-served-by").expect("model servers name themselves")
    }

    /// The data of each event.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = self.text();
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }
}

impl Ask {
    pub(crate) fn get(url: &str) -> Self {
        Self {
            request: Request::get(url),
            body: whole(Bytes::new()),
        }
    }

    /// A document with its length.
    pub(crate) fn post(url: &str, body: impl Into<Bytes>) -> Self {
        Self {
            request: Request::post(url).header(header::CONTENT_TYPE, "application/json"),
            body: whole(body.into()),
        }
    }

    /// A document in pieces, of which nobody says how many there are.
    pub(crate) fn post_pieces(url: &str, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::post_frames(url, pieces.map(Frame::data))
    }

    /// A document in pieces, and trailers.
    pub(crate) fn post_frames(url: &str, frames: impl Stream<Item = Frame<Bytes>> + Send + 'static) -> Self {
        Self {
            request: Request::post(url).header(header::CONTENT_TYPE, "application/json"),
            body: StreamBody::new(frames.map(Ok)).boxed_unsync(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap();
        self.request = self.request.header(HeaderName::from_static(name), value);
        self
    }
}

fn whole(body: Bytes) -> Body {
    Full::new(body).boxed_unsync()
}
