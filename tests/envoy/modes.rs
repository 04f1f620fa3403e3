//! Body modes other than full duplex.

use forebay::serve::demo::envoy::BodyMode;
use serde_json::json;

use crate::support::cluster::{Cluster, MODEL, Plan, document, sum};

async fn cluster(mode: BodyMode) -> Cluster {
    Plan::new()
        .envoy(move |bootstrap, _| {
            bootstrap.request_body = mode;
            bootstrap.response_body = mode;
        })
        .start()
        .await
}

/// A completion, a stream and a large prompt go through, byte for byte.
async fn serves(cluster: &Cluster) {
    let whole = cluster.complete("Hello").await;
    assert!(["a", "b"].contains(&whole.served_by()));

    let events = json!({ "model": MODEL, "prompt": "Hello", "max_tokens": 4, "stream": true });
    let stream = cluster.client.send(cluster.completion(events.to_string())).await;
    assert_eq!(stream.status, 200, "{}", stream.text());
    let mut events = stream.events();
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let words: String = events
        .iter()
        .map(|event| serde_json::from_str::<serde_json::Value>(event).unwrap())
        .filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(words, whole.json()["choices"][0]["text"]);

    let large = cluster.complete(&"word".repeat(1 << 16)).await;
    assert_eq!(large.status, 200, "{}", large.text());
    assert_eq!(large.json()["usage"]["prompt_tokens"], 1 << 16);
}

/// The reason of a request is known, and so is its model.
async fn knows_the_model(cluster: &Cluster) {
    let ask = cluster
        .completion(document("Hello", 4).to_string())
        .header("x-request-id", "r-1");
    let reply = cluster.client.send(ask).await;

    let explanation = cluster.explanation("r-1").await;
    assert_eq!(explanation["model"], MODEL);
    assert_eq!(explanation["endpoint"], reply.served_by());
}

#[tokio::test]
async fn buffered_bodies_are_served_and_read() {
    let cluster = cluster(BodyMode::Buffered).await;

    serves(&cluster).await;
    knows_the_model(&cluster).await;
}

#[tokio::test]
async fn streamed_bodies_are_served() {
    serves(&cluster(BodyMode::Streamed).await).await;
}

#[tokio::test]
async fn bodies_that_the_picker_does_not_see_are_served() {
    serves(&cluster(BodyMode::None).await).await;
}

#[tokio::test]
async fn responses_that_the_picker_does_not_see_are_warned_of_and_counted_apart() {
    let cluster = Plan::new()
        .envoy(|bootstrap, _| bootstrap.response_body = BodyMode::None)
        .start()
        .await;

    for number in 0..3 {
        assert_eq!(cluster.complete(&format!("Hello {number}")).await.status, 200);
    }

    cluster.picker.says("the gateway does not show response bodies").await;
    let page = cluster.page("/metrics").await.text();
    assert_eq!(sum(&page, "forebay_requests_ended_total{outcome=\"unobserved\"}"), 3.0);
    assert_eq!(sum(&page, "forebay_requests_ended_total{outcome=\"completed\"}"), 0.0);
}
