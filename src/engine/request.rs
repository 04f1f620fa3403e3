//! What the engine knows of a request: facts learnt from it, never its body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::prefix::PromptBlocks;
use super::time::Timestamp;

/// Identifies a request for as long as the engine lives. Given by the driver, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

/// The fairness id of requests that name none.
pub const DEFAULT_FAIRNESS_ID: &str = "default-flow";

/// One request, as the policies see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// What the request wants of an endpoint.
    pub kind: Kind,
    /// A hash of the id that the request came with (`x-request-id`), if it came with one. By that, a request that the gateway
    /// sends again is recognised.
    #[serde(default)]
    pub external_id: Option<u64>,
    /// The model that the client asked for. Empty when the body is not looked into.
    pub model: Arc<str>,
    /// The model that the endpoint is asked for, after any rewrite. A LoRA adapter is named here.
    pub target_model: Arc<str>,
    /// The tenant, session or agent whose share of the pool this counts against.
    pub fairness_id: Arc<str>,
    /// The `InferenceObjective` that the client named.
    pub objective: Option<Arc<str>>,
    /// Larger is more urgent. Requests below zero may be shed when the pool is saturated.
    pub priority: i32,
    /// Tokens of the prompt. An estimate (4 bytes a token) unless the client sent token ids.
    pub prompt_tokens: u32,
    /// The prompt, as hashes of its blocks.
    pub prompt_blocks: PromptBlocks,
    /// The client's limit on the tokens of the answer.
    pub max_output_tokens: Option<u32>,
    /// Bytes of the body.
    pub size_bytes: u64,
    /// The client asked for a stream of events.
    pub streaming: bool,
    /// Endpoints that the gateway restricts this request to.
    pub subset: Subset,
    /// Latency that the client hopes for.
    pub slo: Slo,
    /// When the headers of the request came.
    pub received: Timestamp,
    /// The longest that the client wants it to wait. Can only shorten what the configuration allows.
    pub ttl: Option<Duration>,
    /// Serve it only on an endpoint that has a part of the prompt cached (`Prefer: if-available`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_if_cached: bool,
}

impl Request {
    /// A request about which nothing is known: no model, no prompt, every endpoint allowed.
    pub fn unknown(kind: Kind) -> Self {
        Self {
            kind,
            external_id: None,
            model: Arc::default(),
            target_model: Arc::default(),
            fairness_id: Arc::from(DEFAULT_FAIRNESS_ID),
            objective: None,
            priority: 0,
            prompt_tokens: 0,
            prompt_blocks: PromptBlocks::default(),
            max_output_tokens: None,
            size_bytes: 0,
            streaming: false,
            subset: Subset::All,
            slo: Slo::default(),
            received: Timestamp::ZERO,
            ttl: None,
            only_if_cached: false,
        }
    }
}

/// What a request wants of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Work for the model: it is scheduled by the profiles, and counts as load on its endpoint.
    Inference,
    /// A request without a body, such as `GET /v1/models`: it goes to the least loaded endpoint, and is no load itself.
    Bodiless,
}

/// Endpoints that the gateway restricts a request to (the subset hint of the endpoint picker protocol).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Subset {
    /// No hint: the whole pool.
    #[default]
    All,
    /// Only these. May be empty, and then nothing can serve the request.
    Only(Vec<SubsetEntry>),
}

/// One entry of a subset hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubsetEntry {
    /// Every port at this address.
    Host(std::net::IpAddr),
    /// One port at this address; any port of the address, should no endpoint have this one.
    Socket(SocketAddr),
}

/// Latency objectives of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slo {
    /// Time to first token.
    pub ttft: Option<Duration>,
    /// Time per output token after the first.
    pub tpot: Option<Duration>,
}
