//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::answer::Answer;
use super::document::{Api, Ask};
use super::error::ApiError;
use super::owner::Handle;
use super::{ModelServerConfig, unix_time};

/// Tells which server answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");

type Body = Result<Bytes, BytesRejection>;

#[derive(Debug)]
struct Server {
    config: ModelServerConfig,
    owner: Handle,
    /// Unix time in seconds at which the models became available.
    created: u64,
}

/// All routes; every answer carries `served_by`.
pub(super) fn router(config: ModelServerConfig, owner: Handle, served_by: HeaderValue) -> Router {
    let body_limit = DefaultBodyLimit::max(config.max_body_bytes);
    let server = Arc::new(Server {
        config,
        owner,
        created: unix_time().as_secs(),
    });
    Router::new()
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/models", get(models))
        .route("/health", get(StatusCode::OK))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .fallback(async |uri: Uri| ApiError::unknown_path(uri.path()))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| ApiError::wrong_method(&method, uri.path()))
        .layer(axum::middleware::map_response(move |mut response: Response| {
            response.headers_mut().insert(SERVED_BY, served_by.clone());
            std::future::ready(response)
        }))
        .layer(body_limit)
        .with_state(server)
}

async fn completions(State(server): State<Arc<Server>>, body: Body) -> Result<Response, ApiError> {
    server.answer(Api::Completions, body).await
}

async fn chat(State(server): State<Arc<Server>>, body: Body) -> Result<Response, ApiError> {
    server.answer(Api::Chat, body).await
}

async fn models(State(server): State<Arc<Server>>) -> Json<Value> {
    let base = &server.config.model;
    let adapters = server
        .config
        .adapters
        .iter()
        .map(|adapter| server.card(adapter, Some(base)));
    let data: Vec<_> = std::iter::once(server.card(base, None)).chain(adapters).collect();
    Json(json!({ "object": "list", "data": data }))
}

async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn metrics(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    let page = server.owner.page().await?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response())
}

impl Server {
    async fn answer(&self, api: Api, body: Body) -> Result<Response, ApiError> {
        let body = body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large(self.config.max_body_bytes),
            _ => ApiError::bad_request(None, rejection.body_text()),
        })?;
        let ask = Ask::read(api, &body, &self.config)?;
        drop(body);
        let answer = Answer::begin(api, ask, &self.config, &self.owner).await?;
        Ok(answer.deliver().await)
    }

    fn card(&self, model: &str, parent: Option<&str>) -> Value {
        json!({
            "id": model,
            "object": "model",
            "created": self.created,
            "owned_by": "forebay",
            "root": model,
            "parent": parent,
            "max_model_len": self.config.instance.max_model_len,
        })
    }
}
