//! Requests that come when they come, whatever becomes of those before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::super::cluster::MODEL;
use super::{SOURCE_COUNT, SOURCES, Source, TOKENS};
use crate::serve::client::{Client, ClientError};

/// Requests under way, and what became of the others. Dropped, all of it ends.
#[derive(Debug)]
pub(super) struct Load {
    began: Instant,
    tally: Arc<Mutex<Tally>>,
    sender: AbortOnDropHandle<()>,
}

/// Answers, for each of [`SOURCES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests that were sent.
    pub(super) sent: u64,
    /// Those that were refused for want of room.
    pub(super) no_room: u64,
    /// Those that waited for too long.
    pub(super) expired: u64,
}

#[derive(Debug, Default)]
struct Tally {
    counts: [Counts; SOURCE_COUNT],
    has_sent_all: bool,
    failures: Vec<String>,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Answer,
    NoRoom,
    Expired,
    Else(String),
}

impl Load {
    pub(super) fn start(load_time: Duration, client: &Client, ingress: SocketAddr) -> Self {
        let (began, tally) = (Instant::now(), Arc::<Mutex<Tally>>::default());
        let (client, counted) = (client.clone(), Arc::clone(&tally));
        let sender = tokio::spawn(async move {
            let mut under_way = JoinSet::new();
            for (at, source) in arrivals(load_time) {
                tokio::time::sleep_until(began + at).await;
                counted.lock().counts[source].sent += 1;
                let (client, counted) = (client.clone(), Arc::clone(&counted));
                under_way.spawn(async move {
                    let told = ask(&SOURCES[source], &client, ingress).await;
                    counted
                        .lock()
                        .count(source, told.unwrap_or_else(|error| Told::Else(error.to_string())));
                });
            }
            counted.lock().has_sent_all = true;
            under_way.join_all().await;
        });
        Self {
            began,
            tally,
            sender: AbortOnDropHandle::new(sender),
        }
    }

    /// Waits until all requests are answered, but no longer than `limit`, and says whether they are.
    pub(super) async fn ends_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, &mut self.sender).await.is_ok()
    }

    /// Time since the first request.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.tally.lock().has_sent_all
    }

    pub(super) fn counts(&self) -> [Counts; SOURCE_COUNT] {
        self.tally.lock().counts
    }

    /// Answers that there should not be.
    pub(super) fn failures(&self) -> Vec<String> {
        self.tally.lock().failures.clone()
    }
}

impl Tally {
    fn count(&mut self, source: usize, told: Told) {
        let counts = &mut self.counts[source];
        match told {
            Told::Answer => {}
            Told::NoRoom => counts.no_room += 1,
            Told::Expired => counts.expired += 1,
            Told::Else(what) => self.failures.push(what),
        }
    }
}

/// When which of [`SOURCES`] asks: each at an even pace.
fn arrivals(load_time: Duration) -> Vec<(Duration, usize)> {
    let mut arrivals = Vec::new();
    for (place, source) in SOURCES.iter().enumerate() {
        let requests = (source.per_second * load_time.as_secs_f64()).round() as u32;
        // Not all sources in the same moment.
        let offset = (place as f64 + 0.5) / SOURCE_COUNT as f64;
        let at = |number| Duration::from_secs_f64((f64::from(number) + offset) / source.per_second);
        arrivals.extend((0..requests).map(|number| (at(number), place)));
    }
    arrivals.sort_unstable();
    arrivals
}

async fn ask(source: &Source, client: &Client, ingress: SocketAddr) -> Result<Told, ClientError> {
    let url = format!("http://{ingress}/v1/completions");
    let document = json!({ "model": MODEL, "prompt": "What do we do when it is too much?", "max_tokens": TOKENS });
    let request = Request::post(&url)
        .header(header::CONTENT_TYPE, "application/json")
        .header("x-llm-d-inference-fairness-id", source.tenant.name())
        .header("x-llm-d-inference-objective", source.band.name())
        .body(Full::new(Bytes::from(document.to_string())))
        .map_err(|source| ClientError::Request { url, source })?;
    let (head, body) = client.send(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let reason = head.headers.get("x-llm-d-request-dropped-reason");
    let reason = reason.and_then(|reason| reason.to_str().ok()).unwrap_or_default();
    Ok(told(head.status, reason, &body))
}

fn told(status: StatusCode, reason: &str, body: &[u8]) -> Told {
    match (status, reason) {
        (StatusCode::OK, _) => Told::Answer,
        (StatusCode::TOO_MANY_REQUESTS, "rejected-saturated" | "evicted-displaced") => Told::NoRoom,
        (StatusCode::SERVICE_UNAVAILABLE, "rejected-ttl-expired") => Told::Expired,
        _ => Told::Else(format!("status {status}: {}", String::from_utf8_lossy(body))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_asks_at_its_pace_for_the_whole_time() {
        let load_time = Duration::from_secs(10);
        let arrivals = arrivals(load_time);

        for (place, source) in SOURCES.iter().enumerate() {
            let asked = arrivals.iter().filter(|(_, of)| *of == place).count();
            assert_eq!(asked as f64, source.per_second * 10.0, "{source:?}");
        }
        assert!(arrivals.is_sorted());
        assert!(arrivals.iter().all(|(at, _)| *at < load_time));
    }

    #[test]
    fn clients_know_why_they_were_turned_away() {
        let of = |status, reason| told(StatusCode::from_u16(status).unwrap(), reason, b"why");

        assert_eq!(of(200, ""), Told::Answer);
        assert_eq!(of(429, "rejected-saturated"), Told::NoRoom);
        assert_eq!(of(429, "evicted-displaced"), Told::NoRoom);
        assert_eq!(of(503, "rejected-ttl-expired"), Told::Expired);
        assert_eq!(
            of(503, "rejected-no-endpoints"),
            Told::Else("status 503 Service Unavailable: why".to_owned())
        );
    }
}
