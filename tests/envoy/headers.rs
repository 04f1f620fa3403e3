//! What endpoints and clients see of the headers.

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue};
use hyper::body::Frame;
use serde_json::Value;

use crate::support::cluster::{ADAPTER, Plan, document};
use crate::support::http::Ask;
use crate::support::upstream::Upstream;

/// What clients tell the picker, under both names, and what only a picker tells the sidecars of model servers.
const CONTROL: [&str; 18] = [
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-llm-d-model-name-rewrite",
    "x-gateway-model-name-rewrite",
    "x-llm-d-slo-ttft-ms",
    "x-slo-ttft-ms",
    "x-llm-d-slo-tpot-ms",
    "x-slo-tpot-ms",
    "x-llm-d-prefiller-host-port",
    "x-prefiller-host-port",
    "x-prefiller-url",
    "x-llm-d-encoder-hosts-ports",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-llm-d-kv-cache-source-host-port",
    "x-kv-cache-source-host-port",
];

#[tokio::test]
async fn what_is_said_to_the_picker_does_not_reach_the_endpoint() {
    let upstream = Upstream::start().await;
    // Forebay's part of it alone.
    let without_filter = |document: &mut Value| {
        let config =
            &mut document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        config["http_filters"].as_array_mut().unwrap().remove(0);
    };
    let plan = Plan::new().upstream(upstream.address).document(without_filter);
    let cluster = plan.start().await;
    let ask = cluster.completion(document("Hello", 4).to_string());
    let ask = CONTROL.into_iter().fold(ask, |ask, name| ask.header(name, "7"));

    let reply = cluster.client.send(ask.header("x-kept", "yes")).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = upstream.only().headers;
    let leaked: Vec<_> = CONTROL.iter().filter(|name| seen.contains_key(**name)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
    assert_eq!(seen["x-kept"], "yes");
}

#[tokio::test]
async fn a_client_does_not_choose_its_endpoint() {
    let upstream = Upstream::start().await;
    let elsewhere = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;
    let ask = cluster.completion(document("Hello", 4).to_string());

    let ask = ask.header("x-gateway-destination-endpoint", &elsewhere.address.to_string());
    cluster.client.send(ask).await;

    assert_eq!(
        upstream.only().headers["x-gateway-destination-endpoint"],
        upstream.address.to_string().as_str()
    );
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn every_value_of_a_response_header_reaches_the_client() {
    let upstream = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;

    let reply = cluster.complete("Hello").await;

    let cookies: Vec<_> = reply.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
}

#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let upstream = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;
    let body = document("Hello", 4).to_string();
    let trailers = HeaderMap::from_iter([("x-digest".parse().unwrap(), HeaderValue::from_static("9f"))]);
    let frames = [Frame::data(Bytes::from(body.clone())), Frame::trailers(trailers)];

    let ask = Ask::post_frames(&cluster.url("/v1/completions"), stream::iter(frames));
    let ask = ask.header("trailer", "x-digest").header("te", "trailers");
    let reply = cluster.client.send(ask).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = upstream.only();
    assert_eq!(seen.body, body);
    assert_eq!(seen.trailers.unwrap()["x-digest"], "9f");
    assert_eq!(reply.trailers.unwrap()["x-checksum"], "2a");
}

#[tokio::test]
async fn a_rewritten_model_changes_no_other_byte() {
    let upstream = Upstream::start().await;
    let cluster = Plan::new().upstream(upstream.address).start().await;
    let body = |model: &str| {
        format!(
            "{{ \"n\": 1.0e0, \"prompt\":\"caf\\u00e9 \u{e9}\",\r\n\t\"model\" : \"{model}\" , \"big\": 12345678901234567890 }}"
        )
    };

    for (number, header) in ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"]
        .into_iter()
        .enumerate()
    {
        let ask = cluster.completion(body("stand-in")).header(header, ADAPTER);
        let reply = cluster.client.send(ask).await;

        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(upstream.seen()[number].body, body(ADAPTER));
    }
}
