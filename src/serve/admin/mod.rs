//! The HTTP port for operators: metrics, and why requests went where they went.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::serve::driver::{Driver, Picker};
use crate::serve::observe::Telemetry;
use crate::serve::observe::decisions::Explanation;
use crate::serve::observe::metrics::PoolLabels;

/// What the pages are made from.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The engine.
    pub driver: Driver,
    /// Metrics and decisions.
    pub telemetry: Arc<Telemetry>,
    /// What the pool families are told by.
    pub pool: PoolLabels,
}

impl Admin {
    /// Serves the pages for as long as it is polled.
    ///
    /// # Errors
    ///
    /// If the listener fails.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/debug/decisions", get(decisions))
            .with_state(Arc::new(self))
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let metrics = &admin.telemetry.metrics;
    let pool = || {
        let now = admin.driver.now();
        admin
            .driver
            .inspect(|engine| metrics.pool_families(engine, now, &admin.pool))
    };
    match metrics.page(pool) {
        Ok(page) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")).into_response(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    request_id: Option<String>,
}

async fn decisions(State(admin): State<Arc<Admin>>, Query(wanted): Query<Wanted>) -> Json<Vec<Explanation>> {
    Json(admin.telemetry.decisions.explain(wanted.request_id.as_deref()))
}
