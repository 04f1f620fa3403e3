//! The health of all endpoints together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::super::super::time::Timestamp;
use super::super::Endpoint;
use super::{EndpointState, Health, OutlierDetection, Reason, RequestFailure, Tier};

/// Changes that are kept until somebody asks. Of more than that the oldest go.
const MAX_CHANGES: usize = 1024;

/// An endpoint is in another state than before.
#[derive(Clone, Debug)]
pub struct HealthChange {
    /// Which one.
    pub endpoint: Arc<Endpoint>,
    /// The state before.
    pub from: EndpointState,
    /// How long it was in that state.
    pub lasted: Duration,
    /// The state now.
    pub to: EndpointState,
    /// Why it is not healthy.
    pub reason: Option<Reason>,
    /// How old its metrics are. `None` if they were never read.
    pub metrics_age: Option<Duration>,
    /// Requests that failed in a row.
    pub failures: u32,
    /// How long it is ejected at least.
    pub ejected_for: Option<Duration>,
}

/// What is counted over all endpoints, so that no decision has to.
#[derive(Debug, Default)]
pub(in crate::engine::pool) struct Overview {
    pub(in crate::engine::pool) settings: OutlierDetection,
    pub(in crate::engine::pool) counts: Counts,
    /// When a standing may change by the passing of time alone.
    pub(in crate::engine::pool) next_change: Option<Timestamp>,
    pub(in crate::engine::pool) changes: VecDeque<HealthChange>,
    failures: ByFailure,
    ejections: ByFailure,
}

/// How many endpoints stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine::pool) struct Counts {
    /// In the best tier.
    pub(in crate::engine::pool) usable: usize,
    /// Ejected or gone.
    pub(in crate::engine::pool) out: usize,
    /// Gone.
    pub(in crate::engine::pool) gone: usize,
    /// Ejected, due to be tried or not.
    pub(in crate::engine::pool) ejections: usize,
}

/// Counts by the name of a failure.
type ByFailure = [u64; RequestFailure::NAMES.len()];

impl Overview {
    /// How often requests failed at endpoints, by the name of the failure.
    pub(in crate::engine::pool) fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RequestFailure::NAMES.into_iter().zip(self.failures)
    }

    /// How often endpoints were ejected, by the name of the last failure.
    pub(in crate::engine::pool) fn ejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RequestFailure::NAMES.into_iter().zip(self.ejections)
    }

    pub(in crate::engine::pool) fn failed(&mut self, failure: RequestFailure, ejects: bool) {
        self.failures[failure.index()] += 1;
        self.ejections[failure.index()] += u64::from(ejects);
    }

    /// An endpoint with this health is there.
    pub(in crate::engine::pool) fn joined(&mut self, health: &Health) {
        self.count(health, |count| *count += 1);
    }

    /// An endpoint with this health is not there any more.
    pub(in crate::engine::pool) fn left(&mut self, health: &Health) {
        self.count(health, |count| *count -= 1);
    }

    fn count(&mut self, health: &Health, change: impl Fn(&mut usize)) {
        let standing = health.standing();
        let counts = &mut self.counts;
        for (is_counted, count) in [
            (standing.tier == Tier::Usable, &mut counts.usable),
            (standing.is_out(), &mut counts.out),
            (standing.is_gone, &mut counts.gone),
            (health.ejected_until().is_some(), &mut counts.ejections),
        ] {
            if is_counted {
                change(count);
            }
        }
    }

    pub(in crate::engine::pool) fn push(&mut self, change: HealthChange) {
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Something may change at `at`.
    pub(in crate::engine::pool) fn look_again(&mut self, at: Option<Timestamp>) {
        self.next_change = self.next_change.into_iter().chain(at).min();
    }
}
