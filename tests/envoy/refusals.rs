//! What goes no further than the picker.

use crate::support::cluster::{Plan, document};
use crate::support::http::Reply;
use crate::support::upstream::Upstream;

/// What a client is told that sends `body`. Nothing of it reaches an endpoint.
async fn refused(plan: Plan, body: impl Into<bytes::Bytes>) -> Reply {
    let upstream = Upstream::start().await;
    let cluster = plan.upstream(upstream.address).start().await;

    let reply = cluster.client.send(cluster.completion(body)).await;

    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    // The picker is well after it.
    assert_eq!(cluster.complete("Hello").await.status, 200);
    reply
}

#[tokio::test]
async fn a_malformed_body_is_answered_with_what_is_wrong() {
    let reply = refused(Plan::new(), r#"{"model": "stand-in", "prompt": "#).await;

    assert_eq!(reply.status, 400);
    assert!(
        reply.text().starts_with("inference error: BadRequest - "),
        "{}",
        reply.text()
    );
    assert!(
        reply.text().contains("error unmarshaling request bodyMap"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn a_body_without_a_model_is_refused() {
    let reply = refused(Plan::new(), r#"{"prompt": "Hello"}"#).await;

    assert_eq!(reply.status, 400);
    assert!(
        reply.text().contains("model not found in request body"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_too_large() {
    let plan = Plan::new().flag("--max-request-body=64Ki");

    let reply = refused(plan, document(&"word".repeat(1 << 15), 4).to_string()).await;

    assert_eq!(reply.status, 413, "{}", reply.text());
    assert!(reply.text().starts_with("inference error: "), "{}", reply.text());
}
