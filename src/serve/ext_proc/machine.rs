//! The protocol of one stream, as a value: what came goes in, what is to be done comes out.
//!
//! Nothing here waits. The [`session`](super::session) feeds messages, verdicts and the end of the stream, and does
//! what [`Machine::next_action`] says until there is nothing more. In whatever order things come, three promises hold:
//!
//! - Every message that Envoy waits for is answered, or the stream is closed.
//! - A stream that brought a request has exactly one [`Action::End`]. One that began with a response has none, and an
//!   [`Action::LocalReply`] instead.
//! - After [`Action::Close`] nothing more is said.
//!
//! The two directions are two small machines. The request goes through `Phase`, the response through `Answer`;
//! how bodies travel (`Modes`) is told by the first message.

mod request;
mod response;

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

use super::body::{self, Incoming};
use super::content::Content;
use super::headers::RequestHead;
use super::modes::{BodyMode, Modes};
use super::opt_in;
use super::refusal::Answer as RefusalAnswer;
use super::reply::{self, Scores, Side};
use super::rewrite::Rewrites;
use super::subset;
use super::wire::processing_request::Request as Message;
use super::wire::processing_response::Response as Reply;
use super::wire::{HttpTrailers, Metadata, ProcessingRequest, ProcessingResponse};
use crate::engine::config::responses::ResponsePlan;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::pool::Endpoint;
use crate::engine::prefix::{BlockLayout, HashKey};
use crate::engine::request::{Request, Subset};
use crate::engine::time::Timestamp;
use crate::engine::{Answered, Refused};
use crate::serve::memory::{Budget, Exhausted, STREAM_BYTES, Share};
use crate::serve::observe::record::{ErrorCode, RequestRecord, Unobserved};
use crate::serve::parse::{ModelRestorer, Parsers, ResponseFormat, UsageScanner};

/// Chunks that may wait for a verdict, in the modes in which each wants an answer.
const MAX_WAITING_CHUNKS: u32 = 4096;

/// Chunks of a response that are told to the observer at once: an account of each would cost more than to pass it on.
const CHUNKS_TOLD_AT_ONCE: usize = 32;

/// The bound of request bodies unless configured: 32 MiB.
pub const DEFAULT_MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// The longest silence within a request body unless configured.
pub const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a stream may be open without a message. The gateway opens one for a request that it has.
const FIRST_MESSAGE: Duration = Duration::from_secs(10);
/// The same while there is no memory for streams.
const FIRST_MESSAGE_WITHOUT_MEMORY: Duration = Duration::from_secs(1);

/// What all streams have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which parser reads which body.
    pub parsers: Parsers,
    /// What clients are told beyond the answer.
    pub responses: ResponsePlan,
    /// Request bodies beyond this many bytes are answered with 413. Default: 32 MiB.
    pub max_body_bytes: usize,
    /// Messages beyond this many bytes are answered with 413, if that is a bound of its own and does not follow from the
    /// one above.
    pub max_message_bytes: Option<usize>,
    /// A request is answered with 408 if no more of its body comes for so long. Default: 30 s.
    pub body_timeout: Duration,
    /// The memory of all streams together. Default: no bound.
    pub memory: Arc<Budget>,
    /// Whether the scores go to the gateway. Default: they do not.
    pub scores: Scores,
    /// Whether the gateway's subset hint counts. Default: it does.
    pub subset_hints: SubsetHints,
    /// The models that are asked for in the place of others. Default: each is asked for itself.
    pub rewrites: Arc<Rewrites>,
    /// What the hashes of prompts are made with. Default: a fixed one, for tests.
    pub hash_key: HashKey,
}

/// Whether the gateway may restrict requests to a part of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubsetHints {
    /// It may.
    #[default]
    Honoured,
    /// What it says is ignored.
    Ignored,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Action {
    /// Send this message.
    Reply(ProcessingResponse),
    /// Ask for an endpoint, and tell the verdict.
    Decide(Request),
    /// Tell the observer that the request went on.
    Routed,
    /// Tell the endpoint's books what the head of the answer said, where that is more than that it serves the request.
    Answered {
        /// The endpoint that answered, if the gateway says which.
        by: Option<SocketAddr>,
        /// What it answered.
        how: Answered,
    },
    /// Tell the endpoint's books that its answer has begun.
    AnswerBegan,
    /// Tell the observer of chunks, each of which came so long after the one before.
    ChunkGaps(Vec<Duration>),
    /// The request has ended: give back what it held, drop a pending decision, tell the observer.
    End(Outcome),
    /// The gateway answers the client by itself, without an endpoint: tell the observer. If a request came before, it has
    /// ended already.
    LocalReply,
    /// Close the stream, with an error if there is one. Nothing comes after it.
    Close(Result<(), ProtocolError>),
}

/// The gateway did what the protocol does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A message that nobody waits for.
    #[error("unexpected `{message}` while {phase}")]
    Unexpected {
        /// What came.
        message: &'static str,
        /// Where we stood.
        phase: &'static str,
    },
    /// More chunks came ahead of the decision than are remembered.
    #[error("more than {MAX_WAITING_CHUNKS} body chunks were sent while {phase}")]
    TooManyChunks {
        /// Where we stood.
        phase: &'static str,
    },
}

/// The protocol of one stream.
#[derive(Debug)]
pub struct Machine {
    settings: Arc<Settings>,
    layout: BlockLayout,
    modes: Modes,
    phase: Phase,
    answer: Answer,
    /// The endpoints of the decision.
    endpoints: SmallVec<[Arc<Endpoint>; 1]>,
    /// The gateway says nothing more, but still listens.
    is_half_closed: bool,
    /// Its part of the memory for requests.
    memory: Share,
    /// When the stream is closed if no message came.
    first_message: Timestamp,
    record: RequestRecord,
    actions: VecDeque<Action>,
}

/// Where the request is.
#[derive(Debug)]
enum Phase {
    /// No message came.
    Idle,
    /// The headers are here, and the body is awaited.
    Body(Box<Held>),
    /// The verdict is awaited.
    Deciding(Box<Held>),
    /// The request went on.
    Routed { trailers_answered: bool, is_tunnel: bool },
    /// The gateway answered the client without an endpoint (Envoy's local reply); its answer passes through.
    LocalReply,
    /// Nothing more is said.
    Closed,
}

/// A request that has not gone on, and the answers that wait for the verdict.
#[derive(Debug)]
struct Held {
    head: RequestHead,
    subset: Subset,
    incoming: Incoming,
    content: Option<Content>,
    carrier: Carrier,
    /// Chunks that want an answer each.
    waiting_chunks: u32,
    trailers_wait: bool,
    /// When the gateway last sent a part of the request.
    heard: Timestamp,
    /// Nothing more comes in the client's direction of a tunnel.
    has_tunnel_ended: bool,
}

/// The answer that tells where the request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// The answer to the headers.
    Headers,
    /// The answer to the headers, followed by the body.
    HeadersAndBody,
    /// The answer to the body: the headers were let through to the place where they wait for it.
    Body,
    /// The answer to the trailers, for want of a body. Only the metadata can tell.
    Trailers,
}

/// Where the response is.
#[derive(Debug)]
struct Answer {
    stage: Stage,
    format: ResponseFormat,
    restorer: Option<Box<ModelRestorer>>,
    scanner: Option<UsageScanner>,
    /// Time between chunks that the observer was not told of yet.
    gaps: Vec<Duration>,
    /// The endpoint's books do not know yet that it serves the request. They learn it when the answer begins.
    is_untold: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing came.
    Awaited,
    /// The headers came, the end did not.
    Flowing,
    /// The end came.
    Ended,
    /// The trailers came, too.
    TrailersAnswered,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            parsers: Parsers::default(),
            responses: ResponsePlan::default(),
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            max_message_bytes: None,
            body_timeout: DEFAULT_BODY_TIMEOUT,
            memory: Arc::default(),
            scores: Scores::default(),
            subset_hints: SubsetHints::default(),
            rewrites: Arc::default(),
            hash_key: HashKey::default(),
        }
    }
}

// === impl Machine ===

impl Machine {
    /// A stream that began at `now`. Without a `layout` for the blocks of prompts, their tokens are only counted.
    pub fn new(settings: Arc<Settings>, layout: Option<BlockLayout>, now: Timestamp) -> Self {
        let counted_only = BlockLayout {
            max_blocks: 0,
            ..BlockLayout::default()
        };
        let mut memory = Share::new(Arc::clone(&settings.memory));
        let first_message = match memory.set(STREAM_BYTES) {
            Ok(()) => FIRST_MESSAGE,
            // Its first message is refused, unless there is memory by then.
            Err(Exhausted { .. }) => FIRST_MESSAGE_WITHOUT_MEMORY,
        };
        Self {
            memory,
            first_message: now + first_message,
            settings,
            layout: layout.unwrap_or(counted_only),
            modes: Modes::FULL_DUPLEX,
            phase: Phase::Idle,
            answer: Answer {
                stage: Stage::Awaited,
                format: ResponseFormat::Opaque,
                restorer: None,
                scanner: None,
                gaps: Vec::new(),
                is_untold: false,
            },
            endpoints: SmallVec::new(),
            is_half_closed: false,
            record: RequestRecord::new(now),
            actions: VecDeque::new(),
        }
    }

    /// What to do next. To be asked after every input until there is nothing.
    pub fn next_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        let is_sent_on = action.is_none() && matches!(self.phase, Phase::Routed { .. });
        if is_sent_on && self.memory.bytes() > STREAM_BYTES {
            // The body is the gateway's again.
            let shrunk = self.memory.set(STREAM_BYTES);
            debug_assert!(shrunk.is_ok(), "less is always allowed");
        }
        action
    }

    /// What is known of the request so far.
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// True once a part of the response came.
    pub fn is_answering(&self) -> bool {
        self.answer.stage != Stage::Awaited
    }

    /// True of a chunk in the middle of a response that goes on as it is, which takes less time than to read a clock.
    pub fn passes_unchanged(&self, message: &ProcessingRequest) -> bool {
        match &message.request {
            Some(Message::ResponseBody(body)) => !body.end_of_stream && self.answer.restorer.is_none(),
            _ => false,
        }
    }

    /// Adds to the time that was spent on the response.
    pub fn spent_on_response(&mut self, span: Duration) {
        self.record.response_processing += span;
    }

    /// A message came.
    pub fn message(&mut self, now: Timestamp, message: ProcessingRequest) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        if matches!(self.phase, Phase::Idle) {
            self.modes = Modes::announced(&message);
        }
        let subset = self.subset_of(message.metadata_context.as_ref());
        match message.request {
            Some(Message::RequestHeaders(headers)) => self.request_headers(now, headers, subset),
            Some(Message::RequestBody(body)) => self.request_body(now, body, subset),
            Some(Message::RequestTrailers(HttpTrailers { .. })) => self.request_trailers(now, subset),
            Some(Message::ResponseHeaders(headers)) => {
                let metadata = message.metadata_context.as_ref();
                self.response_headers(now, &headers, metadata, &message.attributes);
            }
            Some(Message::ResponseBody(body)) => self.response_body(now, body),
            Some(Message::ResponseTrailers(HttpTrailers { .. })) => self.response_trailers(now),
            // Windows are opened without a question being asked.
            None if message.client_window_update.is_some() => {}
            None => self.unexpected(now, "message of an unknown kind"),
        }
    }

    /// A message came that is larger than any that is read.
    pub fn oversized(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Idle | Phase::Body(_) => {
                let detail = match self.settings.max_message_bytes {
                    Some(limit) => {
                        format!(
                            "a message of the gateway exceeds the limit of {limit} bytes (--grpc-max-recv-msg-size)"
                        )
                    }
                    None => self.too_large(None),
                };
                self.refuse(now, Refusal::TooLarge, detail);
            }
            _ => self.broken(now),
        }
    }

    /// No endpoint was chosen. Ignored unless one was asked for.
    pub fn refused(&mut self, now: Timestamp, refused: &Refused) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.record.priority = refused.priority;
            self.record.waited = refused.waited;
            self.answer_no(now, refused.refusal, &RefusalAnswer::to_refused(refused));
        }
    }

    /// The request is cut off for a more urgent one, and its client may come again after `retry_after`. If the response has
    /// begun, the gateway resets it. Ignored once the response is over.
    pub fn evicted(&mut self, now: Timestamp, retry_after: Duration) {
        let is_over = matches!(self.answer.stage, Stage::Ended | Stage::TrailersAnswered);
        if !matches!(self.phase, Phase::Routed { .. }) || is_over {
            return;
        }
        let answer = RefusalAnswer::to_evicted(retry_after);
        self.record.error = Some(answer.code);
        self.reply_at_once(&answer);
        self.end(now, Outcome::Evicted);
        self.close(Ok(()));
    }

    /// The pending decision was dropped, and the request had waited for it.
    pub fn withdrawn(&mut self, priority: i32, waited: Duration) {
        self.record.priority = priority;
        self.record.waited = Some(waited);
    }

    /// When the first message, or the rest of the request body, is given up. `None` while neither is awaited.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Idle => Some(self.first_message),
            Phase::Body(held) => Some(held.heard + self.settings.body_timeout),
            _ => None,
        }
    }

    /// Gives the request up if the deadline has passed. A client that left in the middle may leave nothing behind but a silent
    /// stream.
    pub fn check_deadline(&mut self, now: Timestamp) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if matches!(self.phase, Phase::Idle) {
            self.close(Ok(()));
        } else {
            let detail = format!("no more of the request body came for {:?}", self.settings.body_timeout);
            self.refuse(now, Refusal::BodyTimeout, detail);
        }
    }

    /// The gateway says nothing more on this stream. A request that waits for its verdict is still owed it: gateways that
    /// only ask for an endpoint half-close right after the body. Others half-close because the client left; nothing tells
    /// the two apart, so such a request keeps its place until the verdict, its TTL or a reset, and then holds nothing.
    pub fn half_closed(&mut self, now: Timestamp) {
        self.is_half_closed = true;
        if !matches!(self.phase, Phase::Deciding(_)) {
            self.leave(now);
        }
    }

    /// The gateway has reset the stream.
    pub fn gone(&mut self, now: Timestamp) {
        self.is_half_closed = false;
        self.leave(now);
    }

    /// Any => Closed: the exchange is over, or the client left.
    fn leave(&mut self, now: Timestamp) {
        match (&self.phase, self.answer.stage) {
            (Phase::Idle | Phase::Closed, _) => {}
            (Phase::Body(_) | Phase::Deciding(_), _) => self.end(now, Outcome::Refused(Refusal::Cancelled)),
            (Phase::LocalReply, _) | (_, Stage::Ended | Stage::TrailersAnswered) => {}
            (Phase::Routed { .. }, stage) => {
                self.record.unobserved = self.reason_to_look_away(stage);
                let outcome = match (self.record.unobserved, self.how_it_went()) {
                    (None, _) => Outcome::Disconnected,
                    (Some(_), Outcome::Completed) => Outcome::Unobserved,
                    // What failed at once is known to have failed.
                    (Some(_), failed) => failed,
                };
                self.end(now, outcome);
            }
        }
        self.close(Ok(()));
    }

    /// Why the gateway would leave a response that is not over, if not because the client left.
    fn reason_to_look_away(&self, stage: Stage) -> Option<Unobserved> {
        if self.modes.response == BodyMode::None && (self.is_half_closed || stage == Stage::Flowing) {
            return Some(Unobserved::NoResponseBodies);
        }
        // A gateway that is going to show a response announces how.
        let only_asks = self.is_half_closed && !self.modes.are_announced && stage == Stage::Awaited;
        only_asks.then_some(Unobserved::NoResponse)
    }

    /// The stream broke.
    pub fn broken(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Idle | Phase::Body(_) | Phase::Deciding(_) => self.end(now, Outcome::Refused(Refusal::Cancelled)),
            Phase::Routed { .. } => {
                if self.record.outcome.is_none() {
                    self.record.error = Some(ErrorCode::Unknown);
                }
                self.end(now, Outcome::Broken);
            }
            Phase::LocalReply | Phase::Closed => {}
        }
        self.close(Ok(()));
    }

    /// Sends a body in pieces, the last of which ends the stream or leaves that to trailers or chunks to come.
    fn pieces(&mut self, side: Side, parts: &[Bytes], end_of_stream: bool) {
        let mut pieces = body::pieces(parts).peekable();
        if pieces.peek().is_none() && end_of_stream {
            self.actions
                .push_back(Action::Reply(reply::piece(side, Bytes::new(), true)));
        }
        while let Some(piece) = pieces.next() {
            let is_last = end_of_stream && pieces.peek().is_none();
            self.actions
                .push_back(Action::Reply(reply::piece(side, piece, is_last)));
        }
    }

    fn reply(&mut self, reply: ProcessingResponse) {
        self.actions.push_back(Action::Reply(reply));
    }

    fn refuse(&mut self, now: Timestamp, refusal: Refusal, detail: String) {
        self.answer_no(now, refusal, &RefusalAnswer::to(refusal, detail));
    }

    /// Any => Closed: the client is told why.
    fn answer_no(&mut self, now: Timestamp, refusal: Refusal, answer: &RefusalAnswer) {
        self.record.decided = Some(now);
        self.record.error = Some(answer.code);
        self.reply_at_once(answer);
        self.end(now, Outcome::Refused(refusal));
        self.close(Ok(()));
    }

    fn reply_at_once(&mut self, answer: &RefusalAnswer) {
        let responses = &self.settings.responses;
        let headers = opt_in::headers(responses, &self.record);
        let response = answer.response(responses.error_format, headers);
        self.reply(reply::message(Reply::ImmediateResponse(response)));
    }

    /// Any => Closed: there is no memory for it.
    fn refuse_for_memory(&mut self, now: Timestamp, error: Exhausted) {
        self.refuse(now, Refusal::MemoryExhausted, error.to_string());
    }

    fn unexpected(&mut self, now: Timestamp, message: &'static str) {
        let phase = self.phase.name();
        self.fail(now, ProtocolError::Unexpected { message, phase });
    }

    /// Any => Closed: the gateway is told what it did, and goes by its failure mode.
    fn fail(&mut self, now: Timestamp, error: ProtocolError) {
        let outcome = match self.phase {
            Phase::Idle | Phase::Body(_) => Outcome::Refused(Refusal::Malformed),
            Phase::Deciding(_) => Outcome::Refused(Refusal::Cancelled),
            Phase::Routed { .. } => Outcome::Broken,
            Phase::LocalReply | Phase::Closed => Outcome::Refused(Refusal::Cancelled),
        };
        if self.record.outcome.is_none() {
            self.record.error = Some(ErrorCode::Unknown);
        }
        self.end(now, outcome);
        self.close(Err(error));
    }

    /// Ends the request, unless it has ended or there is none.
    fn end(&mut self, now: Timestamp, outcome: Outcome) {
        if self.record.outcome.is_none() && !matches!(self.phase, Phase::LocalReply) {
            self.count_tokens();
            self.tell_gaps();
            if mem::take(&mut self.answer.is_untold) {
                self.actions.push_back(Action::Answered {
                    by: None,
                    how: Answered::Served,
                });
            }
            self.record.outcome = Some(outcome);
            self.record.ended = Some(now);
            self.actions.push_back(Action::End(outcome));
        }
    }

    fn tell_gaps(&mut self) {
        if !self.answer.gaps.is_empty() {
            let gaps = mem::take(&mut self.answer.gaps);
            self.actions.push_back(Action::ChunkGaps(gaps));
        }
    }

    fn close(&mut self, result: Result<(), ProtocolError>) {
        if !matches!(self.phase, Phase::Closed) {
            self.phase = Phase::Closed;
            self.actions.push_back(Action::Close(result));
        }
    }

    /// `announced` is the length that the client gave.
    fn too_large(&self, announced: Option<u64>) -> String {
        let announced = announced.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        let limit = self.settings.max_body_bytes;
        format!("the request body{announced} exceeds the limit of {limit} bytes (--max-request-body)")
    }

    fn subset_of(&self, metadata: Option<&Metadata>) -> Option<Subset> {
        match self.settings.subset_hints {
            SubsetHints::Honoured => subset::hint(metadata?),
            SubsetHints::Ignored => None,
        }
    }
}

// === impl Phase ===

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Idle => "the request headers are awaited",
            Self::Body(_) => "the request body is awaited",
            Self::Deciding(_) => "an endpoint is being chosen",
            Self::Routed { .. } => "the request is with its endpoint",
            Self::LocalReply => "the gateway answers by itself",
            Self::Closed => "the stream is closed",
        }
    }
}

#[cfg(test)]
mod tests;
