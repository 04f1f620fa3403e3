//! The end of a service: another replica leads, requests end, and nobody is left to wait.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::leading::Candidacy;
use super::readiness::{Announced, SETTLING};
use crate::serve::ext_proc::health::Readiness;
use crate::serve::ext_proc::stay::Stay;
use crate::serve::kube::lease::Candidate;
use crate::serve::shutdown::Stop;

/// The longest that a leader which is to end is ready without a successor.
const SUCCESSION: Duration = Duration::from_secs(3);

/// How long requests may take to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// At most, from the signal on.
    pub(super) timeout: Duration,
    /// Time without a stream that counts as the end of all, unless a person waits for it.
    pub(super) quiet: Duration,
}

impl Drain {
    /// Hands over to another replica, if this one leads among several, and waits until requests have ended or have had
    /// their time. `taken` counts them.
    pub(super) async fn run(
        self,
        stop: Stop,
        candidacy: Option<Candidacy>,
        announced: &Announced,
        streams: &TaskTracker,
        taken: impl Fn() -> u64,
    ) {
        let end = sleep(self.timeout);
        tracing::info!(?stop, streams = streams.len(), timeout = ?self.timeout, "draining; a second signal ends at once");
        let former = match candidacy {
            None => None,
            // Another replica leads while this one drains.
            Some(candidacy) => Some(candidacy.end().await),
        };
        let leader = former.filter(|_| announced.is_ready() && stop == Stop::Terminate);
        let quiet = match stop {
            Stop::Terminate => self.quiet,
            Stop::Interrupt => Duration::ZERO,
        };
        tokio::select! {
            biased;
            never = leave(leader, announced) => match never {},
            () = silence(streams, quiet, taken) => {}
            () = end => {}
        }
    }
}

/// Announces that requests should go elsewhere. One who was the leader until now does so when another one is, as far as
/// that comes soon, and then tells connections to go there, too.
async fn leave(leader: Option<Candidate>, announced: &Announced) -> Infallible {
    let Some(leader) = leader else {
        announced.readiness.send_replace(Readiness::NotReady);
        return pending().await;
    };
    let is_settled = async {
        leader.succeeded().await;
        sleep(SETTLING).await;
    };
    tokio::pin!(is_settled);
    let in_time = timeout(SUCCESSION + SETTLING, &mut is_settled).await;
    announced.readiness.send_replace(Readiness::NotReady);
    if in_time.is_err() {
        // Until somebody leads, gateways are better off here than nowhere.
        is_settled.await;
    }
    tracing::info!("connections are told to go to the replica that leads");
    announced.stay.send_replace(Stay::Brief);
    pending().await
}

/// Waits until no stream is open, and `quiet` has passed without a further request. `taken` counts them.
async fn silence(streams: &TaskTracker, quiet: Duration, taken: impl Fn() -> u64) {
    streams.close();
    loop {
        streams.wait().await;
        let before = taken();
        sleep(quiet).await;
        if streams.is_empty() && taken() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    const QUIET: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn without_requests_the_end_comes_after_the_quiet_time() {
        let start = Instant::now();

        silence(&TaskTracker::new(), QUIET, || 0).await;

        assert_eq!(start.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_stream_holds_the_end_back() {
        let (start, streams) = (Instant::now(), TaskTracker::new());
        let stream = streams.token();
        let request = async {
            sleep(Duration::from_secs(60)).await;
            drop(stream);
        };

        tokio::join!(silence(&streams, QUIET, || 1), request);

        assert_eq!(start.elapsed(), Duration::from_secs(60) + QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_came_and_went_starts_the_quiet_time_anew() {
        let (start, streams, taken) = (Instant::now(), TaskTracker::new(), Cell::new(0));
        let requests = async {
            for _ in 0..3 {
                sleep(QUIET - Duration::from_secs(1)).await;
                taken.set(taken.get() + 1);
            }
        };

        tokio::join!(silence(&streams, QUIET, || taken.get()), requests);

        // The last of them comes after 12 s, in the third quiet time.
        assert_eq!(start.elapsed(), 4 * QUIET);
    }
}
