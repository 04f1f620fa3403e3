//! What the service tells of itself: metrics, and the reasons of its decisions.

pub mod decisions;
pub mod endpoints;
pub mod metrics;
pub mod record;
pub mod summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::outcome::Outcome;
use crate::engine::scheduling::Decision;
use decisions::DecisionLog;
use metrics::Metrics;
use record::{ErrorCode, Observer, RequestRecord, Unobserved};
use summary::Summary;

/// Everything that listens to the story of a request.
#[derive(Debug)]
pub struct Telemetry {
    /// The metrics.
    pub metrics: Metrics,
    /// The last decisions.
    pub decisions: DecisionLog,
    /// What the log says of requests that were shed or failed.
    pub summary: Summary,
    has_warned: HasWarned,
}

/// Which of the things that are said but once were said.
#[derive(Debug, Default)]
struct HasWarned {
    of_hidden_bodies: AtomicBool,
    of_hidden_responses: AtomicBool,
}

impl Telemetry {
    /// Fills these metrics, and remembers no decision yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            decisions: DecisionLog::default(),
            summary: Summary::default(),
            has_warned: HasWarned::default(),
        }
    }
}

impl Observer for Telemetry {
    fn request_routed(&self, record: &RequestRecord, decision: &Decision) {
        self.metrics.request_routed(record, decision);
        self.decisions.add(record, decision);
    }

    fn response_chunks(&self, record: &RequestRecord, gaps: &[Duration]) {
        self.metrics.response_chunks(record, gaps);
    }

    fn request_ended(&self, record: &RequestRecord) {
        self.metrics.request_ended(record);
        self.summary.ended(record, tracing::enabled!(tracing::Level::DEBUG));
        log_end(record);
        self.has_warned.of(record.unobserved);
    }

    fn local_reply(&self, record: &RequestRecord) {
        self.metrics.local_reply(record);
        let (request_id, status) = (&*record.request_id, record.status);
        tracing::debug!(request_id, status, "the gateway answered a client by itself");
    }
}

impl HasWarned {
    /// Warns of a gateway that hides responses, at the first one.
    fn of(&self, unobserved: Option<Unobserved>) {
        match unobserved {
            Some(Unobserved::NoResponseBodies) if !self.of_hidden_bodies.swap(true, Ordering::Relaxed) => {
                tracing::warn!(
                    "the gateway does not show response bodies (`response_body_mode: NONE`): a request counts as ended when its \
                 response begins, so flow control and load accounting do not see what is running; set \
                 `FULL_DUPLEX_STREAMED` or `STREAMED`"
                );
            }
            Some(Unobserved::NoResponse) if !self.of_hidden_responses.swap(true, Ordering::Relaxed) => tracing::warn!(
                "the gateway asks for endpoints and does not show responses: a request counts as ended when it is routed, so \
                 only scraped metrics tell how busy endpoints are"
            ),
            _ => {}
        }
    }
}

/// Says how a request ended: at `debug` if it left the happy path, at `trace` if not.
fn log_end(record: &RequestRecord) {
    let (request_id, model) = (&*record.request_id, &*record.model);
    let endpoint = record.endpoint.as_ref().map(|endpoint| &*endpoint.name);
    let outcome = record.outcome.map(Outcome::name);
    let error = record.error.map(ErrorCode::name);
    let took = record.ended.map(|ended| ended.since(record.received).as_secs_f64());
    let status = record.status;
    if record.outcome == Some(Outcome::Completed) && error.is_none() {
        tracing::trace!(request_id, model, endpoint, outcome, status, took, "request ended");
    } else {
        tracing::debug!(
            request_id,
            model,
            endpoint,
            outcome,
            error,
            status,
            took,
            "request ended"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::Level;

    use super::*;
    use crate::engine::outcome::Refusal;
    use crate::engine::time::Timestamp;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged at `level` when a request ends so.
    fn logged(level: Level, outcome: Outcome, error: Option<ErrorCode>) -> String {
        let mut record = RequestRecord::new(Timestamp::ZERO);
        record.request_id = "r1".into();
        record.outcome = Some(outcome);
        record.error = error;
        captured(level, || log_end(&record))
    }

    fn captured(level: Level, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(lines.0.lock().clone()).unwrap()
    }

    #[test]
    fn a_request_that_left_the_happy_path_is_logged_with_its_reason() {
        let refused = Outcome::Refused(Refusal::TooLarge);

        let line = logged(Level::DEBUG, refused, Some(ErrorCode::PayloadTooLarge));

        for part in [
            "DEBUG",
            "request ended",
            "request_id=\"r1\"",
            "outcome=\"too-large\"",
            "error=\"PayloadTooLarge\"",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn a_gateway_that_hides_responses_is_warned_of_once() {
        let warned = HasWarned::default();

        let lines = captured(Level::WARN, || {
            for _ in 0..3 {
                warned.of(None);
                warned.of(Some(Unobserved::NoResponseBodies));
                warned.of(Some(Unobserved::NoResponse));
            }
        });

        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.contains("`response_body_mode: NONE`"), "{lines}");
    }

    #[test]
    fn a_request_that_went_well_is_only_traced() {
        assert_eq!(logged(Level::DEBUG, Outcome::Completed, None), "");
        assert!(logged(Level::TRACE, Outcome::Completed, None).contains("TRACE"));
        assert!(logged(Level::DEBUG, Outcome::Completed, Some(ErrorCode::ModelServerError)).contains("ModelServer"));
    }
}
