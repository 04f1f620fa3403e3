//! One line in the log for all requests that were shed or failed in a while.
//!
//! A line for each would drown the log just when somebody reads it. Each has its own at level `debug`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::record::RequestRecord;
use crate::engine::outcome::{Outcome, Refusal};

/// Time that one line is about.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Characters that are shown of the id of a request, which is the client's to choose.
const EXAMPLE_CHARACTERS: usize = 64;

/// Counts how requests end, from one line to the next.
#[derive(Debug, Default)]
pub struct Summary {
    served: AtomicU64,
    troubled: Mutex<Troubled>,
}

/// Requests that did not end well.
#[derive(Debug, Default, PartialEq, Eq)]
struct Troubled {
    by_reason: BTreeMap<&'static str, Count>,
    /// Those whose own lines were not written, since nobody wants that level.
    suppressed: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Count {
    trouble: Trouble,
    requests: u64,
    /// The first one, to be looked for elsewhere.
    example: String,
}

/// What kind of trouble a request had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// The client sent what cannot be served.
    Rejected,
    /// There was no room for it.
    Shed,
    /// It should have been served.
    Failed,
}

/// What there is to say of a window.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    rejected: u64,
    shed: u64,
    failed: u64,
    served: u64,
    /// Each reason with its count and the id of a request.
    reasons: String,
    suppressed: u64,
}

impl Summary {
    /// A request ended. `is_logged` says whether it has a line of its own.
    pub(super) fn ended(&self, record: &RequestRecord, is_logged: bool) {
        let Some((trouble, reason)) = trouble_of(record) else {
            self.served.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut troubled = self.troubled.lock();
        troubled.suppressed += u64::from(!is_logged);
        let count = troubled.by_reason.entry(reason).or_insert_with(|| Count {
            trouble,
            requests: 0,
            example: record.request_id.chars().take(EXAMPLE_CHARACTERS).collect(),
        });
        count.requests += 1;
    }

    /// Writes a line every [`WINDOW`] in which there was trouble.
    pub async fn write(&self) {
        let mut ticks = interval(WINDOW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(line) = self.take() {
                line.log();
            }
        }
    }

    /// What happened since the last time. `None` if no request had trouble.
    fn take(&self) -> Option<Line> {
        let served = self.served.swap(0, Ordering::Relaxed);
        let Troubled { by_reason, suppressed } = std::mem::take(&mut *self.troubled.lock());
        if by_reason.is_empty() {
            return None;
        }
        let sum = |trouble| {
            let counts = by_reason.values().filter(|count| count.trouble == trouble);
            counts.map(|count| count.requests).sum()
        };
        let mut reasons = String::new();
        for (reason, Count { requests, example, .. }) in &by_reason {
            let separator = if reasons.is_empty() { "" } else { ", " };
            write!(reasons, "{separator}{reason}: {requests} (such as {example})")
                .expect("text takes what it is given");
        }
        Some(Line {
            rejected: sum(Trouble::Rejected),
            shed: sum(Trouble::Shed),
            failed: sum(Trouble::Failed),
            served,
            reasons,
            suppressed,
        })
    }
}

impl Line {
    /// At `warn`, or at `info` if all trouble is that of clients who send what cannot be served.
    fn log(self) {
        let Self {
            rejected,
            shed,
            failed,
            served,
            reasons,
            suppressed,
        } = self;
        let seconds = WINDOW.as_secs();
        if shed + failed > 0 {
            tracing::warn!(
                shed,
                failed,
                rejected,
                served,
                seconds,
                reasons,
                suppressed,
                "requests were shed or failed"
            );
        } else {
            tracing::info!(rejected, served, seconds, reasons, suppressed, "requests were rejected");
        }
    }
}

/// What trouble a request had, and the name of it. `None` if it went well, or if the client left or got what it asked for.
fn trouble_of(record: &RequestRecord) -> Option<(Trouble, &'static str)> {
    let outcome = record.outcome?;
    let trouble = match outcome {
        Outcome::Refused(
            Refusal::Malformed | Refusal::TooLarge | Refusal::NeverAdmitted | Refusal::Oversized | Refusal::BodyTimeout,
        ) => Trouble::Rejected,
        Outcome::Refused(
            Refusal::MemoryExhausted
            | Refusal::NotAdmitted
            | Refusal::QueueFull
            | Refusal::Shed
            | Refusal::Displaced
            | Refusal::Expired
            | Refusal::Saturated
            | Refusal::FilteredOut,
        )
        | Outcome::Evicted => Trouble::Shed,
        Outcome::Disconnected | Outcome::Unobserved | Outcome::Refused(Refusal::Cancelled | Refusal::NotCached) => {
            return None;
        }
        // What failed at a model server has an outcome of its own: this is what it would not serve.
        Outcome::Completed if record.error.is_some() => return Some((Trouble::Rejected, "rejected-by-model-server")),
        Outcome::Completed => return None,
        Outcome::UpstreamError
        | Outcome::Broken
        | Outcome::Refused(
            Refusal::NoEndpoints
            | Refusal::QueueFullNoEndpoints
            | Refusal::ExpiredNoEndpoints
            | Refusal::ShuttingDown
            | Refusal::Unschedulable
            | Refusal::Internal,
        ) => Trouble::Failed,
    };
    Some((trouble, outcome.name()))
}

#[cfg(test)]
mod tests {
    use super::super::record::ErrorCode;
    use super::*;
    use crate::engine::time::Timestamp;

    fn ended(summary: &Summary, id: &str, outcome: Outcome, error: Option<ErrorCode>) {
        let mut record = RequestRecord::new(Timestamp::ZERO);
        record.request_id = id.into();
        record.outcome = Some(outcome);
        record.error = error;
        summary.ended(&record, false);
    }

    #[test]
    fn nothing_is_said_while_all_goes_well() {
        let summary = Summary::default();
        for outcome in [
            Outcome::Completed,
            Outcome::Disconnected,
            Outcome::Unobserved,
            Outcome::Refused(Refusal::Cancelled),
            Outcome::Refused(Refusal::NotCached),
        ] {
            ended(&summary, "r", outcome, None);
        }

        assert_eq!(summary.take(), None);
    }

    #[test]
    fn a_window_with_trouble_is_one_line_with_every_reason_and_the_next_begins_anew() {
        let summary = Summary::default();
        ended(&summary, "r1", Outcome::Completed, None);
        ended(
            &summary,
            "r2",
            Outcome::Refused(Refusal::QueueFull),
            Some(ErrorCode::ResourceExhausted),
        );
        ended(
            &summary,
            "r3",
            Outcome::Refused(Refusal::QueueFull),
            Some(ErrorCode::ResourceExhausted),
        );
        ended(
            &summary,
            "r4",
            Outcome::UpstreamError,
            Some(ErrorCode::ModelServerError),
        );
        ended(
            &summary,
            "r5",
            Outcome::Refused(Refusal::Malformed),
            Some(ErrorCode::BadRequest),
        );
        ended(
            &summary,
            "r6",
            Outcome::Refused(Refusal::NoEndpoints),
            Some(ErrorCode::ServiceUnavailable),
        );
        ended(&summary, "r7", Outcome::Completed, Some(ErrorCode::ModelServerError));

        assert_eq!(
            summary.take(),
            Some(Line {
                rejected: 2,
                shed: 2,
                failed: 2,
                served: 1,
                reasons: "malformed: 1 (such as r5), no-endpoints: 1 (such as r6), queue-full: 2 (such as r2), \
                          rejected-by-model-server: 1 (such as r7), upstream-error: 1 (such as r4)"
                    .to_owned(),
                suppressed: 6,
            })
        );
        assert_eq!(summary.take(), None);
    }

    #[test]
    fn requests_with_a_line_of_their_own_are_not_said_to_be_suppressed() {
        let summary = Summary::default();
        let mut record = RequestRecord::new(Timestamp::ZERO);
        record.outcome = Some(Outcome::Evicted);

        summary.ended(&record, true);

        assert_eq!(summary.take().map(|line| (line.shed, line.suppressed)), Some((1, 0)));
    }

    #[test]
    fn whoever_gives_its_place_to_another_request_is_shed_and_has_not_failed() {
        for refusal in [Refusal::Shed, Refusal::Displaced] {
            let summary = Summary::default();
            ended(
                &summary,
                "r",
                Outcome::Refused(refusal),
                Some(ErrorCode::ResourceExhausted),
            );

            let line = summary.take().expect("there is something to tell");

            assert_eq!((line.shed, line.failed), (1, 0), "{refusal:?}");
        }
    }
}
