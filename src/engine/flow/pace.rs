//! How fast requests leave, measured so that quiet times don't count.

use std::time::Duration;

use super::super::time::Timestamp;

/// What was measured is forgotten by a factor of e in this time, or in that of so many releases if they take longer: a
/// pool that releases one request in ten seconds is not measured in ten seconds.
const MEMORY: Duration = Duration::from_secs(10);
const MEMORY_RELEASES: f64 = 64.0;
const LONGEST_MEMORY: f64 = 300.0;

/// Releases per second and endpoint, over the time in which something waited that could not go.
///
/// Two kinds of time tell nothing of how fast a pool can serve, and are left out: the time in which nothing waits, and
/// releases into room that was free anyway. Time is counted in endpoint-seconds, so that what was measured with two
/// endpoints still tells something when there are four, and so that a pool without endpoints doesn't look slow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    releases: f64,
    endpoint_seconds: f64,
    /// Since when nothing was measured, while something waits and may not go.
    blocked_since: Option<Timestamp>,
}

impl Pace {
    /// Something waits and may not go.
    pub(super) fn blocked(&mut self, now: Timestamp) {
        self.blocked_since.get_or_insert(now);
    }

    /// True if something waited at the last look and could not go.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    /// One was released. Others may still wait.
    pub(super) fn released(&mut self, now: Timestamp, endpoints: usize) {
        if self.is_blocked() {
            self.measure(now, endpoints);
            self.releases += 1.0;
        }
    }

    /// Nothing waits any more.
    pub(super) fn idle(&mut self, now: Timestamp, endpoints: usize) {
        self.measure(now, endpoints);
        self.blocked_since = None;
    }

    /// What was measured counts; from now on is measured anew.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.blocked_since = Some(now);
    }

    /// How many releases there were, as far as they are remembered.
    pub(super) fn releases(&self) -> f64 {
        self.releases
    }

    /// The number of endpoints changes; so far it was this one.
    pub(super) fn resized(&mut self, now: Timestamp, endpoints: usize) {
        self.measure(now, endpoints);
    }

    /// Releases in a second by one of the endpoints, of which there are so many now. `None` if nothing was measured.
    pub(super) fn per_endpoint(&self, now: Timestamp, endpoints: usize) -> Option<f64> {
        let mut so_far = *self;
        so_far.measure(now, endpoints);
        let is_known = so_far.releases > 0.0 && so_far.endpoint_seconds > 0.0;
        is_known.then(|| so_far.releases / so_far.endpoint_seconds)
    }

    /// Counts the time until now, if something was blocked.
    fn measure(&mut self, now: Timestamp, endpoints: usize) {
        let Some(since) = &mut self.blocked_since else { return };
        let passed = now.since(*since).as_secs_f64();
        *since = now;
        if passed == 0.0 || endpoints == 0 {
            return;
        }
        let many = MEMORY_RELEASES * self.endpoint_seconds / self.releases.max(1.0) / endpoints as f64;
        let memory = many.clamp(MEMORY.as_secs_f64(), LONGEST_MEMORY);
        let kept = (-passed / memory).exp();
        self.releases *= kept;
        self.endpoint_seconds = self.endpoint_seconds * kept + endpoints as f64 * memory * (1.0 - kept);
    }
}

/// How many releases there were in a second, lately, waited for or not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recent {
    count: f64,
    at: Timestamp,
}

impl Recent {
    /// Long enough that a burst that is over is not taken for what will go on.
    const MEMORY: f64 = 30.0;

    pub(super) fn count(&mut self, now: Timestamp) {
        self.count = self.decayed(now) + 1.0;
        self.at = now;
    }

    /// The rate. Counting began with the driver's epoch.
    pub(super) fn per_second(&self, now: Timestamp) -> f64 {
        // Less than this is too short to tell a rate from a coincidence.
        let counted = now.since(Timestamp::ZERO).max(MEMORY).as_secs_f64();
        self.decayed(now) / (Self::MEMORY * (1.0 - (-counted / Self::MEMORY).exp()))
    }

    fn decayed(&self, now: Timestamp) -> f64 {
        self.count * (-now.since(self.at).as_secs_f64() / Self::MEMORY).exp()
    }
}

/// The mean of the last times that something took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanTime {
    seconds: f64,
    count: u32,
}

impl MeanTime {
    /// About as many count as this.
    const LAST: u32 = 64;

    pub(super) fn took(&mut self, time: Duration) {
        self.count = (self.count + 1).min(Self::LAST);
        self.seconds += (time.as_secs_f64() - self.seconds) / f64::from(self.count);
    }

    /// `None` if nothing was measured.
    pub(super) fn seconds(&self) -> Option<f64> {
        (self.count > 0).then_some(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(seconds)
    }

    /// A pace after `releases` with so many seconds between two, and the time then.
    fn pace(releases: u32, between: f64) -> (Pace, f64) {
        let mut pace = Pace::default();
        pace.blocked(at(0.0));
        (1..=releases).for_each(|n| pace.released(at(f64::from(n) * between), 1));
        (pace, f64::from(releases) * between)
    }

    #[test]
    fn quiet_times_do_not_dilute_the_pace() {
        let (mut pace, end) = pace(200, 0.1);
        pace.idle(at(end), 1);

        let an_hour_later = pace.per_endpoint(at(end + 3600.0), 1).unwrap();

        assert!((9.5..10.5).contains(&an_hour_later), "{an_hour_later}");
    }

    #[test]
    fn releases_into_free_room_tell_nothing() {
        let mut pace = Pace::default();

        (0..15).for_each(|_| pace.released(at(0.0), 1));

        assert_eq!(pace.per_endpoint(at(1.0), 1), None);
    }

    #[test]
    fn a_pool_that_got_stuck_is_seen_to_be_slow() {
        let (pace, end) = pace(200, 0.1);

        let then = pace.per_endpoint(at(end), 1).unwrap();
        let stuck = pace.per_endpoint(at(end + 30.0), 1).unwrap();

        assert!(stuck < then / 10.0, "{stuck}");
    }

    #[test]
    fn the_pace_of_a_slow_pool_is_measured_over_many_releases() {
        let (pace, end) = pace(60, 10.0);

        let slow = pace.per_endpoint(at(end), 1).unwrap();

        assert!((0.09..0.11).contains(&slow), "{slow}");
        assert!(pace.releases() > 20.0, "{}", pace.releases());
    }

    #[test]
    fn the_pace_is_that_of_one_endpoint_however_many_there_are() {
        let mut pace = Pace::default();
        pace.blocked(at(0.0));
        (1..=100).for_each(|n| pace.released(at(f64::from(n) * 0.05), 2));
        pace.resized(at(5.0), 2);
        (1..=100).for_each(|n| pace.released(at(5.0 + f64::from(n) * 0.025), 4));

        let of_one = pace.per_endpoint(at(7.5), 4).unwrap();

        assert!((9.5..10.5).contains(&of_one), "{of_one}");
    }

    #[test]
    fn time_without_endpoints_does_not_count() {
        let (mut pace, end) = pace(200, 0.1);
        pace.idle(at(end), 1);
        pace.blocked(at(end));
        let while_empty = pace.per_endpoint(at(end + 60.0), 0);
        pace.resized(at(end + 60.0), 0);

        let of_one = pace.per_endpoint(at(end + 60.0), 1).unwrap();

        assert_eq!(while_empty, Some(of_one));

        assert!((9.5..10.5).contains(&of_one), "{of_one}");
    }

    #[test]
    fn what_happened_lately_is_forgotten() {
        let mut recent = Recent::default();
        (0..600).for_each(|n| recent.count(at(f64::from(n) * 0.1)));

        let now = recent.per_second(at(60.0));
        let later = recent.per_second(at(180.0));

        assert!((9.0..11.0).contains(&now), "{now}");
        assert!(later < 0.3, "{later}");
    }

    #[test]
    fn a_mean_time_follows_the_latest() {
        let mut mean = MeanTime::default();
        assert_eq!(mean.seconds(), None);
        (0..500).for_each(|_| mean.took(Duration::from_secs(1)));
        (0..500).for_each(|_| mean.took(Duration::from_secs(3)));

        assert!(
            mean.seconds().is_some_and(|mean| (2.9..=3.0).contains(&mean)),
            "{mean:?}"
        );
    }
}
