//! What a client is told when its request is given no endpoint (spec, ext-proc 8).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::headers::DROPPED_REASON;
use super::reply::set_header;
use super::wire::{HeaderMutation, HttpStatus, ImmediateResponse};
use crate::engine::Refused;
use crate::engine::outcome::Refusal;
use crate::serve::observe::record::ErrorCode;

/// The place in the queue that a request would have had.
const QUEUE_POSITION: &str = "x-forebay-queue-position";

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: ErrorCode,
    /// The value of `x-llm-d-request-dropped-reason`.
    pub(super) reason: Option<&'static str>,
    pub(super) message: Cow<'static, str>,
    retry_after: Option<Duration>,
    position: Option<u64>,
}

impl Answer {
    /// The answer to what could not even be asked. `detail` says what is wrong.
    pub(super) fn to(refusal: Refusal, detail: String) -> Self {
        let (code, reason, _) = outcome(refusal);
        Self {
            code,
            reason,
            message: Cow::Owned(detail),
            retry_after: None,
            position: None,
        }
    }

    /// The answer to what the engine refused.
    pub(super) fn to_refused(refused: &Refused) -> Self {
        let (code, reason, message) = outcome(refused.refusal);
        let message = match &refused.reason {
            Some(more) => Cow::Owned(format!("{message}: {more}")),
            None => Cow::Borrowed(message),
        };
        Self {
            code,
            reason,
            message,
            retry_after: refused.retry_after,
            position: refused.position,
        }
    }

    /// The answer as it goes to the client.
    pub(super) fn into_response(self) -> ImmediateResponse {
        let retry_after = self.retry_after.map(|after| after.as_secs().to_string());
        let position = self.position.map(|position| position.to_string());
        let headers = [
            (DROPPED_REASON, self.reason.map(str::to_owned)),
            ("retry-after", retry_after),
            (QUEUE_POSITION, position),
        ];
        let set_headers: Vec<_> = headers
            .into_iter()
            .filter_map(|(name, value)| Some(set_header(name, Bytes::from(value?))))
            .collect();
        ImmediateResponse {
            status: Some(HttpStatus {
                code: i32::from(self.code.http_status()),
            }),
            headers: (!set_headers.is_empty()).then_some(HeaderMutation {
                set_headers,
                remove_headers: Vec::new(),
            }),
            body: Bytes::from(format!("inference error: {} - {}", self.code.name(), self.message)),
            details: String::new(),
        }
    }
}

/// What the client of a request is told that was cut off in flight.
pub(super) fn evicted() -> ImmediateResponse {
    ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(ErrorCode::ResourceExhausted.http_status()),
        }),
        headers: Some(HeaderMutation {
            set_headers: vec![set_header(DROPPED_REASON, Bytes::from_static(b"evicted"))],
            remove_headers: Vec::new(),
        }),
        body: Bytes::from_static(b"request evicted by flow control"),
        details: String::new(),
    }
}

/// What each refusal means to a client: code (and by it the status), dropped reason and message. The one place where
/// that is decided (seed of flow control, failure modes; spec, ext-proc 8).
fn outcome(refusal: Refusal) -> (ErrorCode, Option<&'static str>, &'static str) {
    match refusal {
        Refusal::Malformed => (ErrorCode::BadRequest, None, "the request could not be understood"),
        Refusal::TooLarge => (ErrorCode::PayloadTooLarge, None, "the request body is too large"),
        Refusal::NotAdmitted => (
            ErrorCode::ResourceExhausted,
            Some("rejected-not-admitted"),
            "request rejected by the admission policy",
        ),
        Refusal::QueueFull => (
            ErrorCode::ResourceExhausted,
            Some("rejected-saturated"),
            "request rejected pre-queue: queue at capacity",
        ),
        Refusal::QueueFullNoEndpoints => (
            ErrorCode::ServiceUnavailable,
            Some("rejected-no-endpoints"),
            "no endpoints available: request rejected pre-queue: queue at capacity",
        ),
        Refusal::Shed => (
            ErrorCode::ResourceExhausted,
            Some("rejected-saturated"),
            "request evicted from queue: queue at capacity, and a more urgent request came",
        ),
        Refusal::Expired => (
            ErrorCode::ServiceUnavailable,
            Some("rejected-ttl-expired"),
            "request timed out in queue: request evicted from queue: request TTL expired",
        ),
        Refusal::ExpiredNoEndpoints => (
            ErrorCode::ServiceUnavailable,
            Some("rejected-no-endpoints"),
            "request timed out in queue and no endpoints are available: request evicted from queue: request TTL expired",
        ),
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
            ErrorCode::Internal,
            Some("rejected-shutting-down"),
            "flow controller shutting down: flow controller is not running",
        ),
        Refusal::Unschedulable => (
            ErrorCode::ResourceExhausted,
            None,
            "failed to find target endpoint: no profile came to a result",
        ),
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
            (Refusal::NotAdmitted, 429, Some("rejected-not-admitted")),
            (Refusal::QueueFull, 429, Some("rejected-saturated")),
            (Refusal::QueueFullNoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::Shed, 429, Some("rejected-saturated")),
            (Refusal::Expired, 503, Some("rejected-ttl-expired")),
            (Refusal::ExpiredNoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::NoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::Saturated, 429, None),
            (Refusal::FilteredOut, 429, Some("rejected-saturated")),
            (Refusal::Cancelled, 503, Some("rejected-context-cancelled")),
            (Refusal::ShuttingDown, 500, Some("rejected-shutting-down")),
            (Refusal::Unschedulable, 429, None),
        ];

        assert_eq!(expected.map(|(refusal, ..)| refusal), Refusal::ALL);
        for (refusal, status, reason) in expected {
            let answer = Answer::to_refused(&Refused::plain(refusal, 0));

            assert_eq!(answer.code.http_status(), status, "{refusal:?}");
            assert_eq!(answer.reason, reason, "{refusal:?}");
        }
    }

    #[test]
    fn the_body_names_the_code_and_what_is_known() {
        let response = Answer::to(Refusal::Malformed, "model not found in request body".into()).into_response();

        assert_eq!(
            response.body,
            "inference error: BadRequest - model not found in request body"
        );
        assert_eq!(response.status, Some(HttpStatus { code: 400 }));
        assert_eq!(response.headers, None);
    }

    #[test]
    fn the_reason_is_a_header() {
        let response = Answer::to_refused(&Refused::plain(Refusal::NoEndpoints, 0)).into_response();

        let set = &response.headers.unwrap().set_headers[0];
        let header = set.header.as_ref().unwrap();
        assert_eq!(header.key, DROPPED_REASON);
        assert_eq!(header.raw_value, "rejected-no-endpoints");
    }
    #[test]
    fn a_client_that_may_come_again_is_told_when_and_where_it_would_have_stood() {
        let refused = Refused {
            retry_after: Some(Duration::from_secs(7)),
            position: Some(42),
            ..Refused::plain(Refusal::QueueFull, 0)
        };

        let headers = Answer::to_refused(&refused)
            .into_response()
            .headers
            .unwrap()
            .set_headers;

        let pairs: Vec<_> = headers
            .into_iter()
            .filter_map(|option| option.header)
            .map(|header| (header.key, header.raw_value))
            .collect();
        let expected = [
            ("x-llm-d-request-dropped-reason", "rejected-saturated"),
            ("retry-after", "7"),
            ("x-forebay-queue-position", "42"),
        ];
        assert_eq!(
            pairs,
            expected.map(|(key, value)| (Bytes::from(key), Bytes::from(value)))
        );
    }

    #[test]
    fn the_reason_of_an_admission_policy_is_told() {
        let refused = Refused {
            reason: Some("insufficient tokens".into()),
            ..Refused::plain(Refusal::NotAdmitted, 0)
        };

        let response = Answer::to_refused(&refused).into_response();

        assert_eq!(
            response.body,
            "inference error: ResourceExhausted - request rejected by the admission policy: insufficient tokens"
        );
    }
}
