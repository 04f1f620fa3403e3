//! All requests of a run, as they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::request::{Arrivals, Ended, RequestName, SimRequest};
use super::session::{Session, SessionEnd, SessionTally};
use super::stream::Seeds;

/// All requests of a run in the order in which they arrive: those that are known beforehand, which are made one by one
/// as they are taken, and those that follow upon the end of others.
///
/// At the same time, what was known beforehand comes first.
#[derive(Debug)]
pub struct Workload {
    seeds: Box<dyn Seeds>,
    following: BinaryHeap<Reverse<FollowUp>>,
    sessions: FxHashMap<Arc<str>, Session>,
    limits: Limits,
    /// Requests that may still be made; none if there is no limit.
    left: Option<u64>,
    taken_seeds: u64,
    follow_ups: u64,
    tally: SessionTally,
}

/// Where a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// No request arrives later than this, in microseconds.
    pub horizon_us: Option<u64>,
    /// There are no more requests than this, those of conversations included.
    pub max_requests: Option<u64>,
}

#[derive(Debug)]
struct FollowUp {
    at_us: u64,
    number: u64,
    request: SimRequest,
}

impl Workload {
    pub(in crate::sim) fn new(seeds: Box<dyn Seeds>, limits: Limits) -> Self {
        Self {
            seeds,
            following: BinaryHeap::new(),
            sessions: FxHashMap::default(),
            left: limits.max_requests,
            limits,
            taken_seeds: 0,
            follow_ups: 0,
            tally: SessionTally::default(),
        }
    }

    /// How conversations and users ended so far.
    pub fn sessions(&self) -> SessionTally {
        self.tally
    }

    /// Where the run ends.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn next_seed(&self) -> Option<u64> {
        self.seeds.next_at().filter(|_| self.left != Some(0))
    }

    fn take_seed(&mut self) -> Option<SimRequest> {
        let seed = self.seeds.take()?;
        let mut request = seed.request;
        request.name = match seed.number {
            Some(number) => RequestName::Recorded(number),
            None => RequestName::Numbered(self.taken_seeds),
        };
        self.taken_seeds += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        if let Some(mut session) = seed.session {
            self.reserve(&mut session);
            self.tally.started += 1;
            self.sessions.insert(Arc::clone(session.id()), session);
        }
        Some(request)
    }

    fn take_following(&mut self) -> Option<SimRequest> {
        self.following.pop().map(|Reverse(next)| next.request)
    }

    /// Sets aside what a conversation that has an end will need, so that those that began can also end. Users, who have
    /// no end, ask each time.
    fn reserve(&mut self, session: &mut Session) {
        if let (Some(left), Some(rounds)) = (self.left, session.rounds_left()) {
            let reserved = rounds.min(left);
            session.reserved = Some(reserved);
            self.left = Some(left - reserved);
        }
    }

    fn follow(&mut self, session: &mut Session, at_us: u64, output_tokens: u32) -> Result<SimRequest, SessionEnd> {
        if session.rounds_left() == Some(0) {
            return Err(SessionEnd::Completed);
        }
        let budget = session.reserved.as_mut().or(self.left.as_mut());
        if budget.as_deref() == Some(&0) {
            return Err(SessionEnd::BudgetExhausted);
        }
        let horizon_us = self.limits.horizon_us.unwrap_or(u64::MAX);
        let request = session.follow(at_us, output_tokens, horizon_us, self.follow_ups)?;
        if let Some(budget) = session.reserved.as_mut().or(self.left.as_mut()) {
            *budget -= 1;
        }
        Ok(request)
    }

    fn count(&mut self, end: SessionEnd) {
        let count = match end {
            SessionEnd::Completed => &mut self.tally.completed,
            SessionEnd::Cancelled => &mut self.tally.cancelled,
            SessionEnd::HorizonInterrupted => &mut self.tally.horizon_interrupted,
            SessionEnd::BudgetExhausted => &mut self.tally.budget_exhausted,
        };
        *count += 1;
    }
}

impl Arrivals for Workload {
    fn next_arrival(&self) -> Option<u64> {
        let following = self.following.peek().map(|Reverse(next)| next.at_us);
        [self.next_seed(), following].into_iter().flatten().min()
    }

    fn take(&mut self) -> Option<SimRequest> {
        let following = self.following.peek().map(|Reverse(next)| next.at_us);
        match (self.next_seed(), following) {
            (Some(seed), Some(following)) if seed > following => self.take_following(),
            (None, Some(_)) => self.take_following(),
            (Some(_), _) => self.take_seed(),
            (None, None) => None,
        }
    }

    fn ended(&mut self, request: &SimRequest, at_us: u64, how: Ended) {
        let Some(place) = &request.session else { return };
        let Some(mut session) = self.sessions.remove(&place.session) else {
            return;
        };
        let next = match how {
            Ended::Completed { output_tokens } => self.follow(&mut session, at_us, output_tokens),
            Ended::TimedOut | Ended::Lost => Err(SessionEnd::Cancelled),
        };
        match next {
            Ok(request) => {
                let number = self.follow_ups;
                self.follow_ups += 1;
                let at_us = request.arrival_us;
                self.following.push(Reverse(FollowUp { at_us, number, request }));
                self.sessions.insert(Arc::clone(session.id()), session);
            }
            Err(end) => self.count(end),
        }
    }
}

// === impl FollowUp ===

impl PartialEq for FollowUp {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for FollowUp {}

impl PartialOrd for FollowUp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FollowUp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}
