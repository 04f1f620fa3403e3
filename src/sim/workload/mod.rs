//! What is sent to the cluster, and when.
//!
//! ```text
//! flags ─┐                        clients, each with a stream of chance
//! file ──┼─▶ WorkloadSpec ─ plan ─▶ merged by arrival ─▶ Workload ─▶ SimRequest, one at a time
//! preset ┘                                                  ▲            │
//!                                                           └── ended ◀──┘  (conversations, users)
//! ```
//!
//! A [`WorkloadSpec`](spec::WorkloadSpec) is what was written, a [`Workload`] is what runs. Requests are made when they are
//! taken: a run of a million takes as much memory as one of a hundred. The same description and seed give the same
//! requests, and those of the reference (spec, simulator 18).
//!
//! What always holds: requests come up in the order of their arrival; draws for one client never shift those for
//! another; every conversation that began ends in one way, or goes on ([`SessionTally`]).

pub mod arrivals;
pub mod chance;
pub mod convert;
mod expand;
pub mod flags;
mod later;
pub mod lengths;
mod merge;
mod opening;
mod plan;
mod rates;
mod session;
mod shape;
pub mod spec;
mod stream;
#[cfg(test)]
mod tests;
pub mod think;
mod times;
mod tokens;
#[allow(
    clippy::module_inception,
    reason = "the room is named for the thing, and so is the file of its main type"
)]
mod workload;

pub(in crate::sim) use opening::{Opening, Openings};
pub use plan::{DEFAULT_SEED, MOST_IN_A_WINDOW, PlanError, PlanOptions, plan};
pub use session::SessionTally;
pub(in crate::sim) use session::{LateStream, Listed, Place, Rounds, Session};
pub(in crate::sim) use shape::Sizes;
pub(in crate::sim) use tokens::{Spoken, VOCABULARY, prefix};
pub use workload::{Limits, Workload};
