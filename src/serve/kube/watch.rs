//! Watches that go on: whatever breaks is tried again, and what was heard last holds meanwhile.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Error, Event, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep};
use tracing::{info, warn};

use super::change::Change;
use super::reader::{Reader, Reading};
use crate::serve::causes::with_causes;

/// How long one watch request lasts. A connection that died without a word is noticed after this time.
const WATCH_SECONDS: u32 = 60;

/// How often in a row a list has to be not found before a kind that was there is gone. At the default pace this takes
/// six seconds: an API server that starts answers so for a moment.
const GONE_AFTER: u32 = 6;

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

/// All changes of the objects of a namespace that `config` selects, without end.
pub(super) fn changes<K>(
    what: &'static str,
    client: Client,
    namespace: &str,
    config: watcher::Config,
    pace: Pace,
) -> BoxStream<'static, Change<K>>
where
    K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let config = config.timeout(WATCH_SECONDS);
    let resource = ApiResource::erase::<K>(&K::DynamicType::default());
    // One by one, so that an object that cannot be read does not hide the others.
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    Box::pin(Changes {
        what,
        events: begin(),
        begin: Box::new(begin),
        retries: Retries::new(pace),
        pause: None,
        is_stuck: false,
        reader: Reader::new(what),
        gathered: Vec::new(),
        unread: Vec::new(),
        trouble: None,
        presence: Presence::Awaited,
        not_found: 0,
    })
}

type Events = BoxStream<'static, Result<Event<DynamicObject>, Error>>;

/// Turns events into changes, and logs what goes wrong: once for each kind of trouble.
struct Changes<K> {
    what: &'static str,
    events: Events,
    /// Begins anew, with a list.
    begin: Box<dyn Fn() -> Events + Send>,
    retries: Retries,
    /// Until it is tried again.
    pause: Option<Pin<Box<Sleep>>>,
    /// The watch was refused for its age. The watcher would ask for the same one for ever.
    is_stuck: bool,
    reader: Reader,
    /// Objects of a list that is not complete.
    gathered: Vec<K>,
    /// The names of those that cannot be read.
    unread: Vec<String>,
    /// What is wrong: the code of an answer, or that there was none.
    trouble: Option<Option<u16>>,
    presence: Presence,
    /// How often in a row the list was not found.
    not_found: u32,
}

/// What was told of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Awaited,
    Absent,
    Here,
}

impl<K> Unpin for Changes<K> {}

impl<K: DeserializeOwned> Stream for Changes<K> {
    type Item = Change<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            let Some(event) = ready!(this.events.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            let change = match event {
                Ok(event) => this.heard(event),
                Err(error) => {
                    this.pause = this.retries.next().map(|wait| Box::pin(sleep(wait)));
                    this.failed(&error)
                }
            };
            if change.is_some() {
                return Poll::Ready(change);
            }
        }
    }
}

impl<K: DeserializeOwned> Changes<K> {
    fn heard(&mut self, event: Event<DynamicObject>) -> Option<Change<K>> {
        let change = match event {
            // It only says that a list is asked for.
            Event::Init => {
                self.gathered.clear();
                self.unread.clear();
                return None;
            }
            Event::InitApply(object) => {
                match self.reader.read(object) {
                    Reading::Is(object) => self.gathered.push(object),
                    Reading::Unreadable(name) => self.unread.push(name),
                    Reading::Empty(_) => {}
                }
                return None;
            }
            Event::InitDone => Some(Change::All {
                objects: std::mem::take(&mut self.gathered),
                unread: std::mem::take(&mut self.unread),
            }),
            Event::Apply(object) => match self.reader.read(object) {
                Reading::Is(object) => Some(Change::Is(object)),
                Reading::Empty(name) => Some(Change::Gone(name)),
                Reading::Unreadable(_) => None,
            },
            Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.reader.forget(&name);
                Some(Change::Gone(name))
            }
        };
        if self.trouble.take().is_some() {
            info!(watched = self.what, "watched again");
        }
        self.retries.reset();
        self.presence = Presence::Here;
        self.not_found = 0;
        self.is_stuck = false;
        change
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
        if code == Some(404) && matches!(error, Error::WatchStartFailed(_)) {
            // The kind may be gone. The watcher would ask for the same watch for ever; a list tells.
            self.events = (self.begin)();
        }
        // Only a list tells that there is nothing: a watch may fail for other reasons.
        let of_list = code.filter(|_| matches!(error, Error::InitialListFailed(_)));
        self.not_found = if of_list == Some(404) { self.not_found + 1 } else { 0 };
        if self.trouble != Some(code) {
            if of_list == Some(404) && self.presence != Presence::Here {
                info!(watched = self.what, "not installed; looked for again");
            } else {
                warn!(watched = self.what, error = %with_causes(error), "cannot be watched; what was known last holds");
            }
        }
        self.trouble = Some(code);
        let is_absent = match (self.presence, of_list) {
            (Presence::Awaited, Some(403 | 404)) => true,
            // Rights that are withdrawn say nothing about what there is.
            (Presence::Here, Some(404)) => self.not_found >= GONE_AFTER,
            _ => false,
        };
        if !is_absent {
            return None;
        }
        if self.presence == Presence::Here {
            warn!(watched = self.what, "not installed any more; looked for again");
        }
        self.presence = Presence::Absent;
        Some(Change::Absent)
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

/// Twice as long after each failure, up to a bound; anew after any success.
struct Retries {
    pace: Pace,
    next: Duration,
}

impl Retries {
    fn new(pace: Pace) -> Self {
        Self { pace, next: pace.first }
    }

    fn reset(&mut self) {
        self.next = self.pace.first;
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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusSummary;
    use serde_json::{Value, json};

    use super::*;
    use crate::serve::kube::api::InferenceObjective;

    fn changes_of(events: impl Fn() -> Events + Send + 'static) -> Changes<InferenceObjective> {
        Changes {
            what: "objectives",
            events: futures_util::stream::pending().boxed(),
            begin: Box::new(events),
            retries: Retries::new(Pace::default()),
            pause: None,
            is_stuck: false,
            reader: Reader::new("objectives"),
            gathered: Vec::new(),
            unread: Vec::new(),
            trouble: None,
            presence: Presence::Awaited,
            not_found: 0,
        }
    }

    fn changes() -> Changes<InferenceObjective> {
        changes_of(|| futures_util::stream::iter([Ok(Event::Init), Ok(Event::InitDone)]).boxed())
    }

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            status: Some(StatusSummary::Failure),
            code,
            ..Status::default()
        }))
    }

    fn list_failed(code: u16) -> Error {
        Error::InitialListFailed(answered(code))
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "a literal reads better without a reference"
    )]
    fn object(name: &str, spec: Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "llm-d.ai/v1alpha2",
            "kind": "InferenceObjective",
            "metadata": { "name": name },
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    fn good(name: &str) -> DynamicObject {
        object(name, json!({ "poolRef": { "name": "pool" } }))
    }

    fn names(change: Option<Change<InferenceObjective>>) -> (Vec<String>, Vec<String>) {
        let Some(Change::All { objects, unread }) = change else {
            panic!("it is no list: {change:?}")
        };
        let names = objects.into_iter().filter_map(|object| object.metadata.name);
        (names.collect(), unread)
    }

    #[test]
    fn a_list_is_told_when_it_is_complete() {
        let mut changes = changes();

        assert!(changes.heard(Event::Init).is_none());
        assert!(changes.heard(Event::InitApply(good("a"))).is_none());
        // It broke off and begins again.
        assert!(changes.heard(Event::Init).is_none());
        assert!(changes.heard(Event::InitApply(good("b"))).is_none());

        assert_eq!(names(changes.heard(Event::InitDone)).0, ["b"]);
    }

    #[test]
    fn an_object_that_cannot_be_read_does_not_hide_the_others_of_a_list() {
        let mut changes = changes();
        let bad = object("bad", json!({ "poolRef": { "name": "pool" }, "priority": "high" }));

        for listed in [good("a"), bad, object("empty", Value::Null), good("z")] {
            assert!(changes.heard(Event::InitApply(listed)).is_none());
        }
        let (objects, unread) = names(changes.heard(Event::InitDone));

        assert_eq!(objects, ["a", "z"]);
        assert_eq!(unread, ["bad"]);
    }

    #[test]
    fn an_event_that_cannot_be_read_changes_nothing_and_an_empty_object_is_as_good_as_gone() {
        let mut changes = changes();

        let bad = changes.heard(Event::Apply(object("a", json!({ "priority": 1 }))));
        let empty = changes.heard(Event::Apply(object("a", Value::Null)));

        assert!(bad.is_none(), "{bad:?}");
        assert!(matches!(empty, Some(Change::Gone(name)) if name == "a"));
    }

    #[test]
    fn a_kind_that_is_not_installed_or_may_not_be_read_at_the_start_is_absent_and_that_is_told_once() {
        for code in [403, 404] {
            let mut changes = changes();

            assert!(matches!(changes.failed(&list_failed(code)), Some(Change::Absent)));
            for _ in 0..2 * GONE_AFTER {
                assert!(changes.failed(&list_failed(code)).is_none());
            }
        }
    }

    #[test]
    fn rights_that_are_withdrawn_do_not_make_a_kind_absent() {
        let mut changes = changes();
        changes.heard(Event::InitDone);

        for _ in 0..2 * GONE_AFTER {
            assert!(changes.failed(&list_failed(403)).is_none());
        }
    }

    #[test]
    fn a_kind_that_was_there_is_absent_only_when_that_stays_so() {
        let mut changes = changes();
        changes.heard(Event::InitDone);
        let all_but_enough = GONE_AFTER - 1;

        for between in [500, 403] {
            for _ in 0..all_but_enough {
                assert!(changes.failed(&list_failed(404)).is_none());
            }
            assert!(changes.failed(&list_failed(between)).is_none());
        }
        for _ in 0..all_but_enough {
            assert!(changes.failed(&list_failed(404)).is_none());
        }

        assert!(matches!(changes.failed(&list_failed(404)), Some(Change::Absent)));
        assert!(changes.failed(&list_failed(404)).is_none());
    }

    #[test]
    fn an_api_server_in_trouble_says_nothing_about_what_there_is() {
        let mut changes = changes();

        for error in [
            list_failed(500),
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

        assert!(names(changes.next().await).0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_again_and_again_is_asked_for_less_and_less_often() {
        // A watcher tells of each list that it asks for before it has the answer.
        let mut changes = changes();
        let tries = (0..8).flat_map(|_| [Ok(Event::Init), Err(list_failed(500))]);
        changes.events = futures_util::stream::iter(tries.chain([Ok(Event::InitDone)]).collect::<Vec<_>>()).boxed();
        let start = tokio::time::Instant::now();

        assert!(names(changes.next().await).0.is_empty());

        let waited = [200, 400, 800, 1600, 3200, 5000, 5000, 5000].map(Duration::from_millis);
        assert_eq!(start.elapsed().as_millis(), waited.iter().sum::<Duration>().as_millis());
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
