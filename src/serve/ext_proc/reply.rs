//! The answers to the gateway, as messages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::headers::{DESTINATION, DESTINATION_SCORES};
use super::wire::body_mutation::Mutation;
use super::wire::processing_response::Response;
use super::wire::{
    BodyMutation, BodyResponse, CommonResponse, HeaderAppendAction, HeaderMutation, HeaderValue, HeaderValueOption,
    HeadersResponse, ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use crate::engine::scheduling::Decision;

/// The metadata namespace that load balancers read, and in which they say where they went.
pub(super) const LB_NAMESPACE: &str = "envoy.lb";

/// The side of the exchange that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Response,
}

/// Whether the scores of the candidates are told to the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scores {
    /// They are not.
    #[default]
    Hidden,
    /// They are in the dynamic metadata.
    Told,
}

pub(super) fn message(response: Response) -> ProcessingResponse {
    ProcessingResponse {
        response: Some(response),
        ..ProcessingResponse::default()
    }
}

/// The answer to headers.
pub(super) fn headers(side: Side, response: CommonResponse) -> ProcessingResponse {
    let response = HeadersResponse {
        response: Some(response),
    };
    message(match side {
        Side::Request => Response::RequestHeaders(response),
        Side::Response => Response::ResponseHeaders(response),
    })
}

/// The answer to a body, or to a part of it.
pub(super) fn body(side: Side, response: CommonResponse) -> ProcessingResponse {
    let response = BodyResponse {
        response: Some(response),
    };
    message(match side {
        Side::Request => Response::RequestBody(response),
        Side::Response => Response::ResponseBody(response),
    })
}

/// A piece of a body in full duplex.
pub(super) fn piece(side: Side, piece: Bytes, end_of_stream: bool) -> ProcessingResponse {
    let streamed = StreamedBodyResponse {
        body: piece,
        end_of_stream,
    };
    body(side, with_body(Mutation::StreamedResponse(streamed)))
}

/// The answer to a body that goes on as `replacement`.
pub(super) fn with_body(replacement: Mutation) -> CommonResponse {
    CommonResponse {
        body_mutation: Some(BodyMutation {
            mutation: Some(replacement),
        }),
        ..CommonResponse::default()
    }
}

/// Other bytes for a body that was sent in one message or waits chunk by chunk.
pub(super) fn replacement(bytes: Bytes) -> Mutation {
    if bytes.is_empty() {
        Mutation::ClearBody(true)
    } else {
        Mutation::Body(bytes)
    }
}

/// The answer to trailers: they go on as they are.
pub(super) fn trailers(side: Side) -> ProcessingResponse {
    let response = TrailersResponse::default();
    message(match side {
        Side::Request => Response::RequestTrailers(response),
        Side::Response => Response::ResponseTrailers(response),
    })
}

/// A header that takes the place of all that have its name.
pub(super) fn set_header(name: &'static str, value: Bytes) -> HeaderValueOption {
    set_named(Bytes::from_static(name.as_bytes()), value)
}

/// As [`set_header`], for a name that is configured.
pub(super) fn set_named(name: Bytes, value: Bytes) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name,
            value: Bytes::new(),
            raw_value: value,
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
    }
}

pub(super) fn removal(names: impl IntoIterator<Item = &'static str>) -> Vec<Bytes> {
    names
        .into_iter()
        .map(|name| Bytes::from_static(name.as_bytes()))
        .collect()
}

pub(super) fn mutation(set_headers: Vec<HeaderValueOption>, remove_headers: Vec<Bytes>) -> HeaderMutation {
    HeaderMutation {
        set_headers,
        remove_headers,
    }
}

/// The endpoints of a decision, best first, with commas between them (spec, ext-proc 6).
pub(super) fn destination(decision: &Decision) -> String {
    let mut text = String::with_capacity(24 * decision.endpoints.len());
    for endpoint in &decision.endpoints {
        let separator = if text.is_empty() { "" } else { "," };
        write!(text, "{separator}{}", endpoint.socket()).expect("text takes what it is given");
    }
    text
}

/// The dynamic metadata of a decision (spec, ext-proc 3.4).
pub(super) fn metadata(destination: &str, decision: &Decision, scores: Scores) -> Struct {
    let mut lb = BTreeMap::from([(DESTINATION.to_owned(), value(Kind::StringValue(destination.to_owned())))]);
    if scores == Scores::Told && !decision.why.scored.is_empty() {
        let scored = decision.why.scored.iter();
        let fields = scored
            .map(|scored| {
                (
                    scored.endpoint.socket().to_string(),
                    value(Kind::NumberValue(scored.total)),
                )
            })
            .collect();
        lb.insert(
            DESTINATION_SCORES.to_owned(),
            value(Kind::StructValue(Struct { fields })),
        );
    }
    let lb = value(Kind::StructValue(Struct { fields: lb }));
    Struct {
        fields: BTreeMap::from([(LB_NAMESPACE.to_owned(), lb)]),
    }
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}
