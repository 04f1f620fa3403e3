//! Passive ejection: what requests say of the endpoint that they were sent to, in the terms of Envoy's outlier detection.

use std::time::Duration;

use super::super::super::time::Timestamp;
use super::RequestFailure;

/// When endpoints are ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierDetection {
    /// Requests that have to fail in a row. Zero: nothing is ejected.
    pub consecutive_failures: u32,
    /// How long the first ejection takes. Each further one takes as much longer, until the endpoint has been well for as
    /// long as its last ejection took.
    pub base_ejection_time: Duration,
    /// The longest that an ejection takes.
    pub max_ejection_time: Duration,
    /// The largest share of the pool that is ejected at a time, in percent. One endpoint may be, whatever the share, if it
    /// is above zero and there is another one.
    pub max_ejection_percent: u32,
}

impl Default for OutlierDetection {
    /// Envoy's defaults, but for the share: Envoy ejects for good and so only 10 %; here an ejected endpoint is still the
    /// last choice, and pools are small.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            base_ejection_time: Duration::from_secs(30),
            max_ejection_time: Duration::from_secs(300),
            max_ejection_percent: 50,
        }
    }
}

impl OutlierDetection {
    /// How many of so many endpoints may be ejected at a time.
    pub(in crate::engine::pool) fn most_ejected(&self, endpoints: usize) -> usize {
        match self.max_ejection_percent {
            0 => 0,
            _ if endpoints < 2 => 0,
            percent => (endpoints * percent as usize / 100).max(1),
        }
    }

    fn ejection_time(&self, ejections: u32) -> Duration {
        let time = self.base_ejection_time.saturating_mul(ejections);
        time.min(self.max_ejection_time)
    }
}

/// What is counted of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Outlier {
    failures: u32,
    ejection: Option<Ejection>,
    /// Ejections that still count for the length of the next one.
    ejections: u32,
    /// When the last ejection ended, and how long it was.
    returned: Option<(Timestamp, Duration)>,
}

/// An ejection under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ejection {
    pub(super) reason: RequestFailure,
    /// When it may be tried.
    pub(super) until: Timestamp,
    since: Timestamp,
    /// A request is trying it, sent at this time.
    tried: Option<Timestamp>,
}

impl Outlier {
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn ejection(&self) -> Option<Ejection> {
        self.ejection
    }

    /// True if no request should go there: it is ejected, and not due to be tried, or being tried.
    pub(super) fn is_out(&self, now: Timestamp) -> bool {
        let is_due = |ejection: Ejection| ejection.until <= now && ejection.tried.is_none();
        self.ejection.is_some_and(|ejection| !is_due(ejection))
    }

    pub(super) fn answered(&mut self, now: Timestamp, sent: Timestamp) {
        match self.ejection {
            // What was sent before says nothing of how it has been since.
            Some(ejection) if sent < ejection.since => {}
            Some(ejection) => {
                self.returned = Some((now, ejection.until.since(ejection.since)));
                self.ejection = None;
                self.failures = 0;
            }
            None => self.failures = 0,
        }
    }

    pub(super) fn failed(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        reason: RequestFailure,
        settings: &OutlierDetection,
        may_eject: bool,
    ) -> bool {
        if settings.consecutive_failures == 0 {
            return false;
        }
        if let Some(ejection) = self.ejection {
            // Only who came to try it says something new: those sent before were on their way when it was ejected, and
            // those sent meanwhile had no other choice.
            if sent < ejection.until {
                return false;
            }
        } else {
            self.failures = self.failures.saturating_add(1);
            if self.failures < settings.consecutive_failures || !may_eject {
                return false;
            }
            if let Some((at, lasted)) = self.returned
                && now.since(at) >= lasted
            {
                self.ejections = 0;
            }
        }
        self.ejections = self.ejections.saturating_add(1);
        self.ejection = Some(Ejection {
            reason,
            until: now + settings.ejection_time(self.ejections),
            since: now,
            tried: None,
        });
        true
    }

    pub(super) fn chosen(&mut self, now: Timestamp) {
        if let Some(ejection) = &mut self.ejection
            && ejection.until <= now
        {
            ejection.tried.get_or_insert(now);
        }
    }

    /// The request that tried it may have ended without a word of how it went. Then the next one may try.
    pub(super) fn ended(&mut self, sent: Timestamp) {
        if let Some(ejection) = &mut self.ejection
            && ejection.tried == Some(sent)
        {
            ejection.tried = None;
        }
    }

    pub(super) fn try_now(&mut self, now: Timestamp) {
        if let Some(ejection) = &mut self.ejection {
            ejection.until = ejection.until.min(now);
        }
    }
}
