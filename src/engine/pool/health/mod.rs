//! Whether an endpoint can serve, by what scraping and the requests sent to it tell.
//!
//! Two sources, which do not replace each other:
//!
//! - **Scraping** tells in milliseconds that nobody listens, and in a second that nobody answers. It says nothing of an
//!   endpoint whose metrics can be read while its requests fail.
//! - **Requests** tell that (`outlier`): a number of consecutive failures ejects an endpoint for a while, and one request
//!   that is answered brings it back. A scrape that succeeds does not.
//!
//! From both follows the [`EndpointState`], which people are shown, and the [`Tier`], which decides go by: an endpoint is a
//! candidate only if no other candidate is in a better tier. It is a preference and not a ban, so a pool in which nothing
//! can be scraped works as if nothing were wrong.

mod outlier;
mod overview;
mod reason;

use std::time::Duration;

pub use outlier::OutlierDetection;
pub use overview::HealthChange;
pub(super) use overview::Overview;
pub use reason::{Reason, RequestFailure, Scrape, ScrapeFailure};

use super::super::time::Timestamp;
use outlier::Outlier;

/// Metrics that are older than this are stale, if the last two scrapes failed too: one slow or failed scrape says little.
/// The default of `--metrics-staleness-threshold`.
pub const STALE_AFTER: Duration = Duration::from_secs(2);

/// Scrapes that have to fail before anything follows from it. A refused connection needs only one, and so does a timeout.
const FAILURES_IN_A_ROW: u32 = 2;

/// What is known of an endpoint, as people are shown it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointState {
    /// Nothing speaks against it.
    Healthy,
    /// Its metrics were never read.
    #[default]
    Unscraped,
    /// Its metrics are old, and cannot be read.
    Stale,
    /// Requests to it failed. It gets none until its time is over, and then one at a time until one is answered.
    Ejected,
    /// It cannot be reached.
    Unreachable,
}

impl EndpointState {
    /// Every state, the best first.
    pub const ALL: [Self; 5] = [
        Self::Healthy,
        Self::Unscraped,
        Self::Stale,
        Self::Ejected,
        Self::Unreachable,
    ];

    /// A stable name for metrics, logs and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unscraped => "unscraped",
            Self::Stale => "stale",
            Self::Ejected => "ejected",
            Self::Unreachable => "unreachable",
        }
    }
}

/// How much an endpoint is preferred: one is chosen only if no candidate is in a better tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Healthy, or ejected and due to be tried again.
    Usable,
    /// Nothing fresh is known of it.
    #[default]
    Unknown,
    /// Requests to it fail.
    Failing,
    /// Nobody is there.
    Unreachable,
}

impl Tier {
    /// Every tier, the best first.
    pub const ALL: [Self; 4] = [Self::Usable, Self::Unknown, Self::Failing, Self::Unreachable];
}

/// What follows from the health of an endpoint, for decisions. Kept up to date at each change, so that it costs a
/// decision nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) tier: Tier,
    /// It is ejected, and not due to be tried.
    pub(super) is_ejected: bool,
    /// It cannot be reached, and so has no room, even if all others are the same. Where nobody answers, a network policy may
    /// have begun to keep scraping out while the gateway goes in and out: so one request at a time may try after a while,
    /// lest a pool stands still for ever.
    pub(super) is_gone: bool,
}

impl Standing {
    /// No request should go there. It counts as full, so that the others do not get its part on top of their own.
    pub(super) fn is_out(self) -> bool {
        self.is_ejected || self.is_gone
    }
}

/// What scraping says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reach {
    #[default]
    Fine,
    /// Nothing fresh can be learnt.
    Stale(ScrapeFailure),
    /// Nobody listens there.
    Refused,
    /// It took connections before, and is silent now.
    Silent {
        failure: ScrapeFailure,
        /// When a request may find out whether it is only scraping that does not get through.
        try_at: Timestamp,
        /// A request is finding out, sent at this time.
        tried: Option<Timestamp>,
    },
}

impl Reach {
    fn failure(self) -> Option<ScrapeFailure> {
        match self {
            Self::Fine => None,
            Self::Refused => Some(ScrapeFailure::Refused),
            Self::Stale(failure) | Self::Silent { failure, .. } => Some(failure),
        }
    }

    fn is_unreachable(self) -> bool {
        matches!(self, Self::Refused | Self::Silent { .. })
    }

    /// True if it may be tried with a request though it cannot be reached.
    fn is_due(self, now: Timestamp) -> bool {
        matches!(self, Self::Silent { try_at, tried: None, .. } if try_at <= now)
    }
}

/// The health of one endpoint.
#[derive(Debug, Default)]
pub struct Health {
    reach: Reach,
    /// Its metrics were read since it joined, or since it has this address.
    is_scraped: bool,
    /// Scrapes that failed since the last one that succeeded.
    scrape_failures: u32,
    /// It answered a request while it could not be scraped. So a scrape that times out does not prove that it hangs: its
    /// `/metrics` may be slow, or a network policy may keep us from it.
    serves_unscraped: bool,
    answered: Option<Timestamp>,
    outlier: Outlier,
    state: EndpointState,
    since: Timestamp,
    standing: Standing,
}

impl Health {
    /// The health of an endpoint of which nothing is known.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// What is known of it.
    pub fn state(&self) -> EndpointState {
        self.state
    }

    /// Since when.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// How much it is preferred.
    pub fn tier(&self) -> Tier {
        self.standing.tier
    }

    /// Why it is not healthy. `None` if it is, or if nothing was tried yet.
    pub fn reason(&self) -> Option<Reason> {
        match (self.reach, self.outlier.ejection()) {
            (reach, Some(ejection)) if !reach.is_unreachable() => Some(Reason::Request(ejection.reason)),
            (reach, _) => reach.failure().map(Reason::Scrape),
        }
    }

    /// Requests that failed since the last one that was answered.
    pub fn consecutive_failures(&self) -> u32 {
        self.outlier.failures()
    }

    /// When an ejected endpoint may get a request again, to try it.
    pub fn ejected_until(&self) -> Option<Timestamp> {
        self.outlier.ejection().map(|ejection| ejection.until)
    }

    /// True if no request should go there, unless there is no other choice.
    pub fn is_out(&self) -> bool {
        self.standing.is_out()
    }

    /// True if no request can be served there.
    pub fn is_gone(&self) -> bool {
        self.standing.is_gone
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// True if an answer is what is expected of it, and changes nothing.
    pub(super) fn is_untroubled(&self) -> bool {
        self.state == EndpointState::Healthy && self.outlier.failures() == 0
    }

    /// True once a signal was read.
    pub(super) fn is_scraped(&self) -> bool {
        self.is_scraped
    }

    /// When it answered a request last.
    pub(in crate::engine) fn answered_at(&self) -> Option<Timestamp> {
        self.answered
    }

    pub(super) fn reported(&mut self) {
        self.is_scraped = true;
    }

    /// A scrape ended. `metrics_age` is the age of what is known.
    pub(super) fn scraped(
        &mut self,
        now: Timestamp,
        scrape: Scrape,
        metrics_age: Duration,
        settings: &OutlierDetection,
    ) {
        let Scrape::Failed { failure, began } = scrape else {
            if self.reach.is_unreachable() {
                // Whatever was wrong is over: it need not wait for the end of its ejection to be tried.
                self.outlier.try_now(now);
            }
            self.reach = Reach::Fine;
            self.scrape_failures = 0;
            self.serves_unscraped = false;
            return;
        };
        self.scrape_failures = self.scrape_failures.saturating_add(1);
        let is_repeated = self.scrape_failures >= FAILURES_IN_A_ROW;
        let is_silent = match failure {
            ScrapeFailure::Timeout => true,
            ScrapeFailure::Reset => is_repeated,
            ScrapeFailure::Refused | ScrapeFailure::Status(_) | ScrapeFailure::TooLong | ScrapeFailure::Unreadable => {
                false
            }
        };
        self.reach = match self.reach {
            _ if failure == ScrapeFailure::Refused => Reach::Refused,
            Reach::Silent { try_at, tried, .. } if failure.is_silence() => Reach::Silent { failure, try_at, tried },
            // Of an endpoint that never answered a scrape, silence says nothing: that is what being kept out looks like.
            _ if is_silent && self.is_scraped && !self.shows_life(now, began) => Reach::Silent {
                failure,
                try_at: now + settings.base_ejection_time,
                tried: None,
            },
            _ if is_repeated && metrics_age > STALE_AFTER => Reach::Stale(failure),
            // It takes connections again, and answers.
            reach if reach.is_unreachable() && !failure.is_silence() => Reach::Stale(failure),
            reach => reach,
        };
    }

    /// Whether an endpoint whose scrape failed, which began at `began`, is alive all the same: an overloaded one may be slow
    /// to tell its metrics, and still answer. What it answered before the second half of that time may have been its last
    /// answer.
    fn shows_life(&self, now: Timestamp, began: Timestamp) -> bool {
        let half = began + now.since(began) / 2;
        self.serves_unscraped || self.answered.is_some_and(|at| at >= half)
    }

    /// It answered a request that was sent at `sent`.
    pub(super) fn answered(&mut self, now: Timestamp, sent: Timestamp) {
        self.answered = Some(now);
        if let Reach::Silent { failure, .. } | Reach::Stale(failure) = self.reach {
            self.serves_unscraped = true;
            self.reach = Reach::Stale(failure);
        }
        self.outlier.answered(now, sent);
    }

    /// A request that was sent at `sent` failed there. True if that ejects it.
    pub(super) fn failed(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        failure: RequestFailure,
        settings: &OutlierDetection,
        may_eject: bool,
    ) -> bool {
        self.outlier.failed(now, sent, failure, settings, may_eject)
    }

    /// A request goes there. If the endpoint is due to be tried, it is with this one.
    pub(super) fn chosen(&mut self, now: Timestamp) {
        self.outlier.chosen(now);
        let is_due = self.reach.is_due(now);
        if let Reach::Silent { tried, .. } = &mut self.reach
            && is_due
        {
            *tried = Some(now);
        }
    }

    /// A request that went there at `sent` is over, however it ended.
    pub(super) fn ended(&mut self, now: Timestamp, sent: Timestamp, settings: &OutlierDetection) {
        self.outlier.ended(sent);
        if let Reach::Silent { tried, try_at, .. } = &mut self.reach
            && *tried == Some(sent)
        {
            (*tried, *try_at) = (None, now + settings.base_ejection_time);
        }
    }

    /// Works out the state and the standing. True if the state is another one than before.
    pub(super) fn settle(&mut self, now: Timestamp) -> bool {
        let state = match self.reach {
            Reach::Refused | Reach::Silent { .. } => EndpointState::Unreachable,
            _ if self.outlier.ejection().is_some() => EndpointState::Ejected,
            _ if !self.is_scraped => EndpointState::Unscraped,
            Reach::Stale(_) => EndpointState::Stale,
            Reach::Fine => EndpointState::Healthy,
        };
        let is_ejected = self.outlier.is_out(now);
        let is_due = self.reach.is_due(now);
        self.standing = Standing {
            tier: match state {
                EndpointState::Healthy => Tier::Usable,
                EndpointState::Ejected if !is_ejected => Tier::Usable,
                EndpointState::Unscraped | EndpointState::Stale => Tier::Unknown,
                EndpointState::Unreachable if is_due && !is_ejected => Tier::Unknown,
                EndpointState::Ejected => Tier::Failing,
                EndpointState::Unreachable => Tier::Unreachable,
            },
            is_ejected,
            is_gone: self.reach.is_unreachable() && !is_due,
        };
        let has_changed = self.state != state;
        if has_changed {
            (self.state, self.since) = (state, now);
        }
        has_changed
    }

    /// When the standing may change by the passing of time alone.
    pub(super) fn changes_at(&self, now: Timestamp) -> Option<Timestamp> {
        let due = match self.reach {
            Reach::Silent { try_at, .. } => Some(try_at),
            _ => None,
        };
        let times = [self.ejected_until(), due].into_iter().flatten();
        times.filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests;
