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

impl Patience {
    /// When it will have waited too long, if the pool has endpoints all the while.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.with_endpoints.map(|budget| self.enqueued + budget)
    }
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
            // A request without a budget has no deadline, and is not kept here.
            let deadline = budget.map(|budget| patience.enqueued.max(since) + budget);
            if deadline.is_some_and(is_up) {
                return Some(key);
            }
            deadlines.ordered.remove(&(at, key));
            let Some(deadline) = deadline else { continue };
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

#[cfg(test)]
mod tests {
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        /// A request comes, with a budget for each regime.
        Come(Option<u64>, Option<u64>),
        Leave(Index),
        Pass(u64),
        Switch(bool),
        Expire(bool),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (option::of(0_u64..20), option::of(0_u64..20)).prop_map(|(with, without)| Op::Come(with, without)),
            1 => any::<Index>().prop_map(Op::Leave),
            2 => (0_u64..8).prop_map(Op::Pass),
            2 => any::<bool>().prop_map(Op::Switch),
            2 => any::<bool>().prop_map(Op::Expire),
        ]
    }

    proptest! {
        #[test]
        fn a_request_expires_by_the_budget_of_the_regime_since_the_regime_or_its_wait_began(
            ops in proptest::collection::vec(op(), 1..80),
        ) {
            let mut expiry = Expiry::default();
            let mut waiting = slab::Slab::<Patience>::new();
            let (mut now, mut is_empty, mut since) = (Timestamp::ZERO, false, Timestamp::ZERO);

            for op in ops {
                match op {
                    Op::Come(with_endpoints, without_endpoints) => {
                        let patience = Patience {
                            enqueued: now,
                            with_endpoints: with_endpoints.map(Duration::from_nanos),
                            without_endpoints: without_endpoints.map(Duration::from_nanos),
                        };
                        expiry.insert(waiting.insert(patience), patience);
                    }
                    Op::Leave(index) => {
                        let keys: Vec<_> = waiting.iter().map(|(key, _)| key).collect();
                        if !keys.is_empty() {
                            let key = *index.get(&keys);
                            expiry.remove(key, waiting.remove(key));
                        }
                    }
                    Op::Pass(nanos) => now = now + Duration::from_nanos(nanos),
                    Op::Switch(to_empty) => {
                        expiry.set_regime(now, to_empty);
                        if is_empty != to_empty {
                            (is_empty, since) = (to_empty, now);
                        }
                    }
                    Op::Expire(now_included) => {
                        let until = if now_included { Until::Now } else { Until::Before };
                        let due = |patience: &Patience| {
                            let budget = if is_empty { patience.without_endpoints } else { patience.with_endpoints };
                            budget.map(|budget| patience.enqueued.max(since) + budget)
                        };
                        let is_up = |due: Timestamp| if now_included { due <= now } else { due < now };
                        let expected: Vec<_> = waiting
                            .iter()
                            .filter(|(_, patience)| due(patience).is_some_and(is_up))
                            .map(|(key, _)| key)
                            .collect();

                        let mut expired = Vec::new();
                        while let Some(key) = expiry.next_expired(now, until, |key| waiting[key]) {
                            expired.push(key);
                            expiry.remove(key, waiting[key]);
                        }
                        expired.sort_unstable();
                        prop_assert_eq!(&expired, &expected);
                        for key in expired {
                            waiting.remove(key);
                        }

                        let next_due = waiting.iter().filter_map(|(_, patience)| due(patience)).min();
                        prop_assert_eq!(expiry.deadline().is_some(), next_due.is_some());
                        prop_assert!(expiry.deadline() <= next_due, "{:?} <= {:?}", expiry.deadline(), next_due);
                        prop_assert!(expiry.deadline().is_none_or(|deadline| !is_up(deadline)));
                    }
                }
            }
        }
    }
}
