//! Saturation detectors: how full the pool is.
//!
//! The gate of flow control and the shedding of negative priorities ask the same detector. A detector may also stand in
//! a profile as a filter, which keeps the endpoints that are not full.

use std::fmt::Debug;

use super::plugin::{Entry, Plugin, instance};
use super::pool::Candidates;
use super::time::Timestamp;

/// Says how full a pool is.
pub trait SaturationDetector: Debug + Send {
    /// 0 is idle, 1 is full, and it may be more. A pool without endpoints is full.
    fn saturation(&self, now: Timestamp, endpoints: Candidates<'_>) -> f64;

    /// Endpoints that count as full because nothing fresh is known of them.
    fn stale(&self, _now: Timestamp, _endpoints: Candidates<'_>) -> usize {
        0
    }
}
