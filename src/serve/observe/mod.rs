//! What the service tells of itself: metrics, and the reasons of its decisions.

pub mod decisions;
pub mod metrics;
pub mod record;

use std::time::Duration;

use crate::engine::scheduling::Decision;
use decisions::DecisionLog;
use metrics::Metrics;
use record::{Observer, RequestRecord};

/// Everything that listens to the story of a request.
#[derive(Debug)]
pub struct Telemetry {
    /// The metrics.
    pub metrics: Metrics,
    /// The last decisions.
    pub decisions: DecisionLog,
}

impl Telemetry {
    /// Fills these metrics, and remembers no decision yet.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            decisions: DecisionLog::default(),
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
    }
}
