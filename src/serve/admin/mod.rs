//! The HTTP port for operators: metrics, how endpoints are, and why requests went where they went.

mod listener;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use listener::TlsListener;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::engine::Engine;
use crate::serve::driver::{Driver, Picker};
use crate::serve::ext_proc::tls::Tls;
use crate::serve::kube::auth::Gatekeeper;
use crate::serve::observe::Telemetry;
use crate::serve::observe::decisions::Explanation;
use crate::serve::observe::endpoints::{self, EndpointPage};
use crate::serve::observe::metrics::{Metrics, PoolLabels};

/// What the pages are made from, and for whom.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The engine.
    pub driver: Driver,
    /// Metrics and decisions.
    pub telemetry: Arc<Telemetry>,
    /// What the pool families are told by.
    pub pool: PoolLabels,
    /// Who checks callers; nobody if there is none.
    pub gatekeeper: Option<Gatekeeper>,
    /// The certificate of the port; plain text without one.
    pub tls: Option<Tls>,
}

impl Admin {
    /// Serves the pages for as long as it is polled.
    ///
    /// # Errors
    ///
    /// If the listener fails.
    pub async fn serve(mut self, listener: TcpListener) -> std::io::Result<()> {
        match self.tls.take() {
            None => axum::serve(listener, self.router()).await,
            Some(tls) => axum::serve(TlsListener::new(listener, &tls), self.router()).await,
        }
    }

    fn router(mut self) -> Router {
        let gatekeeper = self.gatekeeper.take();
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/debug/decisions", get(decisions))
            .route("/debug/endpoints", get(endpoints))
            .with_state(Arc::new(self));
        match gatekeeper {
            None => router,
            Some(gatekeeper) => router.layer(middleware::from_fn_with_state(gatekeeper, Gatekeeper::check)),
        }
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let metrics = &admin.telemetry.metrics;
    let pool = || {
        let now = admin.driver.now();
        let pool = |engine: &Engine| metrics.pool_families(engine, now, &admin.pool);
        let panics = Metrics::panics(admin.driver.panics().caught())?;
        Ok([admin.driver.inspect(pool)?, panics].concat())
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

async fn endpoints(State(admin): State<Arc<Admin>>) -> Json<Vec<EndpointPage>> {
    let now = admin.driver.now();
    Json(admin.driver.inspect(|engine| endpoints::pages(engine, now)))
}

async fn decisions(State(admin): State<Arc<Admin>>, Query(wanted): Query<Wanted>) -> Json<Vec<Explanation>> {
    Json(admin.telemetry.decisions.explain(wanted.request_id.as_deref()))
}
