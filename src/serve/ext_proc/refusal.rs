//! What a client is told when its request is given no endpoint (spec, ext-proc 8).

use std::borrow::Cow;

use bytes::Bytes;

use super::headers::DROPPED_REASON;
use super::reply::set_header;
use super::wire::{HeaderMutation, HttpStatus, ImmediateResponse};
use crate::engine::outcome::Refusal;
use crate::serve::observe::record::ErrorCode;

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: ErrorCode,
    /// The value of `x-llm-d-request-dropped-reason`.
    pub(super) reason: Option<&'static str>,
    pub(super) message: Cow<'static, str>,
}

impl Answer {
    /// The answer to this refusal. `detail` says more than the refusal itself where something is known.
    pub(super) fn to(refusal: Refusal, detail: Option<String>) -> Self {
        let (code, reason, message) = match refusal {
            Refusal::Malformed => (ErrorCode::BadRequest, None, "the request could not be understood"),
            Refusal::TooLarge => (ErrorCode::PayloadTooLarge, None, "the request body is too large"),
            Refusal::NoEndpoints => (
                ErrorCode::ServiceUnavailable,
                Some("rejected-no-endpoints"),
                "failed to find endpoint candidates for serving the request",
            ),
            Refusal::Saturated => (
                ErrorCode::ResourceExhausted,
                None,
                "system saturated, sheddable request dropped",
            ),
            Refusal::FilteredOut => (
                ErrorCode::ResourceExhausted,
                Some("rejected-saturated"),
                "no endpoints available for the given request",
            ),
            Refusal::Cancelled => (
                ErrorCode::ServiceUnavailable,
                Some("rejected-context-cancelled"),
                "client disconnected: request context cancelled",
            ),
            Refusal::ShuttingDown => (
                ErrorCode::ServiceUnavailable,
                Some("rejected-shutting-down"),
                "flow controller shutting down: flow controller is not running",
            ),
            Refusal::Unschedulable => (
                ErrorCode::ResourceExhausted,
                None,
                "failed to find target endpoint: no profile came to a result",
            ),
        };
        let message = detail.map_or(Cow::Borrowed(message), Cow::Owned);
        Self { code, reason, message }
    }

    /// The answer as it goes to the client.
    pub(super) fn into_response(self) -> ImmediateResponse {
        let Self { code, reason, message } = self;
        let headers = reason.map(|reason| HeaderMutation {
            set_headers: vec![set_header(DROPPED_REASON, Bytes::from_static(reason.as_bytes()))],
            remove_headers: Vec::new(),
        });
        ImmediateResponse {
            status: Some(HttpStatus {
                code: i32::from(code.http_status()),
            }),
            headers,
            body: Bytes::from(format!("inference error: {} - {message}", code.name())),
            details: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_the_status_of_the_specification() {
        let expected = [
            (Refusal::Malformed, 400, None),
            (Refusal::TooLarge, 413, None),
            (Refusal::NoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::Saturated, 429, None),
            (Refusal::FilteredOut, 429, Some("rejected-saturated")),
            (Refusal::Cancelled, 503, Some("rejected-context-cancelled")),
            (Refusal::ShuttingDown, 503, Some("rejected-shutting-down")),
            (Refusal::Unschedulable, 429, None),
        ];

        assert_eq!(expected.map(|(refusal, ..)| refusal), Refusal::ALL);
        for (refusal, status, reason) in expected {
            let answer = Answer::to(refusal, None);

            assert_eq!(answer.code.http_status(), status, "{refusal:?}");
            assert_eq!(answer.reason, reason, "{refusal:?}");
        }
    }

    #[test]
    fn the_body_names_the_code_and_what_is_known() {
        let response = Answer::to(Refusal::Malformed, Some("model not found in request body".into())).into_response();

        assert_eq!(
            response.body,
            "inference error: BadRequest - model not found in request body"
        );
        assert_eq!(response.status, Some(HttpStatus { code: 400 }));
        assert_eq!(response.headers, None);
    }

    #[test]
    fn the_reason_is_a_header() {
        let response = Answer::to(Refusal::NoEndpoints, None).into_response();

        let set = &response.headers.unwrap().set_headers[0];
        let header = set.header.as_ref().unwrap();
        assert_eq!(header.key, DROPPED_REASON);
        assert_eq!(header.raw_value, "rejected-no-endpoints");
    }
}
