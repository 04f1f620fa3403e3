//! What gateways other than Envoy say, in the order in which their clients say it.

use std::time::Duration;

use forebay::engine::outcome::{Outcome, Refusal};
use forebay::serve::ext_proc::Settings;
use forebay::serve::ext_proc::server::{Drained, ServerOptions};
use forebay::serve::ext_proc::wire::ProcessingRequest;

use super::{MARK, TO};
use crate::support::gateway::Gateway;
use crate::support::messages::{
    CHAT, FULL_DUPLEX, post, pseudo_last, request_body, request_headers, response_body, response_headers,
    unannounced_headers, with_nested_metadata,
};
use crate::support::picker::{Behaviour, Held};
use crate::support::server::TestServer;

const WAITS: Held = Held {
    waiting: 1,
    in_flight: 0,
};

/// agentgateway: it has the pseudo headers last, makes no request id, and sends its body without waiting.
fn agentgateway() -> [ProcessingRequest; 2] {
    let headers = [
        ("content-type", "application/json"),
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
    ];
    [
        pseudo_last(request_headers(FULL_DUPLEX, &headers, false)),
        request_body(CHAT, true),
    ]
}

/// NGINX Gateway Fabric: it only asks for an endpoint, and tells no path.
fn nginx() -> [ProcessingRequest; 2] {
    let headers = [("content-type", "application/json"), ("content-length", "60")];
    [unannounced_headers(&headers, false), request_body(CHAT, true)]
}

/// A reply without the request id that was made for the request.
fn without_id(line: &str) -> String {
    let words = line.split(' ').filter(|word| !word.starts_with("+x-request-id="));
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn agentgateway_is_answered_message_by_message() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;

    for message in agentgateway() {
        exchange.send(message);
    }
    assert_eq!(without_id(&exchange.says().await), format!("{TO} +content-length=60"));
    assert_eq!(exchange.says().await, format!("request body `{CHAT}` end"));
    let headers = [("content-type", "application/json"), (":status", "200")];
    exchange.send(pseudo_last(response_headers(&headers, false)));
    exchange.send(response_body("{}", true));
    assert_eq!(exchange.says().await, MARK);
    assert_eq!(exchange.says().await, "response body `{}` end");
    exchange.end();

    assert!(exchange.rest().await.1.is_ok());
    let record = server.ended().await;
    assert_eq!(record.outcome, Some(Outcome::Completed));
    assert_eq!((&*record.model, record.status), ("m", Some(200)));
    server.finish().await;
}

#[tokio::test]
async fn the_response_to_a_count_of_tokens_passes() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let headers = [(":path", "/v1/messages/count_tokens"), ("x-request-id", "r")];

    let (said, closed) = Gateway::connect(server.address)
        .await
        .replay([
            request_headers(FULL_DUPLEX, &headers, false),
            request_body("{}", true),
            response_headers(&[(":status", "200")], false),
            response_body(r#"{"input_tokens":7}"#, true),
        ])
        .await;

    let replies = [
        &format!("{TO} +content-length=2"),
        "request body `{}` end",
        MARK,
        r#"response body `{"input_tokens":7}` end"#,
    ];
    assert_eq!(said, replies);
    assert!(closed.is_ok());
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.finish().await;
}

#[tokio::test]
async fn nginx_is_answered_with_an_endpoint() {
    let mut server = TestServer::start(Behaviour::Route).await;

    let (said, closed) = Gateway::connect(server.address).await.replay(nginx()).await;

    assert_eq!(without_id(&said[0]), format!("{TO} +content-length=60"));
    assert_eq!(said[1..], [format!("request body `{CHAT}` end")]);
    assert!(closed.is_ok());
    let record = server.ended().await;
    assert_eq!(record.outcome, Some(Outcome::Unobserved));
    assert_eq!(&*record.model, "m");
    server.picker.is_empty().await;
    server.finish().await;
}

#[tokio::test]
async fn a_request_that_waits_is_answered_after_a_half_close_and_then_holds_nothing() {
    for (script, outcome) in [
        (nginx(), Outcome::Unobserved),
        // Its client has left; that cannot be known.
        (agentgateway(), Outcome::Disconnected),
    ] {
        let mut server = TestServer::start(Behaviour::RouteLater).await;
        let mut exchange = Gateway::connect(server.address).await.open().await;
        for message in script {
            exchange.send(message);
        }
        exchange.end();
        server.picker.holds("the request waits", WAITS).await;

        server.picker.release();

        let (said, closed) = exchange.rest().await;
        assert_eq!(without_id(&said[0]), format!("{TO} +content-length=60"));
        assert!(closed.is_ok());
        assert_eq!(server.outcome().await, outcome);
        server.picker.is_empty().await;
        server.finish().await;
    }
}

#[tokio::test]
async fn a_reset_after_a_half_close_gives_the_place_back() {
    let mut server = TestServer::start(Behaviour::Hold).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;
    for message in nginx() {
        exchange.send(message);
    }
    exchange.end();
    server.picker.holds("the request waits", WAITS).await;

    drop(exchange);

    server.picker.is_empty().await;
    assert_eq!(server.outcome().await, Outcome::Refused(Refusal::Cancelled));
    server.finish().await;
}

#[tokio::test]
async fn a_body_that_stays_unfinished_is_given_up_and_holds_no_drain_up() {
    let settings = Settings {
        body_timeout: Duration::from_millis(50),
        ..Settings::default()
    };
    let mut server = TestServer::with(Behaviour::Route, settings, ServerOptions::default()).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;

    exchange.send(post());
    exchange.send(request_body(&CHAT[..9], false));

    let (said, closed) = exchange.rest().await;
    assert_eq!(
        said,
        [
            "immediate 408 +content-type=text/plain inference error: RequestTimeout - no more of the request body came for \
             50ms"
        ]
    );
    assert!(closed.is_ok());
    assert_eq!(server.outcome().await, Outcome::Refused(Refusal::BodyTimeout));
    assert_eq!(server.finish().await, Drained { cut: 0 });
}

#[tokio::test]
async fn metadata_that_is_nested_deeply_does_not_end_the_stream() {
    let mut server = TestServer::start(Behaviour::Route).await;

    let (said, closed) = Gateway::connect(server.address)
        .await
        .replay([
            with_nested_metadata(post(), 1000),
            with_nested_metadata(request_body(CHAT, true), 1000),
            with_nested_metadata(response_headers(&[(":status", "200")], true), 1000),
        ])
        .await;

    assert_eq!(said[0], format!("{TO} +content-length=60"));
    assert_eq!(said[2..], [MARK]);
    assert!(closed.is_ok(), "{closed:?}");
    assert_eq!(server.outcome().await, Outcome::Completed);
    server.finish().await;
}
