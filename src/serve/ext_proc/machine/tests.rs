use std::collections::BTreeMap;

use proptest::prelude::*;
use prost_types::value::Kind as ValueKind;

use super::super::headers;
use super::super::wire::body_mutation::Mutation;
use super::super::wire::{BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, ProtocolConfiguration};
use super::*;
use crate::engine::config::responses::ErrorFormat;
use crate::engine::pool::{Endpoint, EndpointId};
use crate::engine::request::Kind;
use crate::engine::scheduling::Decision;
use crate::serve::parse::UsageSource;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
const FULL: (BodySendMode, BodySendMode) = (BodySendMode::FullDuplexStreamed, BodySendMode::FullDuplexStreamed);

/// What may come in.
#[derive(Clone, Copy, Debug)]
enum In {
    Headers(&'static [(&'static str, &'static str)], bool),
    Body(&'static str, bool),
    Trailers,
    ResponseHeaders(&'static [(&'static str, &'static str)], bool),
    ResponseBody(&'static str, bool),
    ResponseTrailers,
    Unknown,
    WindowUpdate,
    Routed,
    Refused(Refusal),
    Oversized,
    /// So long nothing comes.
    Silence(Duration),
    HalfClosed,
    Gone,
    Broken,
}

use In::{
    Body, Broken, Gone, HalfClosed, Headers, Oversized, Refused, ResponseBody, ResponseHeaders, ResponseTrailers,
    Routed,
};
use In::{Silence, Trailers, Unknown, WindowUpdate};

const POST: In = Headers(&[(":path", "/v1/chat/completions"), ("x-request-id", "r")], false);
const GET: In = Headers(&[(":path", "/v1/models"), ("x-request-id", "r")], true);
const OK: In = ResponseHeaders(&[(":status", "200")], false);

/// A machine and the time.
struct Stream {
    machine: Machine,
    now: Timestamp,
    config: Option<ProtocolConfiguration>,
}

impl Stream {
    fn new((request, response): (BodySendMode, BodySendMode)) -> Self {
        Self::with(Settings::default(), (request, response))
    }

    fn with(settings: Settings, (request, response): (BodySendMode, BodySendMode)) -> Self {
        Self {
            machine: Machine::new(Arc::new(settings), None, Timestamp::ZERO),
            now: Timestamp::ZERO,
            config: Some(ProtocolConfiguration {
                request_body_mode: request.into(),
                response_body_mode: response.into(),
                send_body_without_waiting_for_header_response: false,
            }),
        }
    }

    /// Feeds one input a millisecond later, and gives what is to be done.
    fn feed(&mut self, input: In) -> Vec<Action> {
        self.now = self.now + Duration::from_millis(1);
        let now = self.now;
        let machine = &mut self.machine;
        let message = match input {
            Headers(list, end_of_stream) => Some(Message::RequestHeaders(http_headers(list, end_of_stream))),
            Body(text, end_of_stream) => Some(Message::RequestBody(http_body(text, end_of_stream))),
            Trailers => Some(Message::RequestTrailers(HttpTrailers::default())),
            ResponseHeaders(list, end_of_stream) => Some(Message::ResponseHeaders(http_headers(list, end_of_stream))),
            ResponseBody(text, end_of_stream) => Some(Message::ResponseBody(http_body(text, end_of_stream))),
            ResponseTrailers => Some(Message::ResponseTrailers(HttpTrailers::default())),
            Unknown | WindowUpdate => None,
            Routed => {
                machine.routed(now, &decision(&["10.0.0.1:8000"]), 0, None);
                return self.drain();
            }
            Refused(refusal) => {
                machine.refused(now, &crate::engine::Refused::plain(refusal, 0));
                return self.drain();
            }
            Oversized => {
                machine.oversized(now);
                return self.drain();
            }
            Silence(time) => {
                self.now = now + time;
                machine.check_deadline(self.now);
                return self.drain();
            }
            HalfClosed => {
                machine.half_closed(now);
                return self.drain();
            }
            Gone => {
                machine.gone(now);
                return self.drain();
            }
            Broken => {
                machine.broken(now);
                return self.drain();
            }
        };
        let message = ProcessingRequest {
            request: message,
            protocol_config: self.config.take(),
            client_window_update: matches!(input, WindowUpdate).then(Default::default),
            ..ProcessingRequest::default()
        };
        machine.message(now, message);
        self.drain()
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.next_action()).collect()
    }

    fn say(&mut self, inputs: impl IntoIterator<Item = In>) -> Vec<String> {
        inputs
            .into_iter()
            .flat_map(|input| self.feed(input))
            .map(|action| describe(&action))
            .collect()
    }
}

fn header_map(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let header = |&(key, value): &(&'static str, &'static str)| HeaderValue {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::new(),
        raw_value: Bytes::from_static(value.as_bytes()),
    };
    HeaderMap {
        headers: list.iter().map(header).collect(),
    }
}

fn http_headers(list: &[(&'static str, &'static str)], end_of_stream: bool) -> HttpHeaders {
    HttpHeaders {
        headers: Some(header_map(list)),
        end_of_stream,
    }
}

fn http_body(text: &'static str, end_of_stream: bool) -> HttpBody {
    HttpBody {
        body: Bytes::from_static(text.as_bytes()),
        end_of_stream,
    }
}

fn decision(sockets: &[&str]) -> Decision {
    let endpoint = |socket: &&str| {
        let socket: std::net::SocketAddr = socket.parse().unwrap();
        Arc::new(Endpoint {
            id: EndpointId::new("default", &socket.to_string()),
            name: "pod".into(),
            address: socket.ip(),
            port: socket.port(),
            labels: BTreeMap::new(),
            rank: 0,
        })
    };
    Decision {
        endpoints: sockets.iter().map(endpoint).collect(),
        profile: "default".into(),
        prefix: Default::default(),
        why: Arc::default(),
    }
}

/// An action in a line, with what the protocol is about.
fn describe(action: &Action) -> String {
    match action {
        Action::Reply(reply) => describe_reply(reply),
        Action::Decide(request) => match request.kind {
            Kind::Inference => format!("decide `{}`", request.target_model),
            Kind::Bodiless => "decide bodiless".into(),
        },
        Action::Routed => "routed".into(),
        Action::Answered { by, how } => match by {
            Some(by) => format!("answered {how:?} by {by}"),
            None => format!("answered {how:?}"),
        },
        Action::AnswerBegan => "answer began".into(),
        Action::ChunkGaps(gaps) => format!("gaps {gaps:?}"),
        Action::End(outcome) => format!("end {outcome}"),
        Action::LocalReply => "local reply".into(),
        Action::Close(Ok(())) => "close".into(),
        Action::Close(Err(error)) => format!("close: {error}"),
    }
}

fn describe_reply(reply: &ProcessingResponse) -> String {
    let told = reply.dynamic_metadata.as_ref().map_or("", |_| " told");
    let (name, common) = match reply.response.as_ref().unwrap() {
        Reply::RequestHeaders(headers) => ("request headers", headers.response.as_ref().unwrap()),
        Reply::ResponseHeaders(headers) => ("response headers", headers.response.as_ref().unwrap()),
        Reply::RequestBody(body) => ("request body", body.response.as_ref().unwrap()),
        Reply::ResponseBody(body) => ("response body", body.response.as_ref().unwrap()),
        Reply::RequestTrailers(_) => return format!("> request trailers{told}"),
        Reply::ResponseTrailers(_) => return "> response trailers".into(),
        Reply::ImmediateResponse(response) => {
            let status = response.status.as_ref().unwrap().code;
            return format!("> {status} {}", str::from_utf8(&response.body).unwrap());
        }
    };
    let mut line = format!("> {name}{told}");
    if let Some(mutation) = &common.header_mutation {
        for set in &mutation.set_headers {
            let header = set.header.as_ref().unwrap();
            assert_eq!(
                set.append_action(),
                super::super::wire::HeaderAppendAction::OverwriteIfExistsOrAdd
            );
            let (key, value) = (&header.key, &header.raw_value);
            line += &format!(" {}={}", str::from_utf8(key).unwrap(), str::from_utf8(value).unwrap());
        }
        for removed in &mutation.remove_headers {
            line += &format!(" -{}", str::from_utf8(removed).unwrap());
        }
    }
    match common
        .body_mutation
        .as_ref()
        .and_then(|mutation| mutation.mutation.as_ref())
    {
        None => {}
        Some(Mutation::Body(bytes)) => line += &format!(" whole `{}`", str::from_utf8(bytes).unwrap()),
        Some(Mutation::ClearBody(_)) => line += " cleared",
        Some(Mutation::StreamedResponse(piece)) => {
            let end = if piece.end_of_stream { " end" } else { "" };
            line += &format!(" `{}`{end}", str::from_utf8(&piece.body).unwrap());
        }
    }
    line
}

#[track_caller]
fn check(modes: (BodySendMode, BodySendMode), inputs: impl IntoIterator<Item = In>, expected: &[&str]) {
    assert_eq!(Stream::new(modes).say(inputs), expected);
}

const TO: &str = "> request headers told x-gateway-destination-endpoint=10.0.0.1:8000";
const TO_CHAT: &str = "> request headers told x-gateway-destination-endpoint=10.0.0.1:8000 content-length=60";
const CHAT_PIECE: &str = r#"> request body `{"model":"m","messages":[{"role":"user","content":"hello"}]}` end"#;
const MARK: &str = "> response headers x-went-into-resp-headers=true";

// --- full duplex ---

#[test]
fn a_full_duplex_exchange_is_answered_in_order() {
    check(
        FULL,
        [POST, Body(CHAT, true), Routed, OK, ResponseBody("{}", true), Gone],
        &[
            "decide `m`",
            TO_CHAT,
            CHAT_PIECE,
            "routed",
            MARK,
            "> response body `{}` end",
            "answer began",
            "end completed",
            "close",
        ],
    );
}

#[test]
fn a_gateway_that_announces_nothing_is_full_duplex() {
    let mut stream = Stream::new(FULL);
    stream.config = None;

    assert_eq!(
        stream.say([POST, Body(CHAT, true), Routed]),
        ["decide `m`", TO_CHAT, CHAT_PIECE, "routed"]
    );
}

#[test]
fn a_body_may_come_in_any_chunks() {
    check(
        FULL,
        [
            POST,
            Body(r#"{"model":"m","#, false),
            Body("", false),
            Body(r#""messages":[{"role":"user","content":"hello"}]}"#, false),
            Body("", true),
            Routed,
        ],
        &["decide `m`", TO_CHAT, CHAT_PIECE, "routed"],
    );
}

#[test]
fn request_trailers_end_the_body_and_are_answered_after_it() {
    check(
        FULL,
        [POST, Body(CHAT, false), Trailers, Routed],
        &[
            "decide `m`",
            TO,
            r#"> request body `{"model":"m","messages":[{"role":"user","content":"hello"}]}`"#,
            "> request trailers",
            "routed",
        ],
    );
}

#[test]
fn a_request_without_a_body_is_decided_at_its_headers() {
    check(FULL, [GET, Routed], &["decide bodiless", TO, "routed"]);
}

#[test]
fn a_request_without_an_id_is_given_one() {
    let mut stream = Stream::new(FULL);

    let said = stream.say([Headers(&[(":path", "/")], true), Routed]);

    let (_, id) = said[1].split_once("x-request-id=").unwrap();
    assert!(uuid::Uuid::parse_str(id).is_ok(), "{id}");
    assert_eq!(*stream.machine.record().request_id, *id);
}

#[test]
fn control_headers_do_not_reach_the_endpoint() {
    const FORGED: In = Headers(
        &[
            ("x-request-id", "r"),
            ("x-gateway-destination-endpoint", "6.6.6.6:6"),
            ("x-gateway-destination-endpoint-subset", "6.6.6.6"),
            ("x-gateway-inference-fairness-id", "t"),
            ("x-llm-d-inference-objective", "o"),
            ("accept", "*/*"),
        ],
        true,
    );

    check(
        FULL,
        [FORGED, Routed],
        &[
            "decide bodiless",
            "> request headers told x-gateway-destination-endpoint=10.0.0.1:8000 -x-gateway-inference-fairness-id \
             -x-llm-d-inference-objective -x-gateway-destination-endpoint-subset",
            "routed",
        ],
    );
}

#[test]
fn the_destination_is_a_list_with_ipv6_in_brackets_in_header_and_metadata() {
    let mut stream = Stream::new(FULL);
    stream.feed(GET);

    stream
        .machine
        .routed(stream.now, &decision(&["[fd00::1]:8000", "10.0.0.2:8001"]), 0, None);

    let Some(Action::Reply(reply)) = stream.machine.next_action() else {
        panic!("no reply")
    };
    assert!(
        describe_reply(&reply).contains("x-gateway-destination-endpoint=[fd00::1]:8000,10.0.0.2:8001"),
        "{reply:?}"
    );
    let metadata = reply.dynamic_metadata.unwrap();
    let Some(ValueKind::StructValue(lb)) = &metadata.fields["envoy.lb"].kind else {
        panic!("no struct: {metadata:?}")
    };
    assert_eq!(
        lb.fields["x-gateway-destination-endpoint"].kind,
        Some(ValueKind::StringValue("[fd00::1]:8000,10.0.0.2:8001".into()))
    );
    assert_eq!(lb.fields.len(), 1);
}

#[test]
fn large_bodies_go_on_in_pieces_without_being_copied() {
    let text: &'static str = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(130_000)).leak();
    let mut stream = Stream::new(FULL);
    stream.say([Headers(&[(":path", "/v1/completions")], false), Body(text, true)]);

    let actions = stream.feed(Routed);

    let pieces: Vec<_> = actions.iter().filter_map(piece_of).collect();
    let lengths: Vec<_> = pieces.iter().map(|(bytes, end)| (bytes.len(), *end)).collect();
    assert_eq!(
        lengths,
        [(62_000, false), (62_000, false), (text.len() - 124_000, true)]
    );
    assert_eq!(pieces[1].0.as_ptr(), text[62_000..].as_ptr());
}

fn piece_of(action: &Action) -> Option<(Bytes, bool)> {
    let Action::Reply(reply) = action else { return None };
    let (Some(Reply::RequestBody(body)) | Some(Reply::ResponseBody(body))) = &reply.response else {
        return None;
    };
    match &body.response.as_ref()?.body_mutation.as_ref()?.mutation {
        Some(Mutation::StreamedResponse(piece)) => Some((piece.body.clone(), piece.end_of_stream)),
        _ => None,
    }
}

// --- models ---

const REWRITE: In = Headers(
    &[
        (":path", "/v1/completions"),
        ("x-request-id", "r"),
        ("x-llm-d-model-name-rewrite", "adapter"),
    ],
    false,
);

#[test]
fn a_rewrite_changes_the_model_in_the_request_and_back_in_the_response() {
    let mut stream = Stream::new(FULL);

    let said = stream.say([
        REWRITE,
        Body(r#"{ "model":"m", "prompt":"hi" }"#, true),
        Routed,
        OK,
        ResponseBody(r#"{"model":"ada"#, false),
        ResponseBody(r#"pter","n":1}"#, true),
    ]);

    let sent: Vec<_> = said
        .iter()
        .filter(|line| line.starts_with('>'))
        .map(String::as_str)
        .collect();
    assert_eq!(
        sent,
        [
            "> request headers told x-gateway-destination-endpoint=10.0.0.1:8000 content-length=36 \
             -x-llm-d-model-name-rewrite",
            "> request body `{ \"model\":`",
            "> request body `\"adapter\"`",
            "> request body `, \"prompt\":\"hi\" }` end",
            "> response headers x-went-into-resp-headers=true -content-length",
            "> response body `{`",
            r#"> response body `"model":"m","n":1}` end"#,
        ]
    );
    let record = stream.machine.record();
    assert_eq!((&*record.model, &*record.target_model), ("m", "adapter"));
}

#[test]
fn what_was_held_back_of_a_response_goes_before_its_trailers() {
    let mut stream = Stream::new(FULL);
    stream.say([REWRITE, Body(r#"{"model":"m","prompt":"hi"}"#, true), Routed, OK]);

    let said = stream.say([ResponseBody(r#"{"model":"#, false), ResponseTrailers]);

    assert_eq!(
        said,
        [
            "> response body `{`",
            "answer began",
            r#"> response body `"model":`"#,
            "end completed",
            "> response trailers",
        ]
    );
}

#[test]
fn a_body_without_a_model_is_refused_unless_a_header_names_one() {
    const NO_MODEL: In = Body(r#"{"prompt":"hi"}"#, true);

    check(
        FULL,
        [Headers(&[(":path", "/v1/completions")], false), NO_MODEL],
        &[
            "> 400 inference error: BadRequest - model not found in request body",
            "end malformed",
            "close",
        ],
    );
    check(FULL, [REWRITE, NO_MODEL], &["decide `adapter`"]);
}

#[test]
fn a_model_that_is_no_name_is_refused_by_its_name_unless_a_header_names_one() {
    const ODD: In = Body(r#"{"prompt":"hi","model":5}"#, true);

    check(
        FULL,
        [Headers(&[(":path", "/v1/completions")], false), ODD],
        &[
            "> 400 inference error: BadRequest - model not found in request body (found a number at byte 23 as `model`, \
             expected a string)",
            "end malformed",
            "close",
        ],
    );
    let said = Stream::new(FULL).say([REWRITE, ODD, Routed]);
    assert_eq!(sent_on(&said), r#"{"prompt":"hi","model":"adapter"}"#);
}

#[test]
fn of_several_models_one_goes_on_where_a_header_names_one() {
    let body = Body(r#"{"model":"a","prompt":"hi","model":"adapter"}"#, true);

    let said = Stream::new(FULL).say([REWRITE, body, Routed]);

    assert_eq!(sent_on(&said), r#"{"prompt":"hi","model":"adapter"}"#);
}

/// The request body that went on, piece by piece.
fn sent_on(said: &[String]) -> String {
    let pieces = said.iter().filter_map(|line| line.strip_prefix("> request body `"));
    pieces
        .map(|piece| piece.trim_end_matches(" end").trim_end_matches('`'))
        .collect()
}

#[test]
fn a_body_that_cannot_be_read_is_refused() {
    let said = Stream::new(FULL).say([POST, Body("no healthy upstream", true), Gone]);

    assert!(said[0].starts_with("> 400 inference error: BadRequest - "), "{said:?}");
    assert_eq!(said[1..], ["end malformed", "close"]);
}

#[test]
fn a_path_that_no_parser_claims_passes_unread() {
    check(
        FULL,
        [
            Headers(&[(":path", "/x"), ("x-request-id", "r")], false),
            Body("no json", true),
            Routed,
        ],
        &[
            "decide ``",
            "> request headers told x-gateway-destination-endpoint=10.0.0.1:8000 content-length=7",
            "> request body `no json` end",
            "routed",
        ],
    );
}

#[test]
fn the_response_to_a_count_of_tokens_passes_without_being_measured() {
    let mut stream = Stream::new(FULL);

    let said = stream.say([
        Headers(&[(":path", "/v1/messages/count_tokens"), ("x-request-id", "r")], false),
        Body("", true),
        Routed,
        OK,
        ResponseBody(r#"{"input_tokens":7}"#, true),
    ]);

    assert_eq!(
        said,
        [
            "decide ``",
            TO,
            "> request body `` end",
            "routed",
            MARK,
            r#"> response body `{"input_tokens":7}` end"#,
            "answer began",
            "end completed",
        ]
    );
    let record = stream.machine.record();
    assert!(!record.is_measured);
    assert_eq!(record.usage, Default::default());
}

// --- tunnels ---

const UPGRADE: In = Headers(
    &[
        (":method", "GET"),
        (":path", "/v1/realtime"),
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("x-request-id", "r"),
    ],
    false,
);
const CONNECT: In = Headers(
    &[(":method", "CONNECT"), (":authority", "a:1"), ("x-request-id", "r")],
    false,
);
const SWITCHED: In = ResponseHeaders(&[(":status", "101")], false);

#[test]
fn a_tunnel_is_decided_at_its_headers_and_passes_both_ways() {
    for open in [UPGRADE, CONNECT] {
        let mut stream = Stream::new(FULL);

        let said = stream.say([
            open,
            Routed,
            SWITCHED,
            Body("ping", false),
            ResponseBody("pong", false),
            Body("", true),
            ResponseBody("", true),
        ]);

        assert_eq!(
            said,
            [
                "decide ``",
                TO,
                "routed",
                MARK,
                "> request body `ping`",
                "> response body `pong`",
                "answer began",
                "> request body `` end",
                "> response body `` end",
                "end completed",
            ]
        );
        assert_eq!(stream.machine.record().error, None);
    }
}

#[test]
fn what_is_said_into_a_tunnel_before_it_is_there_goes_first() {
    check(
        FULL,
        [
            UPGRADE,
            Body("early", false),
            Body("bird", true),
            Routed,
            ResponseHeaders(&[(":status", "403")], true),
        ],
        &[
            "decide ``",
            TO,
            "> request body `earlybird` end",
            "routed",
            MARK,
            "answered Rejected",
            "end completed",
        ],
    );
}

#[test]
fn what_waits_for_a_tunnel_has_a_bound() {
    let mut stream = bounded();

    let said = stream.say([UPGRADE, Body("0123456789", false), Body("x", false)]);

    assert_eq!(said[0], "decide ``");
    assert_eq!(
        said[1..],
        too_large("the request body exceeds the limit of 10 bytes (--max-request-body)")
    );
}

#[test]
fn a_gateway_that_buffers_is_asked_not_to_buffer_a_tunnel() {
    let mut stream = Stream::new((BodySendMode::Buffered, BodySendMode::Buffered));
    stream.feed(UPGRADE);

    let actions = stream.feed(Routed);

    let Some(Action::Reply(reply)) = actions.first() else {
        panic!("no reply: {actions:?}")
    };
    let modes = reply.mode_override.as_ref().unwrap();
    assert_eq!(modes.request_body_mode(), BodySendMode::None);
    assert_eq!(modes.response_body_mode(), BodySendMode::Streamed);
}

// --- bounds ---

fn bounded() -> Stream {
    let settings = Settings {
        max_body_bytes: 10,
        ..Settings::default()
    };
    Stream::with(settings, FULL)
}

/// What is said of a body that is too large, and why.
fn too_large(why: &str) -> [String; 3] {
    [
        format!("> 413 inference error: PayloadTooLarge - {why}"),
        "end too-large".into(),
        "close".into(),
    ]
}

#[test]
fn a_body_beyond_the_bound_is_refused_as_soon_as_it_is_known() {
    let announced = Headers(&[("content-length", "11")], false);
    let why = "the request body exceeds the limit of 10 bytes (--max-request-body)";

    assert_eq!(
        bounded().say([announced]),
        too_large("the request body of 11 bytes exceeds the limit of 10 bytes (--max-request-body)")
    );
    assert_eq!(
        bounded().say([POST, Body("0123456789", false), Body("x", false)]),
        too_large(why)
    );
    assert_eq!(bounded().say([POST, Oversized]), too_large(why));
}

#[test]
fn a_message_beyond_a_bound_of_its_own_is_refused_with_that_bound() {
    let settings = Settings {
        max_message_bytes: Some(20),
        ..Settings::default()
    };

    assert_eq!(
        Stream::with(settings, FULL).say([POST, Oversized]),
        too_large("a message of the gateway exceeds the limit of 20 bytes (--grpc-max-recv-msg-size)")
    );
}

#[test]
fn a_body_that_does_not_go_on_is_given_up() {
    let timeout = Settings::default().body_timeout;
    let late = Silence(timeout);
    let timed_out = [
        "> 408 inference error: RequestTimeout - no more of the request body came for 30s",
        "end body-timeout",
        "close",
    ];

    assert_eq!(Stream::new(FULL).say([POST, late]), timed_out);
    let in_time = Silence(timeout - Duration::from_millis(2));
    let slow = [
        POST,
        in_time,
        Body(&CHAT[..9], false),
        in_time,
        Body(&CHAT[9..], true),
        late,
    ];
    assert_eq!(Stream::new(FULL).say(slow), ["decide `m`"]);
    let stuck = [POST, in_time, Body(&CHAT[..9], false), in_time, late];
    assert_eq!(Stream::new(FULL).say(stuck), timed_out);
    let buffered = (BodySendMode::Buffered, BodySendMode::Buffered);
    assert_eq!(Stream::new(buffered).say([POST, late])[1..], timed_out);
}

#[test]
fn a_body_for_which_there_is_no_memory_is_refused_and_gives_back_what_it_had() {
    let budget = Arc::new(Budget::new(STREAM_BYTES + 4));
    let settings = || Settings {
        memory: Arc::clone(&budget),
        ..Settings::default()
    };
    let limit = budget.limit();
    let refused = [
        format!(
            "> 503 inference error: ServiceUnavailable - the memory for requests is used up ({limit} bytes, a part of \
             --memory-limit)"
        ),
        "end memory-exhausted".to_owned(),
        "close".to_owned(),
    ];

    let mut first = Stream::with(settings(), FULL);
    assert_eq!(first.say([POST, Body("1234", false)]), [""; 0]);
    assert_eq!(Stream::with(settings(), FULL).say([POST]), refused);
    assert_eq!(first.say([Body("5", false)]), refused);

    drop(first);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_stream_without_a_message_is_closed_and_sooner_if_there_is_no_memory_for_it() {
    let second = Silence(Duration::from_secs(1));
    let nearly = Silence(FIRST_MESSAGE - Duration::from_millis(2));
    let full = Settings {
        memory: Arc::new(Budget::new(STREAM_BYTES - 1)),
        ..Settings::default()
    };

    assert_eq!(Stream::new(FULL).say([nearly]), [""; 0]);
    assert_eq!(Stream::new(FULL).say([nearly, second]), ["close"]);
    assert_eq!(Stream::with(full, FULL).say([second]), ["close"]);
}

#[test]
fn a_body_that_has_gone_on_is_not_counted_any_more() {
    let budget = Arc::<Budget>::default();
    let settings = Settings {
        memory: Arc::clone(&budget),
        ..Settings::default()
    };
    let mut stream = Stream::with(settings, FULL);

    stream.say([POST, Body(CHAT, true)]);
    assert_eq!(budget.used(), STREAM_BYTES + CHAT.len());
    stream.say([Routed]);

    assert_eq!(budget.used(), STREAM_BYTES);
}

#[test]
fn how_long_a_withdrawn_request_waited_is_on_record() {
    let mut stream = Stream::new(FULL);
    stream.say([POST, Body(CHAT, true)]);

    stream.machine.withdrawn(3, Duration::from_secs(2));

    let record = stream.machine.record();
    assert_eq!((record.priority, record.waited), (3, Some(Duration::from_secs(2))));
}

#[test]
fn only_chunks_in_the_middle_of_an_answer_that_is_not_rewritten_pass_unchanged() {
    let chunk = |end| ProcessingRequest {
        request: Some(Message::ResponseBody(http_body("data: x\n\n", end))),
        ..ProcessingRequest::default()
    };
    let pass = |script: &[In]| {
        let mut stream = Stream::new(FULL);
        stream.say(script.iter().copied());
        [false, true].map(|end| stream.machine.passes_unchanged(&chunk(end)))
    };

    assert_eq!(pass(&[POST, Body(CHAT, true), Routed, OK]), [true, false]);
    let rewritten = Body(r#"{"model":"m","prompt":"x"}"#, true);
    assert_eq!(pass(&[REWRITE, rewritten, Routed, OK]), [false, false]);
}

#[test]
fn a_body_at_the_bound_is_not_too_large() {
    let said = bounded().say([
        Headers(&[(":path", "/x"), ("content-length", "10")], false),
        Body("0123456789", true),
    ]);

    assert_eq!(said, ["decide ``"]);
}

#[test]
fn chunks_that_wait_for_a_verdict_have_a_bound() {
    let mut stream = Stream::new((BodySendMode::Streamed, BodySendMode::None));
    stream.feed(POST);

    for _ in 0..MAX_WAITING_CHUNKS {
        assert!(stream.feed(Body("x", false)).is_empty());
    }

    assert_eq!(
        stream.say([Body("x", false)]),
        [
            "end cancelled",
            "close: more than 4096 body chunks were sent while an endpoint is being chosen",
        ]
    );
}

// --- other modes ---

#[test]
fn buffered_headers_go_on_at_once_and_the_body_tells_the_destination() {
    check(
        (BodySendMode::Buffered, BodySendMode::Buffered),
        [POST, Body(CHAT, true), Routed, OK, ResponseBody("{}", true), Gone],
        &[
            "> request headers",
            "decide `m`",
            "> request body told x-gateway-destination-endpoint=10.0.0.1:8000",
            "routed",
            MARK,
            "> response body",
            "answer began",
            "end completed",
            "close",
        ],
    );
}

#[test]
fn a_buffered_body_is_replaced_only_if_its_model_is() {
    let mut stream = Stream::new((BodySendMode::Buffered, BodySendMode::Streamed));

    let said = stream.say([
        REWRITE,
        Body(r#"{"model":"m","prompt":"hi"}"#, true),
        Routed,
        OK,
        ResponseBody(r#"{"model":"adapter"}"#, false),
        ResponseBody("{}", true),
    ]);

    assert_eq!(
        said[2],
        "> request body told x-gateway-destination-endpoint=10.0.0.1:8000 content-length=33 \
         -x-llm-d-model-name-rewrite whole `{\"model\":\"adapter\",\"prompt\":\"hi\"}`"
    );
    assert!(
        said.contains(&r#"> response body whole `{"model":"m"}`"#.to_owned()),
        "{said:?}"
    );
    assert!(said.contains(&"> response body".to_owned()), "{said:?}");
}

#[test]
fn trailers_of_a_buffered_request_are_answered_after_the_body() {
    let modes = (BodySendMode::Buffered, BodySendMode::Buffered);
    let expected = [
        "> request headers",
        "decide `m`",
        "> request body told x-gateway-destination-endpoint=10.0.0.1:8000",
        "> request trailers",
    ];

    let early = Stream::new(modes).say([POST, Body(CHAT, false), Trailers, Routed]);
    let late = Stream::new(modes).say([POST, Body(CHAT, false), Routed, Trailers]);

    assert_eq!(early[..4], expected);
    assert_eq!(
        late.iter().filter(|line| *line != "routed").collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_buffered_request_of_trailers_alone_is_told_by_metadata() {
    let said = Stream::new((BodySendMode::Buffered, BodySendMode::None)).say([
        Headers(&[(":path", "/x")], false),
        Trailers,
        Routed,
    ]);

    assert_eq!(
        said,
        ["> request headers", "decide ``", "> request trailers told", "routed"]
    );
}

#[test]
fn the_beginning_of_a_body_is_not_malformed() {
    let modes = (BodySendMode::BufferedPartial, BodySendMode::None);

    let cut = Stream::new(modes).say([POST, Body(&CHAT[..20], false), Routed]);
    let whole = Stream::new(modes).say([POST, Body(CHAT, true)]);

    assert_eq!(
        cut,
        [
            "> request headers",
            "decide ``",
            "> request body told x-gateway-destination-endpoint=10.0.0.1:8000",
            "routed",
        ]
    );
    assert_eq!(whole, ["> request headers", "decide `m`"]);
}

#[test]
fn streamed_requests_are_decided_at_their_headers_and_every_chunk_is_answered() {
    check(
        (BodySendMode::Streamed, BodySendMode::Streamed),
        [
            POST,
            Body("a", false),
            Routed,
            Body("b", true),
            Trailers,
            OK,
            ResponseBody("c", false),
            ResponseBody("", true),
        ],
        &[
            "decide ``",
            TO,
            "> request body",
            "routed",
            "> request body",
            "> request trailers",
            MARK,
            "> response body",
            "answer began",
            "> response body",
            "end completed",
        ],
    );
}

#[test]
fn the_bytes_of_a_request_are_counted_once_in_every_mode() {
    const ANNOUNCED: In = Headers(&[(":path", "/x"), ("content-length", "5")], false);
    use BodySendMode::{Buffered, FullDuplexStreamed, None, Streamed};

    for (mode, bodies) in [
        (FullDuplexStreamed, vec![Body("abc", false), Body("de", true), Routed]),
        (Buffered, vec![Body("abcde", true), Routed]),
        (BodySendMode::BufferedPartial, vec![Body("abc", false), Routed]),
        (Streamed, vec![Body("abc", false), Routed, Body("de", true)]),
        (None, vec![Routed]),
    ] {
        let mut stream = Stream::new((mode, None));

        stream.say([ANNOUNCED].into_iter().chain(bodies));

        assert_eq!(stream.machine.record().request_bytes, 5, "{mode:?}");
    }
}

#[test]
fn without_response_bodies_nobody_sees_the_end_of_the_response() {
    check(
        (BodySendMode::None, BodySendMode::None),
        [POST, Routed, OK, Gone],
        &[
            "decide ``",
            TO,
            "routed",
            MARK,
            "answer began",
            "end unobserved",
            "close",
        ],
    );
}

// --- responses ---

#[test]
fn a_response_of_headers_alone_is_complete() {
    check(
        FULL,
        [GET, Routed, ResponseHeaders(&[(":status", "204")], true), Gone],
        &[
            "decide bodiless",
            TO,
            "routed",
            MARK,
            "answered Served",
            "end completed",
            "close",
        ],
    );
}

#[test]
fn what_a_response_says_of_the_endpoint_is_told_at_once_if_it_is_not_that_all_is_well() {
    const FAILED: In = ResponseHeaders(&[(":status", "502")], false);
    const ELSEWHERE: In = ResponseHeaders(
        &[
            (":status", "200"),
            ("x-gateway-destination-endpoint-served", "10.0.0.2:8000"),
        ],
        false,
    );
    const HERE: In = ResponseHeaders(
        &[
            (":status", "200"),
            ("x-gateway-destination-endpoint-served", "10.0.0.1:8000"),
        ],
        false,
    );
    let told = |head: In| Stream::new(FULL).say([GET, Routed, head, ResponseBody("x", true)])[3..].to_vec();
    let without = "> response headers x-went-into-resp-headers=true -x-gateway-destination-endpoint-served";

    assert_eq!(
        told(FAILED),
        [
            MARK,
            "answered Failed(Status(502))",
            "> response body `x` end",
            "answer began",
            "end upstream-error"
        ]
    );
    assert_eq!(
        told(ELSEWHERE),
        [
            without,
            "answered Served by 10.0.0.2:8000",
            "> response body `x` end",
            "answer began",
            "end completed"
        ]
    );
    assert_eq!(
        told(HERE),
        [without, "> response body `x` end", "answer began", "end completed"]
    );
}

#[test]
fn a_client_that_leaves_after_the_head_of_an_answer_leaves_an_endpoint_that_answers() {
    let said = Stream::new(FULL).say([GET, Routed, OK, Gone]);

    assert_eq!(said[4..], ["answered Served", "end disconnected", "close"]);
}

#[test]
fn response_trailers_end_a_response_and_are_answered() {
    let modes = FULL;

    let open = Stream::new(modes).say([GET, Routed, OK, ResponseBody("x", false), ResponseTrailers]);
    let ended = Stream::new(modes).say([GET, Routed, OK, ResponseBody("x", true), ResponseTrailers]);

    assert_eq!(
        open[4..],
        [
            "> response body `x`",
            "answer began",
            "end completed",
            "> response trailers"
        ]
    );
    assert_eq!(
        ended[4..],
        [
            "> response body `x` end",
            "answer began",
            "end completed",
            "> response trailers"
        ]
    );
}

#[test]
fn a_failure_of_the_model_server_is_recorded() {
    let mut stream = Stream::new(FULL);

    stream.say([GET, Routed, ResponseHeaders(&[(":status", "500")], true)]);

    let record = stream.machine.record();
    assert_eq!(record.error, Some(ErrorCode::ModelServerError));
    assert_eq!(record.status, Some(500));
    assert_eq!(record.outcome, Some(Outcome::UpstreamError));
}

#[test]
fn chunks_of_a_stream_are_forwarded_before_they_are_looked_at() {
    const EVENTS: In = ResponseHeaders(&[(":status", "200"), ("content-type", "text/event-stream")], false);
    const LAST: &str =
        "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\ndata: [DONE]\n\n";
    let mut stream = Stream::new(FULL);
    stream.say([POST, Body(CHAT, true), Routed, EVENTS]);

    let first = stream.say([ResponseBody("data: {}\n\n", false)]);
    let second = stream.say([ResponseBody(&LAST[..30], false)]);
    let rest = stream.say([ResponseBody(&LAST[30..], false), ResponseBody("", true)]);

    assert_eq!(first, ["> response body `data: {}\n\n`", "answer began"]);
    assert_eq!(second.len(), 1);
    assert_eq!(
        rest[1..],
        ["> response body `` end", "gaps [1ms, 1ms]", "end completed"]
    );
    let record = stream.machine.record();
    let usage = record.usage;
    assert_eq!((usage.prompt, usage.completion), (7, 2));
    assert!(record.streaming);
    assert_eq!(record.response_bytes, 10 + LAST.len() as u64);
    assert_eq!(record.first_byte, Some(Timestamp::from_nanos(5_000_000)));
    assert_eq!(record.last_byte, Some(Timestamp::from_nanos(7_000_000)));
    assert_eq!(record.ended, Some(Timestamp::from_nanos(8_000_000)));
}

#[test]
fn the_gaps_of_many_chunks_are_told_while_the_response_goes_on() {
    const EVENTS: In = ResponseHeaders(&[(":status", "200"), ("content-type", "text/event-stream")], false);
    let mut stream = Stream::new(FULL);
    stream.say([POST, Body(CHAT, true), Routed, EVENTS, ResponseBody("x", false)]);

    let mut told = Vec::new();
    for _ in 0..2 * CHUNKS_TOLD_AT_ONCE + 1 {
        told.extend(
            stream
                .feed(ResponseBody("x", false))
                .into_iter()
                .filter_map(|action| match action {
                    Action::ChunkGaps(gaps) => Some(gaps.len()),
                    _ => None,
                }),
        );
    }

    assert_eq!(told, [CHUNKS_TOLD_AT_ONCE; 2]);
}

// --- answers of the gateway ---

#[test]
fn when_the_gateway_answers_by_itself_the_decision_is_cancelled_and_its_answer_passes() {
    let own = [
        ResponseHeaders(&[(":status", "413")], false),
        ResponseBody("too much", true),
        Gone,
    ];
    let expected = [
        "end cancelled",
        "local reply",
        "> response headers",
        "> response body `too much` end",
        "close",
    ];

    let mut in_body = Stream::new(FULL);
    in_body.feed(POST);
    let mut deciding = Stream::new(FULL);
    deciding.say([POST, Body(CHAT, true)]);

    assert_eq!(in_body.say(own), expected);
    assert_eq!(deciding.say(own), expected);
}

#[test]
fn a_stream_that_begins_with_a_response_passes_it_unchanged_in_every_mode() {
    use BodySendMode::{Buffered, BufferedPartial, FullDuplexStreamed, None, Streamed};
    const DENIED: In = ResponseHeaders(&[(":status", "403")], false);

    for mode in [None, Streamed, Buffered, BufferedPartial, FullDuplexStreamed] {
        let mut stream = Stream::new((mode, mode));
        let bodies = match mode {
            None => vec![],
            _ => vec![ResponseBody("denied", false), ResponseBody("", true)],
        };
        let pieces = match mode {
            None => vec![],
            FullDuplexStreamed => vec!["> response body `denied`", "> response body `` end"],
            _ => vec!["> response body"; 2],
        };

        let said = stream.say([DENIED].into_iter().chain(bodies).chain([ResponseTrailers, Gone]));

        let expected = [
            vec!["local reply", "> response headers"],
            pieces,
            vec!["> response trailers", "close"],
        ]
        .concat();
        assert_eq!(said, expected, "{mode:?}");
        assert_eq!(stream.machine.record().status, Some(403));
        assert_eq!(stream.machine.record().outcome, Option::None);
    }
}

#[test]
fn a_response_may_begin_with_any_of_its_parts() {
    check(
        FULL,
        [ResponseBody("no", true), Gone],
        &["local reply", "> response body `no` end", "close"],
    );
    check(
        FULL,
        [ResponseTrailers, Gone],
        &["local reply", "> response trailers", "close"],
    );
    check(
        FULL,
        [ResponseHeaders(&[(":status", "200")], true), Broken],
        &["local reply", "> response headers", "close"],
    );
}

#[test]
fn a_request_after_the_gateways_answer_is_out_of_order() {
    check(
        FULL,
        [OK, POST],
        &[
            "local reply",
            "> response headers",
            "close: unexpected `request headers` while the gateway answers by itself",
        ],
    );
}

// --- ends ---

#[test]
fn every_refusal_closes_the_stream_with_an_answer() {
    for &refusal in Refusal::ALL {
        let said = Stream::new(FULL).say([POST, Body(CHAT, true), Refused(refusal), Routed, OK, Gone]);

        assert!(said[1].contains("inference error: "), "{said:?}");
        assert_eq!(
            said[2..],
            [format!("end {refusal}", refusal = refusal.name()), "close".into()]
        );
    }
}

#[test]
fn leaving_has_an_outcome_that_tells_when() {
    for (before, outcome) in [
        (vec![POST], Some("end cancelled")),
        (vec![POST, Body(CHAT, true)], Some("end cancelled")),
        (vec![POST, Body(CHAT, true), Routed], Some("end disconnected")),
        (vec![POST, Body(CHAT, true), Routed, OK], Some("end disconnected")),
        (vec![GET, Routed, OK, ResponseBody("", true)], None),
        (vec![], None),
    ] {
        let mut stream = Stream::new(FULL);
        stream.say(before.clone());

        let said = stream.say([Gone]);

        let expected: Vec<_> = outcome.into_iter().chain(["close"]).collect();
        let expected = if before.is_empty() { vec!["close"] } else { expected };
        let said: Vec<_> = said.iter().filter(|said| !said.starts_with("answered")).collect();
        assert_eq!(said, expected, "{before:?}");
    }
}

#[test]
fn a_request_that_waits_is_answered_after_a_half_close() {
    check(
        FULL,
        [POST, Body(CHAT, true), HalfClosed, Routed],
        &["decide `m`", TO_CHAT, CHAT_PIECE, "routed", "end disconnected", "close"],
    );
    let said = Stream::new(FULL).say([GET, HalfClosed, Refused(Refusal::NoEndpoints)]);
    assert!(said[1].starts_with("> 503 "), "{said:?}");
    assert_eq!(
        Stream::new(FULL).say([GET, HalfClosed, Gone]),
        ["decide bodiless", "end cancelled", "close"]
    );
}

#[test]
fn a_gateway_that_only_asks_for_endpoints_is_told_from_a_client_that_leaves() {
    let silent = || {
        let mut stream = Stream::new(FULL);
        stream.config = None;
        stream
    };

    let before = silent().say([POST, Body(CHAT, true), HalfClosed, Routed]);
    let after = silent().say([POST, Body(CHAT, true), Routed, HalfClosed]);

    for said in [before, after] {
        assert_eq!(said[said.len() - 2..], ["end unobserved", "close"], "{said:?}");
    }
    let reset = silent().say([POST, Body(CHAT, true), Routed, Gone]);
    let flowing = silent().say([POST, Body(CHAT, true), Routed, OK, HalfClosed]);
    for said in [reset, flowing] {
        assert_eq!(said[said.len() - 2..], ["end disconnected", "close"], "{said:?}");
    }
}

#[test]
fn an_unfinished_body_ends_with_a_half_close() {
    check(
        FULL,
        [POST, Body(&CHAT[..9], false), HalfClosed],
        &["end cancelled", "close"],
    );
}

#[test]
fn a_stream_that_breaks_is_told_from_one_that_is_left() {
    assert_eq!(
        Stream::new(FULL).say([GET, Routed, OK, Broken])[4..],
        ["answered Served", "end broken", "close"]
    );
    assert_eq!(Stream::new(FULL).say([POST, Broken]), ["end cancelled", "close"]);
}

#[test]
fn messages_out_of_order_close_the_stream_and_say_where_it_stood() {
    for (inputs, expected) in [
        (
            vec![Body("x", false)],
            vec![
                "end malformed",
                "close: unexpected `request body` while the request headers are awaited",
            ],
        ),
        (
            vec![POST, POST],
            vec![
                "end malformed",
                "close: unexpected `request headers` while the request body is awaited",
            ],
        ),
        (
            vec![GET, Body("x", true)],
            vec![
                "decide bodiless",
                "end cancelled",
                "close: unexpected `request body` while an endpoint is being chosen",
            ],
        ),
        (
            vec![Unknown],
            vec![
                "end malformed",
                "close: unexpected `message of an unknown kind` while the request headers are awaited",
            ],
        ),
    ] {
        let mut stream = Stream::new(FULL);

        assert_eq!(stream.say(inputs.clone()), expected, "{inputs:?}");
        assert!(stream.say([POST, OK, Gone]).is_empty(), "{inputs:?}");
    }
}

#[test]
fn the_second_end_of_a_response_is_out_of_order() {
    let said = Stream::new(FULL).say([GET, Routed, OK, ResponseBody("", true), ResponseBody("", true)]);

    assert_eq!(
        said[4..],
        [
            "> response body `` end",
            "answered Served",
            "end completed",
            "close: unexpected `response body` while the request is with its endpoint",
        ]
    );
}

#[test]
fn windows_are_opened_without_an_answer() {
    let mut stream = Stream::new(FULL);

    assert_eq!(stream.say([POST, WindowUpdate]), [] as [&str; 0]);
    assert_eq!(stream.say([Body(CHAT, true)]), ["decide `m`"]);
}

#[test]
fn the_subset_hint_of_the_body_message_restricts_the_request() {
    let hint = r#"10.0.0.1"#;
    let value = prost_types::Value {
        kind: Some(ValueKind::StringValue(hint.into())),
    };
    let metadata = crate::serve::ext_proc::metadata::untyped("envoy.lb.subset_hint", headers::SUBSET, &value);
    let subset_under = |subset_hints| {
        let settings = Settings {
            subset_hints,
            ..Settings::default()
        };
        let mut stream = Stream::with(settings, FULL);
        stream.feed(POST);
        let message = ProcessingRequest {
            request: Some(Message::RequestBody(http_body(CHAT, true))),
            metadata_context: Some(metadata.clone()),
            ..ProcessingRequest::default()
        };
        stream.machine.message(stream.now, message);
        match stream.machine.next_action() {
            Some(Action::Decide(request)) => request.subset,
            other => panic!("no decision: {other:?}"),
        }
    };

    assert!(matches!(subset_under(SubsetHints::Honoured), Subset::Only(entries) if entries.len() == 1));
    assert_eq!(subset_under(SubsetHints::Ignored), Subset::All);
}

// --- any order ---

fn any_input() -> impl Strategy<Value = In> {
    let texts = prop::sample::select(vec!["", CHAT, r#"{"model":"m"}"#, "nonsense", r#"{"model":"#]);
    let paths: Vec<In> = vec![POST, GET, REWRITE, UPGRADE];
    let statuses: Vec<&'static [(&'static str, &'static str)]> = vec![
        &[(":status", "200"), ("content-type", "text/event-stream")],
        &[(":status", "503")],
        &[],
    ];
    prop_oneof![
        3 => prop::sample::select(paths),
        3 => (texts.clone(), any::<bool>()).prop_map(|(text, end)| Body(text, end)),
        1 => Just(Trailers),
        2 => (prop::sample::select(statuses), any::<bool>()).prop_map(|(list, end)| ResponseHeaders(list, end)),
        2 => (texts, any::<bool>()).prop_map(|(text, end)| ResponseBody(text, end)),
        1 => Just(ResponseTrailers),
        1 => prop::sample::select(vec![Unknown, WindowUpdate, Oversized, HalfClosed, Gone, Broken]),
        1 => Just(Silence(Duration::from_secs(20))),
        3 => Just(Routed),
        1 => prop::sample::select(Refusal::ALL.to_vec()).prop_map(Refused),
    ]
}

fn any_mode() -> impl Strategy<Value = BodySendMode> {
    use BodySendMode::{Buffered, BufferedPartial, FullDuplexStreamed, None, Streamed};
    prop::sample::select(vec![None, Streamed, Buffered, BufferedPartial, FullDuplexStreamed])
}

/// A request that goes well, in which anything may then happen.
fn any_script() -> impl Strategy<Value = Vec<In>> {
    let good = prop::sample::select(vec![
        vec![],
        vec![POST],
        vec![POST, Body(CHAT, true), Routed],
        vec![POST, Routed, OK],
        vec![UPGRADE, Routed, SWITCHED],
        vec![REWRITE, Body(r#"{"model":"m","prompt":"x"}"#, true), Routed, OK],
    ]);
    (good, prop::collection::vec(any_input(), 0..12)).prop_map(|(mut good, then)| {
        good.extend(then);
        good
    })
}

proptest! {
    #[test]
    fn in_any_order_a_stream_that_brought_a_request_ends_once_and_says_nothing_after_it_closed(
        modes in (any_mode(), any_mode()),
        inputs in any_script(),
    ) {
        let mut stream = Stream::new(modes);
        let brought = |input: &In| !matches!(input, Routed | Refused(_) | Silence(_) | HalfClosed | Gone | WindowUpdate);
        let is_response = |input: &In| matches!(input, ResponseHeaders(..) | ResponseBody(..) | ResponseTrailers);
        let is_end = |input: &In| matches!(input, HalfClosed | Gone | Silence(_));
        let first = inputs.iter().find(|input| brought(input) || is_end(input)).copied();
        let had_request = first.is_some_and(|first| brought(&first) && !is_response(&first));
        let mut is_closed = false;
        let (mut ends, mut decides, mut routed, mut local_replies) = (0, 0, 0, 0);

        for input in inputs.into_iter().chain([Gone]) {
            for action in stream.feed(input) {
                prop_assert!(!is_closed, "said after the close: {}", describe(&action));
                match action {
                    Action::End(_) => ends += 1,
                    Action::Decide(_) => decides += 1,
                    Action::Routed => routed += 1,
                    Action::LocalReply => local_replies += 1,
                    Action::Close(_) => is_closed = true,
                    _ => {}
                }
            }
        }

        prop_assert!(is_closed);
        prop_assert!(decides <= 1 && routed <= decides);
        prop_assert_eq!(ends, i32::from(had_request));
        prop_assert!(local_replies <= 1 && local_replies + routed <= 1);
        prop_assert!(local_replies == 1 || !first.is_some_and(|first| is_response(&first)));
    }

    #[test]
    fn in_full_duplex_bodies_pass_unchanged_however_they_are_cut(
        request in prop::collection::vec(prop::sample::select(vec!["", "a", "bc", "\u{0}"]), 1..6),
        response in prop::collection::vec(prop::sample::select(vec!["", "data: x\n\n", "{\"model\":\"m\"}"]), 1..6),
        trailers in any::<bool>(),
    ) {
        let mut stream = Stream::new(FULL);
        let cut = |texts: &[&'static str], input: fn(&'static str, bool) -> In, end: In| {
            let last = texts.len() - 1;
            let chunks = texts.iter().enumerate();
            let chunks = chunks.map(|(index, text)| input(text, !trailers && index == last));
            chunks.chain(trailers.then_some(end)).collect::<Vec<_>>()
        };
        let there = [Headers(&[(":path", "/x")], false)].into_iter().chain(cut(&request, Body, Trailers));
        let back = [OK].into_iter().chain(cut(&response, ResponseBody, ResponseTrailers));

        let there: Vec<_> = there.chain([Routed]).flat_map(|input| stream.feed(input)).collect();
        let back: Vec<_> = back.flat_map(|input| stream.feed(input)).collect();

        for (sent, actions) in [(request, there), (response, back)] {
            let pieces: Vec<_> = actions.iter().filter_map(piece_of).collect();
            let bytes: Vec<u8> = pieces.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
            prop_assert_eq!(bytes, sent.concat().into_bytes());
            let ends: Vec<_> = pieces.iter().map(|(_, end)| *end).collect();
            let (last, others) = ends.split_last().map_or((false, &[][..]), |(last, others)| (*last, others));
            prop_assert_eq!(last, !trailers);
            prop_assert!(others.iter().all(|end| !end));
        }
    }

    #[test]
    fn in_any_order_what_the_gateway_waits_for_is_answered_or_the_stream_is_closed(
        modes in (any_mode(), any_mode()),
        inputs in any_script(),
    ) {
        let mut stream = Stream::new(modes);
        let is_duplex = |mode| mode == BodySendMode::FullDuplexStreamed;
        let mut asked = BTreeMap::<&str, i32>::new();
        let mut is_closed = false;
        let mut is_undecided = false;

        for input in inputs {
            // What wants exactly one answer each.
            match &input {
                Headers(..) => *asked.entry("request headers").or_default() += 1,
                Trailers => *asked.entry("request trailers").or_default() += 1,
                Body(..) if !is_duplex(modes.0) => *asked.entry("request body").or_default() += 1,
                ResponseHeaders(..) => *asked.entry("response headers").or_default() += 1,
                ResponseTrailers => *asked.entry("response trailers").or_default() += 1,
                ResponseBody(..) if !is_duplex(modes.1) => *asked.entry("response body").or_default() += 1,
                _ => {}
            }
            for action in stream.feed(input) {
                match &action {
                    Action::Close(_) => is_closed = true,
                    Action::Decide(_) => is_undecided = true,
                    Action::Routed => is_undecided = false,
                    Action::Reply(reply) => {
                        let line = describe_reply(reply);
                        for (name, open) in &mut asked {
                            *open -= i32::from(line.starts_with(&format!("> {name}")));
                        }
                    }
                    _ => {}
                }
            }
        }

        let is_waiting = is_undecided
            || matches!(stream.machine.phase, Phase::Body(_) | Phase::Deciding(_) | Phase::LocalReply);
        if !is_closed && !is_waiting {
            prop_assert!(asked.values().all(|open| *open == 0), "{:?}", asked);
        }
    }
}

// --- tokens ---

const EVENTS: In = ResponseHeaders(&[(":status", "200"), ("content-type", "text/event-stream")], false);
const WORD: In = ResponseBody("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", false);
const DONE: In = ResponseBody("data: [DONE]\n\n", true);

/// The tokens of the prompt and of the answer, and who counted them.
fn tokens(inputs: impl IntoIterator<Item = In>) -> (u64, u64, UsageSource) {
    let mut stream = Stream::new(FULL);
    stream.say([POST, Body(CHAT, true), Routed]);
    stream.say(inputs);
    let record = stream.machine.record();
    (record.usage.prompt, record.usage.completion, record.usage_source)
}

#[test]
fn an_answer_without_usage_is_counted_by_an_estimate_however_it_ends() {
    // `userhello`, at four bytes a token.
    assert_eq!(tokens([EVENTS, WORD, WORD, DONE]), (3, 2, UsageSource::Estimate));
    assert_eq!(tokens([EVENTS, WORD, WORD, Gone]), (3, 2, UsageSource::Estimate));
    assert_eq!(tokens([EVENTS, WORD, WORD, Broken]), (3, 2, UsageSource::Estimate));
    let document = ResponseBody(r#"{"choices":[{"message":{"content":"eight by"}}]}"#, true);
    assert_eq!(tokens([OK, document]), (3, 2, UsageSource::Estimate));
}

#[test]
fn usage_corrects_the_estimate() {
    let usage = ResponseBody(
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9}}\n\n",
        false,
    );

    assert_eq!(tokens([EVENTS, WORD, WORD, usage, DONE]), (7, 9, UsageSource::Server));
}

#[test]
fn what_failed_or_never_began_used_no_tokens() {
    let failed = ResponseHeaders(&[(":status", "500")], false);
    let error = ResponseBody(r#"{"error":{"message":"content"}}"#, true);

    assert_eq!(tokens([failed, error]), (0, 0, UsageSource::Nobody));
    assert_eq!(tokens([Gone]), (0, 0, UsageSource::Nobody));
}

// --- headers that were asked for ---

#[test]
fn responses_and_refusals_get_the_headers_that_the_configuration_asks_for() {
    let settings = || Settings {
        responses: ResponsePlan {
            error_format: ErrorFormat::OpenAi,
            request_id_header: Some("x-request-id".into()),
            queue_wait_header: Some("x-wait".into()),
        },
        ..Settings::default()
    };
    let mut stream = Stream::with(settings(), FULL);
    stream.say([POST, Body(CHAT, true)]);
    stream.machine.routed(
        Timestamp::ZERO,
        &decision(&["10.0.0.1:8000"]),
        0,
        Some(Duration::from_millis(1500)),
    );
    stream.drain();
    assert_eq!(stream.say([OK]), [format!("{MARK} x-request-id=r x-wait=1500")]);

    let mut stream = Stream::with(settings(), FULL);
    let actions: Vec<_> = [POST, Body("nonsense", true)]
        .into_iter()
        .flat_map(|input| stream.feed(input))
        .collect();
    let Action::Reply(reply) = &actions[0] else {
        panic!("{actions:?}")
    };
    let Some(Reply::ImmediateResponse(response)) = &reply.response else {
        panic!("{reply:?}")
    };
    let set = response.headers.as_ref().unwrap().set_headers.iter();
    let names: Vec<_> = set.map(|set| set.header.as_ref().unwrap().key.clone()).collect();
    assert_eq!(names, ["content-type", "x-request-id"]);
    assert!(response.body.starts_with(b"{\"error\":"), "{:?}", response.body);
}
