//! How long a request would wait that comes now: what a client is told that is turned away.
//!
//! The forecast follows the order that is in force. First go the requests of higher bands, those that wait and those that
//! will come meanwhile at the rate at which they lately did. Then come the requests of the own flow, and of each other flow
//! as many as it has turns until then. In a band that is ordered by deadlines, requests that miss theirs meanwhile give way;
//! a request that will miss its own waits for all that is there now.

use std::time::Duration;

use super::super::request::Request;
use super::super::time::Timestamp;
use super::FlowControl;
use super::active::Place;
use super::ordering::LAST;
use super::pace::{MeanTime, Pace};

/// What is assumed of a start from zero endpoints before one was seen.
const UNKNOWN_START: Duration = Duration::from_secs(5);

/// The least part of the releases that may be left by higher bands. With less, a band counts as starved.
const LEAST_PART: f64 = 0.02;

/// Releases of a flow that must have been measured to go by its own pace.
const ENOUGH_RELEASES: f64 = 8.0;

/// What would become of a request that comes now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Requests that would be released before it, if no others came.
    pub ahead: u64,
    /// How long it would wait. `None` if nothing was measured yet.
    pub wait: Option<Duration>,
}

/// What of a band would be released before a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// Requests of its own flow.
    pub(super) own: u64,
    /// Requests of other flows that wait now.
    pub(super) others: u64,
    /// Requests of other flows, if those that wait now always have more.
    pub(super) others_at_most: u64,
}

impl FlowControl {
    /// What would become of `request` if it came now and there was room, while `in_flight` requests are being served.
    pub fn forecast(&self, now: Timestamp, request: &Request, in_flight: usize) -> Forecast {
        let at = self.band_for(request.priority);
        let above: u64 = self.bands[..at].iter().map(|band| band.load.requests).sum();
        let band = &self.bands[at];
        let fairness = &*self.plan.fairness[band.plan.fairness.0].plugin;
        let flow = &request.fairness_id;
        let place = self.place(at, request, now);
        let before = band.before(fairness, flow, place);
        let ahead = above + before.own + before.others;
        let start = self.start.remaining(now);
        let Some(rate) = self.rate(now, in_flight) else {
            return Forecast { ahead, wait: start };
        };
        let by_higher_bands = self.bands[..at].iter().map(|band| band.released.per_second(now));
        let left = rate - by_higher_bands.sum::<f64>();
        let pace = band.pace_of(flow).filter(|pace| pace.releases() >= ENOUGH_RELEASES);
        let own_pace = pace.and_then(|pace| self.per_second(now, pace));
        let wait_for = |before: Before| {
            if left < rate * LEAST_PART {
                return Duration::MAX;
            }
            let shortest = (above + before.own + before.others + 1) as f64 / left;
            let longest = (above + before.own + before.others_at_most + 1) as f64 / left;
            // Other flows are between having nothing more to come and always having more; the pace of the own flow, if
            // it was measured, tells where.
            let seconds = match own_pace {
                Some(pace) => (above as f64 / left + (before.own + 1) as f64 / pace).clamp(shortest, longest),
                None => shortest,
            };
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        let wait = match place.filter(|&place| band.is_in_time(place)) {
            None => wait_for(before),
            Some(place) => {
                let per_second = match fairness.tells_flows_apart() {
                    true => own_pace.unwrap_or(left / band.active.len().max(1) as f64),
                    false => left,
                };
                let begin = now + start.unwrap_or_default();
                let in_time = band.before_in_time(begin, fairness, flow, place, before, per_second);
                let wait = wait_for(in_time);
                match (begin + wait).as_nanos() <= place.key {
                    true => wait,
                    false => wait_for(band.before(fairness, flow, Some(Place { key: LAST, ..place }))),
                }
            }
        };
        Forecast {
            ahead,
            wait: Some(wait.saturating_add(start.unwrap_or_default())),
        }
    }

    /// The pace of all endpoints; of one, while there is none.
    fn per_second(&self, now: Timestamp, pace: &Pace) -> Option<f64> {
        let of_one = pace.per_endpoint(now, self.endpoints)?;
        Some(of_one * self.endpoints.max(1) as f64)
    }

    /// Releases in a second: as measured while requests waited, or else as what is in flight will end, by the time that
    /// requests took lately.
    fn rate(&self, now: Timestamp, in_flight: usize) -> Option<f64> {
        let measured = self.per_second(now, &self.pace);
        let by_service = || {
            let seconds = self.service.seconds().filter(|&seconds| seconds > 0.0)?;
            (in_flight > 0).then(|| in_flight as f64 / seconds)
        };
        measured.filter(|&rate| rate > 0.0).or_else(by_service)
    }
}

/// How long a pool takes to get its first endpoint when requests wait for one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    empty_since: Option<Timestamp>,
    took: MeanTime,
}

impl Start {
    /// The pool has lost its last endpoint.
    pub(super) fn begins(&mut self, now: Timestamp) {
        self.empty_since.get_or_insert(now);
    }

    /// The pool has an endpoint. If nobody waited for it, it tells nothing of how long that takes.
    pub(super) fn ends(&mut self, now: Timestamp, was_waited_for: bool) {
        if let Some(since) = self.empty_since.take()
            && was_waited_for
        {
            self.took.took(now - since);
        }
    }

    /// How long it will still take, if the pool is empty.
    fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let elapsed = now - self.empty_since?;
        Some(match self.took.seconds() {
            Some(usual) => Duration::from_secs_f64((usual - elapsed.as_secs_f64()).abs()),
            // Without any experience, what has lasted for some time is likely to last for as long again.
            None => elapsed.max(UNKNOWN_START),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_start_takes_as_long_as_the_last_ones_did() {
        let mut start = Start::default();
        assert_eq!(start.remaining(at(0)), None);
        start.begins(at(10));
        assert_eq!(start.remaining(at(11)), Some(UNKNOWN_START));
        assert_eq!(start.remaining(at(30)), Some(Duration::from_secs(20)));
        start.ends(at(40), true);
        start.begins(at(100));
        start.ends(at(101), false);

        start.begins(at(200));

        assert_eq!(start.remaining(at(210)), Some(Duration::from_secs(20)));
    }
}
