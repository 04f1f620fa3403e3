//! Changes of objects, without end: whatever breaks is tried again, and what was heard last holds meanwhile.

use std::fmt::Debug;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use kube::api::{Api, ApiResource};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Sleep, sleep};
use tracing::{info, warn};

use super::change::Change;
use super::checked::Checked;
use super::failure::in_one_line;
use super::list_watch::{Event, Failure, Selection, list_watch};
use super::reader::{Reader, Reading};

/// How often in a row a list has to be not found before a kind that was there is gone. At the default pace this takes
/// six seconds: an API server that starts answers so for a moment.
const GONE_AFTER: u32 = 6;

/// How soon something that failed is tried again, and how often something that works is doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After the first failure.
    pub first: Duration,
    /// At most, after many of them.
    pub most: Duration,
    /// About the time from one list of everything to the next while a watch works: a safety net for changes that no
    /// watch has told. The real time is a quarter longer or shorter, by chance.
    pub relist: Duration,
}

impl Default for Pace {
    /// Kind to an API server that has trouble, and back soon after it has none.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            most: Duration::from_secs(5),
            relist: Duration::from_secs(600),
        }
    }
}

/// All changes of a selection of the objects of a namespace, without end.
pub(super) fn changes<K>(
    what: &'static str,
    client: Client,
    namespace: &str,
    selection: Selection,
    pace: Pace,
) -> BoxStream<'static, Change<K>>
where
    K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Checked + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let resource = ApiResource::erase::<K>(&K::DynamicType::default());
    // One by one, so that an object that cannot be read does not hide the others.
    let api = Api::namespaced_with(client, namespace, &resource);
    Box::pin(Changes {
        what,
        events: list_watch(what, api, selection, pace.relist),
        retries: Retries::new(pace),
        pause: None,
        reader: Reader::new(what),
        trouble: None,
        presence: Presence::Awaited,
        not_found: 0,
        kind: std::marker::PhantomData,
    })
}

/// Turns events into changes, and logs what goes wrong: once for each kind of trouble.
struct Changes<K> {
    what: &'static str,
    events: BoxStream<'static, Result<Event, Failure>>,
    retries: Retries,
    /// Until it is tried again.
    pause: Option<Pin<Box<Sleep>>>,
    reader: Reader,
    /// What is wrong: the code of an answer, or that there was none.
    trouble: Option<Option<u16>>,
    presence: Presence,
    /// How often in a row the list was not found.
    not_found: u32,
    kind: std::marker::PhantomData<fn() -> K>,
}

/// What was told of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Awaited,
    Absent,
    Here,
}

impl<K: DeserializeOwned + Checked> Stream for Changes<K> {
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
                Err(failure) => {
                    this.pause = this.retries.next().map(|wait| Box::pin(sleep(wait)));
                    this.failed(&failure)
                }
            };
            if change.is_some() {
                return Poll::Ready(change);
            }
        }
    }
}

impl<K: DeserializeOwned + Checked> Changes<K> {
    fn heard(&mut self, event: Event) -> Option<Change<K>> {
        let change = match event {
            Event::Bookmark => None,
            Event::Listed(all) => {
                let (mut objects, mut unread) = (Vec::with_capacity(all.len()), Vec::new());
                for object in all {
                    match self.reader.read(object) {
                        Reading::Is(object) => objects.push(object),
                        Reading::Unreadable(name) => unread.push(name),
                        Reading::Empty(_) => {}
                    }
                }
                Some(Change::All { objects, unread })
            }
            Event::Applied(object) => match self.reader.read(object) {
                Reading::Is(object) => Some(Change::Is(object)),
                Reading::Empty(name) => Some(Change::Gone(name)),
                Reading::Unreadable(_) => None,
            },
            Event::Deleted(object) => {
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
        change
    }

    fn failed(&mut self, failure: &Failure) -> Option<Change<K>> {
        if failure.is_expired() {
            return None;
        }
        let code = failure.code();
        // Only a list tells that there is nothing: a watch may fail for other reasons.
        let of_list = code.filter(|_| matches!(failure, Failure::List(_)));
        self.not_found = if of_list == Some(404) { self.not_found + 1 } else { 0 };
        if self.trouble != Some(code) {
            if of_list == Some(404) && self.presence != Presence::Here {
                info!(watched = self.what, "not installed; looked for again");
            } else {
                warn!(
                    watched = self.what,
                    error = in_one_line(failure.error()),
                    "cannot be watched; what was known last holds"
                );
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
    use futures_util::stream;
    use kube::api::DynamicObject;
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::*;
    use crate::serve::kube::api::InferenceObjective;

    fn changes_of(events: Vec<Result<Event, Failure>>) -> Changes<InferenceObjective> {
        Changes {
            what: "objectives",
            events: stream::iter(events).boxed(),
            retries: Retries::new(Pace::default()),
            pause: None,
            reader: Reader::new("objectives"),
            trouble: None,
            presence: Presence::Awaited,
            not_found: 0,
            kind: std::marker::PhantomData,
        }
    }

    fn changes() -> Changes<InferenceObjective> {
        changes_of(Vec::new())
    }

    fn answered(code: u16) -> kube::Error {
        kube::Error::Api(Status::failure("", "").with_code(code).boxed())
    }

    fn list_failed(code: u16) -> Failure {
        Failure::List(answered(code))
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
    fn an_object_that_cannot_be_read_does_not_hide_the_others_of_a_list() {
        let mut changes = changes();
        let bad = object("bad", json!({ "poolRef": { "name": "pool" }, "priority": "high" }));

        let list = vec![good("a"), bad, object("empty", Value::Null), good("z")];
        let (objects, unread) = names(changes.heard(Event::Listed(list)));

        assert_eq!(objects, ["a", "z"]);
        assert_eq!(unread, ["bad"]);
    }

    #[test]
    fn an_event_that_cannot_be_read_changes_nothing_and_an_empty_object_is_as_good_as_gone() {
        let mut changes = changes();

        let bad = changes.heard(Event::Applied(object("a", json!({ "priority": "high" }))));
        let empty = changes.heard(Event::Applied(object("a", Value::Null)));

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
        changes.heard(Event::Listed(Vec::new()));

        for _ in 0..2 * GONE_AFTER {
            assert!(changes.failed(&list_failed(403)).is_none());
        }
    }

    #[test]
    fn a_kind_that_was_there_is_absent_only_when_that_stays_so() {
        let mut changes = changes();
        changes.heard(Event::Listed(Vec::new()));
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

        for failure in [
            list_failed(500),
            Failure::Watch(answered(404)),
            Failure::Watch(answered(410)),
        ] {
            assert!(changes.failed(&failure).is_none(), "{failure:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_fails_again_and_again_is_asked_for_less_and_less_often() {
        let tries = (0..8).map(|_| Err(list_failed(500)));
        let mut changes = changes_of(tries.chain([Ok(Event::Listed(Vec::new()))]).collect());
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
            ..Pace::default()
        });
        let waits = |retries: &mut Retries| retries.take(4).map(|wait| wait.as_millis()).collect::<Vec<_>>();

        assert_eq!(waits(&mut retries), [300, 600, 1000, 1000]);
        retries.reset();
        assert_eq!(waits(&mut retries), [300, 600, 1000, 1000]);
    }
}
