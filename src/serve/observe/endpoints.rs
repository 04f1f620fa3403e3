//! The endpoints and what is known of them, for the debug page: what an operator asks when one gets no requests.

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::engine::pool::health::Reason;
use crate::engine::pool::{Member, Slot};
use crate::engine::time::Timestamp;

/// One endpoint.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPage {
    /// Its name.
    pub endpoint: String,
    /// Where requests go.
    pub address: String,
    /// Whether it can serve: `healthy`, `unscraped`, `stale`, `ejected` or `unreachable`.
    pub state: String,
    /// Why it is not healthy, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it is not healthy, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Seconds since it is in that state.
    pub since_seconds: f64,
    /// Seconds until an ejected endpoint may be tried again. Zero: the next request may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejected_for_seconds: Option<f64>,
    /// Requests that failed since the last one that was answered.
    pub consecutive_failures: u32,
    /// How old its metrics are. Missing if they were never read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_age_seconds: Option<f64>,
    /// Requests that wait there, by its metrics.
    pub waiting: u32,
    /// Requests that run there, by its metrics.
    pub running: u32,
    /// Share of its KV cache in use, by its metrics.
    pub kv_usage: f64,
    /// Requests that were sent there and have not ended.
    pub in_flight_requests: u32,
    /// Prompt tokens of requests that were sent there and whose answer has not begun.
    pub in_flight_tokens: u64,
    /// How full it is, by the saturation detector: 0 idle, 1 full.
    pub saturation: f64,
}

/// All endpoints, in order of their ids.
pub fn pages(engine: &Engine, now: Timestamp) -> Vec<EndpointPage> {
    let members = engine.pool().iter();
    members.map(|(slot, member)| page(engine, now, slot, member)).collect()
}

fn page(engine: &Engine, now: Timestamp, slot: Slot, member: &Member) -> EndpointPage {
    let Member {
        endpoint,
        signals,
        health,
        in_flight,
        ..
    } = member;
    let reason: Option<Reason> = health.reason();
    let until = |at: Timestamp| at.since(now).as_secs_f64();
    let age = |at: Timestamp| now.since(at).as_secs_f64();
    EndpointPage {
        endpoint: endpoint.name.to_string(),
        address: endpoint.socket().to_string(),
        state: health.state().name().to_owned(),
        reason: reason.map(|reason| reason.name().to_owned()),
        detail: reason.map(|reason| reason.to_string()),
        since_seconds: age(health.since()),
        ejected_for_seconds: health.ejected_until().map(until),
        consecutive_failures: health.consecutive_failures(),
        metrics_age_seconds: signals.at.map(age),
        waiting: signals.waiting,
        running: signals.running,
        kv_usage: signals.kv_usage,
        in_flight_requests: in_flight.requests,
        in_flight_tokens: in_flight.tokens,
        saturation: engine.endpoint_saturation(now, slot),
    }
}
