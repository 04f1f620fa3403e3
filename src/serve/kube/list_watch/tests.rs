use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future;
use kube::core::Status;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

use super::*;

const RELIST: Duration = Duration::from_secs(600);

/// An API server whose watches do what the test says, one after the other; when there is none left, they stay silent for
/// their time.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    version: u64,
    objects: Vec<(&'static str, u64)>,
    watches: VecDeque<Plan>,
    refused_lists: usize,
    /// What was asked, such as `list` or `watch 7`.
    asked: Vec<String>,
}

enum Plan {
    Refused(kube::Error),
    /// These events, and then this end.
    Tells(Vec<kube::Result<WatchEvent<DynamicObject>>>, End),
}

enum End {
    /// The connection breaks.
    Now,
    /// The time of the watch is over.
    InTime,
    /// The connection is dead, and nobody says so.
    Never,
}

impl Server {
    fn at(version: u64, objects: &[(&'static str, u64)], watches: impl IntoIterator<Item = Plan>) -> Self {
        Self(Arc::new(Mutex::new(Script {
            version,
            objects: objects.to_vec(),
            watches: watches.into_iter().collect(),
            ..Script::default()
        })))
    }

    /// The server has these objects now.
    fn is_at(&self, version: u64, objects: &[(&'static str, u64)]) {
        let mut script = self.0.lock();
        script.version = version;
        script.objects = objects.to_vec();
    }

    fn follow(&self) -> BoxStream<'static, Result<Event, Failure>> {
        ListWatch::new("pods", self.clone(), RELIST).run()
    }

    fn asked(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().asked)
    }
}

impl Collection for Server {
    fn list(&self, limit: u32, token: Option<String>) -> BoxFuture<'_, Objects> {
        let mut script = self.0.lock();
        script.asked.push(if limit == 1 { "look" } else { "list" }.to_owned());
        if script.refused_lists > 0 {
            script.refused_lists -= 1;
            return future::err(answered(403, "Forbidden")).boxed();
        }
        // Two pages, if there are two objects.
        let pages = script.objects.len().max(1);
        let page = token.map_or(0, |token| token.parse().unwrap());
        let list = json!({
            "apiVersion": "v1",
            "kind": "PodList",
            "metadata": {
                "resourceVersion": script.version.to_string(),
                "continue": if page + 1 < pages { (page + 1).to_string() } else { String::new() },
            },
            "items": script.objects[page..].iter().take(1).map(|(name, version)| pod(name, *version)).collect::<Vec<_>>(),
        });
        future::ok(serde_json::from_value(list).unwrap()).boxed()
    }

    fn watch<'a>(&'a self, version: &'a str) -> BoxFuture<'a, kube::Result<Events>> {
        let mut script = self.0.lock();
        script.asked.push(format!("watch {version}"));
        let plan = script.watches.pop_front();
        match plan.unwrap_or_else(|| Plan::Tells(Vec::new(), End::InTime)) {
            Plan::Refused(error) => future::err(error).boxed(),
            Plan::Tells(events, end) => {
                let end = stream::once(async move {
                    match end {
                        End::Now => {}
                        End::InTime => sleep(WATCH).await,
                        End::Never => future::pending().await,
                    }
                });
                let end = end.filter_map(|()| future::ready(None));
                future::ok(stream::iter(events).chain(end).boxed()).boxed()
            }
        }
    }
}

fn pod(name: &str, version: u64) -> DynamicObject {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "resourceVersion": version.to_string() },
    });
    serde_json::from_value(pod).unwrap()
}

fn answered(code: u16, message: &str) -> kube::Error {
    kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
}

fn modified(name: &str, version: u64) -> kube::Result<WatchEvent<DynamicObject>> {
    Ok(WatchEvent::Modified(pod(name, version)))
}

fn bookmark(version: u64) -> kube::Result<WatchEvent<DynamicObject>> {
    let line = json!({
        "type": "BOOKMARK",
        "object": { "apiVersion": "v1", "kind": "Pod", "metadata": { "resourceVersion": version.to_string() } },
    });
    Ok(serde_json::from_value(line).unwrap())
}

/// The next event in words, such as `listed a b` or `applied a`.
async fn next(events: &mut BoxStream<'static, Result<Event, Failure>>) -> String {
    let name = |object: DynamicObject| object.metadata.name.unwrap();
    match events.next().await.expect("it does not end") {
        Ok(Event::Listed(objects)) => {
            let names = objects.into_iter().map(name);
            names.fold("listed".to_owned(), |words, name| format!("{words} {name}"))
        }
        Ok(Event::Applied(object)) => format!("applied {}", name(object)),
        Ok(Event::Deleted(object)) => format!("deleted {}", name(object)),
        Ok(Event::Bookmark) => "bookmark".to_owned(),
        Err(Failure::List(error)) => format!("list failed: {}", code(&error).unwrap_or(0)),
        Err(Failure::Watch(error)) => format!("watch failed: {}", code(&error).unwrap_or(0)),
    }
}

#[tokio::test(start_paused = true)]
async fn all_pages_are_one_list_and_the_watch_goes_on_from_there() {
    let events = vec![modified("a", 8), Ok(WatchEvent::Deleted(pod("b", 9)))];
    let server = Server::at(7, &[("a", 3), ("b", 5)], [Plan::Tells(events, End::Never)]);
    let mut events = server.follow();

    assert_eq!(next(&mut events).await, "listed a b");
    assert_eq!(next(&mut events).await, "applied a");
    assert_eq!(next(&mut events).await, "deleted b");

    assert_eq!(server.asked(), ["list", "list", "watch 7"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_time_is_over_goes_on_from_where_it_was_without_a_look() {
    let server = Server::at(
        7,
        &[],
        [
            Plan::Tells(vec![modified("a", 8), bookmark(12)], End::InTime),
            Plan::Tells(vec![modified("a", 13)], End::Never),
        ],
    );
    let mut events = server.follow();

    for wanted in ["listed", "applied a", "bookmark", "applied a"] {
        assert_eq!(next(&mut events).await, wanted);
    }

    assert_eq!(server.asked(), ["list", "watch 7", "watch 12"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_of_a_server_whose_version_went_back_is_noticed_after_its_time() {
    let server = Server::at(812, &[("gone", 800)], []);
    let mut events = server.follow();
    assert_eq!(next(&mut events).await, "listed gone");

    server.is_at(407, &[("new", 401)]);
    let start = Instant::now();

    assert_eq!(next(&mut events).await, "listed new");
    assert_eq!(start.elapsed(), WATCH);
    assert_eq!(server.asked(), ["list", "watch 812", "look", "list"]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_followed_by_a_look_at_the_version() {
    let server = Server::at(
        812,
        &[("a", 800)],
        [
            Plan::Tells(vec![modified("a", 813)], End::Now),
            Plan::Tells(vec![modified("a", 814)], End::Now),
        ],
    );
    let mut events = server.follow();
    for wanted in ["listed a", "applied a"] {
        assert_eq!(next(&mut events).await, wanted);
    }

    server.is_at(813, &[("a", 813)]);
    assert_eq!(
        next(&mut events).await,
        "applied a",
        "the version is as it was: no list"
    );
    server.is_at(407, &[("b", 401)]);
    assert_eq!(next(&mut events).await, "listed b");

    let asked = ["list", "watch 812", "look", "watch 813", "look", "list"];
    assert_eq!(server.asked(), asked);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dead_without_a_word_is_given_up() {
    let server = Server::at(7, &[], [Plan::Tells(vec![bookmark(8)], End::Never)]);
    let mut events = server.follow();
    for wanted in ["listed", "bookmark"] {
        assert_eq!(next(&mut events).await, wanted);
    }

    server.is_at(6, &[("a", 6)]);
    server
        .0
        .lock()
        .watches
        .push_back(Plan::Tells(vec![modified("a", 9)], End::Never));
    assert_eq!(next(&mut events).await, "applied a");
    assert_eq!(
        server.asked(),
        ["list", "watch 7", "watch 8"],
        "it had spoken, and its time was over"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_or_a_bookmark_with_a_lower_version_has_everything_listed() {
    for lower in [modified("a", 6), bookmark(6)] {
        let server = Server::at(7, &[("a", 3)], [Plan::Tells(vec![lower], End::Never)]);
        let mut events = server.follow();

        assert_eq!(next(&mut events).await, "listed a");
        assert_eq!(next(&mut events).await, "listed a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_or_from_the_future_or_an_event_without_sense_has_everything_listed() {
    let nonsense = || kube::Error::SerdeError(serde_json::from_str::<u8>("x").unwrap_err());
    let in_event = |code, message: &str| {
        let status = Status::failure(message, "").with_code(code).boxed();
        Plan::Tells(vec![Ok(WatchEvent::Error(status))], End::Never)
    };
    let future = "Too large resource version: 812, current: 407";
    for (plan, code) in [
        (Plan::Refused(answered(410, "Expired")), 410),
        (in_event(410, "too old resource version"), 410),
        (Plan::Refused(answered(504, future)), 504),
        (in_event(504, future), 504),
        (Plan::Tells(vec![Err(nonsense())], End::Never), 0),
        (Plan::Refused(answered(404, "")), 404),
    ] {
        let server = Server::at(7, &[("a", 3)], [plan]);
        let mut events = server.follow();

        assert_eq!(next(&mut events).await, "listed a");
        assert_eq!(next(&mut events).await, format!("watch failed: {code}"));
        assert_eq!(next(&mut events).await, "listed a", "after {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_failure_is_followed_by_a_look_and_the_same_watch() {
    let server = Server::at(7, &[], [Plan::Refused(answered(500, ""))]);
    server
        .0
        .lock()
        .watches
        .push_back(Plan::Tells(vec![bookmark(8)], End::Never));
    let mut events = server.follow();
    for wanted in ["listed", "watch failed: 500"] {
        assert_eq!(next(&mut events).await, wanted);
    }

    server.0.lock().refused_lists = 1;
    assert_eq!(next(&mut events).await, "list failed: 403");
    assert_eq!(next(&mut events).await, "bookmark");

    assert_eq!(server.asked(), ["list", "watch 7", "look", "look", "watch 7"]);
}

/// The watch works all the time; its events are not of interest.
async fn until_the_next_list(events: &mut BoxStream<'static, Result<Event, Failure>>) -> String {
    loop {
        let event = next(events).await;
        if event.starts_with("list") {
            return event;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_again_now_and_then_though_the_watch_works() {
    let works = || Plan::Tells(vec![bookmark(7)], End::InTime);
    let server = Server::at(7, &[("a", 3)], (0..60).map(|_| works()));
    let mut events = server.follow();
    assert_eq!(next(&mut events).await, "listed a");

    // The version has gone back and caught up again before anybody looked.
    server.is_at(7, &[("b", 4)]);
    let start = Instant::now();
    assert_eq!(until_the_next_list(&mut events).await, "listed b");

    let waited = start.elapsed();
    assert!((RELIST * 3 / 4..=RELIST * 5 / 4).contains(&waited), "{waited:?}");
    assert!(!server.asked().contains(&"look".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_list_to_be_sure_that_fails_leaves_the_watch_alone_and_is_tried_again() {
    let works = || Plan::Tells(vec![bookmark(7)], End::InTime);
    let server = Server::at(7, &[("a", 3)], (0..60).map(|_| works()));
    let mut events = server.follow();
    assert_eq!(next(&mut events).await, "listed a");
    server.0.lock().refused_lists = 2;

    let start = Instant::now();
    assert_eq!(until_the_next_list(&mut events).await, "listed a");

    let waited = start.elapsed() - 2 * RELIST / RETRY_PART;
    assert!((RELIST * 3 / 4..=RELIST * 5 / 4).contains(&waited), "{waited:?}");
}

#[test]
fn versions_that_are_no_numbers_are_not_compared() {
    assert!(is_older("407", "812"));
    assert!(!is_older("812", "812"));
    assert!(!is_older("a", "b") && !is_older("", "7") && !is_older("7", ""));
}

#[test]
fn the_times_of_lists_are_spread() {
    let second = Duration::from_secs(1);

    assert_eq!(jittered(second, 0), second * 3 / 4);
    assert!(jittered(second, 511) < second * 5 / 4);
    assert!(jittered(second, u64::MAX) < second * 5 / 4);
}
