//! The story of one request, as the front saw it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::outcome::Outcome;
use crate::engine::pool::Endpoint;
use crate::engine::request::{DEFAULT_FAIRNESS_ID, Kind, Request};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::serve::parse::{Usage, UsageSource};

/// Learns of requests as they go by. Called on the path of every request: it must not wait.
pub trait Observer: Send + Sync + 'static {
    /// The request was sent on to the endpoints of the decision. Comes at most once, before the end.
    fn request_routed(&self, record: &RequestRecord, decision: &Decision);

    /// Chunks of a streamed response came, each so long after the one before it. Not for the first chunk with content.
    fn response_chunks(&self, record: &RequestRecord, gaps: &[Duration]);

    /// The request ended; `record.outcome` is set. Comes exactly once for every stream that brought a request.
    fn request_ended(&self, record: &RequestRecord);

    /// The gateway answered a client by itself, with `record.status`. If a request came before, it has ended.
    fn local_reply(&self, record: &RequestRecord);
}

/// What is known of one request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The `x-request-id`: the one that came, or else the one that the request was given.
    pub request_id: Arc<str>,
    /// What the request wants. A request without a body is not counted among the inference requests.
    pub kind: Kind,
    /// The model that the client asked for. Empty until known.
    pub model: Arc<str>,
    /// The model that the endpoint was asked for. Empty until known.
    pub target_model: Arc<str>,
    /// The `InferenceModelRewrite` that chose the target model.
    pub rewrite: Option<Arc<str>>,
    /// Whose share it counts against.
    pub fairness_id: Arc<str>,
    /// The objective that the client named.
    pub objective: Option<Arc<str>>,
    /// Larger is more urgent.
    pub priority: i32,
    /// The client asked for a stream of events, or got one.
    pub streaming: bool,
    /// When the headers came.
    pub received: Timestamp,
    /// When an endpoint was chosen or the request was refused.
    pub decided: Option<Timestamp>,
    /// How long it waited in a queue, if requests wait at all.
    pub waited: Option<Duration>,
    /// When the first byte of the response body came.
    pub first_byte: Option<Timestamp>,
    /// When the newest byte of the response body came.
    pub last_byte: Option<Timestamp>,
    /// When the request ended, in whatever way.
    pub ended: Option<Timestamp>,
    /// Bytes of the request body that went on to the endpoint.
    pub request_bytes: u64,
    /// Bytes of the response body.
    pub response_bytes: u64,
    /// Tokens of the prompt, as estimated when it came. Zero if it was not looked into.
    pub prompt_tokens: u32,
    /// Tokens of the request. Zero if nobody counted them.
    pub usage: Usage,
    /// Who counted them.
    pub usage_source: UsageSource,
    /// The `:status` of the response.
    pub status: Option<u16>,
    /// What went wrong, if anything did.
    pub error: Option<ErrorCode>,
    /// How the request ended. Empty until it has.
    pub outcome: Option<Outcome>,
    /// Why the gateway does not show the response, if the request ended as unobserved.
    pub unobserved: Option<Unobserved>,
    /// Latencies and sizes count. They do not where the response is no inference, such as a count of tokens.
    pub is_measured: bool,
    /// The first endpoint of the decision.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The profile that decided.
    pub profile: Option<Arc<str>>,
    /// Time that the picker spent on the response. Chunks that merely pass through are not counted: they take about a
    /// tenth of a microsecond each.
    pub response_processing: Duration,
}

/// Why a gateway does not show how a request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unobserved {
    /// Its `response_body_mode` is `NONE`: it closes the stream at the response headers.
    NoResponseBodies,
    /// It only asks for the endpoint: it said that nothing more would come before the response.
    NoResponse,
}

/// What went wrong, in the vocabulary of the reference's error metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// The request could not be understood.
    BadRequest,
    /// The body is larger than the bound.
    PayloadTooLarge,
    /// What the client made a condition does not hold.
    PreconditionFailed,
    /// The body did not come in time.
    RequestTimeout,
    /// The pool has no room for it.
    ResourceExhausted,
    /// Nothing can serve it right now.
    ServiceUnavailable,
    /// A defect.
    Internal,
    /// The model server answered with anything but success.
    ModelServerError,
    /// The stream to the gateway broke.
    Unknown,
}

// === impl RequestRecord ===

impl RequestRecord {
    /// A request that began at `received`, and of which nothing else is known.
    pub fn new(received: Timestamp) -> Self {
        Self {
            request_id: Arc::default(),
            kind: Kind::Inference,
            model: Arc::default(),
            target_model: Arc::default(),
            rewrite: None,
            fairness_id: Arc::from(DEFAULT_FAIRNESS_ID),
            objective: None,
            priority: 0,
            streaming: false,
            received,
            decided: None,
            waited: None,
            first_byte: None,
            last_byte: None,
            ended: None,
            request_bytes: 0,
            response_bytes: 0,
            prompt_tokens: 0,
            usage: Usage::default(),
            usage_source: UsageSource::Nobody,
            status: None,
            error: None,
            outcome: None,
            unobserved: None,
            is_measured: true,
            endpoint: None,
            profile: None,
            response_processing: Duration::ZERO,
        }
    }

    /// Takes over what the engine is told.
    pub fn learn(&mut self, request: &Request) {
        self.kind = request.kind;
        self.model = Arc::clone(&request.model);
        self.target_model = Arc::clone(&request.target_model);
        self.fairness_id = Arc::clone(&request.fairness_id);
        self.objective = request.objective.clone();
        self.priority = request.priority;
        self.streaming = request.streaming;
        self.request_bytes = request.size_bytes;
        self.prompt_tokens = request.prompt_tokens;
    }
}

// === impl ErrorCode ===

impl ErrorCode {
    /// The name in metrics and in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::PayloadTooLarge => "PayloadTooLarge",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::RequestTimeout => "RequestTimeout",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Internal => "Internal",
            Self::ModelServerError => "ModelServerError",
            Self::Unknown => "Unknown",
        }
    }

    /// The status of an answer that tells of it.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::PreconditionFailed => 412,
            Self::PayloadTooLarge => 413,
            Self::RequestTimeout => 408,
            Self::ResourceExhausted => 429,
            Self::ServiceUnavailable => 503,
            Self::Internal | Self::ModelServerError | Self::Unknown => 500,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
