//! What clients ask for, and get.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use crate::support::cluster::{MODEL, Plan, document};
use crate::support::http::Ask;

#[tokio::test]
async fn a_completion_comes_from_the_endpoint_that_was_picked() {
    let cluster = Plan::new().start().await;
    let ask = cluster
        .completion(document("Hello", 8).to_string())
        .header("x-request-id", "r-1");

    let reply = cluster.client.send(ask).await;

    let explanation = cluster.explanation("r-1").await;
    assert_eq!(reply.served_by(), explanation["endpoint"]);
    assert_eq!(explanation["model"], MODEL);
    assert_eq!(reply.json()["usage"]["completion_tokens"], 8);
    assert_eq!(reply.header("x-went-into-resp-headers"), Some("true"));
}

#[tokio::test]
async fn a_stream_of_events_comes_whole_and_in_order() {
    let cluster = Plan::new().start().await;
    let mut chat = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "Hello" }],
        "max_tokens": 50,
    });
    let url = cluster.url("/v1/chat/completions");
    let whole = cluster.client.send(Ask::post(&url, chat.to_string())).await.json();
    chat["stream"] = json!(true);
    chat["stream_options"] = json!({ "include_usage": true });

    let reply = cluster.client.send(Ask::post(&url, chat.to_string())).await;

    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let mut events = reply.events();
    assert_eq!(events.pop().unwrap(), "[DONE]");
    let events: Vec<serde_json::Value> = events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let words: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(words, whole["choices"][0]["message"]["content"]);
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 50);
}

#[tokio::test]
async fn a_prompt_of_a_mebibyte_arrives_whole() {
    let cluster = Plan::new().speed(1000.0).start().await;
    let prompt = "word".repeat(1 << 18);

    let reply = cluster.complete(&prompt).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 1 << 18);
}

#[tokio::test]
async fn a_body_in_many_pieces_is_one_body() {
    let cluster = Plan::new().start().await;
    let body = document("How many pieces are too many?", 4).to_string();
    let pieces: Vec<_> = body.bytes().map(|byte| Bytes::copy_from_slice(&[byte])).collect();
    let whole = cluster.client.send(cluster.completion(body)).await;

    let ask = Ask::post_pieces(&cluster.url("/v1/completions"), stream::iter(pieces));
    let reply = cluster.client.send(ask).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["choices"], whole.json()["choices"]);
}

#[tokio::test]
async fn a_request_without_a_body_is_served() {
    let cluster = Plan::new().start().await;

    let reply = cluster.client.send(Ask::get(&cluster.url("/v1/models"))).await;

    assert!(["a", "b"].contains(&reply.served_by()));
    assert_eq!(reply.json()["data"][0]["id"], MODEL);
}

#[tokio::test]
async fn requests_with_the_same_beginning_go_to_the_same_endpoint() {
    let cluster = Plan::new().start().await;
    let beginning = "The same instructions, again and again. ".repeat(100);

    let mut served = BTreeSet::new();
    for question in 0..10 {
        let reply = cluster.complete(&format!("{beginning} Question {question}?")).await;
        served.insert(reply.served_by().to_owned());
    }

    assert_eq!(served.len(), 1, "{served:?}");
}

#[tokio::test]
async fn what_the_model_server_refuses_is_passed_on() {
    let cluster = Plan::new().start().await;
    let body = json!({ "model": "unheard-of", "prompt": "Hello" }).to_string();

    let reply = cluster.client.send(cluster.completion(body)).await;

    assert_eq!(reply.status, 404);
    assert!(["a", "b"].contains(&reply.header("x-served-by").unwrap()));
    assert_eq!(
        reply.json()["error"]["message"],
        "the model `unheard-of` does not exist; served here: stand-in, lora-a"
    );
}
