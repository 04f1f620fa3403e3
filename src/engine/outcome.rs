//! How requests end.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The end of a request. Every request that reaches Forebay is counted under exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// An endpoint was chosen and its answer was passed on to its end. A status below 500.
    Completed,
    /// An endpoint was chosen and failed: the client got a status of 500 or above, from the endpoint or from the gateway in
    /// its place.
    UpstreamError,
    /// An endpoint was chosen, and the client or the gateway gave up before the answer ended.
    Disconnected,
    /// An endpoint was chosen, and the stream to the gateway broke with an error.
    Broken,
    /// An endpoint was chosen, and the request was cut off for a more urgent one.
    Evicted,
    /// An endpoint was chosen, and the gateway does not show how its answer goes on.
    Unobserved,
    /// No endpoint was chosen.
    Refused(Refusal),
}

impl Outcome {
    /// Every outcome, in the order of this page.
    pub fn all() -> impl Iterator<Item = Self> {
        let routed = [
            Self::Completed,
            Self::UpstreamError,
            Self::Disconnected,
            Self::Broken,
            Self::Evicted,
            Self::Unobserved,
        ];
        let refused = Refusal::ALL.iter().copied().map(Self::Refused);
        routed.into_iter().chain(refused)
    }

    /// A stable name for metrics, logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::UpstreamError => "upstream-error",
            Self::Disconnected => "disconnected",
            Self::Broken => "broken",
            Self::Evicted => "evicted",
            Self::Unobserved => "unobserved",
            Self::Refused(refusal) => refusal.name(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a request was given no endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// The request could not be understood.
    Malformed,
    /// The body is larger than the configured bound.
    TooLarge,
    /// The rest of the body did not come in time.
    BodyTimeout,
    /// The memory that the picker may use for requests was used up.
    MemoryExhausted,
    /// The admission policy did not let it in.
    NotAdmitted,
    /// It is larger than what the admission policy ever lets in.
    NeverAdmitted,
    /// There is no room for it to wait.
    QueueFull,
    /// It is larger than a limit on what may wait, and so there will never be room for it.
    Oversized,
    /// There is no room for it to wait, and no endpoint that could make room.
    QueueFullNoEndpoints,
    /// It waited, and gave its place to a more urgent one for which there was no room.
    Shed,
    /// It waited, and gave its place to a request of a flow that had less waiting than its own.
    Displaced,
    /// It waited for as long as it may.
    Expired,
    /// It waited for as long as it may, in the end for any endpoint at all.
    ExpiredNoEndpoints,
    /// The pool, or the part of it that the gateway allows, has no endpoint.
    NoEndpoints,
    /// The pool is saturated, and the request may be shed.
    Saturated,
    /// The filters of the profile left no endpoint.
    FilteredOut,
    /// The client wants it served only where a part of its prompt is cached, and no endpoint has any.
    NotCached,
    /// The client was gone before an endpoint was chosen.
    Cancelled,
    /// The picker is shutting down.
    ShuttingDown,
    /// A profile handler could not combine its results. A defect or a configuration that cannot work.
    Unschedulable,
    /// The picker failed on the request: a defect, which the log tells of.
    Internal,
}

impl Refusal {
    /// Every refusal, in the order of this page.
    pub const ALL: &[Self] = &[
        Self::Malformed,
        Self::TooLarge,
        Self::BodyTimeout,
        Self::MemoryExhausted,
        Self::NotAdmitted,
        Self::NeverAdmitted,
        Self::QueueFull,
        Self::Oversized,
        Self::QueueFullNoEndpoints,
        Self::Shed,
        Self::Displaced,
        Self::Expired,
        Self::ExpiredNoEndpoints,
        Self::NoEndpoints,
        Self::Saturated,
        Self::FilteredOut,
        Self::NotCached,
        Self::Cancelled,
        Self::ShuttingDown,
        Self::Unschedulable,
        Self::Internal,
    ];

    /// A stable name for metrics, logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::BodyTimeout => "body-timeout",
            Self::MemoryExhausted => "memory-exhausted",
            Self::NotAdmitted => "not-admitted",
            Self::NeverAdmitted => "never-admitted",
            Self::QueueFull => "queue-full",
            Self::Oversized => "oversized",
            Self::QueueFullNoEndpoints => "queue-full-no-endpoints",
            Self::Shed => "shed",
            Self::Displaced => "displaced",
            Self::Expired => "expired",
            Self::ExpiredNoEndpoints => "expired-no-endpoints",
            Self::NoEndpoints => "no-endpoints",
            Self::Saturated => "saturated",
            Self::FilteredOut => "filtered-out",
            Self::NotCached => "not-cached",
            Self::Cancelled => "cancelled",
            Self::ShuttingDown => "shutting-down",
            Self::Unschedulable => "unschedulable",
            Self::Internal => "internal",
        }
    }

    /// True if the same request may well be taken later.
    pub const fn may_retry(self) -> bool {
        match self {
            Self::MemoryExhausted
            | Self::NotAdmitted
            | Self::QueueFull
            | Self::QueueFullNoEndpoints
            | Self::Shed
            | Self::Displaced
            | Self::Expired
            | Self::ExpiredNoEndpoints
            | Self::NoEndpoints
            | Self::Saturated
            | Self::FilteredOut => true,
            Self::Malformed
            | Self::TooLarge
            | Self::NeverAdmitted
            | Self::Oversized
            | Self::NotCached
            | Self::BodyTimeout
            | Self::Cancelled
            | Self::ShuttingDown
            | Self::Unschedulable
            | Self::Internal => false,
        }
    }
}

/// How many requests came, and how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests taken in.
    pub submitted: u64,
    ended: BTreeMap<Outcome, u64>,
}

impl Tally {
    /// Counts an end.
    pub fn end(&mut self, outcome: Outcome) {
        *self.ended.entry(outcome).or_default() += 1;
    }

    /// Requests that ended in `outcome`.
    pub fn ended_in(&self, outcome: Outcome) -> u64 {
        self.ended.get(&outcome).copied().unwrap_or(0)
    }

    /// Requests that ended, however they did.
    pub fn ended(&self) -> u64 {
        self.ended.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_outcome_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Outcome::all().map(Outcome::name).collect();

        assert_eq!(names.len(), Outcome::all().count());
    }
}
