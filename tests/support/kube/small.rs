//! A small API server: what Forebay and its tests ask of one, and nothing else.
//!
//! List, watch with resource versions, bookmarks and 410, create, replace, merge patch, delete, the status apart,
//! reviews of tokens and of access.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::store::{Backup, Collection, Failure, Part, Selection, Store, merge};

/// Time between two bookmarks of a watch in which nothing happens.
const BOOKMARKS: Duration = Duration::from_millis(500);

/// The server.
pub(crate) struct Small {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

struct Shared {
    store: Store,
    /// Users by their tokens.
    users: Mutex<BTreeMap<String, String>>,
    /// Users that may read `/metrics`.
    scrapers: Mutex<Vec<String>>,
    /// How often each kind of request came, such as `list pods`.
    asked: Mutex<BTreeMap<String, usize>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Parameters {
    watch: Option<String>,
    label_selector: Option<String>,
    field_selector: Option<String>,
    resource_version: Option<String>,
    timeout_seconds: Option<u64>,
    grace_period_seconds: Option<u64>,
}

impl Small {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            store: Store::new(),
            users: Mutex::default(),
            scrapers: Mutex::default(),
            asked: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            shared,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Forgets all changes so far: who watches from before has to list anew.
    pub(crate) fn forget(&self) {
        self.shared.store.forget();
    }

    /// Everything, as it is now.
    pub(crate) fn backup(&self) -> Backup {
        self.shared.store.backup()
    }

    /// Goes back to a backup, and so does the resource version.
    pub(crate) fn restore(&self, backup: Backup) {
        self.shared.store.restore(backup);
    }

    /// Tells watches nothing of what changes from now on, if `is_mute`.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.shared.store.mute(is_mute);
    }

    pub(crate) fn install(&self, group: &str, resource: &str, is_installed: bool) {
        self.shared.store.install(group, resource, is_installed);
    }

    /// Serves a version of a kind, such as `llm-d.ai/v1`, or does not.
    pub(crate) fn serve(&self, version: &str, resource: &str, is_served: bool) {
        self.shared.store.serve(version, resource, is_served);
    }

    /// Answers every list of a kind with this code; with none, as usual.
    pub(crate) fn refuse_lists(&self, group: &str, resource: &str, code: Option<u16>) {
        self.shared.store.refuse_lists(group, resource, code);
    }

    /// A token, and whether its user may read `/metrics`.
    pub(crate) fn admit(&self, token: &str, user: &str, may_scrape: bool) {
        self.shared.users.lock().insert(token.to_owned(), user.to_owned());
        if may_scrape {
            self.shared.scrapers.lock().push(user.to_owned());
        }
    }

    /// How often this was asked, such as `list pods`.
    pub(crate) fn asked(&self, what: &str) -> usize {
        self.shared.asked.lock().get(what).copied().unwrap_or(0)
    }
}

/// A request, by the parts of its path.
struct Place {
    collection: Collection,
    name: Option<String>,
    subresource: Option<String>,
}

impl Place {
    /// `/api/v1/...` or `/apis/GROUP/VERSION/...`, with or without `namespaces/NAMESPACE`.
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>();
        let version = match parts.first()?.as_str() {
            "api" => {
                let rest = parts.split_off(2);
                let version = parts.pop()?;
                parts = rest;
                version
            }
            "apis" if parts.len() > 3 => {
                let rest = parts.split_off(3);
                let version = parts[1..].join("/");
                parts = rest;
                version
            }
            _ => return None,
        };
        let namespace = if parts.len() > 2 && parts[0] == "namespaces" {
            let rest = parts.split_off(2);
            let namespace = parts.pop()?;
            parts = rest;
            namespace
        } else {
            String::new()
        };
        let mut parts = parts.into_iter();
        Some(Self {
            collection: Collection {
                version,
                resource: parts.next()?,
                namespace,
            },
            name: parts.next(),
            subresource: parts.next(),
        })
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(place) = Place::of(uri.path()) else {
        return refused(Failure {
            code: 404,
            reason: "NotFound",
            message: format!("no such path: {uri}"),
        });
    };
    let verb = match (method.as_str(), &place.name, parameters.watch.is_some()) {
        ("GET", None, true) => "watch",
        ("GET", None, false) => "list",
        ("GET", Some(_), _) => "get",
        ("POST", ..) => "create",
        ("PUT", ..) => "update",
        ("PATCH", ..) => "patch",
        _ => "delete",
    };
    let resource = &place.collection.resource;
    *shared.asked.lock().entry(format!("{verb} {resource}")).or_default() += 1;
    match verb {
        "watch" => watch(shared, &place.collection, &parameters),
        "create" if resource == "tokenreviews" => reply(StatusCode::CREATED, &shared.review_token(&body)),
        "create" if resource == "subjectaccessreviews" => reply(StatusCode::CREATED, &shared.review_access(&body)),
        _ => {
            let is_merge = headers
                .get(header::CONTENT_TYPE)
                .is_some_and(|kind| kind == "application/merge-patch+json");
            match shared.shown(verb, &place, &parameters, &body, is_merge) {
                Ok(object) if verb == "create" => reply(StatusCode::CREATED, &object),
                Ok(object) => reply(StatusCode::OK, &object),
                Err(failure) => refused(failure),
            }
        }
    }
}

impl Shared {
    /// Carries a request out, and shows what comes of it in the version that was asked for.
    fn shown(
        &self,
        verb: &str,
        place: &Place,
        parameters: &Parameters,
        body: &[u8],
        is_merge: bool,
    ) -> Result<Value, Failure> {
        self.store.check_served(&place.collection)?;
        let stored = Place {
            collection: place.collection.stored(),
            name: place.name.clone(),
            subresource: place.subresource.clone(),
        };
        let mut answer = self.carry_out(verb, &stored, parameters, body, is_merge)?;
        match answer["items"].as_array_mut() {
            Some(items) => items.iter_mut().for_each(|object| place.collection.show(object)),
            None => place.collection.show(&mut answer),
        }
        Ok(answer)
    }

    fn carry_out(
        &self,
        verb: &str,
        place: &Place,
        parameters: &Parameters,
        body: &[u8],
        is_merge: bool,
    ) -> Result<Value, Failure> {
        let Place {
            collection,
            name,
            subresource,
        } = place;
        let part = match subresource.as_deref() {
            Some("status") => Part::Status,
            _ => Part::Whole,
        };
        let name = name.as_deref().unwrap_or_default();
        let sent = || {
            serde_json::from_slice::<Value>(body).map_err(|error| Failure {
                code: 400,
                reason: "BadRequest",
                message: error.to_string(),
            })
        };
        match verb {
            "list" => self.store.list(collection, &selection(parameters)),
            "get" => self.store.get(collection, name),
            "create" => self.store.create(collection, sent()?),
            "update" => {
                let sent = sent()?;
                self.store.update(collection, name, part, |_| sent)
            }
            "patch" if is_merge => {
                let patch = sent()?;
                self.store.update(collection, name, part, |old| {
                    let mut new = old.clone();
                    merge(&mut new, &patch);
                    new
                })
            }
            "patch" => Err(Failure {
                code: 415,
                reason: "UnsupportedMediaType",
                message: "only merge patches are understood".to_owned(),
            }),
            _ => {
                let asked = sent().ok().and_then(|options| options["gracePeriodSeconds"].as_u64());
                self.store
                    .delete(collection, name, parameters.grace_period_seconds.or(asked))
            }
        }
    }

    fn review_token(&self, body: &[u8]) -> Value {
        let mut review: Value = serde_json::from_slice(body).unwrap();
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        review["status"] = match self.users.lock().get(token) {
            Some(user) => {
                json!({ "authenticated": true, "user": { "username": user, "groups": ["system:authenticated"] } })
            }
            None => json!({ "authenticated": false }),
        };
        review
    }

    fn review_access(&self, body: &[u8]) -> Value {
        let mut review: Value = serde_json::from_slice(body).unwrap();
        let wanted = json!({ "path": "/metrics", "verb": "get" });
        let user = review["spec"]["user"].as_str().unwrap_or_default();
        let allowed =
            review["spec"]["nonResourceAttributes"] == wanted && self.scrapers.lock().iter().any(|u| u == user);
        review["status"] = json!({ "allowed": allowed });
        review
    }
}

fn selection(parameters: &Parameters) -> Selection {
    let name = parameters
        .field_selector
        .as_deref()
        .and_then(|selector| selector.strip_prefix("metadata.name="));
    Selection {
        labels: parameters.label_selector.clone(),
        name: name.map(str::to_owned),
    }
}

/// A stream of events, one a line, until its time is up.
fn watch(shared: Arc<Shared>, collection: &Collection, parameters: &Parameters) -> Response {
    let selection = selection(parameters);
    if let Err(failure) = shared.store.check_served(collection) {
        return refused(failure);
    }
    let (shown, collection) = (collection.clone(), collection.stored());
    let start = parameters
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0);
    if let Err(failure) = shared.store.events(&collection, &selection, start)
        && failure.code != 410
    {
        return refused(failure);
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(parameters.timeout_seconds.unwrap_or(300));
    let revisions = shared.store.revisions();
    let start = (shared, revisions, start);
    let lines = stream::unfold(Some(start), move |state| {
        let (shown, collection, selection) = (shown.clone(), collection.clone(), selection.clone());
        async move {
            let (shared, mut revisions, seen) = state?;
            loop {
                revisions.borrow_and_update();
                let (mut events, newest) = match shared.store.events(&collection, &selection, seen) {
                    Ok(found) => found,
                    Err(failure) => {
                        let line = json!({ "type": "ERROR", "object": status(&failure) });
                        return Some((in_lines(&[line]), None));
                    }
                };
                events.iter_mut().for_each(|event| shown.show(&mut event["object"]));
                if !events.is_empty() {
                    return Some((in_lines(&events), Some((shared, revisions, newest))));
                }
                tokio::select! {
                    changed = revisions.changed() => if changed.is_err() { return None },
                    () = tokio::time::sleep_until(end) => return None,
                    () = tokio::time::sleep(BOOKMARKS) => {
                        // A watch from the future is silent until its version has come.
                        if newest < seen {
                            continue;
                        }
                        let bookmark = json!({
                            "type": "BOOKMARK",
                            "object": {
                                "apiVersion": collection.version,
                                "kind": "Bookmark",
                                "metadata": { "resourceVersion": newest.to_string() },
                            },
                        });
                        return Some((in_lines(&[bookmark]), Some((shared, revisions, newest))));
                    }
                }
            }
        }
    });
    let lines = futures_util::StreamExt::map(lines, Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(lines)).into_response()
}

fn in_lines(events: &[Value]) -> Bytes {
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    Bytes::from(lines)
}

fn status(failure: &Failure) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "code": failure.code,
        "reason": failure.reason,
        "message": failure.message,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "it is what an answer is made of")]
fn refused(failure: Failure) -> Response {
    reply(StatusCode::from_u16(failure.code).unwrap(), &status(&failure))
}

fn reply(code: StatusCode, object: &Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], object.to_string()).into_response()
}
