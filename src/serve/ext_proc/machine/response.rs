//! The response's way through the machine: passed on, and looked at.

use std::iter;
use std::sync::Arc;

use bytes::Bytes;

use super::{Action, CHUNKS_TOLD_AT_ONCE, Machine, Phase, Stage};
use crate::engine::Answered;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::time::Timestamp;
use crate::serve::ext_proc::body::PIECE_BYTES;
use crate::serve::ext_proc::headers::{self, ResponseHead};
use crate::serve::ext_proc::modes::BodyMode;
use crate::serve::ext_proc::opt_in;
use crate::serve::ext_proc::reply::{self, Side};
use crate::serve::ext_proc::upstream::{Attributes, Upstream};
use crate::serve::ext_proc::wire::{CommonResponse, HttpBody, HttpHeaders, Metadata};
use crate::serve::observe::record::ErrorCode;
use crate::serve::parse::{Framing, ResponseFormat, UsageScanner};

impl Machine {
    pub(super) fn response_headers(
        &mut self,
        now: Timestamp,
        message: &HttpHeaders,
        metadata: Option<&Metadata>,
        attributes: &Attributes,
    ) {
        self.admit_response(now);
        if self.answer.stage != Stage::Awaited {
            return self.unexpected(now, "response headers");
        }
        let head = message.headers.as_ref().map(ResponseHead::read).unwrap_or_default();
        self.answer_flows(head);
        let common = match self.phase {
            // The client gets the answer that the filter gave, and not a header more.
            Phase::LocalReply => CommonResponse::default(),
            _ => self.response_mutation(head),
        };
        self.reply(reply::headers(Side::Response, common));
        if matches!(self.phase, Phase::Routed { .. }) {
            self.learn_of_the_endpoint(Upstream::read(&head, metadata, attributes));
        }
        if message.end_of_stream {
            self.complete(now);
        } else if self.modes.response == BodyMode::None && matches!(self.phase, Phase::Routed { .. }) {
            self.answer_began();
        }
    }

    pub(super) fn response_body(&mut self, now: Timestamp, message: HttpBody) {
        self.admit_response(now);
        match self.answer.stage {
            Stage::Awaited => self.answer_flows(ResponseHead::default()),
            Stage::Flowing => {}
            Stage::Ended | Stage::TrailersAnswered => return self.unexpected(now, "response body"),
        }
        let HttpBody { body, end_of_stream } = message;
        let has_content = !body.is_empty();
        self.record.response_bytes += body.len() as u64;
        if let Some(scanner) = &mut self.answer.scanner {
            scanner.push(&body);
        }
        self.pass_on(body, end_of_stream);
        if has_content {
            self.content_came(now);
        }
        if end_of_stream {
            self.complete(now);
        }
    }

    pub(super) fn response_trailers(&mut self, now: Timestamp) {
        self.admit_response(now);
        if self.answer.stage == Stage::Awaited {
            self.answer_flows(ResponseHead::default());
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

    /// (Idle | Body | Deciding) => LocalReply: a response that we sent no request for is the gateway's own. Envoy makes
    /// one when a filter before us (RBAC, rate limits, CORS) or a limit of its own refuses the request, and shows it to
    /// every filter on its way out, also to those that have not seen the request.
    fn admit_response(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Routed { .. } | Phase::LocalReply | Phase::Closed => {}
            Phase::Idle => self.phase = Phase::LocalReply,
            Phase::Body(_) | Phase::Deciding(_) => {
                self.end(now, Outcome::Refused(Refusal::Cancelled));
                self.phase = Phase::LocalReply;
            }
        }
    }

    /// The endpoint's books are told at once what is not taken for granted.
    fn learn_of_the_endpoint(&mut self, Upstream { by, how }: Upstream) {
        let first = self.endpoints.first().map(|endpoint| endpoint.socket());
        let by = by.filter(|by| Some(*by) != first);
        if by.is_none() && how == Answered::Served {
            self.answer.is_untold = true;
            return;
        }
        let served = self.endpoints.iter().find(|endpoint| Some(endpoint.socket()) == by);
        if let Some(served) = served {
            self.record.endpoint = Some(Arc::clone(served));
        }
        self.actions.push_back(Action::Answered { by, how });
    }

    fn answer_began(&mut self) {
        self.answer.is_untold = false;
        self.actions.push_back(Action::AnswerBegan);
    }

    /// What changes in the headers of an endpoint's response.
    fn response_mutation(&self, head: ResponseHead) -> CommonResponse {
        // Another name of the model has another length. Where the endpoint is, is nothing to the client.
        let length = self.answer.restorer.as_ref().map(|_| headers::CONTENT_LENGTH);
        let served = head.served.map(|_| headers::DESTINATION_SERVED);
        let removed = reply::removal(length.into_iter().chain(served));
        let mark = reply::set_header(headers::RESPONSE_MARK, Bytes::from_static(b"true"));
        let more = opt_in::headers(&self.settings.responses, &self.record);
        CommonResponse {
            header_mutation: Some(reply::mutation(iter::once(mark).chain(more).collect(), removed)),
            ..CommonResponse::default()
        }
    }

    fn answer_flows(&mut self, head: ResponseHead) {
        self.answer.stage = Stage::Flowing;
        self.record.status = head.status;
        if matches!(self.phase, Phase::LocalReply) {
            return self.actions.push_back(Action::LocalReply);
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
                // Most chunks by far are one small piece, and go on as they are.
                None if (1..=PIECE_BYTES).contains(&body.len()) => {
                    return self.reply(reply::piece(Side::Response, body, end_of_stream));
                }
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

    fn content_came(&mut self, now: Timestamp) {
        match self.record.last_byte.replace(now) {
            None => {
                self.record.first_byte = Some(now);
                if matches!(self.phase, Phase::Routed { .. }) {
                    self.answer_began();
                }
            }
            Some(before) if self.record.streaming => {
                self.answer.gaps.push(now - before);
                if self.answer.gaps.len() == CHUNKS_TOLD_AT_ONCE {
                    self.tell_gaps();
                }
            }
            Some(_) => {}
        }
    }

    /// The whole response came.
    fn complete(&mut self, now: Timestamp) {
        self.answer.stage = Stage::Ended;
        self.end(now, self.how_it_went());
    }

    /// The outcome of a response that was passed on.
    pub(super) fn how_it_went(&self) -> Outcome {
        match self.record.status {
            Some(500..) => Outcome::UpstreamError,
            Some(_) | None => Outcome::Completed,
        }
    }

    /// The request ends: its tokens are those that the model server counted, or else an estimate, so that a client that
    /// does not ask for usage or that leaves before the last chunk does not get them for nothing.
    pub(super) fn count_tokens(&mut self) {
        let Some(scanner) = self.answer.scanner.take() else {
            return;
        };
        let is_complete = self.answer.stage == Stage::Ended;
        let tokens = scanner.finish(is_complete);
        let is_failure = self.record.error == Some(ErrorCode::ModelServerError);
        if tokens.usage.is_none() && (is_failure || self.answer.format == ResponseFormat::Opaque) {
            return;
        }
        let (usage, source) = tokens.resolve(self.record.prompt_tokens.into(), is_complete);
        self.record.usage = usage;
        self.record.usage_source = source;
    }
}
