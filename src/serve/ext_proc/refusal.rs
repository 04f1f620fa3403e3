//! What a client is told when its request is given no endpoint (spec, ext-proc 8).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::headers::DROPPED_REASON;
use super::reply::set_header;
use super::wire::{HeaderMutation, HeaderValueOption, HttpStatus, ImmediateResponse};
use crate::engine::Refused;
use crate::engine::config::responses::ErrorFormat;
use crate::engine::outcome::{Outcome, Refusal};
use crate::serve::observe::record::ErrorCode;

/// The place in the queue that a request would have had.
const QUEUE_POSITION: &str = "x-forebay-queue-position";

/// When a request may come again that the engine was not asked about, and that may be taken then.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: ErrorCode,
    /// The name of the outcome, as metrics and logs have it.
    outcome: &'static str,
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
            outcome: refusal.name(),
            reason,
            message: Cow::Owned(detail),
            retry_after: refusal.may_retry().then_some(RETRY_AFTER),
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
            outcome: refused.refusal.name(),
            reason,
            message,
            retry_after: refused.retry_after,
            position: refused.position,
        }
    }

    /// The answer to a request that was cut off in flight.
    pub(super) fn to_evicted(retry_after: Duration) -> Self {
        Self {
            code: ErrorCode::ResourceExhausted,
            outcome: Outcome::Evicted.name(),
            reason: Some("evicted"),
            message: Cow::Borrowed("request evicted by flow control"),
            retry_after: Some(retry_after),
            position: None,
        }
    }

    /// The answer as it goes to the client, with `more` headers.
    pub(super) fn response(
        &self,
        format: ErrorFormat,
        more: impl Iterator<Item = HeaderValueOption>,
    ) -> ImmediateResponse {
        let (content_type, body) = self.body(format);
        let headers = [
            ("content-type", Some(content_type.to_owned())),
            (DROPPED_REASON, self.reason.map(str::to_owned)),
            ("retry-after", self.retry_after.map(|after| after.as_secs().to_string())),
            (QUEUE_POSITION, self.position.map(|position| position.to_string())),
        ];
        let headers = headers
            .into_iter()
            .filter_map(|(name, value)| Some(set_header(name, Bytes::from(value?))));
        ImmediateResponse {
            status: Some(HttpStatus {
                code: i32::from(self.code.http_status()),
            }),
            headers: Some(HeaderMutation {
                set_headers: headers.chain(more).collect(),
                remove_headers: Vec::new(),
            }),
            body: Bytes::from(body),
            details: String::new(),
        }
    }

    /// The content type, and the body.
    fn body(&self, format: ErrorFormat) -> (&'static str, String) {
        match format {
            // The reference says this without a code.
            ErrorFormat::Text if self.outcome == Outcome::Evicted.name() => {
                ("text/plain", self.message.clone().into_owned())
            }
            ErrorFormat::Text => (
                "text/plain",
                format!("inference error: {} - {}", self.code.name(), self.message),
            ),
            ErrorFormat::OpenAi => {
                let error = serde_json::json!({
                    "error": {
                        "message": self.message,
                        "type": openai_type(self.code),
                        "param": null,
                        "code": self.outcome,
                    }
                });
                ("application/json", error.to_string())
            }
        }
    }
}

/// The type of error by which OpenAI's client libraries tell what to do: mend the request, wait, or try again.
fn openai_type(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BadRequest
        | ErrorCode::RequestTimeout
        | ErrorCode::PayloadTooLarge
        | ErrorCode::PreconditionFailed => "invalid_request_error",
        ErrorCode::ResourceExhausted => "rate_limit_error",
        ErrorCode::ServiceUnavailable | ErrorCode::Internal | ErrorCode::ModelServerError | ErrorCode::Unknown => {
            "server_error"
        }
    }
}

/// What each refusal means to a client: code (and by it the status), dropped reason and message. The one place where
/// that is decided (seed of flow control, failure modes; spec, ext-proc 8).
fn outcome(refusal: Refusal) -> (ErrorCode, Option<&'static str>, &'static str) {
    match refusal {
        Refusal::Malformed => (ErrorCode::BadRequest, None, "the request could not be understood"),
        Refusal::TooLarge => (ErrorCode::PayloadTooLarge, None, "the request body is too large"),
        Refusal::BodyTimeout => (
            ErrorCode::RequestTimeout,
            None,
            "the rest of the request body did not come in time",
        ),
        Refusal::MemoryExhausted => (
            ErrorCode::ServiceUnavailable,
            Some("rejected-memory-exhausted"),
            "the endpoint picker has no memory left for requests",
        ),
        Refusal::NotAdmitted => (
            ErrorCode::ResourceExhausted,
            Some("rejected-not-admitted"),
            "request rejected by the admission policy",
        ),
        Refusal::NeverAdmitted => (
            ErrorCode::PayloadTooLarge,
            Some("rejected-not-admitted"),
            "request rejected by the admission policy",
        ),
        Refusal::QueueFull => (
            ErrorCode::ResourceExhausted,
            Some("rejected-saturated"),
            "request rejected pre-queue: queue at capacity",
        ),
        Refusal::Oversized => (
            ErrorCode::PayloadTooLarge,
            Some("rejected-too-large"),
            "the request is larger than what may wait",
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
        Refusal::Displaced => (
            ErrorCode::ResourceExhausted,
            Some("evicted-displaced"),
            "request evicted from queue: queue at capacity, and a tenant with fewer requests waiting sent one",
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
        Refusal::NotCached => (
            ErrorCode::PreconditionFailed,
            None,
            "no decode worker has the requested KV cache",
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
        Refusal::Internal => (ErrorCode::Internal, None, "the endpoint picker failed on this request"),
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
            (Refusal::BodyTimeout, 408, None),
            (Refusal::MemoryExhausted, 503, Some("rejected-memory-exhausted")),
            (Refusal::NotAdmitted, 429, Some("rejected-not-admitted")),
            (Refusal::NeverAdmitted, 413, Some("rejected-not-admitted")),
            (Refusal::QueueFull, 429, Some("rejected-saturated")),
            (Refusal::Oversized, 413, Some("rejected-too-large")),
            (Refusal::QueueFullNoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::Shed, 429, Some("rejected-saturated")),
            (Refusal::Displaced, 429, Some("evicted-displaced")),
            (Refusal::Expired, 503, Some("rejected-ttl-expired")),
            (Refusal::ExpiredNoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::NoEndpoints, 503, Some("rejected-no-endpoints")),
            (Refusal::Saturated, 429, None),
            (Refusal::FilteredOut, 429, Some("rejected-saturated")),
            (Refusal::NotCached, 412, None),
            (Refusal::Cancelled, 503, Some("rejected-context-cancelled")),
            (Refusal::ShuttingDown, 500, Some("rejected-shutting-down")),
            (Refusal::Unschedulable, 429, None),
            (Refusal::Internal, 500, None),
        ];

        assert_eq!(expected.map(|(refusal, ..)| refusal), Refusal::ALL);
        for (refusal, status, reason) in expected {
            let answer = Answer::to_refused(&Refused::plain(refusal, 0));

            assert_eq!(answer.code.http_status(), status, "{refusal:?}");
            assert_eq!(answer.reason, reason, "{refusal:?}");
        }
    }

    fn response(answer: &Answer, format: ErrorFormat) -> ImmediateResponse {
        answer.response(format, std::iter::empty())
    }

    /// The headers of an answer.
    fn headers(answer: &Answer, format: ErrorFormat) -> Vec<(String, String)> {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let set = response(answer, format).headers.unwrap().set_headers;
        set.into_iter()
            .filter_map(|option| option.header)
            .map(|header| (text(&header.key), text(&header.raw_value)))
            .collect()
    }

    fn owned<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    #[test]
    fn the_body_names_the_code_and_what_is_known() {
        let answer = Answer::to(Refusal::Malformed, "model not found in request body".into());

        let response = response(&answer, ErrorFormat::Text);

        assert_eq!(
            response.body,
            "inference error: BadRequest - model not found in request body"
        );
        assert_eq!(response.status, Some(HttpStatus { code: 400 }));
        assert_eq!(
            headers(&answer, ErrorFormat::Text),
            owned([("content-type", "text/plain")])
        );
    }

    #[test]
    fn the_reason_is_a_header() {
        let answer = Answer::to_refused(&Refused::plain(Refusal::NoEndpoints, 0));

        assert_eq!(
            headers(&answer, ErrorFormat::Text),
            owned([
                ("content-type", "text/plain"),
                (DROPPED_REASON, "rejected-no-endpoints")
            ])
        );
    }

    #[test]
    fn a_client_that_may_come_again_is_told_when_and_where_it_would_have_stood() {
        let answer = Answer::to_refused(&Refused {
            retry_after: Some(Duration::from_secs(7)),
            position: Some(42),
            ..Refused::plain(Refusal::QueueFull, 0)
        });

        assert_eq!(
            headers(&answer, ErrorFormat::OpenAi),
            owned([
                ("content-type", "application/json"),
                ("x-llm-d-request-dropped-reason", "rejected-saturated"),
                ("retry-after", "7"),
                ("x-forebay-queue-position", "42"),
            ])
        );
    }

    #[test]
    fn an_error_of_openai_has_a_message_a_type_and_the_outcome_for_its_code() {
        for (answer, expected) in [
            (
                Answer::to(Refusal::Malformed, "a \"model\" is missing".into()),
                r#"{"error":{"code":"malformed","message":"a \"model\" is missing","param":null,"type":"invalid_request_error"}}"#,
            ),
            (
                Answer::to_refused(&Refused::plain(Refusal::QueueFull, 0)),
                r#"{"error":{"code":"queue-full","message":"request rejected pre-queue: queue at capacity","param":null,"type":"rate_limit_error"}}"#,
            ),
            (
                Answer::to_refused(&Refused::plain(Refusal::NoEndpoints, 0)),
                r#"{"error":{"code":"no-endpoints","message":"failed to find endpoint candidates for serving the request","param":null,"type":"server_error"}}"#,
            ),
            (
                Answer::to_evicted(Duration::from_secs(3)),
                r#"{"error":{"code":"evicted","message":"request evicted by flow control","param":null,"type":"rate_limit_error"}}"#,
            ),
        ] {
            let response = response(&answer, ErrorFormat::OpenAi);

            assert_eq!(
                serde_json::from_slice::<serde_json::Value>(&response.body).unwrap(),
                serde_json::from_str::<serde_json::Value>(expected).unwrap()
            );
        }
    }

    #[test]
    fn who_is_cut_off_is_told_so_in_the_words_of_the_reference_and_when_to_come_again() {
        let answer = Answer::to_evicted(Duration::from_secs(3));

        let response = response(&answer, ErrorFormat::Text);

        assert_eq!(response.body, "request evicted by flow control");
        assert_eq!(response.status, Some(HttpStatus { code: 429 }));
        assert_eq!(
            headers(&answer, ErrorFormat::Text),
            owned([
                ("content-type", "text/plain"),
                (DROPPED_REASON, "evicted"),
                ("retry-after", "3")
            ])
        );
    }

    #[test]
    fn the_reason_of_an_admission_policy_is_told() {
        let answer = Answer::to_refused(&Refused {
            reason: Some("insufficient tokens".into()),
            ..Refused::plain(Refusal::NotAdmitted, 0)
        });

        assert_eq!(
            response(&answer, ErrorFormat::Text).body,
            "inference error: ResourceExhausted - request rejected by the admission policy: insufficient tokens"
        );
    }
}
