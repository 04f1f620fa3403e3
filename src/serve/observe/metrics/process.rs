//! What the process uses, and what it gave up so as not to use more.

use std::sync::Arc;

use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;

use super::family;
use crate::serve::connections::Connections;
use crate::serve::logs::LeftOut;
use crate::serve::memory::Budget;
use crate::serve::panics::Panics;

/// The owners of what is told, who are asked when a page is made.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Panics that were caught.
    pub panics: Arc<Panics>,
    /// The memory of open streams and their bodies.
    pub memory: Arc<Budget>,
    /// The connections of each port, by its purpose.
    pub ports: Vec<(&'static str, Connections)>,
    /// Log lines that were left out.
    pub left_out: LeftOut,
}

impl Process {
    pub(super) fn families(&self) -> prometheus::Result<Vec<MetricFamily>> {
        let panics = family::PANICS.counted()?;
        panics.with_label_values::<&str>(&[]).inc_by(self.panics.caught());

        let used = family::REQUEST_MEMORY.snapshot()?;
        used.with_label_values::<&str>(&[]).set(self.memory.used() as f64);
        let limit = family::REQUEST_MEMORY_LIMIT.snapshot()?;
        limit.with_label_values::<&str>(&[]).set(match self.memory.limit() {
            usize::MAX => f64::INFINITY,
            bytes => bytes as f64,
        });

        let open = family::CONNECTIONS.snapshot()?;
        let displaced = family::CONNECTIONS_DISPLACED.counted()?;
        for (port, connections) in &self.ports {
            open.with_label_values(&[port]).set(connections.len() as f64);
            displaced.with_label_values(&[port]).inc_by(connections.closed());
        }

        let lines = family::LOG_LINES_LEFT_OUT.counted()?;
        lines.with_label_values(&["repeated"]).inc_by(self.left_out.repeated());
        lines
            .with_label_values(&["unwritten"])
            .inc_by(self.left_out.unwritten());

        let families = [panics.collect(), used.collect(), limit.collect(), open.collect()];
        Ok([families.concat(), displaced.collect(), lines.collect()].concat())
    }
}
