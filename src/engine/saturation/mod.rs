//! Saturation detectors: how full the pool is.
//!
//! The gate of flow control and the shedding of negative priorities ask the same detector. A detector may also stand in
//! a profile as a filter, which keeps the endpoints that are not full.

mod concurrency;
mod faults;
mod utilization;

use std::fmt::Debug;

pub use concurrency::ConcurrencyDetector;
pub use utilization::UtilizationDetector;

use super::plugin::{Entry, Plugin, instance};
use super::pool::Candidates;
use super::time::Timestamp;

/// Says how full a pool is.
pub trait SaturationDetector: Debug + Send {
    /// 0 is idle, 1 is full, and it may be more. A pool without endpoints is full.
    fn saturation(&self, now: Timestamp, endpoints: Candidates<'_>) -> f64;

    /// Endpoints of which nothing fresh is known.
    fn stale(&self, _now: Timestamp, _endpoints: Candidates<'_>) -> usize {
        0
    }
}

/// Every saturation detector. To add one: a file beside this one, and a line here, and one in the table of filters if
/// it is one.
pub const TABLE: &[Entry<dyn SaturationDetector>] = &[entry::<UtilizationDetector>(), entry::<ConcurrencyDetector>()];

const fn entry<P: Plugin + SaturationDetector + 'static>() -> Entry<dyn SaturationDetector> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
