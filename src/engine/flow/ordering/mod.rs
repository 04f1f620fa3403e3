//! Ordering policies: which request of a flow goes first.

mod edf;
mod fcfs;
mod slo_deadline;

use std::fmt::Debug;

use super::super::plugin::{Entry, Plugin, instance};
use super::super::request::Request;
use super::super::time::Timestamp;

/// Orders the requests of a flow.
pub trait OrderingPolicy: Debug + Send {
    /// The request with the smallest key goes first; among equal keys, the one that came first. Taken once, when the
    /// request begins to wait.
    fn key(&self, arrival: &Arrival<'_>) -> u64;

    /// True if what comes later always goes later.
    fn is_by_arrival(&self) -> bool {
        false
    }

    /// True if a key is a deadline, in nanoseconds of the driver's clock. A request whose deadline has passed then goes on as if
    /// its key were [`LAST`]: behind all that can still be served in time, and in order of arrival.
    fn keys_are_deadlines(&self) -> bool {
        false
    }
}

/// The key of a request without a deadline.
pub const LAST: u64 = u64::MAX;

/// A request that begins to wait.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The request.
    pub request: &'a Request,
    /// When its headers came.
    pub received: Timestamp,
    /// When it began to wait.
    pub enqueued: Timestamp,
    /// When it will have waited too long, if the pool has endpoints all the while.
    pub deadline: Option<Timestamp>,
}

/// Every ordering policy. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn OrderingPolicy>] = &[
    entry::<fcfs::FirstComeFirstServed>(),
    entry::<edf::EarliestDeadlineFirst>(),
    entry::<slo_deadline::SloDeadline>(),
];

const fn entry<P: Plugin + OrderingPolicy + 'static>() -> Entry<dyn OrderingPolicy> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
