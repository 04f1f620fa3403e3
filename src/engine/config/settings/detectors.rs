//! Saturation detectors: when a pool counts as full (spec, config 9).

use super::super::super::saturation::{ConcurrencyDetector, UtilizationDetector};

/// What a saturation detector is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum Detector {
    /// By what the engines report.
    Utilization(UtilizationDetector),
    /// By what is in flight.
    Concurrency(ConcurrencyDetector),
}

impl From<UtilizationDetector> for Detector {
    fn from(detector: UtilizationDetector) -> Self {
        Self::Utilization(detector)
    }
}

impl From<ConcurrencyDetector> for Detector {
    fn from(detector: ConcurrencyDetector) -> Self {
        Self::Concurrency(detector)
    }
}
