//! When a client that was turned away may come again.

use std::time::Duration;

use rand::RngExt;

use super::super::seed::Chance;

/// The shortest time that a client is told to stay away.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);
/// What is assumed when nothing was measured.
const UNKNOWN: Duration = Duration::from_secs(5);
/// Clients are told up to this share less or more, so that they do not come back together.
const JITTER: f64 = 0.1;

/// Whole seconds after which a client may come again, for an estimate of when it would have been served: within bounds, and
/// with jitter, so that not all come back at once.
pub fn retry_after(estimate: Option<Duration>, chance: &mut Chance) -> Duration {
    let base = estimate.unwrap_or(UNKNOWN).clamp(SHORTEST, LONGEST);
    let jittered = base.mul_f64(1.0 + JITTER * (2.0 * chance.random::<f64>() - 1.0));
    let seconds = jittered.clamp(SHORTEST, LONGEST).as_secs_f64().round();
    Duration::from_secs(seconds as u64)
}

#[cfg(test)]
mod tests {
    use super::super::super::seed::Seed;
    use super::*;

    #[test]
    fn a_client_is_told_whole_seconds_within_bounds() {
        let mut chance = Seed(1).stream("retry");
        let mut seconds = |estimate: Option<u64>| {
            let estimate = estimate.map(Duration::from_millis);
            retry_after(estimate, &mut chance).as_secs()
        };

        assert!((9..=11).contains(&seconds(Some(10_000))));
        assert!((54..=60).contains(&seconds(Some(1_000_000_000))));
        assert_eq!(seconds(Some(1)), 1);
        assert!((5..=6).contains(&seconds(None)));
    }
}
