//! Who has waited too long.
//!
//! A request has two budgets, of which one counts while the pool has endpoints and the other while it has none. Each
//! change between the two begins a fresh one: a request expires when `now >= max(enqueued, change) + budget`
//! (spec, flow control 7).
//!
//! For each of the two, requests are kept by `enqueued + budget`, which is never after the true moment. When that moment
//! comes, the true one is worked out; if it is still to come, the request is kept by that. So a change costs nothing,
//! and nothing is looked at before its time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::time::Timestamp;
use super::Until;

/// How long a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    /// When it began to wait.
    pub(super) enqueued: Timestamp,
    /// While the pool has endpoints. Without end if there is none.
    pub(super) with_endpoints: Option<Duration>,
    /// While the pool has none. Without end if there is none.
    pub(super) without_endpoints: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Expiry {
    is_empty: bool,
    since: Timestamp,
    with_endpoints: Deadlines,
    without_endpoints: Deadlines,
}

/// Requests by a moment that is not after their deadline.
#[derive(Debug, Default)]
struct Deadlines {
    ordered: BTreeSet<(Timestamp, usize)>,
    /// The moments that are later than `enqueued + budget`, by request.
    moved: rustc_hash::FxHashMap<usize, Timestamp>,
}

impl Deadlines {
    fn remove(&mut self, key: usize, nominal: Timestamp) {
        let at = self.moved.remove(&key).unwrap_or(nominal);
        self.ordered.remove(&(at, key));
    }
}

impl Expiry {
    pub(super) fn clear(&mut self) {
        self.with_endpoints = Deadlines::default();
        self.without_endpoints = Deadlines::default();
    }

    pub(super) fn set_regime(&mut self, now: Timestamp, is_empty: bool) {
        if self.is_empty != is_empty {
            (self.is_empty, self.since) = (is_empty, now);
        }
    }

    pub(super) fn insert(&mut self, key: usize, patience: Patience) {
        for (deadlines, budget) in self.regimes(patience) {
            if let Some(budget) = budget {
                deadlines.ordered.insert((patience.enqueued + budget, key));
            }
        }
    }

    pub(super) fn remove(&mut self, key: usize, patience: Patience) {
        for (deadlines, budget) in self.regimes(patience) {
            if let Some(budget) = budget {
                deadlines.remove(key, patience.enqueued + budget);
            }
        }
    }

    /// The moment before which nothing expires.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let deadlines = if self.is_empty {
            &self.without_endpoints
        } else {
            &self.with_endpoints
        };
        deadlines.ordered.first().map(|(at, _)| *at)
    }

    /// A request whose time is up. It stays until it is removed.
    pub(super) fn next_expired(
        &mut self,
        now: Timestamp,
        until: Until,
        patience: impl Fn(usize) -> Patience,
    ) -> Option<usize> {
        let (is_empty, since) = (self.is_empty, self.since);
        let deadlines = if is_empty {
            &mut self.without_endpoints
        } else {
            &mut self.with_endpoints
        };
        let is_up = |at: Timestamp| match until {
            Until::Before => at < now,
            Until::Now => at <= now,
        };
        loop {
            let &(at, key) = deadlines.ordered.first()?;
            if !is_up(at) {
                return None;
            }
            let patience = patience(key);
            let budget = if is_empty {
                patience.without_endpoints
            } else {
                patience.with_endpoints
            };
            let deadline = patience.enqueued.max(since) + budget.expect("a request with a deadline has a budget");
            if is_up(deadline) {
                return Some(key);
            }
            deadlines.ordered.remove(&(at, key));
            deadlines.ordered.insert((deadline, key));
            deadlines.moved.insert(key, deadline);
        }
    }

    fn regimes(&mut self, patience: Patience) -> [(&mut Deadlines, Option<Duration>); 2] {
        [
            (&mut self.with_endpoints, patience.with_endpoints),
            (&mut self.without_endpoints, patience.without_endpoints),
        ]
    }
}
