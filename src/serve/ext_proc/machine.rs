//! The protocol of one stream, as a value: what came goes in, what is to be done comes out.
//!
//! Nothing here waits. The [`session`](super::session) feeds messages, verdicts and the end of the stream, and does
//! what [`Machine::next_action`] says until there is nothing more. In whatever order things come, three promises hold:
//!
//! - Every message that Envoy waits for is answered, or the stream is closed.
//! - A stream that brought a message has exactly one [`Action::End`].
//! - After [`Action::Close`] nothing more is said.
//!
//! The two directions are two small machines. The request goes through [`Phase`], the response through [`Answer`];
//! how bodies travel ([`Modes`]) is told by the first message.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::body::{self, Incoming, TooLarge};
use super::content::Content;
use super::headers::{self, RequestHead, ResponseHead};
use super::modes::{BodyMode, Modes};
use super::refusal::Answer as RefusalAnswer;
use super::reply::{self, Scores, Side};
use super::subset;
use super::wire::processing_request::Request as Message;
use super::wire::processing_response::Response as Reply;
use super::wire::{
    CommonResponse, HeaderMutation, HttpBody, HttpHeaders, HttpTrailers, Metadata, ProcessingRequest,
    ProcessingResponse,
};
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::prefix::BlockLayout;
use crate::engine::request::{Kind, Request, Subset};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::serve::observe::record::{ErrorCode, RequestRecord};
use crate::serve::parse::{Framing, ModelRestorer, Parsers, ResponseFormat, UsageScanner};

/// Chunks that may wait for a verdict, in the modes in which each wants an answer.
const MAX_WAITING_CHUNKS: u32 = 4096;

/// The bound of request bodies unless configured: 32 MiB.
pub const DEFAULT_MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// What all streams have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which parser reads which body.
    pub parsers: Parsers,
    /// Request bodies beyond this many bytes are answered with 413. Default: 32 MiB.
    pub max_body_bytes: usize,
    /// Whether the scores go to the gateway. Default: they do not.
    pub scores: Scores,
    /// Whether the gateway's subset hint counts. Default: it does.
    pub subset_hints: SubsetHints,
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
    /// Tell the endpoint's books that its answer has begun.
    AnswerBegan,
    /// Tell the observer of a chunk that came so long after the one before.
    ChunkGap(Duration),
    /// The request has ended: give back what it held, drop a pending decision, tell the observer.
    End(Outcome),
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
    Routed { trailers_answered: bool },
    /// The gateway answered the client without an endpoint; its answer passes through.
    Bypassed,
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
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            scores: Scores::default(),
            subset_hints: SubsetHints::default(),
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
        Self {
            settings,
            layout: layout.unwrap_or(counted_only),
            modes: Modes::FULL_DUPLEX,
            phase: Phase::Idle,
            answer: Answer {
                stage: Stage::Awaited,
                format: ResponseFormat::Opaque,
                restorer: None,
                scanner: None,
            },
            record: RequestRecord::new(now),
            actions: VecDeque::new(),
        }
    }

    /// What to do next. To be asked after every input until there is nothing.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// What is known of the request so far.
    pub fn record(&self) -> &RequestRecord {
        &self.record
    }

    /// True once a part of the response came.
    pub fn is_answering(&self) -> bool {
        self.answer.stage != Stage::Awaited
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
            Some(Message::ResponseHeaders(headers)) => self.response_headers(now, &headers),
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
            Phase::Idle | Phase::Body(_) => self.refuse(now, Refusal::TooLarge, Some(self.too_large())),
            _ => self.broken(now),
        }
    }

    /// An endpoint was chosen. Ignored unless it was asked for.
    pub fn routed(&mut self, now: Timestamp, decision: &Decision) {
        // Deciding => Routed. Other phases do not wait for a verdict.
        let held = match mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Deciding(held) => held,
            other => {
                self.phase = other;
                return;
            }
        };
        let Held {
            head,
            content,
            carrier,
            waiting_chunks,
            trailers_wait,
            ..
        } = *held;
        let content = content.expect("what is being decided has content");
        self.record.decided = Some(now);
        self.record.endpoint = decision.endpoints.first().cloned();
        self.record.profile = Some(Arc::clone(&decision.profile));
        self.phase = Phase::Routed {
            trailers_answered: trailers_wait,
        };

        let destination = reply::destination(decision);
        let metadata = reply::metadata(&destination, decision, self.settings.scores);
        let length = match carrier {
            // Trailers follow no body of known length.
            Carrier::HeadersAndBody if !trailers_wait => Some(content.body_len()),
            Carrier::Body if content.is_spliced => Some(content.body_len()),
            _ => None,
        };
        let common = CommonResponse {
            header_mutation: Some(request_mutation(&head, &self.record.request_id, destination, length)),
            clear_route_cache: true,
            ..CommonResponse::default()
        };
        let mut told = match carrier {
            Carrier::Headers | Carrier::HeadersAndBody => reply::headers(Side::Request, common),
            Carrier::Body => {
                let replaced = content.is_spliced.then(|| {
                    let whole = Bytes::from(content.body.concat());
                    reply::with_body(reply::replacement(whole))
                });
                let body_mutation = replaced.and_then(|replaced| replaced.body_mutation);
                reply::body(
                    Side::Request,
                    CommonResponse {
                        body_mutation,
                        ..common
                    },
                )
            }
            Carrier::Trailers => reply::trailers(Side::Request),
        };
        told.dynamic_metadata = Some(metadata);
        self.reply(told);
        if carrier == Carrier::HeadersAndBody {
            self.pieces(Side::Request, &content.body, !trailers_wait);
        }
        for _ in 0..waiting_chunks {
            self.reply(reply::body(Side::Request, CommonResponse::default()));
        }
        if trailers_wait && carrier != Carrier::Trailers {
            self.reply(reply::trailers(Side::Request));
        }
        self.actions.push_back(Action::Routed);

        self.answer.format = content.format;
        self.answer.restorer = content.restorer;
        if content.format == ResponseFormat::Ignored {
            self.end(now, Outcome::Completed);
            self.close(Ok(()));
        }
    }

    /// No endpoint was chosen. Ignored unless one was asked for.
    pub fn refused(&mut self, now: Timestamp, refusal: Refusal) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.refuse(now, refusal, None);
        }
    }

    /// The gateway has ended or reset the stream. It does so when the exchange is over, and when the client left.
    pub fn gone(&mut self, now: Timestamp) {
        match (&self.phase, self.answer.stage) {
            (Phase::Idle | Phase::Closed, _) => {}
            (Phase::Body(_) | Phase::Deciding(_), _) => self.end(now, Outcome::Refused(Refusal::Cancelled)),
            (Phase::Bypassed, _) | (_, Stage::Ended | Stage::TrailersAnswered) => {}
            // The end of a response that is not shown can only be seen by the end of the stream.
            (Phase::Routed { .. }, _) if self.modes.response == BodyMode::None => self.end(now, Outcome::Completed),
            (Phase::Routed { .. }, _) => self.end(now, Outcome::Disconnected),
        }
        self.close(Ok(()));
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
            Phase::Bypassed | Phase::Closed => {}
        }
        self.close(Ok(()));
    }

    // --- request ---

    fn request_headers(&mut self, now: Timestamp, message: HttpHeaders, subset: Option<Subset>) {
        if !matches!(self.phase, Phase::Idle) {
            return self.unexpected(now, "request headers");
        }
        let head = RequestHead::read(&message.headers.unwrap_or_default());
        let mut held = Box::new(Held {
            head,
            subset: subset.unwrap_or_default(),
            incoming: Incoming::default(),
            content: None,
            carrier: Carrier::Headers,
            waiting_chunks: 0,
            trailers_wait: false,
        });
        self.record.request_id = match &held.head.request_id {
            Some(id) => Arc::clone(id),
            None => Arc::from(uuid::Uuid::new_v4().to_string()),
        };
        if let Some(fairness_id) = &held.head.fairness_id {
            self.record.fairness_id = Arc::clone(fairness_id);
        }
        let announced = held.head.content_length;
        let is_too_long = announced.is_some_and(|length| length > self.settings.max_body_bytes as u64);
        match (message.end_of_stream, self.modes.request) {
            // Idle => Deciding: there is no body.
            (true, _) => self.decide_unread(held, Kind::Bodiless),
            // Idle => Deciding: the headers go on before a body is seen.
            (false, BodyMode::None | BodyMode::Streamed) => self.decide_unread(held, Kind::Inference),
            // Idle => Closed: the body is not worth waiting for.
            (false, BodyMode::FullDuplex | BodyMode::Buffered) if is_too_long => {
                self.refuse(now, Refusal::TooLarge, Some(self.too_large()));
            }
            // Idle => Body
            (false, BodyMode::FullDuplex) => {
                held.carrier = Carrier::HeadersAndBody;
                self.phase = Phase::Body(held);
            }
            // Idle => Body: Envoy collects the body once the headers are answered, and sends them on after it.
            (false, BodyMode::Buffered | BodyMode::BufferedPartial) => {
                held.carrier = Carrier::Body;
                self.reply(reply::headers(Side::Request, CommonResponse::default()));
                self.phase = Phase::Body(held);
            }
        }
    }

    fn request_body(&mut self, now: Timestamp, message: HttpBody, subset: Option<Subset>) {
        let HttpBody { body, end_of_stream } = message;
        match &mut self.phase {
            // Body => (Body | Deciding | Closed)
            Phase::Body(held) => {
                if let Some(subset) = subset {
                    held.subset = subset;
                }
                let announced = held.head.content_length;
                if let Err(TooLarge) = held.incoming.push(body, self.settings.max_body_bytes, announced) {
                    return self.refuse(now, Refusal::TooLarge, Some(self.too_large()));
                }
                // Without full duplex there is but one message.
                if end_of_stream || self.modes.request != BodyMode::FullDuplex {
                    self.decide(now, end_of_stream);
                }
            }
            Phase::Deciding(held) if self.modes.request == BodyMode::Streamed && !held.trailers_wait => {
                if held.waiting_chunks == MAX_WAITING_CHUNKS {
                    let phase = self.phase.name();
                    return self.fail(now, ProtocolError::TooManyChunks { phase });
                }
                held.waiting_chunks += 1;
                self.record.request_bytes += body.len() as u64;
            }
            // What goes on without us is let through.
            Phase::Routed {
                trailers_answered: false,
            } if self.modes.request != BodyMode::FullDuplex => {
                self.record.request_bytes += body.len() as u64;
                self.reply(reply::body(Side::Request, CommonResponse::default()));
            }
            Phase::Bypassed if self.modes.request == BodyMode::FullDuplex => {
                self.pieces(Side::Request, &[body], end_of_stream);
            }
            Phase::Bypassed => self.reply(reply::body(Side::Request, CommonResponse::default())),
            Phase::Closed => {}
            _ => self.unexpected(now, "request body"),
        }
    }

    fn request_trailers(&mut self, now: Timestamp, subset: Option<Subset>) {
        match &mut self.phase {
            // Body => Deciding: trailers end a body as well as its last chunk does.
            Phase::Body(held) => {
                if let Some(subset) = subset {
                    held.subset = subset;
                }
                held.trailers_wait = true;
                if held.carrier == Carrier::Body {
                    held.carrier = Carrier::Trailers;
                }
                self.decide(now, true);
            }
            Phase::Deciding(held) if !held.trailers_wait && held.carrier != Carrier::HeadersAndBody => {
                held.trailers_wait = true;
            }
            Phase::Routed { trailers_answered } if !*trailers_answered => {
                *trailers_answered = true;
                self.reply(reply::trailers(Side::Request));
            }
            Phase::Bypassed => self.reply(reply::trailers(Side::Request)),
            Phase::Closed => {}
            _ => self.unexpected(now, "request trailers"),
        }
    }

    /// Body => (Deciding | Closed): the body is here, or as much of it as will come.
    fn decide(&mut self, now: Timestamp, is_complete: bool) {
        let Phase::Body(mut held) = mem::replace(&mut self.phase, Phase::Closed) else {
            return;
        };
        let bytes = held.incoming.take();
        let subset = mem::take(&mut held.subset);
        let read = Content::read(
            &self.settings.parsers,
            &held.head,
            subset.clone(),
            bytes.clone(),
            self.layout,
        );
        let content = match read {
            Ok(content) => content,
            // The beginning of a body says little, and nothing is wrong with it.
            Err(_) if self.modes.request == BodyMode::BufferedPartial && !is_complete => {
                Content::unread(Kind::Inference, &held.head, subset, bytes)
            }
            Err(error) => {
                self.phase = Phase::Body(held);
                return self.refuse(now, Refusal::Malformed, Some(error.to_string()));
            }
        };
        self.ask(held, content);
    }

    fn decide_unread(&mut self, mut held: Box<Held>, kind: Kind) {
        let subset = mem::take(&mut held.subset);
        let content = Content::unread(kind, &held.head, subset, Bytes::new());
        self.ask(held, content);
    }

    fn ask(&mut self, mut held: Box<Held>, mut content: Content) {
        self.record.learn(&content.request);
        if self.modes.request == BodyMode::Streamed {
            // Counted as they come.
            self.record.request_bytes = 0;
        }
        let request = mem::replace(&mut content.request, Request::unknown(Kind::Inference));
        held.content = Some(content);
        self.phase = Phase::Deciding(held);
        self.actions.push_back(Action::Decide(request));
    }

    // --- response ---

    fn response_headers(&mut self, now: Timestamp, message: &HttpHeaders) {
        if !self.response_may_come(now, "response headers") {
            return;
        }
        if self.answer.stage != Stage::Awaited {
            return self.unexpected(now, "response headers");
        }
        let head = message.headers.as_ref().map(ResponseHead::read).unwrap_or_default();
        self.answer_flows(head);
        let removed = match &self.answer.restorer {
            // Another name has another length.
            Some(_) => reply::removal([headers::CONTENT_LENGTH]),
            None => Vec::new(),
        };
        let mark = reply::set_header(headers::RESPONSE_MARK, Bytes::from_static(b"true"));
        let common = CommonResponse {
            header_mutation: Some(reply::mutation(vec![mark], removed)),
            ..CommonResponse::default()
        };
        self.reply(reply::headers(Side::Response, common));
        if message.end_of_stream {
            self.complete(now);
        } else if self.modes.response == BodyMode::None {
            self.actions.push_back(Action::AnswerBegan);
        }
    }

    fn response_body(&mut self, now: Timestamp, message: HttpBody) {
        if !self.response_may_come(now, "response body") {
            return;
        }
        match self.answer.stage {
            Stage::Awaited => self.answer_flows(ResponseHead::default()),
            Stage::Flowing => {}
            Stage::Ended | Stage::TrailersAnswered => return self.unexpected(now, "response body"),
        }
        let HttpBody { body, end_of_stream } = message;
        self.pass_on(body.clone(), end_of_stream);
        self.look_at(now, &body);
        if end_of_stream {
            self.complete(now);
        }
    }

    fn response_trailers(&mut self, now: Timestamp) {
        if !self.response_may_come(now, "response trailers") {
            return;
        }
        match self.answer.stage {
            Stage::Awaited | Stage::Flowing => {
                let rest = self.answer.restorer.as_mut().map(|restorer| restorer.finish());
                if let Some(rest) = rest.filter(|_| self.modes.response == BodyMode::FullDuplex) {
                    self.pieces(Side::Response, &[rest], false);
                }
                self.complete(now);
            }
            Stage::Ended => {}
            Stage::TrailersAnswered => return self.unexpected(now, "response trailers"),
        }
        self.answer.stage = Stage::TrailersAnswered;
        self.reply(reply::trailers(Side::Response));
    }

    /// False if the response makes no sense here, and then the stream has been closed.
    fn response_may_come(&mut self, now: Timestamp, message: &'static str) -> bool {
        match self.phase {
            Phase::Routed { .. } | Phase::Bypassed => true,
            // (Body | Deciding) => Bypassed: the gateway answers by itself, as it does when a filter or a limit of its
            // own refuses the request.
            Phase::Body(_) | Phase::Deciding(_) => {
                self.end(now, Outcome::Refused(Refusal::Cancelled));
                self.phase = Phase::Bypassed;
                true
            }
            Phase::Idle | Phase::Closed => {
                self.unexpected(now, message);
                false
            }
        }
    }

    fn answer_flows(&mut self, head: ResponseHead) {
        self.answer.stage = Stage::Flowing;
        self.record.status = head.status;
        if matches!(self.phase, Phase::Bypassed) {
            return;
        }
        if head.is_error() {
            self.record.error = Some(ErrorCode::ModelServerError);
        }
        self.record.streaming |= head.events;
        if head.encoded {
            self.answer.restorer = None;
        } else {
            let framing = if head.events { Framing::Events } else { Framing::Json };
            self.answer.scanner = Some(UsageScanner::new(self.answer.format, framing));
        }
    }

    /// Sends a chunk on, with the name of the model that the client knows.
    fn pass_on(&mut self, body: Bytes, end_of_stream: bool) {
        if self.modes.response == BodyMode::FullDuplex {
            let (restored, rest) = match &mut self.answer.restorer {
                None => (body, Bytes::new()),
                Some(restorer) => {
                    let restored = restorer.push(body);
                    let rest = if end_of_stream { restorer.finish() } else { Bytes::new() };
                    (restored, rest)
                }
            };
            return self.pieces(Side::Response, &[restored, rest], end_of_stream);
        }
        // Each message is answered on its own, so that nothing can be held back for the next one.
        let replaced = self.answer.restorer.as_mut().and_then(|restorer| {
            let restored = [restorer.push(body.clone()), restorer.finish()].concat();
            (restored != body).then(|| reply::with_body(reply::replacement(Bytes::from(restored))))
        });
        self.reply(reply::body(Side::Response, replaced.unwrap_or_default()));
    }

    fn look_at(&mut self, now: Timestamp, body: &Bytes) {
        if body.is_empty() {
            return;
        }
        self.record.response_bytes += body.len() as u64;
        if let Some(scanner) = &mut self.answer.scanner {
            scanner.push(body);
        }
        match self.record.last_byte.replace(now) {
            None => {
                self.record.first_byte = Some(now);
                if matches!(self.phase, Phase::Routed { .. }) {
                    self.actions.push_back(Action::AnswerBegan);
                }
            }
            Some(before) if self.record.streaming => self.actions.push_back(Action::ChunkGap(now - before)),
            Some(_) => {}
        }
    }

    /// The whole response came.
    fn complete(&mut self, now: Timestamp) {
        self.answer.stage = Stage::Ended;
        if let Some(scanner) = self.answer.scanner.take() {
            self.record.usage = scanner.finish().unwrap_or_default();
        }
        self.end(now, Outcome::Completed);
    }

    // --- both ---

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

    /// Any => Closed: the client is told why.
    fn refuse(&mut self, now: Timestamp, refusal: Refusal, detail: Option<String>) {
        let answer = RefusalAnswer::to(refusal, detail);
        self.record.decided = Some(now);
        self.record.error = Some(answer.code);
        self.reply(reply::message(Reply::ImmediateResponse(answer.into_response())));
        self.end(now, Outcome::Refused(refusal));
        self.close(Ok(()));
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
            Phase::Bypassed | Phase::Closed => Outcome::Refused(Refusal::Cancelled),
        };
        if self.record.outcome.is_none() {
            self.record.error = Some(ErrorCode::Unknown);
        }
        self.end(now, outcome);
        self.close(Err(error));
    }

    /// Ends the request, unless it has ended.
    fn end(&mut self, now: Timestamp, outcome: Outcome) {
        if self.record.outcome.is_none() {
            self.record.outcome = Some(outcome);
            self.record.ended = Some(now);
            self.actions.push_back(Action::End(outcome));
        }
    }

    fn close(&mut self, result: Result<(), ProtocolError>) {
        if !matches!(self.phase, Phase::Closed) {
            self.phase = Phase::Closed;
            self.actions.push_back(Action::Close(result));
        }
    }

    fn too_large(&self) -> String {
        format!(
            "the request body exceeds the limit of {} bytes",
            self.settings.max_body_bytes
        )
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
            Self::Bypassed => "the gateway answers by itself",
            Self::Closed => "the stream is closed",
        }
    }
}

/// What changes in the headers of a request that goes on (spec, ext-proc 2.4). All others stay as they are.
fn request_mutation(
    head: &RequestHead,
    request_id: &str,
    destination: String,
    length: Option<usize>,
) -> HeaderMutation {
    let mut set = Vec::with_capacity(3);
    set.push(reply::set_header(headers::DESTINATION, Bytes::from(destination)));
    if let Some(length) = length.filter(|length| *length > 0) {
        set.push(reply::set_header(
            headers::CONTENT_LENGTH,
            Bytes::from(length.to_string()),
        ));
    }
    if head.request_id.is_none() {
        let id = Bytes::copy_from_slice(request_id.as_bytes());
        set.push(reply::set_header(headers::REQUEST_ID, id));
    }
    reply::mutation(set, reply::removal(head.to_remove()))
}

#[cfg(test)]
mod tests;
