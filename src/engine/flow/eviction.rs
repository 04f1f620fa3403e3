//! Cuts requests off that are in flight, when more urgent ones wait (spec, flow control 14).
//!
//! Only requests with a priority below zero can be cut off: the lowest priority first, and within it the newest, which
//! has the least to lose. At most two go at a time, and nobody else until what they held shows in the saturation: until
//! their streams have ended, and as long after that as the saturation detector takes to settle.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::request::RequestId;
use super::super::time::Timestamp;

/// The most requests that are cut off at once.
const MOST_AT_ONCE: usize = 2;

/// A stream that has not ended after this time is not waited for any longer.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);

/// What was cut off so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionCounts {
    /// Requests that were cut off, by the priority of those for which they were.
    pub issued: BTreeMap<i32, u64>,
    /// Requests whose stream ended after that.
    pub confirmed: u64,
    /// Requests whose stream was given up waiting for.
    pub timed_out: u64,
    /// How far the saturation was above the ceiling when the last ones were cut off.
    pub target: f64,
}

#[derive(Debug, Default)]
pub(super) struct Evictor {
    /// Those that can be cut off, the least valuable first.
    evictable: BTreeSet<Value>,
    values: FxHashMap<RequestId, Value>,
    /// Those that were cut off and whose streams have not ended, and when.
    issued: BTreeMap<RequestId, Issued>,
    /// When what ended streams held will show, and what it is, in units of saturation.
    cooling: BTreeMap<(Timestamp, RequestId), f64>,
    counts: EvictionCounts,
}

/// What a request in flight is worth. Smaller is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    priority: i32,
    newest_first: Reverse<(Timestamp, RequestId)>,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    at: Timestamp,
    credit: f64,
}

/// A band, as far as eviction is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub(super) priority: i32,
    pub(super) ceiling: f64,
    pub(super) has_requests: bool,
}

impl Evictor {
    pub(super) fn counts(&self) -> &EvictionCounts {
        &self.counts
    }

    /// What was cut off and does not show yet, in units of saturation.
    pub(super) fn pending(&self) -> f64 {
        let issued = self.issued.values().map(|issued| issued.credit);
        issued.chain(self.cooling.values().copied()).sum()
    }

    /// A request was sent to an endpoint.
    pub(super) fn sent(&mut self, now: Timestamp, id: RequestId, priority: i32) {
        if priority < 0 {
            let value = Value {
                priority,
                newest_first: Reverse((now, id)),
            };
            self.evictable.insert(value);
            self.values.insert(id, value);
        }
    }

    /// A request has ended, and the saturation shows it after `settles_in`. Tells how long after it was cut off, if it was.
    pub(super) fn ended(&mut self, now: Timestamp, id: RequestId, settles_in: Duration) -> Option<Duration> {
        if let Some(value) = self.values.remove(&id) {
            self.evictable.remove(&value);
        }
        let issued = self.issued.remove(&id)?;
        self.cooling.insert((now + settles_in, id), issued.credit);
        self.counts.confirmed += 1;
        Some(now.since(issued.at))
    }

    /// When something changes by time alone.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let timeout = self
            .issued
            .values()
            .map(|issued| issued.at + CONFIRMATION_TIMEOUT)
            .min();
        let cooled = self.cooling.first_key_value().map(|((until, _), _)| *until);
        timeout.into_iter().chain(cooled).min()
    }

    /// Lets time pass. True if another look at who waits is due.
    pub(super) fn pass(&mut self, now: Timestamp) -> bool {
        let is_over = |issued: &Issued| issued.at + CONFIRMATION_TIMEOUT <= now;
        let given_up: SmallVec<[RequestId; MOST_AT_ONCE]> = self
            .issued
            .iter()
            .filter(|(_, issued)| is_over(issued))
            .map(|(id, _)| *id)
            .collect();
        for id in &given_up {
            self.issued.remove(id);
            self.counts.timed_out += 1;
        }
        let before = self.cooling.len();
        while let Some(first) = self.cooling.first_entry() {
            if first.key().0 > now {
                break;
            }
            first.remove();
        }
        !given_up.is_empty() || self.cooling.len() < before
    }

    /// Who is to be cut off, and for which priority: `in_flight` requests make up the saturation, and `bands` are the one
    /// that is held up and those below it.
    pub(super) fn reclaim(
        &mut self,
        now: Timestamp,
        saturation: f64,
        in_flight: impl FnOnce() -> u64,
        bands: impl Iterator<Item = Demand>,
    ) -> SmallVec<[RequestId; MOST_AT_ONCE]> {
        let mut victims = SmallVec::new();
        if !self.issued.is_empty() || !self.cooling.is_empty() {
            return victims;
        }
        let Some(demand) = self.demand(saturation, bands) else {
            return victims;
        };
        let credit = saturation / in_flight() as f64;
        if !(credit.is_finite() && credit > 0.0) {
            return victims;
        }
        let missing = saturation - demand.ceiling;
        let wanted = (missing / credit).ceil().max(1.0) as usize;
        for _ in 0..wanted.min(MOST_AT_ONCE) {
            let least = self.evictable.first().copied();
            let Some(value) = least.filter(|value| value.priority < demand.priority) else {
                break;
            };
            self.evictable.remove(&value);
            let Reverse((_, id)) = value.newest_first;
            self.values.remove(&id);
            self.issued.insert(id, Issued { at: now, credit });
            *self.counts.issued.entry(demand.priority).or_default() += 1;
            victims.push(id);
        }
        self.counts.target = missing;
        victims
    }

    /// The band for which somebody is to be cut off.
    fn demand(&self, saturation: f64, bands: impl Iterator<Item = Demand>) -> Option<Demand> {
        let victim = self.evictable.first()?;
        let more_urgent = bands.take_while(|band| band.priority > victim.priority);
        more_urgent
            .filter(|band| band.ceiling > 0.0 && saturation >= band.ceiling)
            .find(|band| band.has_requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLES_IN: Duration = Duration::from_millis(10);

    const IN_FLIGHT: u64 = 4;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    /// An evictor with requests 1, 2, ... of these priorities, sent at 1, 2, ... ms.
    fn evictor(priorities: &[i32]) -> Evictor {
        let mut evictor = Evictor::default();
        for (n, &priority) in (1..).zip(priorities) {
            evictor.sent(at(n), RequestId(n), priority);
        }
        evictor
    }

    fn waiting(priority: i32) -> Demand {
        Demand {
            priority,
            ceiling: 1.0,
            has_requests: true,
        }
    }

    fn reclaim(evictor: &mut Evictor, saturation: f64, bands: &[Demand]) -> Vec<u64> {
        let victims = evictor.reclaim(at(100), saturation, || IN_FLIGHT, bands.iter().copied());
        victims.into_iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_lowest_priority_goes_first_and_within_it_the_newest() {
        let mut evictor = evictor(&[-1, -5, -5, 0]);

        // Four requests make 2.0, so one makes 0.5: two of them are missing.
        assert_eq!(reclaim(&mut evictor, 2.0, &[waiting(10)]), [3, 2]);
        assert_eq!(evictor.counts().issued, [(10, 2)].into());
    }

    #[test]
    fn a_full_pool_gives_one_place_to_one_who_waits() {
        let mut evictor = evictor(&[-1, -1]);

        assert_eq!(reclaim(&mut evictor, 1.0, &[waiting(0)]), [2]);
    }

    #[test]
    fn requests_of_priority_zero_and_above_are_never_cut_off() {
        let mut evictor = evictor(&[0, 5]);

        assert!(reclaim(&mut evictor, 1.0, &[waiting(10)]).is_empty());
    }

    #[test]
    fn nobody_is_cut_off_for_his_like_or_for_bands_where_nobody_waits() {
        let mut evictor = evictor(&[-5]);
        let idle = Demand {
            has_requests: false,
            ..waiting(10)
        };
        let never = Demand {
            ceiling: 0.0,
            ..waiting(9)
        };

        assert!(reclaim(&mut evictor, 1.0, &[idle, never, waiting(-5), waiting(-6)]).is_empty());
        assert_eq!(reclaim(&mut evictor, 1.0, &[idle, never, waiting(-4)]), [1]);
    }

    #[test]
    fn nobody_else_goes_until_the_stream_has_ended_and_the_saturation_has_settled() {
        let mut evictor = evictor(&[-1, -1]);
        assert_eq!(reclaim(&mut evictor, 1.0, &[waiting(0)]), [2]);
        assert!(reclaim(&mut evictor, 1.0, &[waiting(0)]).is_empty());

        assert_eq!(
            evictor.ended(at(150), RequestId(2), SETTLES_IN),
            Some(Duration::from_millis(50))
        );
        assert!(reclaim(&mut evictor, 1.0, &[waiting(0)]).is_empty());
        assert_eq!(evictor.deadline(), Some(at(160)));
        assert!(!evictor.pass(at(159)));
        assert!(evictor.pass(at(160)));

        assert_eq!(reclaim(&mut evictor, 1.0, &[waiting(0)]), [1]);
        assert_eq!(evictor.counts().confirmed, 1);
    }

    #[test]
    fn a_stream_that_does_not_end_is_given_up() {
        let mut evictor = evictor(&[-1, -1]);
        assert_eq!(reclaim(&mut evictor, 1.0, &[waiting(0)]), [2]);
        assert_eq!(evictor.deadline(), Some(at(10_100)));

        assert!(evictor.pass(at(10_100)));

        assert_eq!(evictor.counts().timed_out, 1);
        assert_eq!(evictor.pending(), 0.0);
        assert_eq!(reclaim(&mut evictor, 1.0, &[waiting(0)]), [1]);
    }
}
