//! What Envoy's other filters answer reaches the client as they gave it.

use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::cluster::{Cluster, Plan, sum};
use crate::support::raw::{self, Answer};

/// Body modes of both directions. Each filter is tried in front of a picker in each of them.
const MODES: [&str; 4] = ["FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED", "NONE"];

/// A filter in front of the picker, and a request that it answers.
struct Case {
    filter: Option<Value>,
    request: &'static str,
    status: u16,
}

/// Envoy, with two listeners for the case: with the picker and without.
async fn cluster(filter: Option<Value>, more: Vec<Value>) -> Cluster {
    Plan::new()
        .document(move |document| {
            let resources = &mut document["static_resources"];
            resources["clusters"].as_array_mut().unwrap().extend(more);
            let listeners = resources["listeners"].as_array_mut().unwrap();
            let ingress = listeners[0].clone();
            let manager = |listener: &mut Value| {
                listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
                    .as_array()
                    .unwrap()
                    .clone()
            };
            for mode in MODES.into_iter().chain([BARE]) {
                let mut listener = ingress.clone();
                let mut filters = manager(&mut listener);
                match mode {
                    BARE => filters.retain(|filter| filter["name"] != EXT_PROC),
                    _ => {
                        let filter = filters.iter_mut().find(|filter| filter["name"] == EXT_PROC).unwrap();
                        let modes = &mut filter["typed_config"]["processing_mode"];
                        modes["request_body_mode"] = json!(mode);
                        modes["response_body_mode"] = json!(mode);
                    }
                }
                filters.splice(0..0, filter.clone());
                listener["name"] = json!(mode);
                let config = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
                config["http_filters"] = json!(filters);
                config["route_config"]["virtual_hosts"][0]["typed_per_filter_config"] = json!({
                    "envoy.filters.http.cors": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy",
                        "allow_origin_string_match": [{ "exact": "http://a.example" }],
                        "allow_methods": "POST",
                    },
                });
                listeners.push(listener);
            }
        })
        .start()
        .await
}

const EXT_PROC: &str = "envoy.filters.http.ext_proc";

/// The listener without a picker.
const BARE: &str = "bare";

/// The client gets what it gets without a picker, and the picker counts no request.
async fn passes(case: Case, more: Vec<Value>) -> Answer {
    let cluster = cluster(case.filter, more).await;
    let expected = raw::ask(cluster.envoy.listener(BARE), case.request).await;
    assert_eq!(expected.status, case.status, "{expected:?}");

    for mode in MODES {
        let answer = raw::ask(cluster.envoy.listener(mode), case.request).await;

        assert_eq!(answer, expected, "{mode}");
    }
    let page = cluster.page("/metrics").await.text();
    let counted = format!("forebay_local_replies_total{{status=\"{}\"}}", case.status);
    assert_eq!(sum(&page, &counted), MODES.len() as f64, "{page}");
    assert_eq!(sum(&page, "forebay_requests_ended_total"), 0.0);
    expected
}

fn filter(name: &str, message: &str, fields: Value) -> Option<Value> {
    let mut config = fields;
    config["@type"] = json!(format!(
        "type.googleapis.com/envoy.extensions.filters.http.{name}.v3.{message}"
    ));
    Some(json!({ "name": format!("envoy.filters.http.{name}"), "typed_config": config }))
}

const GET: &str = "GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

const POST: &str = "POST /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_refusal_by_rbac() {
    let rules = json!({
        "action": "DENY",
        "policies": { "all": { "permissions": [{ "any": true }], "principals": [{ "any": true }] } },
    });
    for request in [GET, POST] {
        let case = Case {
            filter: filter("rbac", "RBAC", json!({ "rules": rules })),
            request,
            status: 403,
        };

        let answer = passes(case, vec![]).await;

        assert_eq!(answer.body, "RBAC: access denied");
    }
}

#[tokio::test]
async fn a_request_without_a_token() {
    let config = json!({
        "providers": { "us": { "issuer": "us", "local_jwks": { "inline_string": "{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"alg\":\"HS256\"}]}" } } },
        "rules": [{ "match": { "prefix": "/" }, "requires": { "provider_name": "us" } }],
    });
    let case = Case {
        filter: filter("jwt_authn", "JwtAuthentication", config),
        request: POST,
        status: 401,
    };

    let answer = passes(case, vec![]).await;

    assert_eq!(answer.body, "Jwt is missing");
    assert!(
        answer
            .headers
            .iter()
            .any(|header| header.starts_with("www-authenticate: ")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_refusal_by_an_authorization_service() {
    let (address, _server) = refusing_service().await;
    let config = json!({
        "http_service": {
            "server_uri": { "uri": format!("http://{address}"), "cluster": "authorization", "timeout": "10s" },
            "authorization_response": {
                "allowed_client_headers": { "patterns": [{ "exact": "x-why" }] },
            },
        },
    });
    let cluster = json!({
        "name": "authorization",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "authorization",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": { "socket_address": {
                "address": address.ip().to_string(), "port_value": address.port(),
            } } } }] }],
        },
    });
    let case = Case {
        filter: filter("ext_authz", "ExtAuthz", config),
        request: POST,
        status: 402,
    };

    let answer = passes(case, vec![cluster]).await;

    assert_eq!(answer.body, "pay first");
    assert!(answer.headers.contains(&"x-why: poor".to_owned()), "{answer:?}");
}

/// Whoever asks it for permission has to pay.
async fn refusing_service() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(any(async || {
        (StatusCode::PAYMENT_REQUIRED, [("x-why", "poor")], "pay first")
    }));
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, AbortOnDropHandle::new(server))
}

#[tokio::test]
async fn a_refusal_by_a_rate_limit() {
    // No token is ever there but the first, and that costs a request of its own.
    let config = json!({
        "stat_prefix": "limited",
        "token_bucket": { "max_tokens": 1, "tokens_per_fill": 1, "fill_interval": "86400s" },
        "filter_enabled": { "default_value": { "numerator": 100 } },
        "filter_enforced": { "default_value": { "numerator": 100 } },
        "response_headers_to_add": [{ "header": { "key": "x-limited", "value": "yes" } }],
    });
    let cluster = cluster(filter("local_ratelimit", "LocalRateLimit", config), vec![]).await;
    let mut answers = Vec::new();
    for listener in MODES.into_iter().chain([BARE]) {
        let listener = cluster.envoy.listener(listener);
        raw::ask(listener, GET).await;
        answers.push(raw::ask(listener, GET).await);
    }

    let expected = answers.pop().unwrap();

    assert_eq!(
        (expected.status, expected.body.as_str()),
        (429, "local_rate_limited"),
        "{expected:?}"
    );
    for (answer, mode) in answers.iter().zip(MODES) {
        assert_eq!(*answer, expected, "{mode}");
    }
}

#[tokio::test]
async fn the_answer_to_a_preflight() {
    let case = Case {
        filter: filter("cors", "Cors", json!({})),
        request: "OPTIONS /v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\norigin: http://a.example\r\n\
                  access-control-request-method: POST\r\n\r\n",
        status: 200,
    };

    let answer = passes(case, vec![]).await;

    assert!(
        answer
            .headers
            .contains(&"access-control-allow-origin: http://a.example".to_owned()),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_request_without_a_host() {
    let case = Case {
        filter: None,
        request: "GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n",
        status: 400,
    };

    passes(case, vec![]).await;
}

#[tokio::test]
async fn an_upgrade_that_is_not_allowed() {
    let case = Case {
        filter: None,
        request: "GET /v1/realtime HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        status: 403,
    };

    passes(case, vec![]).await;
}
