//! From the record of a run to what people and programs read of it.
//!
//! A driver hands over a [`RunRecord`](super::record::RunRecord) and [`ReportOptions`]; [`Metrics::of`] works the
//! figures out, and the rest of this room says them:
//!
//! - [`text::summary`]: what a run prints;
//! - [`json::metrics_file`] and [`json::document`]: the same for programs;
//! - [`html::page`]: a page with plots;
//! - [`saturation`]: whether the run was overloaded, in hindsight;
//! - [`compare`]: how several configurations differ, and whether that can be chance;
//! - [`calibrate`]: how well simulated requests match real ones.
//!
//! Everything is a pure function: the same record gives the same bytes. A run whose [`Metrics::conservation`] is an error
//! has lost or invented requests, and its driver should fail.

mod anomaly;
pub mod calibrate;
pub mod compare;
mod conservation;
mod distribution;
mod fairness;
mod fitness;
mod goodput;
pub mod html;
pub mod json;
mod metrics;
mod options;
pub mod saturation;
mod tally;
pub mod text;

pub use anomaly::Anomalies;
pub use conservation::{Conservation, Violation, check};
pub use distribution::{Distribution, Latency};
pub use fairness::jain;
pub use fitness::{Fitness, FitnessError, FitnessWeights};
pub use goodput::{ClassGoodput, Dimension, Goodput, GoodputError, GoodputTargets};
pub use metrics::{Block, GroupMetrics, KvMetrics, Metrics, SessionMetrics};
pub use options::{ReportOptions, TraceSummary};
pub use tally::Tally;

#[cfg(test)]
mod testing;
