//! Lists objects, and watches them from the list's resource version on, without end.
//!
//! The API server tells a watch what changes after the resource version that it is asked to begin at. After a restore of
//! etcd from a backup the server's version is *lower* than that: it accepts the watch, and stays silent until its version
//! has caught up. What was restored, and what changes meanwhile, would never be told. So a version is not trusted blindly:
//!
//! - An event or a bookmark with a lower version than one before it means that the version went back: list again.
//! - A watch that didn't prove itself (it broke off, or it ended without any event or bookmark) is only resumed after a
//!   look at the server's version, which is a list of one object. If that is lower than ours: list again.
//! - 410 (`Gone`, `Expired`), and a version that the server calls too large: list again.
//! - Every so often everything is listed again, whatever the watch says. This is what helps if the server's version has
//!   caught up before anybody looked.

use std::mem;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use kube::api::{Api, DynamicObject, ListParams, ObjectList, WatchEvent, WatchParams};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use super::failure::in_one_line;

/// How long one watch request lasts. A connection that died without a word is noticed after this time, and the server
/// sends a bookmark before it is over.
const WATCH: Duration = Duration::from_secs(60);
/// How much longer than that an end may take to arrive, and how much sooner it may come and still be in good order.
const MARGIN: Duration = Duration::from_secs(5);
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// How long the list that is only made to be sure may take. Events wait meanwhile.
const RELIST_TIMEOUT: Duration = Duration::from_secs(15);
/// The part of the time between two such lists after which one that failed is tried again.
const RETRY_PART: u32 = 10;

/// What is heard of the objects.
#[derive(Debug)]
pub(super) enum Event {
    /// These are all.
    Listed(Vec<DynamicObject>),
    /// This one was added or modified.
    Applied(DynamicObject),
    /// This one was deleted, or doesn't match the selector any more.
    Deleted(DynamicObject),
    /// Nothing changed. The watch works.
    Bookmark,
}

/// What failed. Asking again goes on where it stopped.
#[derive(Debug)]
pub(super) enum Failure {
    /// A list, or a look at the version.
    List(kube::Error),
    /// A watch: it could not begin, or it broke off.
    Watch(kube::Error),
}

impl Failure {
    pub(super) const fn error(&self) -> &kube::Error {
        match self {
            Self::List(error) | Self::Watch(error) => error,
        }
    }

    /// The code of the API server's answer, if there was one.
    pub(super) fn code(&self) -> Option<u16> {
        code(self.error())
    }

    /// The version is too old, or of another history. This happens now and then, and is not worth a word: a list follows.
    pub(super) fn is_expired(&self) -> bool {
        is_expired(self.error())
    }
}

/// Which objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    labels: Option<String>,
    fields: Option<String>,
}

impl Selection {
    /// Those that match a label selector.
    pub(super) fn labels(selector: &str) -> Self {
        Self {
            labels: Some(selector.to_owned()),
            ..Self::default()
        }
    }

    /// The one of this name.
    pub(super) fn named(name: &str) -> Self {
        Self {
            fields: Some(format!("metadata.name={name}")),
            ..Self::default()
        }
    }
}

type Objects = kube::Result<ObjectList<DynamicObject>>;
type Events = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

/// Objects that an API server has.
pub(super) trait Collection: Send + Sync + 'static {
    /// At most `limit` of them, from where the token of another page says.
    fn list(&self, limit: u32, token: Option<String>) -> BoxFuture<'_, Objects>;

    /// What happens to them after this version.
    fn watch<'a>(&'a self, version: &'a str) -> BoxFuture<'a, kube::Result<Events>>;
}

/// Those of a kind in a namespace.
struct Selected {
    api: Api<DynamicObject>,
    selection: Selection,
}

impl Collection for Selected {
    fn list(&self, limit: u32, token: Option<String>) -> BoxFuture<'_, Objects> {
        let Selection { labels, fields } = self.selection.clone();
        // Without a version: what is true now, and not what a cache believes.
        let params = ListParams {
            label_selector: labels,
            field_selector: fields,
            limit: Some(limit),
            continue_token: token,
            ..ListParams::default()
        };
        async move { self.api.list(&params).await }.boxed()
    }

    fn watch<'a>(&'a self, version: &'a str) -> BoxFuture<'a, kube::Result<Events>> {
        let Selection { labels, fields } = self.selection.clone();
        let params = WatchParams {
            label_selector: labels,
            field_selector: fields,
            timeout: Some(u32::try_from(WATCH.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            ..WatchParams::default()
        };
        async move { Ok(self.api.watch(&params, version).await?.boxed()) }.boxed()
    }
}

/// Lists and watches a selection of a kind's objects, and lists all of them again after about `relist`.
pub(super) fn list_watch(
    what: &'static str,
    api: Api<DynamicObject>,
    selection: Selection,
    relist: Duration,
) -> BoxStream<'static, Result<Event, Failure>> {
    ListWatch::new(what, Selected { api, selection }, relist).run()
}

struct ListWatch<C> {
    what: &'static str,
    collection: C,
    relist: Duration,
    next_list: Instant,
    state: State,
}

enum State {
    /// Everything has to be listed.
    Unlisted,
    /// Everything up to this version is known, if the server still has the history that the version is of.
    Known { version: String, is_checked: bool },
    /// A watch runs.
    Watching(Watch),
}

struct Watch {
    events: Events,
    since: Instant,
    version: String,
    /// An event or a bookmark came.
    has_spoken: bool,
}

impl<C: Collection> ListWatch<C> {
    fn new(what: &'static str, collection: C, relist: Duration) -> Self {
        Self {
            what,
            collection,
            relist,
            next_list: Instant::now(),
            state: State::Unlisted,
        }
    }

    fn run(self) -> BoxStream<'static, Result<Event, Failure>> {
        let next = |mut this: Self| async move { Some((this.next().await, this)) };
        stream::unfold(self, next).boxed()
    }

    /// The next event. Must not be dropped before it is there.
    async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            match mem::replace(&mut self.state, State::Unlisted) {
                // Unlisted => Known
                State::Unlisted => {
                    let (objects, version) = list_all(&self.collection).await.map_err(Failure::List)?;
                    return Ok(self.listed(objects, version));
                }
                // Known, in doubt => (Known and checked | Unlisted)
                State::Known {
                    version,
                    is_checked: false,
                } => match self.collection.list(1, None).await {
                    Ok(list) => {
                        let current = list.metadata.resource_version.unwrap_or_default();
                        if !self.went_back(&version, &current) {
                            self.state = State::Known {
                                version,
                                is_checked: true,
                            };
                        }
                    }
                    Err(error) => {
                        self.state = after(&error, version);
                        return Err(Failure::List(error));
                    }
                },
                // Known => Watching
                State::Known { version, .. } => match self.collection.watch(&version).await {
                    Ok(events) => {
                        self.state = State::Watching(Watch {
                            events,
                            since: Instant::now(),
                            version,
                            has_spoken: false,
                        });
                    }
                    Err(error) => {
                        // The kind may be gone, which a list tells.
                        if code(&error) != Some(404) {
                            self.state = after(&error, version);
                        }
                        return Err(Failure::Watch(error));
                    }
                },
                // Watching => (Watching | Known | Unlisted)
                State::Watching(mut watch) => {
                    let over = watch.since + WATCH + MARGIN;
                    let event = tokio::select! {
                        biased;
                        () = sleep_until(self.next_list) => {
                            if let Some(listed) = self.list_to_be_sure().await {
                                return Ok(listed);
                            }
                            self.state = State::Watching(watch);
                            continue;
                        }
                        event = timeout_at(over, watch.events.next()) => event.unwrap_or(None),
                    };
                    if let Some(result) = self.on_event(watch, event) {
                        return result;
                    }
                }
            }
        }
    }

    fn listed(&mut self, objects: Vec<DynamicObject>, version: String) -> Event {
        let draw = uuid::Uuid::new_v4().as_u64_pair().0;
        self.next_list = Instant::now() + jittered(self.relist, draw);
        self.state = State::Known {
            version,
            is_checked: true,
        };
        Event::Listed(objects)
    }

    /// Lists everything, while the watch works as far as anybody knows. If that fails, the watch goes on.
    async fn list_to_be_sure(&mut self) -> Option<Event> {
        match timeout(RELIST_TIMEOUT, list_all(&self.collection)).await {
            Ok(Ok((objects, version))) => {
                debug!(
                    watched = self.what,
                    objects = objects.len(),
                    "listed again, as now and then"
                );
                return Some(self.listed(objects, version));
            }
            Ok(Err(error)) => debug!(watched = self.what, error = in_one_line(&error), "not listed again"),
            Err(_) => debug!(watched = self.what, "not listed again: that took too long"),
        }
        self.next_list = Instant::now() + self.relist / RETRY_PART;
        None
    }

    fn on_event(
        &mut self,
        watch: Watch,
        event: Option<kube::Result<WatchEvent<DynamicObject>>>,
    ) -> Option<Result<Event, Failure>> {
        let (event, version) = match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let version = object.metadata.resource_version.clone();
                (Event::Applied(object), version)
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                let version = object.metadata.resource_version.clone();
                (Event::Deleted(object), version)
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => (Event::Bookmark, Some(bookmark.metadata.resource_version)),
            Some(Ok(WatchEvent::Error(status))) => return Some(self.on_failure(watch, kube::Error::Api(status))),
            Some(Err(error)) => return Some(self.on_failure(watch, error)),
            None => {
                let has_lasted = watch.since.elapsed() + MARGIN >= WATCH;
                self.state = State::Known {
                    is_checked: watch.has_spoken && has_lasted,
                    version: watch.version,
                };
                return None;
            }
        };
        let version = version.filter(|version| !version.is_empty());
        if version.as_ref().is_some_and(|new| self.went_back(&watch.version, new)) {
            return None;
        }
        self.state = State::Watching(Watch {
            version: version.unwrap_or(watch.version),
            has_spoken: true,
            ..watch
        });
        Some(Ok(event))
    }

    fn on_failure(&mut self, watch: Watch, error: kube::Error) -> Result<Event, Failure> {
        self.state = after(&error, watch.version);
        Err(Failure::Watch(error))
    }

    /// True if versions went back, which is told.
    fn went_back(&self, known: &str, current: &str) -> bool {
        let is_so = is_older(current, known);
        if is_so {
            warn!(
                watched = self.what,
                known,
                current,
                "the API server's resource version went back, as after a restore of etcd; listing everything again"
            );
        }
        is_so
    }
}

/// All objects, page by page, and the version at which these were all.
async fn list_all<C: Collection>(collection: &C) -> kube::Result<(Vec<DynamicObject>, String)> {
    let mut objects = Vec::new();
    let mut token = None;
    loop {
        let list = collection.list(PAGE, token).await?;
        objects.extend(list.items);
        token = list.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok((objects, list.metadata.resource_version.unwrap_or_default()));
        }
    }
}

/// What follows a failure where everything up to `version` was known.
fn after(error: &kube::Error, version: String) -> State {
    // An event that makes no sense would come again.
    let has_to_list = is_expired(error) || is_from_the_future(error) || matches!(error, kube::Error::SerdeError(_));
    if has_to_list {
        return State::Unlisted;
    }
    State::Known {
        version,
        is_checked: false,
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

fn is_expired(error: &kube::Error) -> bool {
    code(error) == Some(410)
}

/// The server says that it has not come to this version yet.
fn is_from_the_future(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status
            .message
            .to_ascii_lowercase()
            .contains("too large resource version")
}

/// Versions are the revisions of etcd. If they are anything else, nobody can say.
fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}

/// Three to five quarters of a time, so that replicas don't list together.
fn jittered(time: Duration, draw: u64) -> Duration {
    let steps = u32::try_from(draw % 512).unwrap_or(0);
    time * (768 + steps) / 1024
}

#[cfg(test)]
mod tests;
