//! The request's way through the machine: up to the question, and on from the answer.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Action, Carrier, Held, MAX_WAITING_CHUNKS, Machine, Phase, ProtocolError};
use crate::engine::outcome::Refusal;
use crate::engine::request::{Kind, Request, Subset};
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::serve::ext_proc::body::{Incoming, TooLarge};
use crate::serve::ext_proc::content::{Choice, Content};
use crate::serve::ext_proc::headers::{self, RequestHead};
use crate::serve::ext_proc::modes::BodyMode;
use crate::serve::ext_proc::reply::{self, Side};
use crate::serve::ext_proc::wire::{CommonResponse, HeaderMutation, HttpBody, HttpHeaders};
use crate::serve::memory::STREAM_BYTES;
use crate::serve::parse::ResponseFormat;

impl Machine {
    /// An endpoint was chosen. Ignored unless it was asked for.
    pub fn routed(&mut self, now: Timestamp, decision: &Decision, priority: i32, waited: Option<Duration>) {
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
            mut incoming,
            has_tunnel_ended,
            ..
        } = *held;
        let is_tunnel = head.is_tunnel();
        let Some(content) = content else {
            return self.refuse(now, Refusal::Internal, "its body was not kept".to_owned());
        };
        self.record.decided = Some(now);
        self.record.priority = priority;
        self.record.waited = waited;
        self.record.endpoint = decision.endpoints.first().cloned();
        self.endpoints.clone_from(&decision.endpoints);
        self.record.profile = Some(Arc::clone(&decision.profile));
        self.phase = Phase::Routed {
            trailers_answered: trailers_wait,
            is_tunnel,
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
        if is_tunnel && self.modes.request.is_buffered() {
            told.mode_override = Some(self.modes.for_tunnel());
        }
        self.reply(told);
        if carrier == Carrier::HeadersAndBody {
            self.pieces(Side::Request, &content.body, !trailers_wait);
        }
        if is_tunnel && self.modes.request == BodyMode::FullDuplex {
            // What the client said before the tunnel was there.
            self.pieces(Side::Request, &[incoming.take()], has_tunnel_ended);
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
        self.record.is_measured = content.format != ResponseFormat::Ignored;
        if self.is_half_closed {
            // It has its answer, and shows no more.
            self.leave(now);
        }
    }

    pub(super) fn request_headers(&mut self, now: Timestamp, message: HttpHeaders, subset: Option<Subset>) {
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
            heard: now,
            has_tunnel_ended: false,
        });
        let is_tunnel = held.head.is_tunnel();
        self.record.request_id = match &held.head.request_id {
            Some(id) => Arc::clone(id),
            None => Arc::from(uuid::Uuid::new_v4().to_string()),
        };
        if let Some(fairness_id) = &held.head.fairness_id {
            self.record.fairness_id = Arc::clone(fairness_id);
        }
        if let Err(error) = self.memory.set(STREAM_BYTES) {
            return self.refuse_for_memory(now, error);
        }
        let announced = held.head.content_length;
        let is_too_long = announced.is_some_and(|length| length > self.settings.max_body_bytes as u64);
        match (message.end_of_stream, self.modes.request) {
            // Idle => Deciding: what follows is no body to be waited for, and may be as much work as any.
            _ if is_tunnel => self.decide_unread(held, Kind::Inference),
            // Idle => Deciding: there is no body.
            (true, _) => self.decide_unread(held, Kind::Bodiless),
            // Idle => Deciding: the headers go on before a body is seen.
            (false, BodyMode::None | BodyMode::Streamed) => self.decide_unread(held, Kind::Inference),
            // Idle => Closed: the body is not worth waiting for.
            (false, BodyMode::FullDuplex | BodyMode::Buffered) if is_too_long => {
                self.refuse(now, Refusal::TooLarge, self.too_large(announced));
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

    pub(super) fn request_body(&mut self, now: Timestamp, message: HttpBody, subset: Option<Subset>) {
        let HttpBody { body, end_of_stream } = message;
        match &mut self.phase {
            // Body => (Body | Deciding | Closed)
            Phase::Body(held) => {
                if let Some(subset) = subset {
                    held.subset = subset;
                }
                held.heard = now;
                let announced = held.head.content_length;
                if let Err(TooLarge) = held.incoming.push(body, self.settings.max_body_bytes, announced) {
                    return self.refuse(now, Refusal::TooLarge, self.too_large(None));
                }
                if let Err(error) = self.memory.set(STREAM_BYTES + held.incoming.allocated()) {
                    return self.refuse_for_memory(now, error);
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
            Phase::Deciding(held) if self.modes.request == BodyMode::FullDuplex && held.head.is_tunnel() => {
                held.has_tunnel_ended |= end_of_stream;
                if let Err(TooLarge) = held.incoming.push(body, self.settings.max_body_bytes, None) {
                    return self.refuse(now, Refusal::TooLarge, self.too_large(None));
                }
                if let Err(error) = self.memory.set(STREAM_BYTES + held.incoming.allocated()) {
                    self.refuse_for_memory(now, error);
                }
            }
            Phase::Routed { is_tunnel: true, .. } if self.modes.request == BodyMode::FullDuplex => {
                self.record.request_bytes += body.len() as u64;
                self.pieces(Side::Request, &[body], end_of_stream);
            }
            // What goes on without us is let through.
            Phase::Routed {
                trailers_answered: false,
                ..
            } if self.modes.request != BodyMode::FullDuplex => {
                self.record.request_bytes += body.len() as u64;
                self.reply(reply::body(Side::Request, CommonResponse::default()));
            }
            Phase::LocalReply if self.modes.request == BodyMode::FullDuplex => {
                self.pieces(Side::Request, &[body], end_of_stream);
            }
            Phase::LocalReply => self.reply(reply::body(Side::Request, CommonResponse::default())),
            Phase::Closed => {}
            _ => self.unexpected(now, "request body"),
        }
    }

    pub(super) fn request_trailers(&mut self, now: Timestamp, subset: Option<Subset>) {
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
            Phase::Routed { trailers_answered, .. } if !*trailers_answered => {
                *trailers_answered = true;
                self.reply(reply::trailers(Side::Request));
            }
            Phase::LocalReply => self.reply(reply::trailers(Side::Request)),
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
            (self.layout, self.settings.hash_key),
            Choice {
                rewrites: &self.settings.rewrites,
                lot: twox_hash::XxHash64::oneshot(0, self.record.request_id.as_bytes()),
            },
        );
        let content = match read {
            Ok(content) => content,
            // The beginning of a body says little, and nothing is wrong with it.
            Err(_) if self.modes.request == BodyMode::BufferedPartial && !is_complete => {
                Content::unread(Kind::Inference, &held.head, subset, bytes)
            }
            Err(error) => {
                self.phase = Phase::Body(held);
                return self.refuse(now, Refusal::Malformed, error.to_string());
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
        content.request.received = self.record.received;
        let id = held.head.request_id.as_ref();
        content.request.external_id = id.map(|id| twox_hash::XxHash64::oneshot(0, id.as_bytes()));
        self.record.learn(&content.request);
        self.record.rewrite.clone_from(&content.rewrite);
        if self.modes.request == BodyMode::Streamed {
            // Counted as they come.
            self.record.request_bytes = 0;
        }
        let request = mem::replace(&mut content.request, Request::unknown(Kind::Inference));
        held.content = Some(content);
        self.phase = Phase::Deciding(held);
        self.actions.push_back(Action::Decide(request));
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
