//! Refusals, in the shape that OpenAI clients expect.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::owner::Refused;
use crate::sim::instance::Rejected;

/// An answer that says what is wrong.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The field that is to blame.
    param: Option<&'static str>,
}

impl ApiError {
    pub(super) fn bad_request(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", param, message)
    }

    pub(super) fn unknown_model(model: &str, known: &str) -> Self {
        let message = format!("the model `{model}` does not exist; served here: {known}");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), message)
    }

    pub(super) fn unknown_path(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFoundError",
            None,
            format!("there is nothing at `{path}`"),
        )
    }

    pub(super) fn wrong_method(method: &http::Method, path: &str) -> Self {
        let message = format!("`{path}` does not take `{method}`");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowedError", None, message)
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("the body has more than `{limit}` bytes, which is the most that is read");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLargeError",
            None,
            message,
        )
    }

    pub(super) fn stopped() -> Self {
        Self::unavailable("the server is shutting down")
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Value {
        json!({
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.status.as_u16(),
            }
        })
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            None,
            message,
        )
    }

    fn new(status: StatusCode, kind: &'static str, param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            param,
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Rejected(rejected @ Rejected::QueueFull { .. }) => Self::unavailable(rejected.to_string()),
            Refused::Rejected(
                rejected @ (Rejected::EmptyPrompt
                | Rejected::PromptTooLong { .. }
                | Rejected::BudgetTooLong { .. }
                | Rejected::PromptExceedsCache { .. }),
            ) => Self::bad_request(None, rejected.to_string()),
            Refused::Stopped => Self::stopped(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
