//! When a client that was turned away may come again.

use std::time::Duration;

use rand::RngExt;

use super::super::seed::Chance;
use super::super::time::Timestamp;

/// Releases are forgotten by a factor of e in this time.
const MEMORY: Duration = Duration::from_secs(10);

/// The shortest time that a client is told to stay away.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);
/// What is assumed when nothing was measured.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Clients are spread by up to this share, so that they do not come back together.
const JITTER: f64 = 0.25;

/// Less than this is not taken for the whole time of measurement, so that two releases at once are no rate.
const SHORTEST_MEASURE: Duration = Duration::from_secs(1);

/// How many requests were released in a second, lately: a count that decays exponentially, over the time that it
/// covers, `τ(1 - e^(-t/τ))` after `t` since the first release.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReleaseRate {
    count: f64,
    at: Timestamp,
    since: Option<Timestamp>,
}

impl ReleaseRate {
    pub(super) fn count(&mut self, now: Timestamp) {
        self.count = self.decayed(now) + 1.0;
        self.at = now;
        self.since.get_or_insert(now);
    }

    pub(super) fn per_second(&self, now: Timestamp) -> f64 {
        let Some(since) = self.since else { return 0.0 };
        let measured = now.since(since).max(SHORTEST_MEASURE).as_secs_f64();
        let memory = MEMORY.as_secs_f64();
        self.decayed(now) / (memory * (1.0 - (-measured / memory).exp()))
    }

    fn decayed(&self, now: Timestamp) -> f64 {
        self.count * (-now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }
}

/// Whole seconds after which a client may come again, for an estimate of when there will be room for it: within bounds,
/// and jittered upwards, so that not all come back at once.
pub fn retry_after(estimate: Option<Duration>, chance: &mut Chance) -> Duration {
    let base = estimate.unwrap_or(UNKNOWN).clamp(SHORTEST, LONGEST);
    let jittered = base.mul_f64(1.0 + JITTER * chance.random::<f64>());
    Duration::from_secs(jittered.min(LONGEST).as_secs_f64().ceil() as u64)
}

impl super::Full {
    /// When there will probably be room: what is ahead, at the rate at which requests were released lately.
    pub fn estimate(&self) -> Option<Duration> {
        let seconds = (self.ahead + 1) as f64 / self.rate;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::seed::Seed;
    use super::super::Full;
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = ReleaseRate::default();
        let at = |tenths: u64| Timestamp::from_nanos(tenths * 100_000_000);
        (0..1000).for_each(|tenths| rate.count(at(tenths)));

        assert!((9.5..10.6).contains(&rate.per_second(at(1000))), "{rate:?}");
        let mut young = ReleaseRate::default();
        (0..20).for_each(|tenths| young.count(at(tenths)));
        assert!((9.0..11.5).contains(&young.per_second(at(20))), "{young:?}");
        assert!(rate.per_second(at(2000)) < 0.01);
    }

    #[test]
    fn a_client_is_told_a_time_that_fits_the_queue_and_stays_within_bounds() {
        let mut chance = Seed(1).stream("retry");
        let mut seconds = |ahead, rate| {
            let estimate = Full { ahead, rate }.estimate();
            retry_after(estimate, &mut chance).as_secs()
        };

        assert!((10..=13).contains(&seconds(99, 10.0)));
        assert_eq!(seconds(1_000_000, 1.0), 60);
        assert!((1..=2).contains(&seconds(0, 1000.0)));
        assert!((5..=7).contains(&seconds(5, 0.0)));
    }
}
