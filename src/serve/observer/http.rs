//! Requests over sockets, and answers as they come.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::uri::{InvalidUri, Uri};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;

use super::ask::{Api, Ask, Lengths};
use super::run::{Heard, Server, Trouble};
use crate::serve::causes::with_causes;
use crate::serve::client::{Client, Events, Piece};
use crate::serve::datalayer::scrape::TlsError;
use crate::serve::parse::{Framing, ResponseFormat, UsageScanner};

/// The longest answer that comes as one document.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Bytes of an error's page that are read.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// What gateways say of requests that they gave to no server.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// How a server is asked.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Where it is: `http://host:port`, `https://host`, and perhaps a path before `/v1`.
    pub url: String,
    /// The API.
    pub api: Api,
    /// The key that it wants.
    pub key: Option<String>,
    /// Answers come as streams.
    pub streaming: bool,
    /// How long answers are.
    pub lengths: Lengths,
}

/// A server with an OpenAI API.
#[derive(Clone, Debug)]
pub struct HttpServer {
    client: Client,
    base: String,
    authorization: Option<HeaderValue>,
    options: HttpOptions,
}

/// Why a server cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Its address is none.
    #[error("`{url}` is no URL")]
    Url {
        /// What was given.
        url: String,
        /// Why not.
        source: InvalidUri,
    },
    /// Its address lacks something.
    #[error("`{0}` is no URL of a server; write `http://host:port` or `https://host`")]
    Incomplete(String),
    /// The key cannot be sent.
    #[error("the key has characters that cannot stand in a header")]
    Key,
    /// There is nobody to trust.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl HttpServer {
    /// A server that is not connected to yet.
    ///
    /// # Errors
    ///
    /// See [`SetupError`].
    pub fn new(options: HttpOptions) -> Result<Self, SetupError> {
        let url = options.url.trim();
        let uri: Uri = url.parse().map_err(|source| SetupError::Url {
            url: url.to_owned(),
            source,
        })?;
        let client = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(host)) if !host.is_empty() => Client::plain(),
            (Some("https"), Some(host)) if !host.is_empty() => Client::trusting_system()?,
            _ => return Err(SetupError::Incomplete(url.to_owned())),
        };
        let authorization = options.key.as_ref().map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| SetupError::Key)?;
            value.set_sensitive(true);
            Ok::<_, SetupError>(value)
        });
        let base = url.trim_end_matches('/');
        Ok(Self {
            client,
            base: base.strip_suffix("/v1").unwrap_or(base).to_owned(),
            authorization: authorization.transpose()?,
            options,
        })
    }

    /// Where it is, without a slash at the end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The connections to it.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, http::Error> {
        let HttpOptions {
            api,
            streaming,
            lengths,
            ..
        } = self.options;
        let mut request =
            Request::post(format!("{}{}", self.base, api.path())).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in ask.headers() {
            let value = HeaderValue::from_bytes(value.as_bytes())?;
            request = request.header(HeaderName::from_static(name), value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let document = ask.document(api, streaming, lengths).to_string();
        request.body(Full::new(Bytes::from(document)))
    }
}

impl Server for HttpServer {
    async fn answer(&self, ask: &Ask, heard: &mut Heard) -> Result<(), Trouble> {
        let request = self
            .request(ask)
            .map_err(|error| Trouble::Failed(format!("the request cannot be sent: {}", with_causes(&error))))?;
        heard.sent();
        let response = self.client.send(request).await.map_err(|error| {
            let message = with_causes(&error);
            match error.is_unreachable() {
                true => Trouble::Unreachable(message),
                false => Trouble::Failed(message),
            }
        })?;
        let status = response.status();
        if status != StatusCode::OK {
            let reason = response.headers().get(DROPPED_REASON);
            if let Some(reason) = reason.and_then(|value| value.to_str().ok()) {
                heard.dropped(reason);
            }
            return Err(Trouble::Failed(format!("{status}: {}", error_page(response).await)));
        }
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let framing = Framing::of(content_type.and_then(|value| value.to_str().ok()));
        match framing {
            Framing::Events => stream(response.into_body(), heard).await,
            Framing::Json => whole(response.into_body(), heard).await,
        }
    }
}

/// Reads a stream of events as it comes.
async fn stream(mut body: Incoming, heard: &mut Heard) -> Result<(), Trouble> {
    let mut events = Events::default();
    let mut usage = UsageScanner::new(ResponseFormat::OpenAi, Framing::Events);
    let (mut is_done, mut refused) = (false, None);
    let broken = loop {
        let data = match body.frame().await {
            None => break None,
            Some(Err(error)) => break Some(with_causes(&error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
        };
        usage.push(&data);
        let fed = events.feed(&data, |data| {
            if data.trim_ascii() == b"[DONE]" {
                is_done = true;
            } else if let Some(piece) = Piece::read(data) {
                refused = piece.error.or(refused.take());
                is_done |= piece.finish_reason.is_some();
                heard.piece(&piece.text, piece.finish_reason);
            }
        });
        if let Err(error) = fed {
            break Some(error.to_string());
        }
    };
    heard.usage(usage.finish(true).usage);
    match (refused, broken) {
        (Some(message), _) => Err(Trouble::Failed(message)),
        (None, Some(message)) => Err(Trouble::BrokenOff(format!("the answer broke off: {message}"))),
        (None, None) if !is_done => Err(Trouble::BrokenOff("the answer ended without an end".to_owned())),
        (None, None) if heard.chunks.is_empty() => Err(Trouble::Failed("an answer without words".to_owned())),
        (None, None) => Ok(()),
    }
}

/// Reads an answer that is one document.
async fn whole(body: Incoming, heard: &mut Heard) -> Result<(), Trouble> {
    let body = match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return Err(Trouble::BrokenOff(format!(
                "the answer broke off: {}",
                with_causes(&*error)
            )));
        }
    };
    let mut usage = UsageScanner::new(ResponseFormat::OpenAi, Framing::Json);
    usage.push(&body);
    heard.usage(usage.finish(true).usage);
    let piece = Piece::read(&body).unwrap_or_default();
    if let Some(message) = piece.error {
        return Err(Trouble::Failed(message));
    }
    if !piece.has_answer {
        return Err(Trouble::Failed("an answer without choices".to_owned()));
    }
    // It is one piece, and complete, whether the server says why or not.
    heard.piece(&piece.text, piece.finish_reason.or_else(|| Some(String::new())));
    Ok(())
}

/// What a server says instead of an answer.
async fn error_page(response: Response<Incoming>) -> String {
    let body = match Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return with_causes(&*error),
    };
    let message = Piece::read(&body).and_then(|piece| piece.error);
    message.unwrap_or_else(|| String::from_utf8_lossy(&body).trim().to_owned())
}

#[cfg(test)]
mod tests;
