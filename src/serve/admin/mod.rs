//! The HTTP port for operators: metrics, how endpoints are, and why requests went where they went.

mod listener;
mod metrics_page;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::middleware;
use axum::response::Json;
use axum::routing::get;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::serve::connections::Connections;
use crate::serve::driver::{Driver, Picker};
use crate::serve::ext_proc::tls::Tls;
use crate::serve::kube::auth::Gatekeeper;
use crate::serve::observe::Telemetry;
use crate::serve::observe::decisions::Explanation;
use crate::serve::observe::endpoints::{self, EndpointPage};
use crate::serve::observe::metrics::{PoolLabels, Process};
pub use metrics_page::Pages;

/// What the pages are made from, and for whom.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The engine.
    pub driver: Driver,
    /// Metrics and decisions.
    pub telemetry: Arc<Telemetry>,
    /// Bounds the metrics pages that are made at a time.
    pub pages: Pages,
    /// What the pool families are told by.
    pub pool: PoolLabels,
    /// Who checks callers; nobody if there is none.
    pub gatekeeper: Option<Gatekeeper>,
    /// The certificate of the port; plain text without one.
    pub tls: Option<Tls>,
    /// The connections of the port.
    pub connections: Connections,
    /// What the process uses.
    pub process: Process,
}

impl Admin {
    /// Serves the pages for as long as it is polled.
    pub async fn serve(mut self, listener: TcpListener) {
        let (connections, tls) = (self.connections.clone(), self.tls.take());
        listener::serve(listener, connections, tls, self.router()).await;
    }

    fn router(mut self) -> Router {
        let gatekeeper = self.gatekeeper.take();
        let router = Router::new()
            .route("/metrics", get(metrics_page::metrics))
            .route("/debug/decisions", get(decisions))
            .route("/debug/endpoints", get(endpoints))
            .with_state(Arc::new(self));
        match gatekeeper {
            None => router,
            Some(gatekeeper) => router.layer(middleware::from_fn_with_state(gatekeeper, Gatekeeper::check)),
        }
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
