//! What goes no further than the picker.

use serde_json::json;

use crate::support::cluster::{Plan, document};
use crate::support::http::{Ask, Reply};
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
    assert!(
        reply
            .text()
            .ends_with("exceeds the limit of 65536 bytes (--max-request-body)"),
        "{}",
        reply.text()
    );
    assert_eq!(reply.header("content-type"), Some("text/plain"));
}

#[tokio::test]
async fn refusals_are_errors_of_openai_where_the_configuration_says_so() {
    let config = "responses: {errorFormat: openai, headers: {requestId: x-request-id, queueWait: x-wait}}";
    let upstream = Upstream::start().await;
    let cluster = Plan::new().config(config).upstream(upstream.address).start().await;
    let ask = |body: &'static str| cluster.completion(body).header("x-request-id", "r-1");

    let refused = cluster.client.send(ask(r#"{"prompt":"Hello"}"#)).await;
    let served = cluster.client.send(ask(r#"{"model":"m","prompt":"Hello"}"#)).await;

    assert_eq!((refused.status, served.status), (400, 200));
    assert_eq!(refused.header("content-type"), Some("application/json"));
    assert_eq!(
        refused.json(),
        json!({
            "error": {
                "message": "model not found in request body",
                "type": "invalid_request_error",
                "param": null,
                "code": "malformed",
            }
        })
    );
    for reply in [refused, served] {
        assert_eq!(reply.header("x-request-id"), Some("r-1"));
        assert_eq!(
            reply.header("x-wait"),
            None,
            "requests do not wait without flow control"
        );
    }
}

#[tokio::test]
async fn a_request_that_prefers_what_is_cached_is_served_where_it_is_and_refused_before() {
    let cluster = Plan::new().start().await;
    let prompt = document(&"a long prompt ".repeat(200), 4).to_string();
    let conditional = || {
        cluster
            .completion(prompt.clone())
            .header("prefer", "wait=5, if-available")
    };

    let before = cluster.client.send(conditional()).await;
    assert_eq!(before.status, 412, "{}", before.text());
    assert_eq!(
        before.text(),
        "inference error: PreconditionFailed - no decode worker has the requested KV cache"
    );
    assert_eq!(before.header("retry-after"), None);
    let served = cluster.client.send(cluster.completion(prompt.clone())).await;
    let after = cluster.client.send(conditional()).await;

    assert_eq!(after.served_by(), served.served_by());
}

#[tokio::test]
async fn what_only_informs_the_picker_reaches_the_endpoint_as_it_was_sent() {
    let upstream = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;
    let bodies = [
        (
            "/v1/completions",
            r#"{"model":"m","prompt":"p","stream":"true","max_tokens":"100"}"#,
        ),
        (
            "/v1/completions",
            r#"{"model":"m","prompt":[[1,2],[3]],"stream":1,"max_tokens":100.0}"#,
        ),
        (
            "/v1/completions",
            r#"{"model":"m","prompt":["a",[1]],"max_tokens":-1,"cache_salt":7}"#,
        ),
        (
            "/v1/chat/completions",
            r#"{"model":"m","messages":[{"role":"user","content":["a"]},{"role":"tool","content":null}],"tools":{}}"#,
        ),
        (
            "/v1/embeddings",
            r#"{"model":"m","messages":[{"role":"user","content":"a"}]}"#,
        ),
        (
            "/v1/messages",
            r#"{"model":"m","messages":[{"role":"user","content":[7]}],"max_tokens":"8"}"#,
        ),
    ];

    for (path, body) in bodies {
        let reply = cluster.client.send(Ask::post(&cluster.url(path), body)).await;

        assert_eq!(reply.status, 200, "{body}: {}", reply.text());
    }

    let seen = upstream.seen();
    let sent: Vec<_> = seen.iter().map(|seen| &*seen.body).collect();
    assert_eq!(sent, bodies.map(|(_, body)| body.as_bytes()));
}

#[tokio::test]
async fn of_several_models_the_endpoint_reads_the_one_that_it_was_picked_for() {
    let upstream = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;
    let ask = cluster
        .completion(r#"{"model":"a","prompt":"p","model":"b"}"#)
        .header("x-llm-d-model-name-rewrite", "target");

    assert_eq!(cluster.client.send(ask).await.status, 200);

    assert_eq!(upstream.only().body, r#"{"prompt":"p","model":"target"}"#);
}
