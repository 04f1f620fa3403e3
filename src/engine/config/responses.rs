//! What clients are told: the form of refusals, and headers of responses.

use std::sync::Arc;

use serde::Deserialize;

use super::document::Responses;
use super::report::Report;

/// What clients are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponsePlan {
    /// How the body of a refusal is written.
    pub error_format: ErrorFormat,
    /// The header with the id of the request. It is not sent without a name.
    pub request_id_header: Option<Arc<str>>,
    /// The header with the milliseconds that the request waited. It is not sent without a name, nor where requests do
    /// not wait.
    pub queue_wait_header: Option<Arc<str>>,
}

/// How the body of a refusal is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorFormat {
    /// Plain text, in the words of the reference.
    #[default]
    Text,
    /// The error object of OpenAI's API, in JSON, which client libraries read.
    OpenAi,
}

/// The longest name of a header, in bytes.
const LONGEST_NAME: usize = 128;

/// Headers with a meaning that another value would break: those of HTTP itself, and those that tell why a request was
/// refused.
const RESERVED: [&str; 17] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-connection",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forebay-queue-position",
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-served",
    "x-llm-d-request-dropped-reason",
    "x-went-into-resp-headers",
];

/// Checks what was written.
pub(super) fn planned(responses: &Responses, report: &mut Report) -> ResponsePlan {
    let mut header = |field: &str, usual: &str, name: &Option<String>| {
        let name = name.as_deref()?.to_ascii_lowercase();
        if let Some(fault) = fault_of(&name) {
            let path = format!("responses.headers.{field}");
            report.error(&path, format!("`{name}` {fault}; a good name is `{usual}`"));
        }
        Some(Arc::from(name))
    };
    let request_id_header = header("requestId", "x-request-id", &responses.headers.request_id);
    let queue_wait_header = header("queueWait", "x-forebay-queue-wait-ms", &responses.headers.queue_wait);
    if request_id_header.is_some() && request_id_header == queue_wait_header {
        let message = "it has the same name as `requestId`; two headers need two names";
        report.error("responses.headers.queueWait", message);
    }
    ResponsePlan {
        error_format: responses.error_format.unwrap_or_default(),
        request_id_header,
        queue_wait_header,
    }
}

/// Why this cannot be the name of a header.
fn fault_of(name: &str) -> Option<String> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    if name.is_empty() || !name.as_bytes().iter().all(is_token) {
        Some("is not the name of a header".to_owned())
    } else if name.len() > LONGEST_NAME {
        Some(format!("is longer than {LONGEST_NAME} bytes"))
    } else if RESERVED.contains(&name) || name.starts_with("x-envoy-") {
        Some("has a meaning of its own in a response".to_owned())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::{LoadOptions, SourceName, load};

    fn loaded(responses: &str) -> Result<ResponsePlan, String> {
        let text = format!("plugins: [{{type: queue-scorer}}]\nresponses:\n{responses}");
        let loaded = load(&text, &SourceName::Stdin, &LoadOptions::default());
        loaded
            .map(|loaded| loaded.plan.responses)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn unless_it_is_written_clients_are_told_what_the_reference_tells() {
        for nothing in [
            "",
            "  errorFormat:\n",
            "  headers: {requestId: null}\n",
            "  errorFormat: text\n",
        ] {
            assert_eq!(loaded(nothing), Ok(ResponsePlan::default()), "{nothing}");
        }
    }

    #[test]
    fn the_form_of_errors_and_the_names_of_headers_are_taken() {
        let plan =
            loaded("  errorFormat: openai\n  headers:\n    requestId: X-Request-Id\n    queueWait: x-queue-ms\n");

        assert_eq!(
            plan,
            Ok(ResponsePlan {
                error_format: ErrorFormat::OpenAi,
                request_id_header: Some("x-request-id".into()),
                queue_wait_header: Some("x-queue-ms".into()),
            })
        );
    }

    #[test]
    fn what_cannot_be_sent_is_an_error_that_says_what_would_be_right() {
        for (responses, error) in [
            (
                "  errorFormat: openapi\n",
                "<stdin>:3: error: responses.errorFormat: `openapi` is not known; did you mean `openai`?",
            ),
            (
                "  headers: {requestId: true}\n",
                "<stdin>:3: error: responses.headers.requestId: expected text, found `true`",
            ),
            (
                "  headers: {requestId: \"a b\"}\n",
                "<stdin>:3: error: responses.headers.requestId: `a b` is not the name of a header; a good name is \
                 `x-request-id`",
            ),
            (
                "  headers: {queueWait: \":status\"}\n",
                "<stdin>:3: error: responses.headers.queueWait: `:status` is not the name of a header; a good name is \
                 `x-forebay-queue-wait-ms`",
            ),
            (
                "  headers: {queueWait: Content-Length}\n",
                "<stdin>:3: error: responses.headers.queueWait: `content-length` has a meaning of its own in a \
                 response; a good name is `x-forebay-queue-wait-ms`",
            ),
            (
                "  headers: {requestId: x-a, queueWait: X-A}\n",
                "<stdin>:3: error: responses.headers.queueWait: it has the same name as `requestId`",
            ),
        ] {
            let found = loaded(responses).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
