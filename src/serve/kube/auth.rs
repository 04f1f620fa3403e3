//! Who may read the pages: whoever the API server knows and lets read them.
//!
//! A caller shows a bearer token. A `TokenReview` says whose it is, and a `SubjectAccessReview` whether that user may
//! `get` the path. Answers are kept for a while, so that a scrape costs the API server nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::failure::in_one_line;

/// How long a yes is kept.
const YES_LASTS: Duration = Duration::from_secs(60);
/// How long a no is kept.
const NO_LASTS: Duration = Duration::from_secs(10);
/// Answers that are kept.
const MOST_ANSWERS: usize = 1024;
/// How long the API server may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a caller may read a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Granted,
    /// The API server does not know the token.
    Unknown,
    /// It knows it, and the user may not.
    Denied,
}

/// Asks the API server.
#[derive(Clone)]
pub struct Gatekeeper {
    client: Client,
    answers: Arc<Mutex<Answers>>,
}

impl std::fmt::Debug for Gatekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gatekeeper").finish_non_exhaustive()
    }
}

/// What was answered, and until when it holds, by the digest of token and path.
#[derive(Debug, Default)]
struct Answers(BTreeMap<u128, (Access, Instant)>);

impl Answers {
    fn get(&self, key: u128, now: Instant) -> Option<Access> {
        let (access, until) = *self.0.get(&key)?;
        (now < until).then_some(access)
    }

    fn keep(&mut self, key: u128, access: Access, now: Instant) {
        if self.0.len() >= MOST_ANSWERS {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MOST_ANSWERS {
            // Somebody tries tokens. They are asked about each time.
            return;
        }
        let lasts = match access {
            Access::Granted => YES_LASTS,
            Access::Unknown | Access::Denied => NO_LASTS,
        };
        self.0.insert(key, (access, now + lasts));
    }
}

impl Gatekeeper {
    /// One that asks through `client`.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Arc::default(),
        }
    }

    /// Lets a request through, or says why not.
    pub async fn check(State(this): State<Self>, request: Request, next: Next) -> Response {
        let token = request
            .headers()
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(bearer);
        let Some(token) = token else {
            return (StatusCode::UNAUTHORIZED, "a bearer token is needed\n").into_response();
        };
        match this.access(token, request.uri().path()).await {
            Ok(Access::Granted) => next.run(request).await,
            Ok(Access::Unknown) => (StatusCode::UNAUTHORIZED, "the token is not known\n").into_response(),
            Ok(Access::Denied) => (StatusCode::FORBIDDEN, "the user of the token may not read this\n").into_response(),
            Err(error) => {
                warn!(%error, "a caller of the pages could not be checked");
                (StatusCode::INTERNAL_SERVER_ERROR, "the token could not be checked\n").into_response()
            }
        }
    }

    async fn access(&self, token: &str, path: &str) -> Result<Access, String> {
        let key = digest(token, path);
        if let Some(access) = self.answers.lock().get(key, Instant::now()) {
            return Ok(access);
        }
        let access = timeout(REVIEW_TIMEOUT, self.review(token, path))
            .await
            .map_err(|_| format!("the API server did not answer within {REVIEW_TIMEOUT:?}"))?
            .map_err(|error| in_one_line(&error))?;
        self.answers.lock().keep(key, access, Instant::now());
        Ok(access)
    }

    async fn review(&self, token: &str, path: &str) -> kube::Result<Access> {
        let params = PostParams::default();
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let tokens: Api<TokenReview> = Api::all(self.client.clone());
        let status = tokens.create(&params, &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Access::Unknown);
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let accesses: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let allowed = accesses
            .create(&params, &review)
            .await?
            .status
            .is_some_and(|status| status.allowed);
        debug!(user = user.username, path, allowed, "a caller of the pages was checked");
        Ok(if allowed { Access::Granted } else { Access::Denied })
    }
}

/// The token of an `Authorization` header.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Stands for a token and a path, which are not kept themselves: a token is a secret, and a path may be long. Two halves
/// with seeds of this process: nobody can make two of them meet.
fn digest(token: &str, path: &str) -> u128 {
    static SEEDS: std::sync::LazyLock<(u64, u64)> = std::sync::LazyLock::new(|| uuid::Uuid::new_v4().as_u64_pair());
    // No path has a space in it.
    let both = format!("{token} {path}");
    let half = |seed| u128::from(twox_hash::XxHash64::oneshot(seed, both.as_bytes()));
    half(SEEDS.0) << 64 | half(SEEDS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_follows_bearer() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("Bearer "), None);
        assert_eq!(bearer("abc"), None);
    }

    #[test]
    fn a_yes_is_kept_longer_than_a_no() {
        let (mut answers, start) = (Answers::default(), Instant::now());
        answers.keep(1, Access::Granted, start);
        answers.keep(2, Access::Denied, start);

        let later = start + NO_LASTS;

        assert_eq!(answers.get(1, later), Some(Access::Granted));
        assert_eq!(answers.get(2, later), None);
        assert_eq!(answers.get(1, start + YES_LASTS), None);
    }

    #[test]
    fn an_answer_is_for_one_token_and_one_path() {
        let key = digest("token", "/metrics");

        assert_eq!(digest("token", "/metrics"), key);
        assert_ne!(digest("token", "/debug"), key);
        assert_ne!(digest("another", "/metrics"), key);
    }

    #[test]
    fn no_more_answers_are_kept_than_there_is_room_for() {
        let (mut answers, start) = (Answers::default(), Instant::now());
        for number in 0..2 * MOST_ANSWERS as u128 {
            answers.keep(number, Access::Unknown, start);
        }
        assert_eq!(answers.0.len(), MOST_ANSWERS);

        answers.keep(u128::MAX, Access::Granted, start + NO_LASTS);
        assert_eq!(answers.0.len(), 1, "those that do not hold any more make room");
    }
}
