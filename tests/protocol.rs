//! Sequences of messages, legal and not, over a real gRPC stream.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use forebay::engine::outcome::{Outcome, Refusal};
use forebay::serve::ext_proc::Settings;
use forebay::serve::ext_proc::health::{Health, Readiness};
use forebay::serve::ext_proc::server::{Drained, ServerOptions};
use forebay::serve::ext_proc::tls::{Protocol, Tls};
use forebay::serve::ext_proc::wire::BodySendMode;
use forebay::serve::ext_proc::wire::grpc::health::v1::HealthCheckRequest;
use forebay::serve::ext_proc::wire::grpc::health::v1::health_client::HealthClient;
use forebay::serve::observe::record::ErrorCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tonic::Code;

use crate::support::gateway::Gateway;
use crate::support::messages::{
    CHAT, FULL_DUPLEX, get, post, request_body, request_headers, request_trailers, response_body, response_headers,
    response_trailers,
};
use crate::support::picker::{Behaviour, Held};
use crate::support::server::TestServer;
use crate::support::soon;

const TO: &str = "request headers +x-gateway-destination-endpoint=10.0.0.1:8000";
const MARK: &str = "response headers +x-went-into-resp-headers=true";

#[tokio::test]
async fn an_exchange_goes_through_and_its_story_is_told() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;

    exchange.send(post());
    exchange.send(request_body(&CHAT[..30], false));
    exchange.send(request_body(&CHAT[30..], true));
    assert_eq!(exchange.says().await, format!("{TO} +content-length=60"));
    assert_eq!(exchange.says().await, format!("request body `{CHAT}` end"));
    exchange.send(response_headers(
        &[(":status", "200"), ("content-type", "application/json")],
        false,
    ));
    assert_eq!(exchange.says().await, MARK);
    let answer = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;
    exchange.send(response_body(&answer[..20], false));
    assert_eq!(exchange.says().await, format!("response body `{}`", &answer[..20]));
    exchange.send(response_body(&answer[20..], true));
    assert_eq!(exchange.says().await, format!("response body `{}` end", &answer[20..]));

    let record = server.ended().await;
    assert_eq!(record.outcome, Some(Outcome::Completed));
    assert_eq!((&*record.model, &*record.request_id), ("m", "r-1"));
    assert_eq!((record.usage.prompt, record.usage.completion), (3, 4));
    assert_eq!((record.request_bytes, record.response_bytes), (60, answer.len() as u64));
    assert!(record.received <= record.decided.unwrap() && record.decided <= record.first_byte);
    assert_eq!(record.status, Some(200));
    server.picker.is_empty().await;
    exchange.end();
    assert!(exchange.rest().await.1.is_ok());
    assert_eq!(server.finish().await, Drained { cut: 0 });
}

#[tokio::test]
async fn scripts_get_their_replies_and_leave_nothing_behind() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let gateway = Gateway::connect(server.address).await;
    let ok = || response_headers(&[(":status", "200")], false);
    let routed = [format!("{TO} +content-length=60"), format!("request body `{CHAT}` end")];
    let buffered = (BodySendMode::Buffered, BodySendMode::Buffered);
    let streamed = (BodySendMode::Streamed, BodySendMode::Streamed);
    let none = (BodySendMode::None, BodySendMode::None);
    let headers = [(":path", "/v1/chat/completions"), ("x-request-id", "r")];
    let with = |then: &[&str]| [routed.to_vec(), then.iter().map(|&line| line.to_owned()).collect()].concat();
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();

    for (name, script, replies, code, outcome) in [
        (
            "a request without a body",
            vec![get(), response_headers(&[(":status", "204")], true)],
            lines(&[TO, MARK]),
            Code::Ok,
            Some(Outcome::Completed),
        ),
        (
            "trailers on both sides",
            vec![
                post(),
                request_body(CHAT, false),
                request_trailers(),
                ok(),
                response_body("x", false),
                response_trailers(),
            ],
            lines(&[
                TO,
                &format!("request body `{CHAT}`"),
                "request trailers",
                MARK,
                "response body `x`",
                "response trailers",
            ]),
            Code::Ok,
            Some(Outcome::Completed),
        ),
        (
            "the client leaves before the response",
            vec![post(), request_body(CHAT, true)],
            with(&[]),
            Code::Ok,
            Some(Outcome::Disconnected),
        ),
        (
            "the client leaves within the response",
            vec![post(), request_body(CHAT, true), ok(), response_body("x", false)],
            with(&[MARK, "response body `x`"]),
            Code::Ok,
            Some(Outcome::Disconnected),
        ),
        (
            "the client leaves within its body",
            vec![post(), request_body(&CHAT[..9], false)],
            lines(&[]),
            Code::Ok,
            Some(Outcome::Refused(Refusal::Cancelled)),
        ),
        ("nothing at all", vec![], lines(&[]), Code::Ok, None),
        (
            "buffered bodies",
            vec![
                request_headers(buffered, &headers, false),
                request_body(CHAT, true),
                ok(),
                response_body("{}", true),
            ],
            lines(&[
                "request headers",
                "request body +x-gateway-destination-endpoint=10.0.0.1:8000",
                MARK,
                "response body",
            ]),
            Code::Ok,
            Some(Outcome::Completed),
        ),
        (
            "streamed bodies",
            vec![
                request_headers(streamed, &headers, false),
                request_body("a", false),
                request_body("b", true),
                ok(),
                response_body("c", true),
            ],
            lines(&[TO, "request body", "request body", MARK, "response body"]),
            Code::Ok,
            Some(Outcome::Completed),
        ),
        (
            "no bodies",
            vec![request_headers(none, &headers, false), ok()],
            lines(&[TO, MARK]),
            Code::Ok,
            Some(Outcome::Unobserved),
        ),
        (
            "a malformed body",
            vec![post(), request_body(r#"{"model":"m"}"#, true)],
            lines(&[]),
            Code::Ok,
            Some(Outcome::Refused(Refusal::Malformed)),
        ),
        (
            "a body before its headers",
            vec![request_body(CHAT, true), post()],
            lines(&[]),
            Code::FailedPrecondition,
            Some(Outcome::Refused(Refusal::Malformed)),
        ),
        (
            "two requests on one stream",
            vec![post(), post()],
            lines(&[]),
            Code::FailedPrecondition,
            Some(Outcome::Refused(Refusal::Malformed)),
        ),
        (
            "a response that ends twice",
            vec![get(), ok(), response_body("x", true), response_body("y", true)],
            lines(&[TO, MARK, "response body `x` end"]),
            Code::FailedPrecondition,
            Some(Outcome::Completed),
        ),
    ] {
        let (said, closed) = gateway.replay(script).await;

        let code = (code, closed.as_ref().map_or_else(tonic::Status::code, |()| Code::Ok));
        assert_eq!(code.0, code.1, "{name}: {closed:?}");
        if outcome == Some(Outcome::Refused(Refusal::Malformed)) && code.0 == Code::Ok {
            assert!(
                said[0].starts_with("immediate 400 +content-type=text/plain inference error: BadRequest - "),
                "{said:?}"
            );
        } else {
            assert_eq!(said, replies, "{name}");
        }
        if let Some(outcome) = outcome {
            assert_eq!(server.outcome().await, outcome, "{name}");
        }
        server.picker.is_empty().await;
    }
    assert_eq!(server.finish().await, Drained { cut: 0 });
}

#[tokio::test]
async fn a_refusal_is_an_answer_with_its_reason() {
    let mut server = TestServer::start(Behaviour::Refuse(Refusal::NoEndpoints)).await;
    let gateway = Gateway::connect(server.address).await;

    let (said, closed) = gateway.replay([post(), request_body(CHAT, true)]).await;

    assert_eq!(
        said,
        [
            "immediate 503 +content-type=text/plain +x-llm-d-request-dropped-reason=rejected-no-endpoints inference error: ServiceUnavailable - \
          failed to find endpoint candidates for serving the request"
        ]
    );
    assert!(closed.is_ok());
    let record = server.ended().await;
    assert_eq!(record.outcome, Some(Outcome::Refused(Refusal::NoEndpoints)));
    assert_eq!(record.error, Some(ErrorCode::ServiceUnavailable));
    server.finish().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_its_request_waits_gives_its_place_back() {
    let mut server = TestServer::start(Behaviour::Hold).await;
    let gateway = Gateway::connect(server.address).await;
    let mut exchange = gateway.open().await;
    exchange.send(post());
    exchange.send(request_body(CHAT, true));
    server
        .picker
        .holds(
            "the request waits",
            Held {
                waiting: 1,
                in_flight: 0,
            },
        )
        .await;

    drop(exchange);

    server.picker.is_empty().await;
    assert_eq!(server.outcome().await, Outcome::Refused(Refusal::Cancelled));
    server.finish().await;
}

#[tokio::test]
async fn a_client_that_leaves_within_its_response_frees_the_endpoint() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let gateway = Gateway::connect(server.address).await;
    let mut exchange = gateway.open().await;
    exchange.send(get());
    exchange.send(response_headers(&[(":status", "200")], false));
    assert_eq!(exchange.says().await, TO);
    assert_eq!(exchange.says().await, MARK);

    drop(exchange);

    server.picker.is_empty().await;
    assert_eq!(server.outcome().await, Outcome::Disconnected);
    server.finish().await;
}

#[tokio::test]
async fn bodies_beyond_the_bound_are_too_large_in_one_message_or_many() {
    let settings = Settings {
        max_body_bytes: 1000,
        ..Settings::default()
    };
    let options = ServerOptions {
        max_message_bytes: 2000,
        ..ServerOptions::default()
    };
    let mut server = TestServer::with(Behaviour::Route, settings, options).await;
    let gateway = Gateway::connect(server.address).await;
    let too_large = [
        "immediate 413 +content-type=text/plain inference error: PayloadTooLarge - the request body exceeds the limit \
          of 1000 bytes (--max-request-body)",
    ];

    for chunks in [vec![[b'x'; 600].to_vec(); 2], vec![vec![b'x'; 4000]]] {
        let bodies = chunks.into_iter().map(|chunk| request_body(chunk, false));
        let (said, closed) = gateway.replay([post()].into_iter().chain(bodies)).await;

        assert_eq!(said, too_large);
        assert!(closed.is_ok(), "{closed:?}");
        assert_eq!(server.outcome().await, Outcome::Refused(Refusal::TooLarge));
    }
    server.finish().await;
}

#[tokio::test]
async fn a_large_body_goes_through_in_pieces() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(5_000_000));
    exchange.send(request_headers(FULL_DUPLEX, &[(":path", "/v1/completions")], false));
    let chunks = body.as_bytes().chunks(65_536);
    let last = chunks.len() - 1;
    for (index, chunk) in chunks.enumerate() {
        exchange.send(request_body(chunk, index == last));
    }
    exchange.end();

    let (said, closed) = exchange.rest().await;

    assert!(closed.is_ok());
    let pieces = said[1..]
        .iter()
        .map(|line| line.strip_prefix("request body `").unwrap());
    let received: String = pieces.map(|piece| piece.split_once('`').unwrap().0).collect();
    assert!(received == body, "{} bytes became {}", body.len(), received.len());
    assert_eq!(said.len(), 1 + body.len().div_ceil(62_000));
    assert_eq!(server.outcome().await, Outcome::Disconnected);
    server.finish().await;
}

#[tokio::test]
async fn a_server_that_stops_lets_its_streams_finish() {
    let mut server = TestServer::start(Behaviour::Route).await;
    let mut exchange = Gateway::connect(server.address).await.open().await;
    exchange.send(get());
    assert_eq!(exchange.says().await, TO);

    server.stop();
    exchange.send(response_headers(&[(":status", "200")], true));
    assert_eq!(exchange.says().await, MARK);
    exchange.end();

    assert!(exchange.rest().await.1.is_ok());
    assert_eq!(server.outcome().await, Outcome::Completed);
    assert_eq!(server.finish().await, Drained { cut: 0 });
}

#[tokio::test]
async fn streams_that_outlast_the_grace_are_cut_and_counted() {
    let options = ServerOptions {
        grace: Duration::ZERO,
        ..ServerOptions::default()
    };
    let mut server = TestServer::with(Behaviour::Hold, Settings::default(), options).await;
    let gateway = Gateway::connect(server.address).await;
    let (mut one, mut other) = (gateway.open().await, gateway.open().await);
    one.send(get());
    other.send(get());
    server
        .picker
        .holds(
            "both wait",
            Held {
                waiting: 2,
                in_flight: 0,
            },
        )
        .await;

    server.stop();

    for _ in 0..2 {
        assert_eq!(server.outcome().await, Outcome::Refused(Refusal::Cancelled));
    }
    server.picker.is_empty().await;
    assert_eq!(server.finish().await, Drained { cut: 2 });
}

#[tokio::test]
async fn health_is_answered_on_the_same_port_if_asked_for() {
    let (_tell, readiness) = watch::channel(Readiness::Ready);
    let options = ServerOptions {
        health: Some(Health::new(readiness)),
        ..ServerOptions::default()
    };
    let mut server = TestServer::with(Behaviour::Route, Settings::default(), options).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());

    let answer = client.check(HealthCheckRequest::default()).await.unwrap();

    assert_eq!(answer.into_inner().status, 1);
    let (said, _) = Gateway::connect(server.address).await.replay([get()]).await;
    assert_eq!(said, [TO]);
    assert_eq!(server.outcome().await, Outcome::Disconnected);
    drop(client);
    server.finish().await;
}

#[tokio::test]
async fn tls_speaks_http_2() {
    let options = ServerOptions {
        tls: Some(Tls::self_signed(&Protocol::default()).unwrap()),
        ..ServerOptions::default()
    };
    let server = TestServer::with(Behaviour::Route, Settings::default(), options).await;
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls_client::trusting_anyone()));
    let name = "localhost".try_into().unwrap();

    let stream = soon("the handshake is done", connector.connect(name, stream))
        .await
        .unwrap();

    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    drop(stream);
    server.finish().await;
}

#[tokio::test]
async fn a_gateway_that_went_away_without_a_word_is_cut_off() {
    // What a client begins with: its preface, and a SETTINGS frame that changes nothing.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let options = ServerOptions {
        ping_after: Duration::from_millis(50),
        ..ServerOptions::default()
    };
    let server = TestServer::with(Behaviour::Route, Settings::default(), options).await;
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    connection.write_all(HELLO).await.unwrap();

    let mut heard = Vec::new();
    let ended = soon("the server hangs up", connection.read_to_end(&mut heard)).await;

    // An end or a reset, whichever the system makes of it.
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    server.finish().await;
}

mod gateways;

mod tls_client {
    use std::sync::Arc;

    use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

    /// Takes any certificate, as Envoy does by default.
    #[derive(Debug)]
    struct Anyone;

    pub(super) fn trusting_anyone() -> ClientConfig {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    impl ServerCertVerifier for Anyone {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            ring::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
}
