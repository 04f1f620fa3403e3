//! All requests of a run, as they come up.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::super::request::{Arrivals, Ended, RequestName, SimRequest};
use super::later::LaterRequests;
use super::opening::{Opening, Openings};
use super::session::{Session, SessionEnd, SessionTally};

/// All requests of a run in the order in which they arrive: those that are known beforehand, which are made one by one
/// as they are taken, and those that follow upon the end of others.
///
/// At the same time, what was known beforehand comes first.
#[derive(Debug)]
pub struct Workload {
    openings: Box<dyn Openings>,
    following: LaterRequests,
    sessions: FxHashMap<Arc<str>, Session>,
    limits: Limits,
    /// Requests that may still be made; none if there is no limit.
    left: Option<u64>,
    taken_openings: u64,
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

impl Workload {
    pub(in crate::sim) fn new(openings: Box<dyn Openings>, limits: Limits) -> Self {
        Self {
            openings,
            following: LaterRequests::default(),
            sessions: FxHashMap::default(),
            left: limits.max_requests,
            limits,
            taken_openings: 0,
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

    fn next_opening(&self) -> Option<u64> {
        self.openings.next_at().filter(|_| self.left != Some(0))
    }

    fn take_opening(&mut self) -> Option<SimRequest> {
        let Opening {
            mut request,
            number,
            session,
        } = self.openings.take()?;
        request.name = match number {
            Some(number) => RequestName::Recorded(number),
            None => RequestName::Numbered(self.taken_openings),
        };
        self.taken_openings += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        if let Some(mut session) = session {
            self.reserve(&mut session);
            self.tally.started += 1;
            self.sessions.insert(Arc::clone(session.id()), session);
        }
        Some(request)
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
        let request = session.follow(at_us, output_tokens, horizon_us, self.following.total())?;
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
        [self.next_opening(), self.following.next_at()]
            .into_iter()
            .flatten()
            .min()
    }

    fn take(&mut self) -> Option<SimRequest> {
        match (self.next_opening(), self.following.next_at()) {
            (Some(opening), Some(following)) if opening > following => self.following.take(),
            (None, Some(_)) => self.following.take(),
            (Some(_), _) => self.take_opening(),
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
                self.following.put(request);
                self.sessions.insert(Arc::clone(session.id()), session);
            }
            Err(end) => self.count(end),
        }
    }
}
