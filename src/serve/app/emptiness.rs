//! Warns while the pool has no endpoints.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// Time after the start in which endpoints may well come.
const GRACE: Duration = Duration::from_secs(10);

/// Time between two warnings.
const REMINDER: Duration = Duration::from_secs(60);

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Looks at the number of endpoints again and again, and warns while there are none.
pub(super) async fn watch(pool: String, endpoints: impl Fn() -> usize) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = ticks.tick().await;
    let mut emptiness = Emptiness::default();
    loop {
        match emptiness.look(start.elapsed(), endpoints()) {
            Some(Notice::Empty { since }) => tracing::warn!(
                pool,
                seconds = since.as_secs(),
                "the pool has no endpoints: requests are refused, or wait if flow control is on"
            ),
            Some(Notice::Filled { endpoints, after }) => {
                tracing::info!(
                    pool,
                    endpoints,
                    seconds = after.as_secs(),
                    "the pool has endpoints again"
                );
            }
            None => {}
        }
        ticks.tick().await;
    }
}

/// What is known of the pool.
#[derive(Debug, Default)]
struct Emptiness {
    has_had_endpoints: bool,
    /// When the pool became empty, if it is.
    since: Option<Duration>,
    /// When that was said last.
    warned: Option<Duration>,
}

/// What is worth saying.
#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// There are no endpoints, and have been none for so long.
    Empty { since: Duration },
    /// There are endpoints, after there were none for so long.
    Filled { endpoints: usize, after: Duration },
}

impl Emptiness {
    /// At `now`, which counts from the start, the pool has so many endpoints.
    fn look(&mut self, now: Duration, endpoints: usize) -> Option<Notice> {
        if endpoints > 0 {
            self.has_had_endpoints = true;
            let since = self.since.take()?;
            self.warned.take()?;
            let after = now.saturating_sub(since);
            return Some(Notice::Filled { endpoints, after });
        }
        let since = *self.since.get_or_insert(now);
        let is_due = match self.warned {
            Some(warned) => now >= warned + REMINDER,
            None => self.has_had_endpoints || now >= GRACE,
        };
        is_due.then(|| {
            self.warned = Some(now);
            let since = now.saturating_sub(since);
            Notice::Empty { since }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said, second by second, of a pool with so many endpoints.
    fn said(endpoints: impl IntoIterator<Item = usize>) -> Vec<(u64, Notice)> {
        let mut emptiness = Emptiness::default();
        let looks = (0..).zip(endpoints);
        looks
            .filter_map(|(second, endpoints)| {
                let notice = emptiness.look(Duration::from_secs(second), endpoints)?;
                Some((second, notice))
            })
            .collect()
    }

    fn empty(seconds: u64) -> Notice {
        let since = Duration::from_secs(seconds);
        Notice::Empty { since }
    }

    #[test]
    fn at_the_start_endpoints_have_some_time_to_come() {
        assert_eq!(said([0; 10]), []);
        assert_eq!(said([0; 9].into_iter().chain([3; 100])), []);
        assert_eq!(said([0; 12]), [(10, empty(10))]);
    }

    #[test]
    fn a_pool_that_loses_its_last_endpoint_is_warned_of_at_once_and_until_there_is_one() {
        let looks = [2; 20].into_iter().chain([0; 121]).chain([1; 5]).chain([0; 2]);

        assert_eq!(
            said(looks),
            [
                (20, empty(0)),
                (80, empty(60)),
                (140, empty(120)),
                (
                    141,
                    Notice::Filled {
                        endpoints: 1,
                        after: Duration::from_secs(121)
                    }
                ),
                (146, empty(0)),
            ]
        );
    }
}
