//! Watches that go on: whatever breaks is tried again, and what was heard last holds meanwhile.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use kube::api::Api;
use kube::runtime::watcher::{self, Error, Event, watcher};
use kube::runtime::{WatchStreamExt as _, utils::Backoff};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

/// How long one watch request lasts. A connection that died without a word is noticed after this time.
const WATCH_SECONDS: u32 = 60;

/// How soon something that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After the first failure.
    pub first: Duration,
    /// At most, after many of them.
    pub most: Duration,
}

impl Default for Pace {
    /// Kind to an API server that has trouble, and back soon after it has none.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            most: Duration::from_secs(5),
        }
    }
}

/// What was heard of the objects of a kind.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// These are all.
    All(Vec<K>),
    /// One came or changed.
    Is(K),
    /// One is gone.
    Gone(K),
    /// The kind is not installed, or may not be read.
    Absent,
}

/// All changes of the objects that `config` selects, without end.
pub(super) fn changes<K>(
    what: &'static str,
    api: Api<K>,
    config: watcher::Config,
    pace: Pace,
) -> BoxStream<'static, Change<K>>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = config.timeout(WATCH_SECONDS);
    let begin = move || {
        let events = watcher(api.clone(), config.clone());
        events.backoff(Retries::new(pace)).boxed()
    };
    Box::pin(Changes {
        what,
        events: begin(),
        begin: Box::new(begin),
        is_stuck: false,
        gathered: Vec::new(),
        trouble: None,
        is_absent: false,
    })
}

/// Turns events into changes, and logs what goes wrong: once for each kind of trouble.
struct Changes<K> {
    what: &'static str,
    events: BoxStream<'static, Result<Event<K>, Error>>,
    /// Begins anew, with a list.
    begin: Box<dyn Fn() -> BoxStream<'static, Result<Event<K>, Error>> + Send>,
    /// The watch was refused for its age. The watcher would ask for the same one for ever.
    is_stuck: bool,
    /// Objects of a list that is not complete.
    gathered: Vec<K>,
    /// What is wrong: the code of an answer, or that there was none.
    trouble: Option<Option<u16>>,
    /// It was told that the kind is absent.
    is_absent: bool,
}

impl<K> Unpin for Changes<K> {}

impl<K> Stream for Changes<K> {
    type Item = Change<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            let Some(event) = std::task::ready!(this.events.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            let change = match event {
                Ok(event) => this.heard(event),
                Err(error) => this.failed(&error),
            };
            if change.is_some() {
                return Poll::Ready(change);
            }
        }
    }
}

impl<K> Changes<K> {
    fn heard(&mut self, event: Event<K>) -> Option<Change<K>> {
        let change = match event {
            Event::Init => {
                self.gathered.clear();
                return None;
            }
            Event::InitApply(object) => {
                self.gathered.push(object);
                return None;
            }
            Event::InitDone => Change::All(std::mem::take(&mut self.gathered)),
            Event::Apply(object) => Change::Is(object),
            Event::Delete(object) => Change::Gone(object),
        };
        if self.trouble.take().is_some() {
            info!(watched = self.what, "watched again");
        }
        self.is_absent = false;
        self.is_stuck = false;
        Some(change)
    }

    fn failed(&mut self, error: &Error) -> Option<Change<K>> {
        if is_expired(error) {
            // The watcher lists anew, as it has to now and then, if it was told so by an event.
            if self.is_stuck {
                self.events = (self.begin)();
            }
            self.is_stuck = !self.is_stuck && matches!(error, Error::WatchStartFailed(_));
            return None;
        }
        let code = code(error);
        if self.trouble != Some(code) {
            warn!(watched = self.what, error = %in_words(error), "cannot be watched; what was known last holds");
        }
        self.trouble = Some(code);
        let is_absent = is_absent(error) && !self.is_absent;
        self.is_absent |= is_absent;
        is_absent.then_some(Change::Absent)
    }
}

/// The code of the API server's answer, if there was one.
fn code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

fn is_expired(error: &Error) -> bool {
    code(error) == Some(410)
}

/// Only a list tells that there is nothing: a watch may fail for other reasons.
fn is_absent(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(_)) && matches!(code(error), Some(403 | 404))
}

/// The error with its causes.
fn in_words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
        cause = error.source();
    }
    words
}

/// Twice as long after each failure, up to a bound; anew after any success.
struct Retries {
    pace: Pace,
    next: Duration,
}

impl Retries {
    fn new(pace: Pace) -> Self {
        Self { pace, next: pace.first }
    }
}

impl Iterator for Retries {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let next = self.next;
        self.next = (next * 2).min(self.pace.most);
        Some(next)
    }
}

impl Backoff for Retries {
    fn reset(&mut self) {
        self.next = self.pace.first;
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusSummary;

    use super::*;

    fn changes() -> Changes<u32> {
        Changes {
            what: "numbers",
            events: futures_util::stream::pending().boxed(),
            begin: Box::new(|| futures_util::stream::iter([Ok(Event::Init), Ok(Event::InitDone)]).boxed()),
            is_stuck: false,
            gathered: Vec::new(),
            trouble: None,
            is_absent: false,
        }
    }

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            status: Some(StatusSummary::Failure),
            code,
            ..Status::default()
        }))
    }

    #[test]
    fn a_list_is_told_when_it_is_complete() {
        let mut changes = changes();

        assert!(changes.heard(Event::Init).is_none());
        assert!(changes.heard(Event::InitApply(1)).is_none());
        // It broke off and begins again.
        assert!(changes.heard(Event::Init).is_none());
        assert!(changes.heard(Event::InitApply(2)).is_none());
        let all = changes.heard(Event::InitDone);

        assert!(matches!(all, Some(Change::All(all)) if all == [2]));
    }

    #[test]
    fn a_kind_that_is_not_installed_is_absent_and_that_is_told_once() {
        let mut changes = changes();

        let first = changes.failed(&Error::InitialListFailed(answered(404)));
        assert!(matches!(first, Some(Change::Absent)));
        assert!(changes.failed(&Error::InitialListFailed(answered(404))).is_none());

        changes.heard(Event::InitDone);
        let again = changes.failed(&Error::InitialListFailed(answered(403)));
        assert!(matches!(again, Some(Change::Absent)));
    }

    #[test]
    fn an_api_server_in_trouble_says_nothing_about_what_there_is() {
        let mut changes = changes();

        for error in [
            Error::InitialListFailed(answered(500)),
            Error::WatchStartFailed(answered(404)),
            Error::WatchError(Box::new(Status {
                code: 410,
                ..Status::default()
            })),
        ] {
            assert!(changes.failed(&error).is_none(), "{error}");
        }
    }

    #[tokio::test]
    async fn a_watch_that_is_refused_for_its_age_begins_anew_at_the_second_refusal() {
        let mut changes = changes();
        let refused = Error::WatchStartFailed(answered(410));

        changes.failed(&refused);
        assert!(futures_util::poll!(changes.next()).is_pending());
        changes.failed(&refused);

        assert!(matches!(changes.next().await, Some(Change::All(all)) if all.is_empty()));
    }

    #[test]
    fn retries_come_twice_as_late_each_time_up_to_a_bound() {
        let mut retries = Retries::new(Pace {
            first: Duration::from_millis(300),
            most: Duration::from_secs(1),
        });
        let waits = |retries: &mut Retries| retries.take(4).map(|wait| wait.as_millis()).collect::<Vec<_>>();

        assert_eq!(waits(&mut retries), [300, 600, 1000, 1000]);
        retries.reset();
        assert_eq!(waits(&mut retries), [300, 600, 1000, 1000]);
    }
}
