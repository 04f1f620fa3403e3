//! Settings that gateways made of Envoy give it, and ours does not have.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use forebay::serve::demo::envoy::Destination;
use serde_json::{Value, json};

use crate::support::cluster::{Cluster, MODEL, Plan, document, sum};
use crate::support::happens;

const EXT_PROC: &str = "envoy.filters.http.ext_proc";

/// The configuration of the connection manager.
fn manager(document: &mut Value) -> &mut Value {
    &mut document["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
}

/// The configuration of the picker's filter.
fn filter(document: &mut Value) -> &mut Value {
    let filters = manager(document)["http_filters"].as_array_mut().unwrap();
    let filter = filters.iter_mut().find(|filter| filter["name"] == EXT_PROC).unwrap();
    &mut filter["typed_config"]
}

/// The route of everything.
fn route(document: &mut Value) -> &mut Value {
    &mut manager(document)["route_config"]["virtual_hosts"][0]["routes"][0]
}

fn body_modes(document: &mut Value, request: &str, response: &str) {
    let modes = &mut filter(document)["processing_mode"];
    modes["request_body_mode"] = json!(request);
    modes["response_body_mode"] = json!(response);
}

/// The request is served, by the endpoint that was picked for its model.
async fn is_picked(cluster: &Cluster, prompt: &str, id: &str) {
    let ask = cluster.completion(document(prompt, 4).to_string());
    let reply = cluster.client.send(ask.header("x-request-id", id)).await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    let explanation = cluster.explanation(id).await;
    assert_eq!(explanation["model"], MODEL);
    assert_eq!(explanation["endpoint"], reply.served_by());
}

#[tokio::test]
async fn buffered_requests_with_mode_override_allowed() {
    for response in ["FULL_DUPLEX_STREAMED", "STREAMED", "BUFFERED"] {
        let cluster = Plan::new()
            .document(move |document| {
                body_modes(document, "BUFFERED", response);
                filter(document)["allow_mode_override"] = json!(true);
            })
            .start()
            .await;

        is_picked(&cluster, "Hello", "r-1").await;
        let events = json!({ "model": MODEL, "prompt": "Hello", "max_tokens": 4, "stream": true });
        let stream = cluster.client.send(cluster.completion(events.to_string())).await;

        assert_eq!(stream.events().pop().unwrap(), "[DONE]", "{response}");
    }
}

#[tokio::test]
async fn large_bodies_are_picked_by_load_where_only_their_beginning_is_shown() {
    let cluster = Plan::new()
        .document(|document| {
            body_modes(document, "BUFFERED_PARTIAL", "STREAMED");
            document["static_resources"]["listeners"][0]["per_connection_buffer_limit_bytes"] = json!(16 << 10);
        })
        .start()
        .await;

    is_picked(&cluster, "Hello", "small").await;
    let large = document(&"word".repeat(1 << 15), 4).to_string();
    let reply = cluster
        .client
        .send(cluster.completion(large).header("x-request-id", "large"))
        .await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 1 << 15);
    let explanation = cluster.explanation("large").await;
    assert_eq!(explanation["endpoint"], reply.served_by());
}

#[tokio::test]
async fn a_filter_that_skips_all_but_on_the_routes_that_override_it() {
    let cluster = Plan::new()
        .document(|document| {
            let modes = filter(document)["processing_mode"].clone();
            filter(document)["processing_mode"] = json!({
                "request_header_mode": "SKIP",
                "request_body_mode": "NONE",
                "request_trailer_mode": "SKIP",
                "response_header_mode": "SKIP",
                "response_body_mode": "NONE",
                "response_trailer_mode": "SKIP",
            });
            route(document)["typed_per_filter_config"] = json!({
                EXT_PROC: {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
                    "overrides": { "processing_mode": modes },
                },
            });
        })
        .start()
        .await;

    is_picked(&cluster, "Hello", "r-1").await;

    let page = cluster.page("/metrics").await.text();
    assert_eq!(sum(&page, "forebay_requests_ended_total{outcome=\"completed\"}"), 1.0);
}

#[tokio::test]
async fn a_timeout_of_the_grpc_service_cuts_no_stream() {
    let cluster = Plan::new()
        .speed(1.0)
        .document(|document| filter(document)["grpc_service"]["timeout"] = json!("0.001s"))
        .start()
        .await;

    let reply = cluster
        .client
        .send(cluster.completion(document("Hello", 50).to_string()))
        .await;

    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["usage"]["completion_tokens"], 50);
}

#[tokio::test]
async fn a_request_that_outlasts_the_message_timeout_leaves_the_queue() {
    let cluster = Plan::new()
        .servers(&[])
        .config(
            "{featureGates: [flowControl], plugins: [{type: queue-scorer}], \
             schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]}",
        )
        .document(|document| {
            // In full duplex Envoy waits for as long as it takes.
            body_modes(document, "BUFFERED", "STREAMED");
            filter(document)["message_timeout"] = json!("0.2s");
        })
        .start()
        .await;

    let reply = cluster.complete("Hello").await;

    assert_eq!(reply.status, 504, "{}", reply.text());
    happens("the request has left", Duration::from_secs(20), async || {
        let page = cluster.page("/metrics").await.text();
        let left = sum(&page, "forebay_requests_ended_total{outcome=\"cancelled\"}");
        let waiting = sum(&page, "llm_d_epp_flow_control_queue_size");
        if (left, waiting) == (1.0, 0.0) {
            Ok(())
        } else {
            Err(page)
        }
    })
    .await;
}

#[tokio::test]
async fn a_retry_goes_to_the_next_endpoint_of_the_list() {
    let gone = SocketAddr::from(([127, 0, 0, 1], 2));
    let cluster = Plan::new()
        .servers(&["a"])
        // Neither can be scraped, so that the picker does not know which of them is there, and takes them in order of name.
        .config(
            "plugins: [{type: max-score-picker, parameters: {maxNumOfEndpoints: 2, ties: first}}, {type: queue-scorer}, \
             {type: metrics-data-source, parameters: {port: 1}}]\n\
             schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}]",
        )
        .envoy(move |bootstrap, mut endpoints| {
            endpoints.push(gone);
            bootstrap.destination = Destination::Known(endpoints);
        })
        .document(|document| {
            route(document)["route"]["retry_policy"] = json!({ "retry_on": "connect-failure", "num_retries": 1 });
        })
        .start()
        .await;
    let a = cluster.servers[0].address;
    cluster.tell_endpoints(&[("0-gone", gone), ("a", a)]);
    happens(
        "both are there, and nothing is known of either",
        Duration::from_secs(20),
        async || {
            let endpoints = cluster.page("/debug/endpoints").await.json();
            let states: Vec<_> = endpoints
                .as_array()
                .unwrap()
                .iter()
                .map(|endpoint| &endpoint["state"])
                .collect();
            match states == ["unscraped", "unscraped"] {
                true => Ok(()),
                false => Err(endpoints.to_string()),
            }
        },
    )
    .await;

    let response = cluster.complete("Hello").await;

    assert_eq!(response.served_by(), "a");
    let decisions = cluster.page("/debug/decisions").await.json();
    assert_eq!(decisions[0]["endpoints"], json!([gone.to_string(), a.to_string()]));
}

/// What a filter in front of the picker says of the subset, as untyped or typed metadata, beside other metadata that is
/// nested more deeply than protobuf's decoders follow.
fn with_metadata(document: &mut Value, hint: &Value, typed: bool) {
    let hint = json!({ SUBSET: hint });
    let deep = (0..44).fold(json!(1), |inner, _| json!([inner]));
    let hint = match typed {
        false => json!({ "metadata_namespace": HINTS, "value": hint }),
        true => json!({
            "metadata_namespace": HINTS,
            "typed_value": { "@type": "type.googleapis.com/google.protobuf.Struct", "value": hint },
        }),
    };
    let deep = json!({ "metadata_namespace": "envoy.lb", "value": { "deep": deep } });
    let set = json!({
        "name": "envoy.filters.http.set_metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config",
            "metadata": [hint, deep],
        },
    });
    filter(document)["metadata_options"]["forwarding_namespaces"]["typed"] = json!([HINTS]);
    let filters = manager(document)["http_filters"].as_array_mut().unwrap();
    filters.insert(0, set);
}

const HINTS: &str = "envoy.lb.subset_hint";
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

#[tokio::test]
async fn subsets_are_kept_to_however_the_gateway_writes_them() {
    let list: fn(SocketAddr) -> Value = |address| json!([address.to_string()]);
    let one_item: fn(SocketAddr) -> Value = |address| json!([format!("{address},10.1.2.3:4")]);
    let text: fn(SocketAddr) -> Value = |address| json!(format!("{address}, 10.1.2.3:4"));
    for (hint, typed) in [(list, false), (one_item, false), (text, false), (list, true)] {
        let endpoints = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&endpoints);
        let cluster = Plan::new()
            .envoy(move |_, known| *told.borrow_mut() = known)
            .document(move |document| with_metadata(document, &hint(endpoints.borrow()[1]), typed))
            .start()
            .await;

        for number in 0..8 {
            let reply = cluster.complete(&format!("Question {number}")).await;

            assert_eq!(reply.served_by(), "b", "typed: {typed}");
        }
    }
}
